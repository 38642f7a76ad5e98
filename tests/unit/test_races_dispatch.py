"""Races between streams of rows, Gym phases, reservations and discards: what each of them must leave behind."""

from __future__ import annotations

from typing import Any

import pytest
from whole_job import JOB, Lived, changed, every, fault, live

from protocol.config import Sampler
from protocol.controller.dispatch import GroupDispatch
from protocol.controller.samplers import Shortfall, decide_shortfall
from protocol.errors import Cause, PeerFailed
from protocol.history import (
    AttemptAbandoned,
    AttemptRefused,
    BudgetSpent,
    DrainEnded,
    FailureArrived,
    FaultInjected,
    GroupDropped,
    RefusalArrived,
    RetireQueued,
    RunFailed,
    SnapshotBroke,
    SnapshotPublished,
    StepCommitted,
    StreamEnded,
)
from protocol.runtime import Runtime

# With this seed a snapshot closes Gym just before rows of prompt 3 arrive: these are refused first.
REFUSING = changed(rollout_checkpointing=every(0.15), num_generations_per_prompt=4, train_steps=1)
REFUSING_SEED = 1
REFUSED = ["e0p3i1_g3r0-a0", "e0p3i1_g0r0-a0"]


def refused_keys(lived: Lived) -> list[str]:
    return [event.key for event in lived.events(AttemptRefused)]


def test_a_data_failure_of_a_row_that_was_sent_again_is_spent_at_once_and_the_prompt_tried_again() -> None:
    """The stream's other rows are still running: nothing may wait for their next item."""
    bad = REFUSED[0]

    async def touch(rt: Runtime, key: str, turn: int) -> None:
        if key == bad:
            raise PeerFailed("this prompt cannot be parsed", Cause.DATA)
        if key.startswith("e0p3i1_") and turn:
            await rt.sleep(1.0)

    lived = live(REFUSING, seed=REFUSING_SEED, touch=touch)
    assert refused_keys(lived)[: len(REFUSED)] == REFUSED
    assert lived.status.outcome == "ended", lived.status
    (failed_s,) = lived.times(FailureArrived, lambda event: event.key == bad)
    (spent_s,) = lived.times(BudgetSpent)
    assert spent_s - failed_s < 0.2
    assert [(event.group, event.budget, event.spent) for event in lived.events(BudgetSpent)] == [("e0p3i1", "data", 1)]


def test_a_stream_that_breaks_beside_a_closed_gate_gives_up_its_refused_rows() -> None:
    """A re-send waits at the gate until the snapshot is over, and the snapshot for the rows that broke with the stream."""
    lived = live(REFUSING, fault("RefusalArrived", "break_stream", rows=0, instance="gym-1"), seed=REFUSING_SEED)
    assert [event.key for event in lived.events(RefusalArrived)][:1] == REFUSED[:1]
    assert [event.outcome for event in lived.events(StreamEnded) if event.group == "e0p3i1"][0] == "broken"
    assert lived.status.outcome == "ended", lived.status
    assert lived.events(SnapshotBroke) == []
    assert {event.left for event in lived.events(DrainEnded)} == {0}


def test_no_snapshot_waits_for_a_row_whose_failure_has_arrived() -> None:
    """Its siblings are parked, so its stream stays open: it must leave the pending attempts when the failure comes."""

    async def touch(rt: Runtime, key: str, turn: int) -> None:
        if key == "e0p0i1_g0r0-a0":
            await rt.sleep(0.05)
            raise PeerFailed("the engine is gone")

    job = changed(rollout_checkpointing=every(0.1), train_steps=1, num_generations_per_prompt=4)
    lived = live(job, touch=touch)
    assert lived.status.outcome == "ended", lived.status
    (failed_s,) = lived.times(FailureArrived)
    (given_up_s,) = lived.times(AttemptAbandoned, lambda event: event.key == "e0p0i1_g0r0-a0")
    assert given_up_s == failed_s
    assert lived.events(SnapshotBroke) == []
    assert lived.times(SnapshotPublished)[0] < lived.times(BudgetSpent)[0], "the snapshot came while the stream was open"
    assert [(event.budget, event.spent) for event in lived.events(BudgetSpent)] == [("row", 2)]
    assert lived.events(RetireQueued) == []  # Gym said itself that it is over


