"""What level prefix saves: the same scenario and seed crashed at coarser levels too, for their lost work alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from protocol.config import Level
from scenarios.model import Scenario
from sim.explore.sweep import sweep

COARSER = ("turn", "sibling")  # what a sweep at level prefix is compared with
POINTS = 200  # of each coarser level, at most: enough for a mean, and a small part of a whole sweep

Progress = Callable[[str, int, int], None]


def comparable(level: str) -> tuple[str, ...]:
    """The levels whose lost work a sweep at this level shows beside its own."""
    return COARSER if Level[level.upper()] is Level.PREFIX else ()


def work_saved(
    coarser: Sequence[Scenario], seed: int, mean: float, points: int | None, outcomes: Sequence[str], progress: Progress | None
) -> dict[str, Any]:
    """``coarser``: the scenario as it is at each coarser level. ``mean``: lost tokens a crash at the fine one, at this seed.

    No judge looks: what is wrong at another level is another sweep's to find. ``share`` of the coarser level's lost tokens
    is saved; None where that level loses none.
    """
    levels = []
    for scenario in coarser:
        level = scenario.job.target_level

        def shown(stage: str, done: int, total: int, level: str = level) -> None:
            if progress is not None:
                progress(f"level {level}, {stage}", done, total)

        drawn = POINTS if points is None else min(points, POINTS)
        found = sweep(scenario, seed, (), points=drawn, outcomes=outcomes, verify=False, progress=shown)
        lost = found.lost_work
        theirs = lost["tokens"]["mean"]
        levels.append({**lost, "share": round(1.0 - mean / theirs, 4) if theirs else None})
    return {"seed": seed, "levels": levels}
