"""Sharing is sound: what a class was given is what its life gives when it shares nothing (RULES 3 and 12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from test_crash_points import tiny

from invariants.registry import JUDGES
from scenarios.faults import Fault
from sim.explore.classes import Capture
from sim.explore.explorer import Explorer
from sim.explore.lives import Setting, run_life
from sim.explore.points import PlanItem, rank
from sim.explore.verify import crash_and_restore, differences


def fault(event: str, verb: str, life: int, occurrence: int = 1, process: str = "controller", **arguments: Any) -> Fault:
    return Fault(process=process, event=event, occurrence=occurrence, life=life, verb=verb, arguments=arguments)


CASES: dict[str, tuple[str, int, tuple[Fault, ...]]] = {
    "rollout": ("rollout", 0, ()),
    "sibling": ("sibling", 0, ()),
    "turn": ("turn", 0, ()),
    "turn-of-another-seed": ("turn", 11, ()),
    "lost-row-of-every-life": ("turn", 1, (fault("RowsSubmitted", "break_stream", 0, rows=1, instance="gym-0"),)),
    "failed-prepare-of-life-2": (
        "turn", 2, (fault("SnapshotStarted", "fail_call", 2, operation="Prepare", to="gym-0", how="error", times=1),),
    ),
    "discard-of-every-life": ("turn", 3, (fault("AttemptDispatched", "discard", 0, 2, ordinal=-1),)),
    "discard-inside-the-clean-up": ("turn", 4, (fault("FileDone", "discard", 2, 1, ordinal=1),)),
    "discard-at-the-start": ("sibling", 5, (fault("LifeStarted", "discard", 0, process="job", ordinal=0),)),
    "no-environment-in-life-2": (
        "turn", 6, (fault("LifeStarted", "config", 2, process="job", drop_participant="environment", instance="gym-0"),),
    ),
}  # fmt: skip


def setting_of(case: str) -> Setting:
    level, seed, faults = CASES[case]
    return Setting(scenario=msgspec.structs.replace(tiny(level), faults=faults), seed=seed, judges=JUDGES)


def explored(setting: Setting) -> tuple[Explorer, Sequence[Capture]]:
    """All classes run, and what each one started from."""
    explorer = Explorer(setting, ("none", "all"), None)
    explorer.enumerate()
    captures = [row.capture for row in explorer.classes.rows]
    for number in range(len(captures)):
        explorer.run_class(number)
    assert all(captures)
    return explorer, [capture for capture in captures if capture is not None]


OFTEN = ("turn", "discard-of-every-life", "failed-prepare-of-life-2", "no-environment-in-life-2", "discard-at-the-start")


@pytest.mark.parametrize("case", [case if case in OFTEN else pytest.param(case, marks=pytest.mark.slow) for case in CASES])
def test_every_class_gives_what_its_own_life_gives(case: str) -> None:
    explorer, captures = explored(setting_of(case))
    setting = explorer.setting.independent()
    assert any(row.shared >= 0 for row in explorer.classes.rows)
    injected = [type(record.event).__name__ for record in explorer.life_1.history].count("FaultInjected")
    for row, capture in zip(explorer.classes.rows, captures, strict=True):
        alone = run_life(setting, 2, capture.files, capture.scratch, explorer.references)
        assert alone.digest == row.history_hash
        assert alone.panel.verdicts() == row.verdicts
        assert alone.panel.violations == row.violations
        assert (alone.events, alone.steps, alone.status.outcome) == (row.events, row.steps, row.status)
        injected += any(type(record.event).__name__ == "FaultInjected" for record in alone.history)
    assert bool(injected) == bool(setting.scenario.faults)


@pytest.mark.parametrize(
    ("case", "count"),
    [("lost-row-of-every-life", 6), *[pytest.param(case, 80, marks=pytest.mark.slow) for case in CASES]],
)
def test_merged_points_truly_killed_and_restored_agree_with_their_class(case: str, count: int) -> None:
    explorer, _ = explored(setting_of(case))
    setting, points, classes = explorer.setting.independent(), explorer.points, explorer.classes
    opened = {row.opened for row in classes.rows}
    merged = [point for point in range(len(points)) if point not in opened]
    for point in sorted(merged, key=lambda point: rank("test", point))[:count]:
        for number, outcome in classes.pairs[points.pair[point]]:
            item = PlanItem.at(points.address(point), outcome)
            first, second = crash_and_restore(setting, (item,), explorer.references)
            assert differences(classes.rows[number], points.violations[point], item, first, second) == []
