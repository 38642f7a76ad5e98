"""What a row stream makes of items that come twice, and of rows that are lost at their last attempt (PROTOCOL 5.2, 5.3)."""

from __future__ import annotations

import msgspec
from whole_job import changed, every, live

from protocol.config import NemoGymFailure, RolloutFailure
from protocol.controller.row_stream import decide_row_failure
from protocol.errors import CAUSE_OF_NO_RESULT, Cause, NoResult
from protocol.history import (
    AttemptAbandoned,
    AttemptRefused,
    AttemptSealed,
    BudgetSpent,
    CompletionArrived,
    RetireAccepted,
    RetireQueued,
    RowReported,
)
from protocol.messages import RowFailed
from scenarios.faults import Fault
from scenarios.verbs import FailRow

JOB = changed(num_prompts_per_step=2, num_generations_per_prompt=2, train_steps=1, rollout_checkpointing=every(0.3))
FIRST = "e0p0i1"


def at_first_rows(verb: str, **arguments: object) -> Fault:
    return Fault(process="controller", event="RowsSubmitted", verb=verb, arguments=arguments)


def test_a_completion_that_is_delivered_twice_is_taken_once() -> None:
    lived = live(JOB, at_first_rows("duplicate", operation="RunRows", to="gym-0", what="reply", times=2))
    assert lived.status.outcome == "ended"
    for kind in (CompletionArrived, AttemptSealed, RowReported):
        assert len([event for event in lived.events(kind) if event.key.startswith(FIRST)]) == 2


def test_a_refusal_that_is_delivered_twice_does_not_undo_the_row_that_was_sent_again() -> None:
    lived = live(
        JOB,
        at_first_rows("refuse", instance="gym-0", rows=1),
        at_first_rows("duplicate", operation="RunRows", to="gym-0", what="reply", times=1),
    )
    assert lived.status.outcome == "ended"
    assert [event.key for event in lived.events(AttemptRefused) if event.key.startswith(FIRST)] == [f"{FIRST}_g0r0-a0"]
    assert f"{FIRST}_g0r0-a0" in [event.key for event in lived.events(AttemptSealed)]


def test_rows_lost_at_their_last_attempt_are_queued_for_retire_with_their_group_attempt() -> None:
    failure = msgspec.structs.replace(
        RolloutFailure(backoff_base_s=0.05, max_backoff_s=0.5), nemo_gym=NemoGymFailure(max_row_attempts=1)
    )
    lived = live(changed(JOB, rollout_failure=failure), at_first_rows("break_stream", instance="gym-0", rows=0))
    assert lived.status.outcome == "ended"
    lost = [event.key for event in lived.events(AttemptAbandoned)]
    assert lost and [event.budget for event in lived.events(BudgetSpent)] == ["infra"]
    assert [event.key for event in lived.events(RetireQueued)] == lost
    assert [event.key for event in lived.events(RetireAccepted)] == lost


def said(terminal: bool | None = None, no_result: str = "", transport: bool = False, status: int = 0) -> Cause:
    return decide_row_failure(RowFailed("k", transport, "Connection reset, HTTP 503", 0.0, terminal, no_result, status))


def test_gyms_own_words_decide_what_a_failed_row_means() -> None:
    assert (said(terminal=True, status=503), said(terminal=False, status=400)) == (Cause.DATA, Cause.INFRA)
    assert (said(terminal=True, transport=True), said(terminal=False)) == (Cause.DATA, Cause.INFRA)
    for kind, cause in CAUSE_OF_NO_RESULT.items():
        assert {said(no_result=kind.value, status=status) for status in (0, 200, 404, 429, 503)} == {cause}
    assert said(no_result="a class of a later release") is Cause.INFRA
    assert (said(transport=True), said()) == (Cause.INFRA, Cause.DATA)


def test_every_class_of_a_reply_without_a_result_has_its_cause_and_can_be_made_to_happen() -> None:
    assert list(CAUSE_OF_NO_RESULT) == list(NoResult)
    for kind in NoResult:
        assert FailRow(instance="gym-0", no_result=kind.value).no_result == kind.value
