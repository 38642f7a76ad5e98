"""A fault that never takes effect proves nothing: the run, or the sweep, is UNKNOWN and says which fault (RULES 5 and 6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_file import NO_JUDGE_EXPECTED
from small_file import SMALL as SMALL_JOB

from rollproof.cli import main

SMALL = SMALL_JOB + "[contract]\nmay_drop = true" + NO_JUDGE_EXPECTED


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


def with_fault(folder: Path, at: str, do: str) -> str:
    path = folder / "faults.toml"
    path.write_text(f"format = 1\n[[faults]]\nat = {{ {at} }}\ndo = {{ {do} }}\n")
    return str(path)


def report_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main([*words, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


DISPATCHED = 'process = "controller", event = "AttemptDispatched"'
OLDEST = "discard = { ordinal = -1 }"
NEVER = "its trigger was never reached"
VACUOUS = [
    (f"{DISPATCHED}, occurrence = 99999", OLDEST, f"took no effect in life 1: {NEVER}"),
    (f"{DISPATCHED}, life = 9", OLDEST, "took no effect in life 9: no life 9 was run"),
    ('process = "gym-0", event = "StepCommitted"', OLDEST, f"took no effect in life 1: {NEVER}"),
    (DISPATCHED, 'fail_call = { operation = "prepare", to = "trainer" }', "it was armed, and what it waits for never came"),
    (DISPATCHED, "discard = { ordinal = 99999 }", "it was sent, and no open group was dropped by it"),
]


@pytest.mark.parametrize(("at", "do", "expected"), VACUOUS)
def test_a_fault_that_takes_no_effect_makes_a_run_and_a_sweep_unknown(
    at: str, do: str, expected: str, small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = with_fault(tmp_path, at, do)
    for words in (["run", small], ["sweep", small, "--points", "4"]):
        code, report = report_of([*words, "--faults", faults], capsys)
        assert (code, report["verdict"]) == (3, "UNKNOWN"), words
        (message,) = report["messages"]
        assert message.startswith("fault 1, ") and expected in message


def test_a_fault_that_takes_effect_leaves_the_verdict_alone(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = with_fault(tmp_path, f"{DISPATCHED}, occurrence = 3", OLDEST)
    for words in (["run", small], ["sweep", small, "--points", "4"]):
        code, report = report_of([*words, "--faults", faults], capsys)
        assert (code, report["messages"]) == (0, []), words


def test_a_fault_of_life_1_counts_where_a_crash_comes_before_it(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = with_fault(tmp_path, f"{DISPATCHED}, occurrence = 3", OLDEST)
    code, report = report_of(["run", small, "--faults", faults, "--crash", "controller-AttemptDispatched-1-none"], capsys)
    assert (code, report["messages"]) == (0, [])  # it took effect in life 1 run to its end, the reference


def test_a_fault_of_life_2_must_take_effect_in_some_restored_life(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reached = with_fault(tmp_path, 'process = "controller", event = "CleanupDone", life = 2', OLDEST.replace("-1", "0"))
    code, report = report_of(["sweep", small, "--points", "30", "--faults", reached], capsys)
    assert not any("was never reached" in message for message in report["messages"])
    alone, single = report_of(["run", small, "--faults", reached], capsys)
    assert (alone, single["messages"]) == (0, [])  # nobody asked for a restored life
    never = with_fault(tmp_path, 'process = "controller", event = "StepCommitted", occurrence = 50, life = 2', OLDEST)
    code, report = report_of(["sweep", small, "--points", "30", "--faults", never], capsys)
    assert code == 3 and f"took no effect in life 2: {NEVER}" in report["messages"][0]
