"""Reports: one text of a failure everywhere, JUnit that says each guarantee by itself, a page without outside parts."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from io import StringIO
from typing import Any

from rich.console import Console

from protocol.history import KINDS, CutTaken, EpisodeParked, LifeStarted, Record, RowsSubmitted, key_set
from protocol.judging import Violation, smallest
from reports.failure import EVENTS_SHOWN, Evidence
from reports.html import sweep_page
from reports.junit import junit_xml
from reports.summary import print_sweep, sweep_figures
from reports.timeline import MILESTONES, VALUE_WIDTH, event_line, milestones

COMMAND = "rollproof replay rp1.a.00000000.0.turn.00000000.gym-0-EpisodeParked-1-0.ff"
REPORT: dict[str, Any] = {
    "scenario": "tiny", "level": "turn", "seeds": [0, 1], "events": 10, "steps": 12, "crash_points": 12, "classes": 3, "runs": 4,
    "outcomes": 15, "judged": 12, "fired": 12, "not_covered": 0,
    "us_per_event": {"kernel": 1.0, "core": 2.0, "judges": 0.5, "all": 3.5},
    "verdict": "BROKEN", "verdicts": {"held": 10, "broken": 2, "unknown": 0},
    "points_per_cpu_s": 100.0, "distinct_runs_per_cpu_s": 30.0, "wall_s": 0.25, "peak_rss_mib": 50.0, "history_hash": "ab" * 32,
    "judges": [
        {"invariant": "I1", "held": 12, "broken": 0, "not_reached": 0, "verdict": "HELD"},
        {"invariant": "I2", "held": 10, "broken": 2, "not_reached": 0, "verdict": "BROKEN"},
        {"invariant": "I5", "held": 0, "broken": 0, "not_reached": 12, "verdict": "UNKNOWN"},
        {"invariant": "I63", "held": 0, "broken": 0, "not_reached": 0, "verdict": "N/A"},
    ],
    "messages": ["reached nowhere: I5"],
    "carries": {"I66": 2, "I1": 0},
    "verified": {"reruns": 1, "agreed": 1, "fresh_process": {"classes": 4, "agreed": 4}},
}  # fmt: skip


def lives() -> list[list[Record]]:
    first = [(f"gym-{index % 2}", EpisodeParked(f"k{index}", 1)) for index in range(40)]
    second = [("gym-0", EpisodeParked(f"again-{index}", 1)) for index in range(40)]
    return [list(smallest(1, *first)), list(smallest(2, *second))]


def evidence(found: str = "it is <not> & so") -> Evidence:
    violation = Violation("I2", "Every seal is current.", found, 2, 5)
    return Evidence.of(violation, token="rp1.x", words=["life 1: killed"], histories=lives(), command=COMMAND)


def test_a_failure_shows_the_last_events_before_the_crash_and_the_first_of_the_next_life() -> None:
    item = evidence()
    assert len(item.before) == len(item.after) == EVENTS_SHOWN
    assert "key=k39 " in item.before[-1] and "LifeStarted life=2" in item.after[0]
    assert item.at.startswith("life 2: 5 ") and "key=again-4" in item.at


def test_a_failure_ends_with_the_command_that_replays_it() -> None:
    lines = evidence().lines()
    assert lines[0] == "BROKEN I2 at 1 point" and lines[-1].endswith(COMMAND)
    assert "  expected: Every seal is current." in lines and "  found:    it is <not> & so" in lines


def test_one_life_alone_shows_its_end_only() -> None:
    item = Evidence.of(Violation("I2", "e", "f"), token="", words=[], histories=lives()[:1], command=COMMAND)
    assert item.after == () and "before the end:" in "\n".join(item.lines())


def test_junit_has_one_case_a_judge_and_says_each_verdict_its_own_way() -> None:
    suite = ET.fromstring(junit_xml(REPORT, [evidence("a control character \x01")], {"I1": "A key is live once."}))[0]
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["4", "1", "1", "1"]
    assert [[child.tag for child in case] for case in suite] == [[], ["failure"], ["error"], ["skipped"]]
    assert suite[0].get("name") == "I1 A key is live once."
    assert COMMAND in (suite[1][0].text or "") and "a control character ?" in str(suite[1][0].get("message"))


def test_a_harness_failure_without_a_judge_is_a_case_of_its_own() -> None:
    report = {**REPORT, "verdict": "UNKNOWN", "judges": REPORT["judges"][:1], "messages": ["harness: merged points differ"]}
    suite = ET.fromstring(junit_xml(report, [], {}))[0]
    assert (
        suite.get("errors") == "1"
        and suite[-1].get("name") == "the harness"
        and "merged points differ" in (suite[-1][0].text or "")
    )


def page(**changes: Any) -> str:
    fault = {"verb": "discard", "arguments": {"ordinal": -1}, "event": "E", "occurrence": 1, "process": "gym-0", "life": 1}
    job = {"train_steps": 1, "sampler": {"name": "in_order"}}
    scenario = {"source": "a small one", "tags": ["x"], "data_name": "d", "job": job, "faults": [fault]}
    return sweep_page(
        {**REPORT, **changes},
        [evidence()],
        guarantees={"I1": "A key is live once."},
        scenario=scenario,
        command="rollproof sweep tiny",
        versions={"code": "0"},
    )


def test_the_page_needs_nothing_from_outside() -> None:
    text = page()
    assert not re.findall(r"(?:src|href)\s*=|url\(|@import|<script", text)


def test_the_page_shows_figures_judges_violations_and_their_commands() -> None:
    text = page()
    parts = ["tiny", "12 judged, 12 fired", "I63", "A key is live once.", "rp1.x", COMMAND, "sampler.name"]
    for part in [*parts, "rollproof sweep tiny", "reached nowhere: I5", "discard", "it is &lt;not&gt; &amp; so"]:
        assert part in text
    assert text.count("key=again-") >= EVENTS_SHOWN - 1


def test_the_summary_prints_all_five_counts_together_and_ends_with_the_replay_command() -> None:
    names = [name for name, _ in sweep_figures(REPORT)]
    counts = ("events", "steps", "crash points", "classes", "runs")
    assert [name for name in names if name in counts] == list(counts)
    stream = StringIO()
    print_sweep(Console(file=stream, width=80, highlight=False), REPORT, [evidence()])
    lines = stream.getvalue().rstrip().splitlines()
    assert "BROKEN" in lines[0] and lines[-1].endswith(COMMAND)
    assert "classes by a carry  I66 2" in stream.getvalue()


def test_an_event_is_one_line_with_short_values() -> None:
    record = Record(7, 1.25, "controller", 1, "rollout-pump", RowsSubmitted("g", "gym-0", tuple(f"key-{n}" for n in range(50))))
    line = event_line(record)
    assert line.startswith("     7    1.2500s controller/rollout-pump RowsSubmitted group=g instance=gym-0 keys=key-0,")
    shown = line.split("keys=")[1].split(" ")[0]
    assert shown.endswith("...") and len(shown) == VALUE_WIDTH


def test_a_key_set_is_shown_as_count_and_digest() -> None:
    keys = key_set(["a", "b"])
    cut = CutTaken("snapshot", 1, 0, 0, False, 3, keys, keys, keys, keys, keys, 0, "l", 4, 4, 0)
    assert f"canonical=2#{keys.digest[:6]}" in event_line(Record(0, 0.0, "controller", 1, "", cut))


def test_milestones_leave_the_rest_of_a_life_out() -> None:
    records = [Record(0, 0.0, "job", 1, "", LifeStarted(1)), Record(1, 0.0, "gym-0", 1, "", EpisodeParked("k", 1))]
    assert [line.split()[3] for line in milestones(records)] == ["LifeStarted"]
    assert set(KINDS) >= MILESTONES


def test_a_row_of_the_page_says_what_its_numbers_are_where_it_has_no_room_for_a_head() -> None:
    shown = page()
    row = re.search(r"<tr><td>I2</td>.*?</tr>", shown, re.DOTALL)
    assert row is not None and re.findall(r'data-count="(\d+)" data-name="([a-z ]+)"', row[0]) == [
        ("10", "held"), ("2", "broken"), ("0", "not reached")]  # fmt: skip
    assert "@media (max-width: 46rem)" in shown and len(shown) < 100_000
