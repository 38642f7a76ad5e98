"""Races around a train step's commit, publication of groups, and the end of a run."""

from __future__ import annotations

from typing import Any

import pytest
from whole_job import JOB, Lived, changed, every, fault, live

from protocol.data_plane.finalizer import Finalizer
from protocol.errors import Cause, PeerFailed, Refusal
from protocol.history import (
    AttemptAbandoned,
    BudgetSpent,
    CursorMoved,
    FinalizeDone,
    FinalizeIssued,
    GroupDropped,
    GroupMoved,
    GroupReserved,
    RunFailed,
    SnapshotPublished,
    StepCommitted,
    TrainerCheckpointDurable,
    TrainerSaveIssued,
)
from protocol.messages import FinalizeGroup
from protocol.runtime import Runtime
from sim.disk import NONE


@pytest.mark.parametrize("moment", ["CanonicalClearIssued", "CanonicalClearDone"])
@pytest.mark.parametrize("seed", range(4))
def test_no_batch_is_reserved_for_a_step_that_is_being_committed(seed: int, moment: str) -> None:
    """Its groups leave the ledger and the version moves in one step: whoever decides between sees the one or the other.

    A discard wakes the rollout pump inside the commit, while rows given up earlier are cleared over a slow data plane.
    """
    job = changed(target_level="sibling", train_steps=3, max_inflight_prompts=1)
    lived = live(
        job,
        fault("RowsSubmitted", "break_stream", rows=0, instance="gym-0"),
        fault(moment, "discard", ordinal=-1),
        seed=seed,
        profile={"data_plane": {"service_s": (0.02, 0.08)}},
    )
    assert lived.status.outcome == "ended", lived.status
    assert lived.events(AttemptAbandoned)
    dropped = lived.events(GroupDropped)
    assert [event.why for event in dropped] == ["discarded"]
    assert dropped[0].ordinal >= 2, "a group of a later step"
    targets = [event.target for event in lived.events(CursorMoved)]
    assert sorted(set(targets)) == list(range(max(targets) + 1))
    assert len(targets) == max(targets) + 2, "one batch a step, and one group of another batch for what was dropped"
    assert targets.count(0) == 1


def trained(lived: Lived) -> list[int]:
    return sorted(ordinal for event in lived.events(StepCommitted) for ordinal in event.ordinals)


def moves(lived: Lived, group: str) -> list[str]:
    return [event.after for event in lived.events(GroupMoved) if event.group == group]


def test_a_group_whose_publication_is_refused_is_complete_again_and_published_later() -> None:
    """A typed refusal says that nothing was written: it costs one attempt of the prompt, not the run."""
    lived = live(JOB, fault("FinalizeIssued", "fail_call", operation="GetSamples", to="data-plane", how="error"))
    assert lived.status.outcome == "ended", lived.status
    name = lived.events(FinalizeIssued)[0].group
    published = ["READY_TO_FINALIZE", "FINALIZING"]
    assert [after.upper() for after in moves(lived, name)][:5] == [*published, *published, "FINALIZED"]
    assert [(event.group, event.budget, event.spent) for event in lived.events(BudgetSpent)] == [(name, "infra", 1)]
    assert [event.group for event in lived.events(FinalizeDone)].count(name) == 1
    assert trained(lived) == [0, 1, 2, 3]
    issued, again = lived.times(FinalizeIssued, lambda event: event.group == name)
    assert again - issued >= JOB.rollout_failure.backoff_base_s


def test_a_group_that_is_refused_until_its_budget_is_spent_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_first_group(monkeypatch, Cause.INFRA)
    lived = live(JOB)
    assert [event.error for event in lived.events(RunFailed)] == ["BudgetExhausted"]
    assert [event.spent for event in lived.events(BudgetSpent)] == [1, 2, 3, 4, 5]


def test_a_contradiction_in_a_publication_ends_the_run_and_leaves_the_group_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_first_group(monkeypatch, Cause.BROKEN)
    lived = live(JOB)
    assert [(event.error, event.cause) for event in lived.events(RunFailed)] == [("Refusal", "broken")]
    assert lived.events(BudgetSpent) == []
    assert moves(lived, "e0p0i1")[-1].upper() == "READY_TO_FINALIZE"


def refuse_first_group(monkeypatch: pytest.MonkeyPatch, cause: Cause) -> None:
    fail_finalizer(monkeypatch, 0, Refusal("its rows are not what they were", cause))


def fail_finalizer(monkeypatch: pytest.MonkeyPatch, ordinal: int, error: Exception) -> None:
    finalize = Finalizer.finalize

    async def failing(self: Finalizer, message: FinalizeGroup) -> Any:
        if message.ordinal == ordinal:
            raise error
        return await finalize(self, message)

    monkeypatch.setattr(Finalizer, "finalize", failing)


def test_a_run_that_fails_still_waits_for_the_checkpoint_that_is_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has trained is worth keeping; the failure is told when the checkpoint is durable."""
    fail_finalizer(monkeypatch, 2, RuntimeError("out of memory"))
    job = changed(target_level="sibling")
    lived = live(job, profile={"trainer": {"save_s": (2.0, 2.0)}})
    assert [event.error for event in lived.events(RunFailed)] == ["OutcomeUnknown"]
    assert lived.times(RunFailed)[0] - lived.times(TrainerSaveIssued)[0] > 2.0
    assert [event.step for event in lived.events(TrainerCheckpointDurable)] == [1]
    assert any(path.startswith("step_1/") for path in lived.disk.surviving(NONE))


def test_a_group_that_fails_after_the_last_step_is_not_passed_over_in_silence() -> None:
    """Recovery still starts restored groups of later steps when everything is trained: a failure among them ends the run."""
    job = changed(target_level="sibling", train_steps=3, rollout_checkpointing=every(0.1))

    def crash(history: list[Any]) -> bool:
        return isinstance(history[-1].event, SnapshotPublished) and history[-1].event.sequence == 2

    first = live(job, crash=crash)
    assert first.status.outcome == "crashed"
    assert len(first.events(GroupReserved)) == 4

    async def touch(rt: Runtime, key: str, turn: int) -> None:
        if key.startswith("e0p2"):
            await rt.sleep(1.0)
            raise PeerFailed("this prompt cannot be parsed", Cause.DATA)

    shorter = changed(job, train_steps=1, max_inflight_prompts=1)
    second = live(shorter, number=2, disk=first.after_crash(), touch=touch, profile={"token_s": 0.05})
    assert [event.step for event in second.events(StepCommitted)] == [1]
    assert [event.error for event in second.events(RunFailed)] == ["BudgetExhausted"]
    assert [event.step for event in second.events(TrainerCheckpointDurable)] == [1]
