"""What people read of a comparison: nothing in it is trusted, nothing is fetched, and it is there whatever the verdict."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from io import StringIO
from pathlib import Path
from typing import Any

import comparison_samples as samples
import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from parity.tables import GROUPS, PAIRS, SEGMENTS
from reports.parity.divergence import ALONE, EQUAL, NOTHING, PARTED, PREFIX, ROWS_MAX, TAIL, WEIGHTS, cells_of, choose
from reports.parity.over_runs import over_runs
from reports.parity.segments import segment_table
from reports.parity.summary import comparison_junit, print_comparison
from reports.parity.swept import POINTS_MAX, write_points_page
from reports.parity.words import meaning, shown
from reports.parity.written import PAGE_FILE, REPORT_FILE, Drawn, pictures_of, write_pictures, write_report

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}"
MIB = 2**20


def drawn(**changes: Any) -> Drawn:
    sample = samples.sample()
    tables = {
        "pairs": samples.pairs(), "segments": samples.segments(), "histogram": samples.histogram(sample), "sample": sample,
        "groups_reference": samples.groups(1), "groups_restored": samples.restored_groups(), "crashes": samples.crashes(),
    }  # fmt: skip
    return Drawn(**{**tables, **changes})


def nothing_drawn() -> Drawn:
    return Drawn(
        pairs=pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in PAIRS.items()}),
        segments=pd.DataFrame(columns=list(SEGMENTS)),
        histogram=pd.DataFrame({"edge": [0.0, 1e-3], "count": [0, 0]}),
        sample=pd.DataFrame({"reference": [], "restored": []}),
        groups_reference=pd.DataFrame(columns=list(GROUPS)),
        groups_restored=pd.DataFrame(columns=list(GROUPS)),
        crashes=samples.crashes().iloc[:0],
    )


def report(verdict: str = "BROKEN", **changes: Any) -> dict[str, Any]:
    side = {"name": "prefix", "source": "a folder", "setup": {"hardware": "two cores", "model": "ab12"}}
    whole = {"scenario": "prefix", "command": "rollproof parity run prefix", "versions": {"numpy": "2"}, "reference": side,
             "restored": {**side, "source": "another"}, "words": ["life 1: killed"], "notes": []}  # fmt: skip
    return {**samples.report(verdict), **whole, **changes}


def page(folder: Path, told: dict[str, Any], tables: Drawn, earlier: Any = ()) -> str:
    write_pictures(folder, told, tables, earlier)
    return (folder / PAGE_FILE).read_text(encoding="utf-8")


def hostile(value: Any) -> Any:
    """The same report with every text of the runs replaced."""
    if isinstance(value, dict):
        kept = ("verdict",)
        return {name: each if name in kept else hostile(each) for name, each in value.items()}
    if isinstance(value, list):
        return [hostile(each) for each in value]
    return HOSTILE if isinstance(value, str) else value


def test_whatever_the_runs_say_is_shown_as_text(tmp_path: Path) -> None:
    told = hostile(report(excuses=[{HOSTILE: HOSTILE}, HOSTILE], rows={HOSTILE: 3}, unknown_because=[HOSTILE], notes=[HOSTILE]))
    told["reference"] = {HOSTILE: HOSTILE, "setup": {HOSTILE: 1}}
    text = page(tmp_path, told, drawn(), [(HOSTILE, told)])
    assert "<script" not in text and "<img src=x" not in text and "{{ 7*7 }}" in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 20


def test_the_page_needs_nothing_from_outside_and_is_small_even_for_large_runs(tmp_path: Path) -> None:
    many = pd.concat([samples.pairs().assign(ordinal=number) for number in range(300)], ignore_index=True)
    sample = samples.sample(200_000)
    excuses = [{"place": f"step {n}", "excuse": "near_tie", "proof": "x" * 200} for n in range(20_000)]
    tables = drawn(pairs=many, sample=sample, histogram=samples.histogram(sample))
    text = page(tmp_path, report(excuses=excuses), tables, [("one", report("HELD"))])
    assert re.findall(r"(?:src|href)\s*=\s*\"(?!data:image/png;base64,)|url\(|@import|<script|https?://", text) == []
    assert text.count("data:image/png;base64,") == 6 and len(text) < 5 * MIB
    assert "and 19,500 more" in text


def test_the_verdict_comes_first_and_gates_excuses_and_setup_are_named(tmp_path: Path) -> None:
    text = page(tmp_path, report(), drawn())
    lead = 'class="lead">The restored run trained on something else'
    finding, proof = "step 2 ordinal 6 generation 3", "margin 0.003 &lt; 0.02"
    order = [text.index(part) for part in ("<h1>prefix", lead, "Gates, under", finding, proof, "<figure", "two cores")]
    assert order == sorted(order)


def of_points(points: int, **changes: Any) -> dict[str, Any]:
    """Of which every tenth is BROKEN."""
    verdicts = ["BROKEN" if number % 10 == 9 else "HELD" for number in range(points)]
    lines = [{"point": n, "at": f"a-B-{n}", "verdict": verdict, "lives": [n]} for n, verdict in enumerate(verdicts)]
    counts = {"held": verdicts.count("HELD"), "broken": verdicts.count("BROKEN"), "unknown": 0, "vacuous": 0}
    broken = [{"life": n, "verdict": "BROKEN", "points": 1, "words": "w", "why": ["y"], "command": f"show {n}", "gates": []}
              for n, verdict in enumerate(verdicts) if verdict == "BROKEN"]  # fmt: skip
    gates = [{**gate, "held": 1, "broken": 1, "unknown": 0, "not_applicable": 0} for gate in report()["gates"]]
    return {
        **report(), "level": "prefix", "crash_points": 99_999, "judged": points, "classes": 3, "lives": points, "points": counts,
        "compared": counts, "excuses": {}, "gates": gates, "vacuous": {}, "unknown_because": [], "failures": broken,
        "of_points": lines, "of_lives": broken, **changes,
    }  # fmt: skip


def points_page(folder: Path, told: dict[str, Any]) -> str:
    write_points_page(folder, told)
    return (folder / PAGE_FILE).read_text(encoding="utf-8")


def test_the_page_of_many_points_shows_as_text_whatever_they_say(tmp_path: Path) -> None:
    told = of_points(20)
    for name in ("of_points", "of_lives", "failures", "vacuous", "versions", "command", "scenario", "level"):
        told[name] = hostile(told[name]) if name != "vacuous" else {HOSTILE: 2}
    text = points_page(tmp_path, {**told, "unknown_because": [HOSTILE]})
    assert "<script" not in text and "<img src=x" not in text and text.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 20
    assert not re.search(r"(src|href)=.https?:", text)


def test_of_too_many_points_those_that_are_not_held_stay_on_the_page(tmp_path: Path) -> None:
    told = of_points(5_000)
    text = points_page(tmp_path, told)
    assert text.count('<tr><td class="number">') == POINTS_MAX and text.count('<td class="BROKEN">BROKEN</td>\n<td>') == 500
    assert "2,000 of 5,000 points" in text and "and 480 more" in text and len(text) < MIB


def test_only_lives_that_have_a_page_of_their_own_are_linked(tmp_path: Path) -> None:
    (tmp_path / "lives" / "9").mkdir(parents=True)
    (tmp_path / "lives" / "9" / PAGE_FILE).write_text("")
    text = points_page(tmp_path, of_points(20))
    assert text.count('href="lives/9/parity.html"') == 2 and "lives/19" not in text


def test_what_is_unknown_is_said_above_the_gates(tmp_path: Path) -> None:
    text = page(tmp_path, report("UNKNOWN"), drawn())
    assert text.index("gate readiness: the checker crashed") < text.index("Gates, under") and "ZeroDivisionError" in text


def test_equal_data_give_equal_pictures() -> None:
    ours, theirs = (pictures_of(report(), drawn(), over_runs([("one", report("HELD"))], report())) for _ in range(2))
    assert [picture.name for picture in ours] == ["divergence", "logprobs", "differences", "timelines", "segments", "over-runs"]
    assert all(picture.png and picture.png.startswith(b"\x89PNG") for picture in ours)
    assert [picture.png for picture in ours] == [picture.png for picture in theirs]


def test_a_figure_without_data_is_not_drawn_and_says_why(tmp_path: Path) -> None:
    text = page(tmp_path, report("UNKNOWN"), nothing_drawn())
    assert text.count("Not drawn:") == 5 and list((tmp_path / "figures").iterdir()) == []


@pytest.mark.parametrize("verdict", ["HELD", "BROKEN", "UNKNOWN"])
def test_the_report_is_strict_json_whatever_the_verdict(verdict: str, tmp_path: Path) -> None:
    odd = {"nan": float("nan"), "infinite": [float("inf")], "of numpy": np.int64(7), "pair": (1, 2)}
    write_report(tmp_path, report(verdict, rows=odd))
    text = (tmp_path / REPORT_FILE).read_text()
    found = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert found["verdict"] == verdict and found["format"] == 1
    assert found["rows"] == {"nan": None, "infinite": [None], "of numpy": 7, "pair": [1, 2]}


def test_the_map_shows_prefix_tail_and_first_difference_where_they_are() -> None:
    lines = [
        samples.pair(0, 0, 0, tokens=10, tokens_ref=10, prefix_at=2, prefix_tokens=3),
        samples.pair(0, 0, 1, tokens=10, tokens_ref=12, kind="unrestored", first=7),
        samples.pair(0, 0, 2, tokens=4, tokens_ref=4, kind="other_weights", first=1),
        samples.pair(0, 0, 3, tokens=0, tokens_ref=5, found="reference", kind=""),
    ]
    cells = cells_of(pd.DataFrame(lines), 12)
    assert cells.tolist() == [
        [EQUAL] * 2 + [PREFIX] * 3 + [TAIL] * 5 + [NOTHING] * 2,
        [EQUAL] * 7 + [PARTED] * 5,
        [WEIGHTS] * 4 + [NOTHING] * 8,
        [ALONE] * 5 + [NOTHING] * 7,
    ]


def test_of_a_large_run_every_row_that_differs_is_on_the_map() -> None:
    lines = [samples.pair(step, step * 10 + group, 0) for step in range(100) for group in range(10)]
    for number in range(0, 1000, 10):
        lines[number]["kind"] = "unrestored"
    chosen = choose(pd.DataFrame(lines).astype(PAIRS))
    assert len(chosen) == ROWS_MAX and (chosen["kind"] == "unrestored").sum() == 100
    assert list(chosen["ordinal"]) == sorted(chosen["ordinal"])


def test_means_of_segments_are_over_scored_tokens_and_always_with_the_masked_share() -> None:
    lines = [("restored", 0, 0, 0, "tail", 10, 5, 4, 0.8, 4.4), ("restored", 0, 0, 1, "tail", 10, 0, 6, 0.2, 6.6)]
    table = segment_table(pd.DataFrame(lines, columns=list(SEGMENTS)))
    (row,) = [row for row in table if row["tokens"]]
    assert (row["run"], row["segment"], row["scored"], row["masked_fraction"]) == ("restored", "tail", 10, 0.25)
    assert row["gen_kl_error"] == pytest.approx(0.1) and row["token_mult_prob_error"] == pytest.approx(1.1)
    assert [row["gen_kl_error"] for row in table if not row["tokens"]] == [None] * 5


def test_runs_of_another_scenario_or_profile_are_left_out_by_name() -> None:
    other = report("HELD", profile={**samples.PROFILE, "name": "fp32"})
    over = over_runs([("a", report("HELD")), ("b", other), ("c", report("HELD", scenario="turn"))], report())
    assert over.names == ["a", "this run"] and over.verdicts == ["HELD", "BROKEN"]
    assert [text.split(":")[0] for text in over.left_out] == ["b", "c"]
    values = {one.name: (one.values, one.limit) for one in over.series}
    assert values["tokens"] == ([0, 1], 0) and values["logprobs"] == ([0.031, 0.031], 0.5) and "routes" not in values


@pytest.mark.parametrize(
    ("verdict", "start"),
    [
        ("HELD", "The restored run trained on what its reference trained on, as far as profile bf16 asks: 5 model calls"),
        ("BROKEN", "The restored run trained on something else than its reference: 1 gate under profile bf16 broke: tokens."),
        ("UNKNOWN", "This comparison proves nothing: gate readiness: the checker crashed."),
    ],
)
def test_a_verdict_is_a_sentence(verdict: str, start: str) -> None:
    assert meaning(report(verdict)).startswith(start)


def test_two_uninterrupted_runs_are_not_called_restored() -> None:
    said = meaning(report("HELD", expects_restore=False, rows={"reference": 4, "restored": 4, "paired": 4, "compared": 4}))
    assert said.startswith("The second run trained on what the first trained on, as far as profile bf16 asks: ")
    assert "4 rows compared" in said and "restored" not in said
    broken = meaning(report("BROKEN", expects_restore=False))
    assert broken.startswith("The second run trained on something else than the first: 1 gate")


@pytest.mark.parametrize(("token", "said"), [("rp1.prefix", True), ("", False)])
def test_a_comparison_that_broke_ends_with_the_command_that_shows_it(token: str, said: bool) -> None:
    stream = StringIO()
    broken = report("BROKEN", token=token, command="rollproof parity run prefix --crash rp1.prefix")
    print_comparison(Console(file=stream, width=200, highlight=False), broken)
    assert stream.getvalue().endswith("\n\n  show it: rollproof parity run prefix --crash rp1.prefix\n") is said


def test_values_are_short_and_none_is_a_dash() -> None:
    values = (None, "", True, 12345, 0.1234567, [1, 2], {"a": 1}, [], float("nan"))
    assert [shown(value) for value in values] == ["-", "-", "yes", "12,345", "0.123457", "1, 2", "a 1", "-", "nan"]


def test_the_terminal_says_verdict_gates_and_each_excuse() -> None:
    stream = StringIO()
    print_comparison(Console(file=stream, width=200, highlight=False), report())
    lines = stream.getvalue().splitlines()
    assert lines[0] == "parity prefix under profile bf16: BROKEN"
    assert any(line.startswith("excused: step 1, ordinal 5") for line in lines)
    assert any("step 2 ordinal 6 generation 3" in line for line in lines)


def test_junit_has_one_case_a_gate_and_one_for_what_makes_the_whole_unknown() -> None:
    suite = ET.fromstring(comparison_junit(report("BROKEN")))[0]
    assert [[child.tag for child in case] for case in suite] == [["failure"], [], [], ["skipped"]]
    vacuous = {**report("HELD"), "verdict": "UNKNOWN", "unknown_because": ["all rewards are 1 \x01"]}
    suite = ET.fromstring(comparison_junit(vacuous))[0]
    assert suite.get("errors") == "1" and "all rewards are 1 ?" in (suite[-1][0].text or "")
