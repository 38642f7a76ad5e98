"""A model call whose row could not be stored: its sample is masked, and nothing else changes for anybody."""

from __future__ import annotations

import msgspec
import pytest

from invariants.registry import JUDGES
from protocol.history import CallEnded, CutTaken, SnapshotBroke
from scenarios.faults import fault_from
from scenarios.files import load
from sim.explore.lives import Life, Setting, run_life

AT = {"process": "controller", "event": "AttemptDispatched", "occurrence": 1, "edge": "after", "life": 1}


def life_with(name: str, stored: int) -> Life:
    scenario = load(name).scenario
    do = {"partial_put": {"partition": "staging", "rows": stored, "times": 2}}
    fault, wrong = fault_from(AT, do, scenario.job, "faults[0]", scenario.contract.effects)
    assert fault is not None and wrong == []
    faulty = msgspec.structs.replace(scenario, faults=(*scenario.faults, fault))
    return run_life(Setting(scenario=faulty, seed=0, judges=JUDGES), 1, {}, {}, None)


@pytest.mark.parametrize("stored", [0, 1])
@pytest.mark.parametrize("name", ["dense-snapshots", "small"])
def test_no_snapshot_waits_for_a_row_that_was_perhaps_never_stored(name: str, stored: int) -> None:
    life = life_with(name, stored)
    events = [record.event for record in life.history]
    assert sum(isinstance(event, CallEnded) and event.outcome == "capture-failed" for event in events) == 2
    assert [event for event in events if isinstance(event, CutTaken) and event.staging_missing] == []
    assert [event for event in events if isinstance(event, SnapshotBroke)] == []
    assert life.status.outcome == "ended" and life.panel.violations == []
