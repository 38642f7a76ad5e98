"""Without an asynchronous engine a failed row fails its batch and stops its stream (PROTOCOL 5.3)."""

from __future__ import annotations

import pytest
from whole_job import changed, every, live

from protocol.history import (
    AttemptReserved,
    BudgetSpent,
    CompletionArrived,
    EpisodeEnded,
    FailureArrived,
    StepCommitted,
    StreamEnded,
)
from scenarios.faults import Fault

SYNC = changed(
    num_prompts_per_step=2, num_generations_per_prompt=3, train_steps=1, target_level="sibling", async_engine=False,
    rollout_checkpointing=every(0.35),
)  # fmt: skip


def at_first_rows(verb: str, **arguments: object) -> Fault:
    return Fault(process="controller", event="RowsSubmitted", verb=verb, arguments={"instance": "gym-0", **arguments})


@pytest.mark.parametrize(("terminal", "budget"), [(True, "data"), (False, "infra")])
def test_a_failed_row_of_any_cause_fails_the_batch(terminal: bool, budget: str) -> None:
    lived = live(SYNC, at_first_rows("fail_row", rows=1, terminal=terminal))
    assert lived.status.outcome == "ended"
    (failed,) = lived.events(FailureArrived)
    assert [(event.budget, event.spent) for event in lived.events(BudgetSpent)] == [(budget, 1)]
    first = lived.events(StreamEnded)[0]
    assert (first.group, first.outcome, first.missing) == ("e0p0i1", "cancelled", 2)
    again = [event for event in lived.events(AttemptReserved) if event.why != "new"]
    assert [(event.why, event.key) for event in again] == [("retry", f"e0p0i1_g{index}r1-a0") for index in range(3)]
    assert not [event for event in lived.events(CompletionArrived) if event.key.startswith("e0p0i1") and "r0-" in event.key]
    over = [event.outcome for event in lived.events(EpisodeEnded) if event.key.startswith("e0p0i1") and "r0-" in event.key]
    assert "replied" not in over  # the siblings that ran, or were about to, were stopped with their stream
    assert failed.key == "e0p0i1_g0r0-a0"
    assert len(lived.events(StepCommitted)) == 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_row_that_never_comes_back_fails_the_batch_too(clean: bool) -> None:
    lived = live(SYNC, at_first_rows("break_stream", rows=1, clean=clean))
    assert lived.status.outcome == "ended"
    assert [(event.budget, event.spent) for event in lived.events(BudgetSpent)] == [("infra", 1)]
    again = [event for event in lived.events(AttemptReserved) if event.why != "new"]
    assert [event.why for event in again] == ["retry", "retry"]  # the sibling that had sealed stays
