"""Snapshots against training: Gym is the snapshots' alone, a committed step wins, and what fails costs the run nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from small_world import play
from whole_job import JOB, TASKS, Lived, changed, every, fault, live

from protocol.checkpoint.anchor import Anchor
from protocol.checkpoint.snapshot import LostToStep, RolloutSnapshots
from protocol.checkpoint.trainer import TrainerCheckpoints
from protocol.controller.snapshot_pump import STARVED_AFTER, SnapshotPump
from protocol.history import (
    ControlDone,
    ControlIssued,
    Event,
    FileIssued,
    GymPhaseEnded,
    GymPhaseStarted,
    RunFailed,
    SnapshotBroke,
    SnapshotPublished,
    SnapshotStarved,
    StepCommitted,
    TrainerCheckpointDurable,
    TrainerSaveAsked,
    TrainerSaveIssued,
    TrainerSaveStarted,
)
from protocol.run import Run
from protocol.runtime import Runtime

SLOW_TOOLS = {"tool_min_s": 0.6, "tool_max_s": 0.9}


def places(lived: Lived, kind: type[Event], **fields: Any) -> list[int]:
    """Where events of this kind, with these fields, stand in the history."""
    return [
        index
        for index, record in enumerate(lived.history)
        if isinstance(record.event, kind) and all(getattr(record.event, name) == value for name, value in fields.items())
    ]


@pytest.fixture(scope="module")
def lived() -> Lived:
    """Tools so slow that Gym is being parked most of the time."""
    run = live(changed(train_steps=4, rollout_checkpointing=every(0.05)), profile=SLOW_TOOLS)
    assert run.status.outcome == "ended", run.status
    return run


# --- trainer checkpoints and Gym


def test_no_task_of_training_or_of_a_trainer_checkpoint_asks_gym_anything(lived: Lived) -> None:
    asking = {record.task for record in lived.history if isinstance(record.event, ControlIssued)}
    assert asking and not [task for task in asking if task.startswith(("train-pump", "save-step"))]
    assert lived.events(TrainerCheckpointDurable)


def test_a_trainer_checkpoint_holds_no_gym_state(lived: Lived) -> None:
    of_steps = [path for path in lived.files() if path.startswith("step_") and "/rollout_snapshots/" not in path]
    assert of_steps and not [path for path in of_steps if "gym" in path]


def test_every_trainer_checkpoint_is_durable_though_gym_never_answers_a_prepare() -> None:
    """The budget of failed snapshots is large here: what is looked at is training alone."""
    job = changed(rollout_checkpointing=every(0.1, max_consecutive_failures=50))
    deaf = fault("SnapshotStarted", "fail_call", operation="Prepare", to="gym-1", how="lost", times=50)
    lived = live(job, deaf)
    assert lived.status.outcome == "ended", lived.status
    assert [event.step for event in lived.events(TrainerCheckpointDurable)] == [1, 2]
    assert lived.events(SnapshotPublished) == []


# --- a committed step wins


def test_a_committed_step_ends_the_gym_phase_before_its_save_asks_for_the_lock() -> None:
    lived = live(JOB, fault("SnapshotStarted", "fail_call", operation="Prepare", to="gym-1", how="lost"))
    committed, asked, started = (places(lived, kind) for kind in (StepCommitted, TrainerSaveAsked, TrainerSaveStarted))
    aborted = 0
    for step, ask, begin in zip(committed, asked, started, strict=True):
        phases = [place for place in places(lived, GymPhaseStarted) if place < step]
        ended = [place for place in places(lived, GymPhaseEnded) if place < step]
        if len(phases) == len(ended):
            continue
        aborted += 1
        given_up = [place for place in places(lived, ControlDone, outcome="cancelled") if place > step]
        assert given_up and given_up[0] < ask, "the open call is given up first"
        over = next(place for place in places(lived, GymPhaseEnded) if place > step)
        assert over < begin, "the lock is the save's once the phase is over"
        assert lived.history[over].event.outcome == "dropped"
    assert aborted, "no step committed inside a Gym phase: this test has nothing to look at"


def test_a_phase_that_was_lost_before_it_could_start_asks_gym_nothing() -> None:
    """The wait for the dispatch gate is a window: a step may commit in it."""

    async def client(rt: Runtime) -> bool:
        run, anchor = Run(rt, JOB, TASKS), Anchor(rt)
        snapshots = RolloutSnapshots(run, anchor, TrainerCheckpoints(run, anchor))
        async with run.gate.mutation("dispatch"):
            taking = rt.spawn(snapshots.take(forced=False), "taking")
            await rt.sleep(0.1)
            run.steps = run.version = 1
            snapshots.step_committed()
        with pytest.raises(LostToStep):
            await taking.join()
        return not run.gate.closed and not run.deadlines.holders and not run.lock.held

    played = play(client, {})
    assert played.result
    assert [event.outcome for event in played.events(GymPhaseEnded)] == ["dropped"]
    assert played.events(ControlIssued) == []


class Losing:
    """Stands for the snapshots: each one is lost to a train step, until there are ``losses`` of them."""

    def __init__(self, losses: int) -> None:
        self.losses = losses
        self.attempt = ("bootstrap", 1)

    async def take(self, forced: bool) -> None:
        if self.losses:
            self.losses -= 1
            raise LostToStep("a train step committed")

    async def give_up(self) -> None:
        return


@pytest.mark.parametrize("losses", [STARVED_AFTER - 1, STARVED_AFTER, STARVED_AFTER + 2])
def test_snapshots_that_keep_losing_to_steps_are_warned_about_until_one_is_published(losses: int) -> None:
    async def client(rt: Runtime) -> None:
        pump = SnapshotPump(Run(rt, JOB, TASKS), Anchor(rt), Losing(losses))  # type: ignore[arg-type]
        for _ in range(losses + 1):
            await pump._try(forced=False)
        pump.snapshots.losses = 1  # type: ignore[attr-defined]
        await pump._try(forced=False)

    played = play(client, {})
    assert [event.lost for event in played.events(SnapshotStarved)] == list(range(STARVED_AFTER, losses + 1))
    assert played.events(SnapshotBroke) == []


# --- failures in a row


@pytest.mark.parametrize(("limit", "failing", "ends"), [(1, 1, True), (1, 2, False), (2, 2, True), (2, 3, False)])
def test_a_run_stops_once_more_snapshots_failed_in_a_row_than_may(limit: int, failing: int, ends: bool) -> None:
    job = changed(train_steps=3, rollout_checkpointing=every(0.05, max_consecutive_failures=limit))
    lived = live(job, fault("SnapshotStarted", "fail_call", operation="Prepare", to="gym-1", how="error", times=failing))
    assert len(lived.events(SnapshotBroke)) == failing
    assert (lived.status.outcome == "ended") is ends
    if not ends:
        (failed,) = lived.events(RunFailed)
        assert (failed.error, failed.cause) == ("SnapshotFailed", "unavailable")


# --- resume and publication


def test_gym_is_resumed_before_the_first_sidecar_is_written(lived: Lived) -> None:
    published = lived.events(SnapshotPublished)
    assert published
    for event in published:
        folder = f"{event.anchor}/rollout_snapshots/tmp_snapshot_{event.sequence:06d}"
        sidecar = places(lived, FileIssued, op="write", path=f"{folder}/rollout_recovery.msgpack")[-1]
        phase = max(place for place in places(lived, GymPhaseEnded, outcome="cut") if place < sidecar)
        resumed = [place for place in places(lived, ControlDone, operation="resume", outcome="ok") if place < phase]
        parked = max(place for place in places(lived, ControlIssued, operation="prepare") if place < phase)
        assert [place for place in resumed if place > parked]


@pytest.mark.parametrize("how", ["error", "lost", "broken"])
def test_a_snapshot_stands_though_its_resume_failed_at_every_try(how: str) -> None:
    lived = live(JOB, fault("SnapshotStarted", "fail_call", operation="Resume", to="gym-1", how=how, times=2))
    assert lived.status.outcome == "ended", lived.status
    first = lived.events(SnapshotPublished)[0]
    assert (first.anchor, first.sequence) == ("bootstrap", 1)
    failed = [event for event in lived.events(ControlDone) if event.operation == "resume" and event.outcome != "ok"]
    assert len(failed) == 2 and lived.events(SnapshotBroke) == []
    assert len(lived.events(TrainerSaveIssued)) == 2
