"""I35 to I38: what a stream owes to its rows, and a cohort to its verifier."""

from __future__ import annotations

import pytest
from ledger_files import attempt, group, judged, snapshot

from invariants.ledger.a_lost_cohort_is_a_new_group_attempt import ALostCohortIsANewGroupAttempt
from invariants.ledger.no_stream_outlives_its_rollout import NoStreamOutlivesItsRollout
from invariants.ledger.refused_rows_are_sent_again import RefusedRowsAreSentAgain
from invariants.ledger.rows_share_no_fate import RowsShareNoFate
from protocol.history import (
    AttemptAbandoned,
    AttemptReserved,
    AttemptSealed,
    BudgetSpent,
    CompletionArrived,
    FailureArrived,
    FinalizeIssued,
    GroupAttemptRaised,
    GroupDropped,
    GroupReserved,
    MutationLeft,
    RefusalArrived,
    RolloutTimedOut,
    RowsSubmitted,
    RunEnded,
    StagingCleared,
    StreamEnded,
    StreamOver,
)

G = "e0p0i1"
A, B = f"{G}_g0r0-a0", f"{G}_g1r0-a0"
AGAIN = f"resend-{A}"


def of(task, event):
    return ("controller", event, 0.0, task)


def sent(*keys, task="stream", group_attempt=-1):
    return of(task, RowsSubmitted(G, "gym-0", keys, group_attempt))


def over(how="end", task="stream"):
    return of(task, StreamOver("gym-0", how))


def ended(outcome, missing=0, task="stream"):
    return of(task, StreamEnded(G, "gym-0", outcome, missing))


def failed(cause, task="stream"):
    return of(task, FailureArrived(A, cause))


REFUSED = of("stream", RefusalArrived(A, "checkpoint_parked"))


# --- I35


@pytest.mark.parametrize("how", ["end", "lost"])
def test_a_stream_that_the_network_ended_costs_no_row_by_choice(how):
    steps = [sent(A, B), failed("infra"), over(how), ended("broken" if how == "lost" else "clean", 1), sent(B)]
    assert judged(RowsShareNoFate, *steps) == []


def test_a_stream_that_ends_with_a_failed_row_breaks_I35():
    steps = [sent(A, B), failed("infra"), ended("broken", 1)]
    given_up = f"The stream of {A}, {B} was given up (broken, 1 rows missing), the network had not ended it."
    assert judged(RowsShareNoFate, *steps) == [given_up]


def test_a_stream_that_was_cancelled_counts_when_its_group_goes_on():
    steps = [sent(A, B), failed("infra"), ended("cancelled", 1)]
    assert judged(RowsShareNoFate, *steps) == []
    found = judged(RowsShareNoFate, *steps, sent(B))
    assert found == [f"The stream of {A}, {B} was given up (cancelled, 1 rows missing), the network had not ended it."]


def test_a_data_failure_ends_the_streams_of_its_prompt():
    steps = [sent(A, B), failed("data"), ended("cancelled", 1), BudgetSpent(G, "", "data", 1, 2), sent(B)]
    assert judged(RowsShareNoFate, *steps) == []


def test_an_expired_deadline_ends_the_streams_of_its_group_attempt_only():
    steps = [sent(A, B), RolloutTimedOut(G, 2.0, 0.0), ended("cancelled", 2), BudgetSpent(G, "", "infra", 1, 5), sent(A, B)]
    assert judged(RowsShareNoFate, *steps) == []
    assert len(judged(RowsShareNoFate, *steps, ended("cancelled", 2), sent(A, B))) == 1


def test_an_item_taken_after_a_data_failure_breaks_I35():
    steps = [sent(A, B), failed("data"), of("stream", CompletionArrived(B))]
    assert judged(RowsShareNoFate, *steps) == [f"{B} was taken from a stream that a data failure had ended."]


def test_a_drop_and_a_lost_parent_may_end_a_stream():
    dropped = [sent(A, B), GroupDropped(G, 0, "discarded"), ended("cancelled", 2), sent(B)]
    with_parent = [sent(A, B), REFUSED, sent(A, task=AGAIN), over("lost"), ended("cancelled", 1, AGAIN), ended("broken", 1)]
    assert judged(RowsShareNoFate, *dropped) == []
    assert judged(RowsShareNoFate, *with_parent, sent(B)) == []


def test_a_re_send_that_is_refused_again_has_two_streams_of_one_name():
    again, end = sent(A, task=AGAIN), ended("clean", task=AGAIN)
    steps = [sent(A, B), REFUSED, again, over(task=AGAIN), again, over(task=AGAIN), end, end, over(), ended("clean")]
    assert judged(RowsShareNoFate, *steps) == []


# --- I36


def test_a_refused_row_that_is_sent_again_is_held():
    assert judged(RefusedRowsAreSentAgain, sent(A), REFUSED, sent(A, task=AGAIN), ended("clean")) == []


@pytest.mark.parametrize("excuse", [AttemptAbandoned(f"{G}_g0", A, "group-failed"), GroupDropped(G, 0, "discarded")])
def test_a_row_that_was_given_up_need_not_be_sent_again(excuse):
    assert judged(RefusedRowsAreSentAgain, sent(A), REFUSED, excuse, ended("clean")) == []


def test_a_broken_stream_need_not_send_again():
    assert judged(RefusedRowsAreSentAgain, sent(A), REFUSED, ended("broken")) == []


def test_a_refused_row_that_is_left_behind_breaks_I36():
    found = judged(RefusedRowsAreSentAgain, sent(A), REFUSED, ended("clean"))
    assert found == [f"{A} was refused, and its stream ended before it was sent again."]


