"""The verdict: gates, the rules against vacuity, and that a comparison can be judged again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from parity_tables import FACTS, LIVED, RESTARTED, comparison, four_pairs, pair, rows_of, run

from parity.compare import judge
from parity.gate import Comparison, GateResult
from parity.gates.registry import GATES
from parity.profiles import BF16, FP32
from parity.vacuity import vacuous
from protocol.judging import Verdict

TIE: dict[str, Any] = {"kind": "post_cut", "first": 12, "excuse": "near_tie", "proof": "1 and 2, as scored", "margin": 0.01}
CRASH = [{"life": 1, "at_s": 1.0, "address": ""}]


def test_a_clean_comparison_is_held_and_says_what_it_rests_on() -> None:
    result = judge(comparison())
    found = result.as_json()
    assert (result.verdict, found["unknown_because"]) == (Verdict.HELD, [])
    assert (found["restored_rows"], found["matched_outright"], found["excused"], found["other_weights"]) == (2, 2, 0, 0)
    assert found["rows"] == {"reference": 4, "restored": 4, "paired": 4, "compared": 4}
    assert found["profile"]["name"] == "fp32" and found["profile"]["logprob_max"] == 1e-4
    assert [gate["name"] for gate in found["gates"]] == [name for name, _ in GATES]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_comparison_judged_again_says_the_same() -> None:
    found = comparison(four_pairs(**TIE), profile=BF16)
    assert judge(found).as_json() == judge(found).as_json()


def test_broken_beats_unknown() -> None:
    lines = [pair(kind="post_cut", how="prefix"), pair(generation=1)]
    result = judge(comparison(lines))
    assert result.unknown_because and result.verdict is Verdict.BROKEN


def test_a_gate_that_raises_is_unknown_and_never_a_pass() -> None:
    def crashes(comparison: Comparison) -> GateResult:
        raise KeyError("step")

    (gate,) = judge(comparison(), gates=(("odd", crashes),)).gates
    assert (gate.verdict, gate.why) == (Verdict.UNKNOWN, "the checker crashed: KeyError: 'step'")
    assert judge(comparison(), gates=(*GATES, ("odd", crashes))).verdict is Verdict.UNKNOWN


def test_every_excuse_is_listed_with_its_place_margin_and_proof() -> None:
    lines = [
        pair(ordinal=number, generation=number % 2, reward=float(number % 2), reward_ref=float(number % 2))
        for number in range(40)
    ]
    found = judge(comparison([*lines, *four_pairs(**TIE)], profile=BF16)).as_json()
    assert found["excused"] == 1
    assert found["excuses"] == [
        {
            "place": "step 2, prompt 1, sibling 1", "excuse": "near_tie", "kind": "post_cut", "first": 12, "margin": 0.01,
            "prefix_tokens": 0, "tokens": 20, "tokens_ref": 20, "proof": "1 and 2, as scored",
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"pairs": [pair(found="restored", kind="")]},
            "nothing was compared: no row of the restored run has a counterpart in the reference",
        ),
        (
            {"pairs": four_pairs(how="")[:2]},
            "a life crashed, but no restored row was trained, so none matches the reference outright",
        ),
        (
            {"pairs": [*four_pairs()[:2], pair(how="sealed", ordinal=1, reward=3.0)]},
            "none of the 1 restored rows matches the reference outright",
        ),
        (
            {"pairs": [pair(), pair(generation=1, how="turn")]},
            "all rewards are 1: they cannot show a difference",
        ),
        (
            {"pairs": [*four_pairs(**TIE)], "profile": BF16},
            "1 of 4 compared rows are excused, more than 5.0%: too few are left to trust",
        ),
        (
            {"pairs": four_pairs()[:2], "restored": run(RESTARTED)},
            "the second run shows no crash and no restored row (say --no-restore to compare two uninterrupted runs)",
        ),
        ({"reference": run(LIVED, crashes=CRASH)}, "the reference crashed too: it is no uninterrupted run"),
        (
            {"restored": run(RESTARTED, crashes=CRASH, has_history=False)},
            "the restored run has no history, the reference has one: what a crash did to it cannot be told",
        ),
    ],
)
def test_a_comparison_that_says_nothing_is_unknown_for_one_clear_reason(changed: dict[str, Any], said: str) -> None:
    found = comparison(**changed)
    assert vacuous(found) == (said,)
    assert judge(found).verdict is not Verdict.HELD


def test_a_run_compared_with_itself_is_unknown() -> None:
    found = comparison(four_pairs())
    found = replace(found, restored=found.reference)
    assert vacuous(found) == vacuous(found, expects_restore=False) == ("by hand was compared with itself",)
    again = run(LIVED)
    assert vacuous(comparison(four_pairs(), reference=again, restored=replace(again, rows=rows_of(LIVED)))) == (
        "by hand was compared with itself",
    )


def test_two_runs_that_nobody_interrupted_may_be_compared_if_that_is_said() -> None:
    lines = [line | {"how": ""} for line in four_pairs()]
    found = comparison(lines, restored=run(LIVED, facts=replace(FACTS, source="another")))
    assert judge(found).verdict is Verdict.UNKNOWN
    assert judge(found, expects_restore=False).verdict is Verdict.HELD


def test_a_column_that_only_the_reference_has_is_missing_evidence() -> None:
    found = comparison(profile=FP32)
    table = found.reference.rows.table  # type: ignore[attr-defined]
    found.reference.rows.table = table.append_column("routes", [[["r"]] * 4]).append_column("sample", [["s"] * 4])  # type: ignore[attr-defined]
    assert vacuous(found) == ("the restored run lacks what the reference has: column routes",)
