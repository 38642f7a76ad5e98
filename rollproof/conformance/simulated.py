"""Histories to learn from: simulated runs of a scenario, over seeds, paces and crash points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from protocol.history import Record
from scenarios.model import Scenario
from sim.environments.profile import EnvironmentProfile
from sim.explore.lives import Setting, run_life, run_plan
from sim.explore.points import PlanItem
from sim.fake_engine import EngineProfile

POINTS = (0.2, 0.4, 0.6, 0.8)  # of a life's events: where it is killed
PACES = (1.0,)
OFTEN = 3  # one tool call in so many cannot be saved


def simulated(
    scenario: Scenario, seeds: Iterable[int], points: Sequence[float] = POINTS, paces: Sequence[float] = PACES
) -> Iterator[list[Record]]:
    """The history of each life: life 1 run to its end and, killed at each of ``points``, the life after it.

    ``paces`` stretch the engine's time for a token: with it, what else happens meanwhile. An engine of the real world has a
    pace of its own, and what depends on one must not be learned as a rule. Which tool calls cannot be saved is drawn by each
    world for itself: each pace is also learned with many.
    """
    for paced in [version for pace in paces for version in drawn(at_pace(scenario, pace))]:
        for seed in seeds:
            setting = Setting(scenario=paced, seed=seed, judges=())
            first = run_life(setting, 1, {}, {}, None)
            yield first.history
            for point in points:
                plan = (_item(first.history, point),)
                yield run_plan(setting.after(first), plan, first.panel.summaries())[-1].history


def drawn(scenario: Scenario) -> list[Scenario]:
    """It, and where such calls are drawn at random, it with one in ``OFTEN``."""
    if not isinstance(rarely := EnvironmentProfile.of(scenario.profile).unsavable, int) or rarely == 0:
        return [scenario]
    return [scenario, msgspec.structs.replace(scenario, profile={**scenario.profile, "unsavable": OFTEN})]


def at_pace(scenario: Scenario, pace: float) -> Scenario:
    known: dict[str, Any] = {field.name: field.default for field in msgspec.structs.fields(EngineProfile)}
    token_s = (known | scenario.profile)["token_s"] * pace
    return msgspec.structs.replace(scenario, profile={**scenario.profile, "token_s": token_s})


def _item(records: Sequence[Record], point: float) -> PlanItem:
    place = min(int(len(records) * point), len(records) - 1)
    process, kind = records[place].process, type(records[place].event)
    count = sum(record.process == process and type(record.event) is kind for record in records[: place + 1])
    return PlanItem(process, kind.__name__, count)