# --- I37


def test_streams_that_end_before_their_group_are_held():
    steps = [sent(A, B), sent(A, task=AGAIN), ended("clean", task=AGAIN), ended("clean"), FinalizeIssued(G), RunEnded(1)]
    assert judged(NoStreamOutlivesItsRollout, *steps) == []


def test_a_re_send_that_outlives_its_stream_breaks_I37():
    found = judged(NoStreamOutlivesItsRollout, sent(A, B), sent(A, task=AGAIN), ended("broken"), ended("broken", task=AGAIN))
    assert found == [f"The stream of {A}, {B} ended while {AGAIN} still ran a row of it."]


def test_a_stream_fails_with_its_re_send():
    resent = [sent(A, B), REFUSED, sent(A, task=AGAIN), failed("data", task=AGAIN), ended("cancelled", task=AGAIN)]
    assert judged(NoStreamOutlivesItsRollout, *resent, ended("cancelled", 1)) == []
    assert judged(NoStreamOutlivesItsRollout, *resent, over(), ended("clean")) == [
        f"stream ended clean though its re-send {AGAIN} had failed."
    ]
    later = ("controller", CompletionArrived(B), 1.0, "stream")
    assert judged(NoStreamOutlivesItsRollout, *resent, later) == [f"stream took {B} after its re-send {AGAIN} had failed."]


def test_a_row_lost_by_a_re_send_ends_no_stream():
    resent = [sent(A, B), REFUSED, sent(A, task=AGAIN), failed("infra", task=AGAIN), ended("clean", task=AGAIN)]
    later = ("controller", CompletionArrived(B), 1.0, "stream")
    assert judged(NoStreamOutlivesItsRollout, *resent, later, ended("clean")) == []


@pytest.mark.parametrize(
    ("steps", "what"),
    [
        ([FinalizeIssued(G)], "was finalized"),
        ([GroupDropped(G, 0, "discarded"), StagingCleared(G, 2)], "was dropped and cleared"),
        ([RunEnded(1)], "was left by the run's end"),
    ],
)
def test_a_stream_that_outlives_its_group_breaks_I37(steps, what):
    assert judged(NoStreamOutlivesItsRollout, sent(A), *steps) == [f"{G} {what} while stream was open for {A}."]


def test_a_published_group_may_clear_its_rows_at_any_time():
    assert judged(NoStreamOutlivesItsRollout, sent(A), StagingCleared(G, 2), ended("clean")) == []


# --- I38


def replaced(generation, why="lost-row"):
    return AttemptReserved(f"{G}_g{generation}", f"{G}_g{generation}r1-a0", why)


LEFT = MutationLeft("data-plane", "recovery_retries", 1, False)
NEW = GroupReserved(G, 0, 0, 0, 2)


def test_a_cohort_that_is_replaced_is_a_new_group_attempt():
    steps = [NEW, sent(A, B, group_attempt=0), replaced(0), replaced(1), GroupAttemptRaised(G, 1), LEFT, sent(A, group_attempt=1)]
    assert judged(ALostCohortIsANewGroupAttempt, *steps) == []


def sealed(generation):
    return AttemptSealed(f"{G}_g{generation}", f"{G}_g{generation}r0-a0", f"{G}_g{generation}r0-a0", "digest", 1)


def test_a_row_that_is_replaced_beside_a_sealed_one_stays_in_its_group_attempt():
    steps = [NEW, sealed(1), replaced(0), LEFT, sent(A, group_attempt=0)]
    assert judged(ALostCohortIsANewGroupAttempt, *steps) == []
    found = judged(ALostCohortIsANewGroupAttempt, *steps[:3], GroupAttemptRaised(G, 1), LEFT)
    assert found == [f"{G} went to another attempt, {G}_g1 had sealed under this one."]


@pytest.mark.parametrize("generations", [(0, 1), (0,)])  # the other one was refused, and comes again under its own identity
def test_a_cohort_under_its_old_group_attempt_breaks_I38(generations):
    found = judged(ALostCohortIsANewGroupAttempt, NEW, *(replaced(one, "retry") for one in generations), LEFT)
    assert found == [f"The whole cohort of {G} was lost, and its group attempt stayed."]


def test_who_had_sealed_before_a_group_attempt_is_none_of_its_cohort():
    steps = [NEW, replaced(0), GroupAttemptRaised(G, 1), LEFT, sealed(1), replaced(0), LEFT]
    assert judged(ALostCohortIsANewGroupAttempt, *steps) == []
    start = snapshot(group(0, attempt(A, "RESERVED"), attempt(B, "SEALED", receipt="r"), group_attempt=0))
    found = judged(ALostCohortIsANewGroupAttempt, replaced(0), LEFT, start=start, life=2)
    assert found == [f"The whole cohort of {G} was lost, and its group attempt stayed."]


def test_a_group_attempt_that_a_restart_forgot_breaks_I38():
    start = snapshot(group(0, attempt(A, "RESERVED"), attempt(B, "RESERVED"), group_attempt=2))
    assert judged(ALostCohortIsANewGroupAttempt, sent(A, B, group_attempt=2), start=start, life=2) == []
    found = judged(ALostCohortIsANewGroupAttempt, sent(A, B, group_attempt=0), GroupAttemptRaised(G, 1), start=start, life=2)
    assert found == [f"{G} was sent as attempt 0; it has reached 2.", f"{G} went from attempt 2 to 1."]
