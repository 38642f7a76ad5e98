"""The library as a whole: every scenario holds, and together they reach every judge."""

from __future__ import annotations

from functools import cache

import pytest

from invariants.registry import JUDGES
from protocol.config import Level
from protocol.judging import Verdict
from scenarios.files import library, load
from sim.explore.result import SweepResult
from sim.explore.sweep import sweep

LARGE = (
    "workplace", "sibling", "fixed-order", "refused-and-broken", "trainer-only", "eager-snapshots", "failed-resume",
    "gym-outage", "no-restore", "slow-tools", "sparse-checkpoints", "streamed-step",
    "cohort", "cohort-failed", "cohort-refused", "dropped-group", "lost-continuations", "prompt-injection", "proof",
)  # fmt: skip


COVERING = (
    "hung-participant", "prefix-row-by-row", "dropped-group", "effects", "router-replay", "multimodal", "seeded",
    "crowd", "whole-batch",
)  # fmt: skip


def points_of(name: str) -> int:
    """A whole sweep of the large ones is `make sweep`; those of the prefix level are all large. Other seeds have more points:
    ``test_library_seeds``."""
    if load(name).scenario.job.level >= Level.PREFIX:
        return 8
    return 25 if name in LARGE else 60


POINTS = {name: points_of(name) for name in library()}


@cache
def swept(name: str) -> SweepResult:
    return sweep(load(name).scenario, 0, JUDGES, points=POINTS[name], verify=False)


@pytest.mark.parametrize("name", library())
def test_every_scenario_of_the_library_holds(name: str) -> None:
    result = swept(name)
    assert (result.verdict, result.messages, result.violations) == (Verdict.HELD, [], [])
    assert result.fired == result.judged == min(POINTS[name], result.crash_points)


def test_every_judge_is_reached_by_some_scenario_of_the_library() -> None:
    swept_briefly = [sweep(load(name).scenario, 0, JUDGES, points=3, verify=False) for name in COVERING]
    reached = {row["invariant"] for result in swept_briefly for row in result.judges if row["held"]}
    assert {judge.invariant for judge in JUDGES} == reached


@pytest.mark.parametrize("name", ["lost-row", "failed-prepare", "discarded-group"])
def test_the_fault_of_a_scenario_happens_in_life_1(name: str) -> None:
    verbs = {fault.verb for fault in load(name).scenario.faults}
    happened = {record.event.fault for record in swept(name).reference.history if type(record.event).__name__ == "FaultInjected"}
    assert verbs and happened == verbs


def test_a_dropped_participant_ends_the_restored_runs_that_needed_it() -> None:
    statuses = {row.status for row in swept("dropped-participant").rows}
    assert any("failed" in status for status in statuses) and "ended" in statuses
