"""Races between snapshots, trainer checkpoints and Gym's control calls."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ledger_samples import reserved_in, seal_all
from small_world import play
from whole_job import JOB, TASKS, Lived, changed, every, fault, live

from protocol.checkpoint import snapshot
from protocol.checkpoint.coordinator import GymCoordinator
from protocol.checkpoint.payload import take_cut
from protocol.config import Checkpointing
from protocol.errors import Cause, Refusal, SnapshotFailed
from protocol.history import (
    ControlDone,
    ControlIssued,
    GroupDropped,
    PruneIssued,
    RunFailed,
    SnapshotBroke,
    SnapshotDropped,
    SnapshotPublished,
    SnapshotSkipped,
    SnapshotStarved,
    TrainerCheckpointDurable,
    TrainerSaveAsked,
    TrainerSaveStarted,
)
from protocol.identity import DATA_PLANE
from protocol.ledger.transitions import Finalize, LoseOutcome
from protocol.messages import Control, Forget, Retire
from protocol.run import Run
from protocol.runtime import Runtime
from sim.fake_data_plane import FakeDataPlane


def snapshots_on_disk(lived: Lived, anchor: str) -> list[int]:
    found = (re.match(rf"{anchor}/rollout_snapshots/snapshot_(\d+)/", path) for path in lived.files())
    return sorted({int(match.group(1)) for match in found if match is not None})


# --- what is skipped, and what is told


def test_every_skip_but_an_unchanged_one_counts_towards_the_warning() -> None:
    """With a checkpoint every six steps five steps have no anchor yet: nobody would notice that nothing is saved."""
    lived = live(changed(target_level="sibling", train_steps=6, checkpointing=Checkpointing(save_period=6)))
    assert lived.status.outcome == "ended", lived.status
    outcomes = [
        record.event
        for record in lived.history
        if isinstance(record.event, SnapshotSkipped | SnapshotPublished | SnapshotStarved)
    ]
    lost = 0
    for event, following in zip(outcomes, outcomes[1:], strict=False):
        if isinstance(event, SnapshotPublished):
            lost = 0
        elif isinstance(event, SnapshotSkipped) and event.reason != "unchanged":
            lost += 1
            assert (following == SnapshotStarved(lost=lost)) == (lost >= 3)
    assert [event.reason for event in lived.events(SnapshotSkipped)].count("no-durable-anchor") >= 3
    assert max(event.lost for event in lived.events(SnapshotStarved)) >= 3


def test_a_skip_for_want_of_changes_is_no_loss() -> None:
    lived = live(changed(target_level="sibling"), profile={"token_s": 2.0, "tokens_min": 5, "tokens_max": 6})
    assert [event.reason for event in lived.events(SnapshotSkipped)].count("unchanged") > 3
    assert lived.events(SnapshotStarved) == []


# --- Gym that does not answer


def test_a_resume_that_fails_twice_costs_one_more_call_and_not_the_run() -> None:
    """The snapshot stands; the instance that is still closed is asked once more before the next one parks anything."""
    lived = live(JOB, fault("GymPhaseStarted", "fail_call", operation="Resume", to="gym-0", how="error", times=2))
    assert lived.status.outcome == "ended", lived.status
    assert lived.events(SnapshotBroke) == []
    resumes = [
        (event.instance, event.checkpoint, event.outcome) for event in lived.events(ControlDone) if event.operation == "resume"
    ]
    assert [outcome for instance, checkpoint, outcome in resumes if (instance, checkpoint) == ("gym-0", "1.1")] == [
        "refused", "refused", "ok",
    ]  # fmt: skip
    assert [outcome for instance, checkpoint, outcome in resumes if (instance, checkpoint) == ("gym-1", "1.1")] == ["ok"]
    asked = [(event.operation, event.checkpoint) for event in lived.events(ControlIssued) if event.instance == "gym-0"]
    assert asked.index(("prepare", "1.2")) > max(i for i, one in enumerate(asked) if one == ("resume", "1.1"))


@pytest.mark.parametrize("operation", ["Prepare", "Retire"])
def test_an_instance_that_does_not_answer_delays_no_trainer_checkpoint(operation: str) -> None:
    """The snapshot holds the checkpoint lock while it asks: a committed step makes it let go."""
    before = [fault("AttemptDispatched", "discard", occurrence=7, ordinal=3)] if operation == "Retire" else []
    lived = live(JOB, *before, fault("SnapshotStarted", "fail_call", operation=operation, to="gym-1", how="lost"))
    assert lived.status.outcome == "ended", lived.status
    if before:
        assert lived.times(GroupDropped)[0] < lived.times(ControlIssued, lambda event: event.operation == "retire")[0]
    assert len(lived.events(SnapshotDropped)) == 1
    cancelled = [event.operation for event in lived.events(ControlDone) if event.outcome == "cancelled"]
    assert set(cancelled) == {operation.lower()}
    asked, started = lived.times(TrainerSaveAsked), lived.times(TrainerSaveStarted)
    assert len(asked) == len(started) == 2
    assert max(begun - due for due, begun in zip(asked, started, strict=True)) < 0.1


class ToyGym:
    """Answers control calls, refusing the first of each class in ``refuses``; ``heard`` names what it was asked."""

    def __init__(self, refuses: tuple[type[Control], ...]) -> None:
        self.refuses = list(refuses)
        self.heard: list[tuple[str, tuple[str, ...]]] = []

    async def main(self, rt: Runtime) -> None:
        rt.serve({Retire: self.retire, Forget: self.forget})

    async def retire(self, message: Retire) -> None:
        self._answer(message, message.keys)

    async def forget(self, message: Forget) -> None:
        self._answer(message, message.rollouts)

    def _answer(self, message: Control, named: tuple[str, ...]) -> None:
        self.heard.append((type(message).__name__, named))
        if type(message) in self.refuses:
            self.refuses.remove(type(message))
            raise Refusal("not now", Cause.UNAVAILABLE)


@pytest.mark.parametrize("refusals", [1, 2])
def test_a_refused_forget_is_preceded_by_another_retire(refusals: int) -> None:
    """Gym refuses to forget what it holds no mark of any more; whatever is refused twice stays queued."""
    closed, other = ToyGym((Forget,) * refusals), ToyGym(())

    async def client(rt: Runtime) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        run = Run(rt, changed(gym_instances=2), TASKS)
        group = reserved_in(run.ledger)
        for generation, instance in ((0, "gym-0"), (1, "gym-1")):
            run.ledger.dispatch(group.siblings[generation].current.key, instance)
        run.ledger.drop(group.group_id, "discarded")
        await GymCoordinator(run).retire_and_forget()
        return run.ledger.dropped.retire, run.ledger.dropped.forget, run.ledger.dropped.marked

    played = play(client, {"gym-0": closed.main, "gym-1": other.main})
    rollout, key = "e0p3i1_g0r0", "e0p3i1_g0r0-a0"
    again = [("Retire", (key,)), ("Forget", (rollout,))]
    assert closed.heard == [("Retire", (key,)), ("Forget", (rollout,)), *again]
    assert other.heard == [("Retire", ("e0p3i1_g1r0-a0",)), ("Forget", ("e0p3i1_g1r0",))]
    left = {rollout: "gym-0"} if refusals == 2 else {}
    assert played.result == ({}, left, {name: key for name in left})


# --- pruning


def test_failed_snapshots_push_no_published_one_out() -> None:
    """``keep_latest_k`` counts what is published, not the numbers that were given away."""
    failing = [fault("SnapshotStarted", "fail_call", count, operation="Prepare", to="gym-0", how="error") for count in (2, 3)]
    job = changed(rollout_checkpointing=every(0.1, keep_latest_k=2), train_steps=1)
    lived = live(job, *failing, profile={"token_s": 0.05})
    assert lived.status.outcome == "ended", lived.status
    assert [event.sequence for event in lived.events(SnapshotBroke)] == [2, 3]
    assert [event.sequence for event in lived.events(SnapshotPublished)] == [1, 4]
    assert snapshots_on_disk(lived, "bootstrap") == [1, 4]
    assert lived.events(PruneIssued) == []


def test_the_newest_k_stay_when_none_has_failed() -> None:
    job = changed(rollout_checkpointing=every(0.1, keep_latest_k=2), train_steps=1)
    lived = live(job, profile={"token_s": 0.05})
    published = [event.sequence for event in lived.events(SnapshotPublished)]
    assert len(published) > 2
    assert snapshots_on_disk(lived, "bootstrap") == published[-2:]


def test_no_anchor_is_pruned_under_a_snapshot_that_is_being_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publication is outside the lock, so steps go on meanwhile; its anchor goes with the next checkpoint instead."""
    publish = snapshot.publish_snapshot

    async def slow(rt: Runtime, anchor: str, sequence: int) -> None:
        if anchor == "step_1":
            await rt.sleep(2.0)
        await publish(rt, anchor, sequence)

    monkeypatch.setattr(snapshot, "publish_snapshot", slow)
    job = changed(
        target_level="sibling", train_steps=6, checkpointing=Checkpointing(keep_top_k=1), rollout_checkpointing=every(0.35)
    )
    lived = live(job)
    assert lived.events(RunFailed) == []
    assert lived.status.outcome == "ended", lived.status
    assert "step_1" in [event.anchor for event in lived.events(SnapshotPublished)]
    (published_s,) = lived.times(SnapshotPublished, lambda event: event.anchor == "step_1")
    durable = lived.times(TrainerCheckpointDurable)
    assert durable[1] < published_s, "the second checkpoint came while the snapshot was being published"
    assert lived.times(PruneIssued, lambda event: event.path == "step_1")[0] > published_s
    assert sorted({path.split("/")[0] for path in lived.files() if path.startswith("step_")})[-1] == "step_6"


# --- a group between two states


@pytest.mark.parametrize("lose", [False, True], ids=["FINALIZING", "FINALIZATION_UNKNOWN"])
def test_no_cut_holds_a_group_whose_publication_is_open(lose: bool) -> None:
    """A restore refuses it for ever, so it must not be written."""

    async def client(rt: Runtime) -> Any:
        run = Run(rt, JOB, TASKS)
        name = reserved_in(run.ledger).group_id
        seal_all(run.ledger, name)
        run.ledger.move(name, Finalize())
        if lose:
            run.ledger.move(name, LoseOutcome())
        return await take_cut(run, "snapshot", "tmp", 1, {})

    status = "FINALIZATION_UNKNOWN" if lose else "FINALIZING"
    with pytest.raises(SnapshotFailed, match=f"e0p3i1 is {status}"):
        play(client, {DATA_PLANE: lambda rt: FakeDataPlane(rt).main()})
