"""A job that must have saved by a time that comes before its first step saves everything, then stops (PROTOCOL 4.3)."""

from __future__ import annotations

import pytest
from whole_job import changed, every, fault, live

from protocol.config import Checkpointing, RolloutCheckpointing, check
from protocol.controller.snapshot_pump import decide_last, decide_stop
from protocol.history import Restored, RunEnded, RunFailed, SnapshotPublished, StepCommitted

DUE = changed(checkpointing=Checkpointing(must_save_by_s=0.5), rollout_checkpointing=every(0.35))


def test_the_deadline_matters_only_while_it_is_due_and_no_step_is_trained() -> None:
    assert [decide_last(left_s) for left_s in (None, 1.0, 0.0)] == [False, False, True]


def test_a_step_that_commits_while_the_last_snapshot_is_published_keeps_the_run_going() -> None:
    assert [decide_stop(steps, committing) for steps, committing in ((0, False), (0, True), (1, False))] == [True, False, False]


def test_the_run_stops_after_a_snapshot_that_began_at_the_deadline_and_the_next_life_goes_on_from_it() -> None:
    lived = live(DUE)
    assert (lived.status.outcome, lived.events(RunEnded), lived.events(StepCommitted)) == ("ended", [RunEnded(0)], [])
    assert lived.times(SnapshotPublished)[-1] > 0.5
    again = live(changed(DUE, checkpointing=Checkpointing()), number=2, disk=lived.after_crash())
    assert again.events(Restored)[0].sequence == lived.events(SnapshotPublished)[-1].sequence
    assert again.events(RunEnded) == [RunEnded(DUE.train_steps)]


def test_a_last_snapshot_that_fails_ends_the_run_with_its_error_at_once() -> None:
    refused = fault("SnapshotStarted", "fail_call", occurrence=2, operation="Commit", to="gym-0", how="error", times=1)
    lived = live(changed(DUE, rollout_checkpointing=every(0.45)), refused)
    (failed,) = lived.events(RunFailed)
    assert (failed.error, failed.cause) == ("SnapshotFailed", "unavailable")
    assert "before the job's deadline" in failed.message


def test_a_job_that_has_trained_a_step_by_then_goes_on() -> None:
    late = changed(DUE, checkpointing=Checkpointing(must_save_by_s=30.0))
    lived = live(late)
    assert lived.events(RunEnded) == [RunEnded(DUE.train_steps)]


@pytest.mark.parametrize("limit_s", [0.0, -1.0])
def test_a_deadline_must_lie_ahead(limit_s: float) -> None:
    (wrong,) = check(changed(DUE, checkpointing=Checkpointing(must_save_by_s=limit_s)))
    assert wrong.startswith("checkpointing.must_save_by_s")


def test_a_deadline_without_snapshots_is_refused() -> None:
    job = changed(DUE, target_level="sibling", rollout_checkpointing=RolloutCheckpointing())
    assert [wrong for wrong in check(job) if wrong.startswith("checkpointing.must_save_by_s")] != []
