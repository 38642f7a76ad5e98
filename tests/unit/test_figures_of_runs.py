"""Figures of whole simulated runs, against counts made another way and against each other."""

from __future__ import annotations

from collections import Counter

import pytest

from protocol.history import Event, Record
from reports.figures.life import life_figures
from scenarios.files import load
from sim.explore.lives import Setting, run_life, run_plan
from sim.explore.points import PlanItem

SCENARIOS = ("refusal", "gym-outage", "dropped-in-a-cut", "sibling")


def counted(records: list[Record]) -> Counter[str]:
    return Counter(type(record.event).__name__ for record in records)


def words(records: list[Record], kind: str, field: str) -> dict[str, int]:
    events: list[Event] = [record.event for record in records if type(record.event).__name__ == kind]
    return dict(Counter(str(getattr(event, field)) for event in events))


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_figures_of_a_run_agree_with_its_history_and_with_each_other(name: str) -> None:
    setting = Setting(scenario=load(name).scenario, seed=1, judges=())
    records = run_life(setting, 1, {}, {}, None).history
    counts, found = counted(records), life_figures(records)
    saves = found.snapshots.rollout_checkpoint
    assert len(saves) == counts["SnapshotPublished"] == sum(found.snapshots.outcomes["completed"].values()) > 0
    assert len(found.snapshots.checkpoint_outcome) == (
        counts["SnapshotPublished"] + counts["SnapshotSkipped"] + counts["SnapshotDropped"] + counts["SnapshotBroke"]
    )
    for save in saves:
        assert 0.0 < save.tq_save <= save.exclusive_hold < save.total_save and 0.0 <= save.barrier_wait < save.total_save
        assert save.gym_parked_seconds < save.total_save and save.replay_groups <= save.ledger_groups
    assert {name: watch.count for name, watch in found.rows.run_s.items()} == words(records, "RowReported", "outcome")
    assert found.rows.refusals == words(records, "RefusalArrived", "reason")
    assert found.rows.resends <= counts["AttemptRefused"] and found.rows.sent == counts["AttemptDispatched"]
    assert found.rows.groups_dropped == words(records, "GroupDropped", "why")
    assert found.rows.retires == words(records, "RetireQueued", "why")
    calls = found.gym.control_calls
    assert {name: sum(one.outcomes.values()) for name, one in calls.items()} == words(records, "ControlDone", "operation")
    assert all(one.duration_s.count == sum(one.outcomes.values()) for one in calls.values())
    assert sum(one.mutations for one in found.barriers.values()) == counts["MutationEntered"]
    kept_out = sum(watch.count for one in found.barriers.values() for watch in one.blocked_s.values())
    assert kept_out <= counts["MutationWaits"]
    assert sum(one.exclusive_hold_s.count for one in found.barriers.values()) == counts["ExclusiveEntered"]
    for phase in found.gym.checkpoints:
        assert phase.outcome != "cut" or phase.cut + phase.failed + phase.skipped <= phase.candidates
    assert [step.step for step in found.train_steps] == list(range(1, counts["StepCommitted"] + 1))
    assert all(step.restored_calls == 0 < step.calls for step in found.train_steps)


def test_a_restored_life_recovers_every_group_and_trains_calls_that_life_1_made() -> None:
    setting = Setting(scenario=load("workplace").scenario, seed=0, judges=())
    first, second = run_plan(setting, (PlanItem("controller", "SnapshotPublished", 3),))
    recovery = life_figures(second.history).rollout_recovery
    unfinished = words(second.history, "GroupRecovered", "group")
    assert recovery.groups_considered == len(unfinished) == recovery.groups_finalized > 0 == recovery.groups_dropped
    siblings = recovery.siblings_reused + recovery.siblings_redispatched
    assert siblings == 4 * recovery.groups_considered and recovery.siblings_reused > 0
    staged = {record.event.call for record in first.history if type(record.event).__name__ == "RowStagedDone"}  # type: ignore[attr-defined]
    trained = [
        call
        for record in second.history
        if type(record.event).__name__ == "OptimizerApplied"
        for row in record.event.rows  # type: ignore[attr-defined]
        for call, _, _ in row.calls
    ]
    restored = sum(step.restored_calls for step in life_figures(second.history).train_steps)
    assert restored == sum(1 for call in trained if call in staged) > 0