def test_a_batch_that_loses_a_group_is_filled_up_without_a_free_batch_of_permits() -> None:
    """Four permits hold two batches of two: after a discard one is free, and one is enough."""
    job = changed(max_buffered_rollouts=4, target_level="sibling")
    lived = live(job, fault("AttemptDispatched", "discard", occurrence=7, ordinal=0))
    assert lived.status.outcome == "ended", lived.status
    assert [event.ordinal for event in lived.events(GroupDropped)] == [0]
    assert [event.ordinals for event in lived.events(StepCommitted)] == [(1, 4), (2, 3)]


def test_a_pump_that_waits_for_a_whole_batch_of_permits_decides_again_when_one_comes_free() -> None:
    """The first batch holds all three: the next one waits for them, and then a discard leaves a single one for a top-up."""
    job = changed(max_buffered_rollouts=3, num_prompts_per_step=3, min_groups_for_streaming_train=1, target_level="sibling")
    lived = live(job, fault("AttemptDispatched", "discard", occurrence=6, ordinal=0))
    assert lived.status.outcome == "ended", lived.status
    assert [event.ordinal for event in lived.events(GroupDropped)] == [0]
    assert lived.events(StepCommitted)[0].ordinals == (1, 2, 3)


@pytest.mark.parametrize("occurrence", [1, 3, 5])
def test_weight_fifo_replaces_what_a_discard_took(occurrence: int) -> None:
    """Its gate counts batches: what a batch lost must be reserved again, or no step can be filled."""
    job = changed(sampler=Sampler(name="weight_fifo"), target_level="rollout", rollout_checkpointing=every(None))  # type: ignore[arg-type]
    lived = live(job, fault("AttemptDispatched", "discard", occurrence=occurrence, ordinal=-1))
    assert lived.status.outcome == "ended", lived.status
    assert len(lived.events(GroupDropped)) == 1
    assert [len(event.ordinals) for event in lived.events(StepCommitted)] == [2, 2]


@pytest.mark.parametrize(
    ("live_groups", "expected"),
    [({-1: 4}, None), ({-1: 3}, Shortfall(-1, 1)), ({-1: 1}, Shortfall(-1, 2)), ({}, Shortfall(-1, 2)), ({-1: 5}, None)],
)
def test_weight_fifo_is_short_of_what_its_batches_should_hold(live_groups: dict[int, int], expected: Shortfall | None) -> None:
    assert decide_shortfall(Sampler(name="weight_fifo"), 3, 4, live_groups, 2) == expected


def test_a_discard_whose_rows_cannot_be_cleared_ends_the_run_with_its_error() -> None:
    """Half dropped: its permit would never come back, and no cut could agree with the data plane again."""
    job = changed(target_level="sibling")
    lived = live(
        job,
        fault("AttemptDispatched", "discard", occurrence=3, ordinal=0),
        fault("GroupDropped", "fail_call", operation="ClearSamples", to="data-plane", how="error"),
    )
    assert [event.ordinal for event in lived.events(GroupDropped)] == [0]
    assert len(lived.events(FaultInjected)) == 4, "both faults fired"
    assert [(event.error, event.cause) for event in lived.events(RunFailed)] == [("Refusal", Cause.UNAVAILABLE.value)]
    assert lived.status.outcome == "failed"


def test_a_defect_in_a_group_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only typed errors are handled: anything else ends the process instead of leaving a group that never moves."""

    async def defect(self: GroupDispatch) -> None:
        raise KeyError("no such thing")

    monkeypatch.setattr(GroupDispatch, "until_sealed", defect)
    lived = live(JOB, max_time=30.0)
    assert (lived.status.outcome, lived.status.error) == ("failed", "KeyError: 'no such thing'")


def test_a_continuation_that_fails_is_retired_so_that_its_mark_can_go() -> None:
    """Its restore marked it on every participant; only a retire and a forget take that away."""

    def crash(history: list[Any]) -> bool:
        return isinstance(history[-1].event, SnapshotPublished)

    first = live(changed(rollout_checkpointing=every(0.1)), crash=crash)
    assert first.status.outcome == "crashed"

    async def touch(rt: Runtime, key: str, turn: int) -> None:
        if key.endswith("-a1"):
            raise PeerFailed("the engine is gone")

    second = live(
        changed(rollout_checkpointing=every(0.1)), number=2, disk=first.after_crash(), touch=touch, profile={"token_s": 0.01}
    )
    failed = {event.key for event in second.events(FailureArrived) if event.key.endswith("-a1")}
    assert failed, "nothing was continued"
    assert failed <= {event.key for event in second.events(RetireQueued)}
