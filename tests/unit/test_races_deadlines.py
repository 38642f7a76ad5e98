"""Rollout deadlines of the whole job: what expires, what that costs, and what holds them meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from whole_job import JOB, Lived, changed, every, fault, live

from protocol.config import NemoGymFailure, RolloutFailure
from protocol.history import (
    AttemptAbandoned,
    BudgetSpent,
    ControlDone,
    DeadlineHeld,
    DeadlineReleased,
    DeadlineSet,
    EpisodeEnded,
    FileIssued,
    GymPhaseEnded,
    RetireAccepted,
    RetireQueued,
    RolloutTimedOut,
    RunFailed,
    SnapshotBroke,
    SnapshotPublished,
    StreamEnded,
)
from protocol.runtime import Runtime


def within(limit_s: float, **changes: Any) -> Any:
    failure = RolloutFailure(backoff_base_s=0.05, max_backoff_s=0.5, nemo_gym=NemoGymFailure(rollout_timeout_s=limit_s))
    return changed(rollout_failure=failure, **changes)


def hanging(prefix: str) -> Any:
    """The first call of the rollouts whose key starts so never comes back."""

    async def touch(rt: Runtime, key: str, turn: int) -> None:
        if key.startswith(prefix):
            await rt.sleep(10_000.0)

    return touch


def phases(lived: Lived) -> list[tuple[float, float]]:
    """(from, to) of each hold of the checkpoint."""
    since = lived.times(DeadlineHeld, lambda event: event.holder == "checkpoint")
    until = lived.times(DeadlineReleased, lambda event: event.holder == "checkpoint")
    assert len(since) == len(until)
    return list(zip(since, until, strict=True))


def test_a_rollout_that_hangs_is_an_infra_failure_of_its_group_attempt() -> None:
    """Its streams are cancelled and awaited, what was unsealed is abandoned and queued for retire, and the group goes on."""
    lived = live(within(2.0, target_level="sibling", train_steps=1), touch=hanging("e0p1i1_g0r0-"))
    assert lived.status.outcome == "ended", lived.status
    (expired,) = lived.events(RolloutTimedOut)
    assert (expired.group, round(expired.elapsed_s - expired.held_s, 6)) == ("e0p1i1", 2.0)
    assert [(event.group, event.budget, event.spent) for event in lived.events(BudgetSpent)] == [("e0p1i1", "infra", 1)]
    assert [(event.key, event.why) for event in lived.events(AttemptAbandoned)] == [("e0p1i1_g0r0-a0", "group-failed")]
    assert [event.key for event in lived.events(RetireQueued)] == ["e0p1i1_g0r0-a0"]
    (at_s,) = lived.times(RolloutTimedOut)
    (ended_s,) = lived.times(StreamEnded, lambda event: event.group == "e0p1i1" and event.outcome == "cancelled")
    (spent_s,) = lived.times(BudgetSpent)
    assert at_s <= ended_s <= spent_s
    assert "cancelled" in [event.outcome for event in lived.events(EpisodeEnded) if event.key == "e0p1i1_g0r0-a0"]


def test_a_group_attempt_that_is_tried_again_has_a_deadline_of_its_own() -> None:
    lived = live(within(2.0, target_level="sibling", train_steps=1), touch=hanging("e0p1i1_g0"))
    assert lived.status.outcome == "failed"
    assert [event.error for event in lived.events(RunFailed)] == ["BudgetExhausted"]
    assert [event.spent for event in lived.events(BudgetSpent)] == [1, 2, 3, 4, 5]
    assert len([event for event in lived.events(DeadlineSet) if event.group == "e0p1i1"]) == 5
    assert {round(event.elapsed_s - event.held_s, 6) for event in lived.events(RolloutTimedOut)} == {2.0}


def test_a_timed_out_rollout_is_retired_by_the_next_checkpoint() -> None:
    job = within(1.0, train_steps=1, rollout_checkpointing=every(1.3))
    lived = live(job, touch=hanging("e0p1i1_g0r0-"))
    assert lived.status.outcome == "ended", lived.status
    assert len(lived.events(RolloutTimedOut)) == 1
    assert "e0p1i1_g0r0-a0" in [event.key for event in lived.events(RetireAccepted)]


def test_a_park_that_is_longer_than_the_deadline_times_nobody_out() -> None:
    lost = fault("SnapshotStarted", "fail_call", operation="Commit", to="gym-0", how="lost")
    lived = live(within(1.0, train_steps=1), lost)
    assert lived.status.outcome == "ended", lived.status
    assert max(event.parked_s for event in lived.events(GymPhaseEnded)) > 2.0
    assert lived.events(RolloutTimedOut) == []


def test_without_a_limit_no_rollout_has_a_deadline() -> None:
    lived = live()
    assert lived.status.outcome == "ended"
    assert lived.events(DeadlineSet) == [] and lived.events(DeadlineHeld) != []


@pytest.mark.parametrize("operation", ["Prepare", "Commit"])
def test_a_failed_phase_lets_go_of_the_deadlines_once_gym_was_asked_to_resume(operation: str) -> None:
    lived = live(JOB, fault("SnapshotStarted", "fail_call", operation=operation, to="gym-0", how="error"))
    assert len(lived.events(SnapshotBroke)) == 1
    since_s, until_s = phases(lived)[0]
    resumed = lived.times(ControlDone, lambda event: event.operation == "resume")[:2]
    assert since_s < resumed[0] <= resumed[1] <= until_s
    assert not [time for time in lived.times(SnapshotBroke) if since_s <= time < until_s]


def test_a_phase_that_loses_to_a_step_lets_go_of_the_deadlines() -> None:
    lived = live(changed(rollout_checkpointing=every(0.002)))
    assert "dropped" in [event.outcome for event in lived.events(GymPhaseEnded)]
    assert len(phases(lived)) == len(lived.events(GymPhaseEnded))


def test_a_checkpoint_lets_go_before_it_writes_a_sidecar() -> None:
    lived = live()
    published = lived.times(SnapshotPublished)
    assert published
    sidecars = lived.times(FileIssued, lambda event: event.path.endswith("manifest.json") and "/tmp_snapshot_" in event.path
                           and "/gym/" not in event.path)  # fmt: skip
    assert len(sidecars) >= len(published)
    assert not [time for time in sidecars for since_s, until_s in phases(lived) if since_s <= time < until_s]
