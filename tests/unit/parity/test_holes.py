"""What once looked like parity and was none: evidence left out, excuses that proved nothing, rows that nobody tells of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from parity_faults import LATER, generated, tie
from parity_samples import Pair
from test_sensitivity import broken, judged, sample

from parity.compare import compare
from parity.profiles import BF16, EXACT, FP32
from protocol.errors import ConfigError
from protocol.judging import Verdict


def _without(name: str, empty: object) -> Callable[[Pair], None]:
    def plant(pair: Pair) -> None:
        for row in pair.restored.rows:
            if row["step"] == 3:
                row[name] = empty

    return plant


@pytest.mark.parametrize("name, empty", [("trainer_logprobs", []), ("spans", []), ("tools", "")])
def test_what_only_some_rows_lack_is_missed(name: str, empty: object) -> None:
    pair = sample()
    _without(name, empty)(pair)
    result = judged(pair, FP32)
    assert result.verdict is Verdict.UNKNOWN
    assert any(f"8 restored rows have no {name}" in reason for reason in result.unknown_because), result.unknown_because


def test_a_step_whose_weights_nobody_wrote_is_unknown() -> None:
    pair = sample()
    pair.restored.steps[2]["before"] = ""
    result = judged(pair, EXACT)
    assert (result.verdict, broken(result)) == (Verdict.UNKNOWN, set())
    assert any("which weights step 3 made" in reason for reason in result.as_json()["unknown_because"])


def test_rows_of_a_life_that_the_history_does_not_tell_of_are_a_fault() -> None:
    pair = sample()
    pair.restored.rows += [row | {"life": 3} for row in pair.restored.rows if row["step"] == 3]
    assert broken(judged(pair, BF16)) == {"what was trained"}


def test_a_tool_reply_is_no_near_tie() -> None:
    pair = sample()
    row, theirs = pair.restored.row(*LATER), pair.reference.row(*LATER)
    place = row["spans"][1]
    likeliest, second = theirs["tokens"][place], (theirs["tokens"][place] + 1) % 1000
    theirs["top_first"][place], theirs["top_second"][place], theirs["top_margin"][place] = likeliest, second, 0.01
    row["tokens"][place] = second
    assert "token ids" in broken(judged(pair, BF16))


def test_logprobs_before_an_excused_difference_are_compared() -> None:
    clean, pair = sample(), sample()
    for one in (clean, pair):
        tie(one, LATER)
    row = pair.restored.row(*LATER)
    row["generation_logprobs"][generated(row)[0]] -= 3.0
    assert (broken(judged(clean, BF16)), broken(judged(pair, BF16))) == (set(), {"generation logprobs"})


def test_a_restored_prefix_of_which_nobody_wrote_what_it_was_is_unknown() -> None:
    pair = sample()
    for line in pair.restored.calls:
        line["digest"] = ""
    result = judged(pair, EXACT)
    assert (result.verdict, broken(result)) == (Verdict.UNKNOWN, set())
    assert any("what the restore installed" in reason for reason in result.as_json()["unknown_because"])


def test_a_prefix_of_a_later_attempt_than_its_rows_was_not_given_up() -> None:
    given_up, later = sample(), sample()
    for pair, attempt in ((given_up, 0), (later, 3)):
        row = pair.restored.row(2, 0)
        row["attempt"] = 1
        pair.restored.call(row).update(attempt=attempt, key="another")
    assert broken(judged(given_up, BF16)) == set()
    assert "restored prefixes" in broken(judged(later, BF16))


def _after_a_tie(change: Callable[[dict[str, Any], int], None]) -> Pair:
    """Both rows are spoilt alike where the reference may be: only what follows the excused token differs."""
    pair = sample()
    tie(pair, LATER)
    row = pair.restored.row(*LATER)
    change(row, len(row["tokens"]) - 2)
    return pair


def _cut_mask(row: dict[str, Any], place: int) -> None:
    row["token_mask"][place:] = [0] * (len(row["tokens"]) - place)


@pytest.mark.parametrize(
    ("change", "gate"),
    [
        (_cut_mask, "masks and lengths"),
        (lambda row, place: row["generation_logprobs"].__setitem__(place, 0.5), "sound rows"),
        (lambda row, place: row["generation_logprobs"].__setitem__(place, float("nan")), "sound rows"),
        (lambda row, place: row["trainer_logprobs"].__setitem__(place, float("nan")), "sound rows"),
        (lambda row, place: row.update(reward=float("inf")), "sound rows"),
        (lambda row, place: row.update(advantage=float("inf")), "sound rows"),
        (lambda row, place: row.update(input_length=4), "sound rows"),
        (lambda row, place: row["spans"].__setitem__(5, 3), "other weights"),
        (lambda row, place: row["calls"].__setitem__(3, row["calls"][3] + 1), "provenance"),
        (lambda row, place: row.update(epoch=1), "what was trained"),
        (lambda row, place: row.update(prompt_length=row["prompt_length"] - 1), "token ids"),
    ],
)
def test_what_follows_an_excused_token_is_judged_by_itself(change: Any, gate: str) -> None:
    assert gate in broken(judged(_after_a_tie(change), BF16))
    assert broken(judged(_after_a_tie(lambda row, place: None), BF16)) == set()


def test_one_untrained_token_behind_an_excused_one_hides_nothing() -> None:
    assert broken(judged(_after_a_tie(lambda row, place: row["token_mask"].__setitem__(place, 0)), BF16)) == set()


def _steps_said(reference: int, restored: int) -> Pair:
    pair = sample()
    for side, said in ((pair.reference, reference), (pair.restored, restored)):
        side.facts = replace(side.facts, train_steps=said)
    return pair


def test_runs_of_different_lengths_are_not_of_one_scenario() -> None:
    with pytest.raises(ConfigError, match=r"train_steps is 3 of made up \(reference\), 4 of made up \(restored\)"):
        judged(_steps_said(3, 4), EXACT)
    assert judged(_steps_said(3, 0), EXACT).verdict is Verdict.HELD, "nobody says how long the restored one was to be"


def test_more_steps_than_the_run_is_said_to_have_are_a_fault_and_fewer_in_a_dump_are_unknown() -> None:
    assert broken(judged(_steps_said(2, 2), EXACT)) == {"what was trained"}
    reference, restored = _steps_said(4, 4).runs()
    result = compare(replace(reference, has_history=False), restored, EXACT)
    assert (result.verdict, broken(result)) == (Verdict.UNKNOWN, set())
    assert any("up to step 3 of 4" in reason for reason in result.as_json()["unknown_because"])


def test_a_call_of_less_than_no_tokens_is_no_provenance() -> None:
    pair = sample()
    for side in (pair.reference, pair.restored):
        row = side.row(*LATER)
        row["calls"] = [-3, len(row["tokens"]) + 3]
    assert "provenance" in broken(judged(pair, BF16))
