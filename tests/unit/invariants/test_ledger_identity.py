"""I1, I2, I3: one execution a key, one current attempt, one result a sibling."""

from __future__ import annotations

from ledger_files import attempt, group, judged, snapshot

from invariants.ledger.one_live_execution import OneLiveExecution
from invariants.ledger.one_sealed_attempt import OneSealedAttempt
from invariants.ledger.seal_is_current import SealIsCurrent
from protocol.history import (
    AttemptAbandoned,
    AttemptDispatched,
    AttemptReserved,
    AttemptSealed,
    CompletionArrived,
    EpisodeAdmitted,
    EpisodeEnded,
    EpisodeRefused,
    FinalizeDone,
    ProcessStarted,
    RestoreChosen,
    StreamEnded,
)

G = "e0p0i1"
S0, S1 = f"{G}_g0", f"{G}_g1"
A, B = f"{S0}r0-a0", f"{S0}r1-a0"


def admitted(key, process="gym-0"):
    return (process, EpisodeAdmitted(key, 0, 0, False, 0))


def test_a_key_sent_again_after_a_refusal_runs_once():
    refused = ("gym-0", EpisodeRefused(A, "checkpoint_parked"))
    assert judged(OneLiveExecution, refused, admitted(A), ("gym-0", EpisodeEnded(A, "replied"))) == []


def test_a_lost_row_and_its_replacement_may_run_side_by_side():
    assert judged(OneLiveExecution, admitted(A), admitted(B, "gym-1")) == []


def test_a_key_that_runs_in_two_places_breaks_I1():
    assert judged(OneLiveExecution, admitted(A), admitted(A, "gym-1")) == [f"{A} was admitted on gym-1 while {A} ran on gym-0."]


def test_a_key_that_runs_again_after_its_end_breaks_I1():
    found = judged(OneLiveExecution, admitted(A), ("gym-0", EpisodeEnded(A, "failed")), admitted(A))
    assert found == [f"{A} was admitted on gym-0, but had run on gym-0."]


def test_two_attempts_of_one_rollout_alive_break_I1():
    assert "while" in judged(OneLiveExecution, admitted(A), admitted(f"{S0}r0-a1"))[0]


def test_an_instance_that_restarts_may_run_its_own_session_on():
    assert judged(OneLiveExecution, admitted(A), ("gym-0", ProcessStarted()), admitted(A)) == []


def sent(key, sample=S0):
    return [AttemptReserved(sample, key, "new"), AttemptDispatched(sample, key, "gym-0", 1)]


def sealed(key, sample=S0, current=None, receipt="r"):
    return AttemptSealed(sample, key, current or key, receipt, 1)


def test_a_seal_of_the_current_attempt_is_held():
    assert judged(SealIsCurrent, *sent(A), CompletionArrived(A), sealed(A)) == []


def test_a_restored_attempt_needs_no_reservation_in_this_life():
    continuation = f"{S0}r0-a1"
    steps = [AttemptDispatched(S0, continuation, "gym-0", 1), CompletionArrived(continuation), sealed(continuation)]
    assert judged(SealIsCurrent, *steps) == []


def test_a_seal_under_another_current_key_breaks_I2():
    found = judged(SealIsCurrent, *sent(A), CompletionArrived(A), sealed(A, current=B))
    assert found == [f"{A} was sealed while the ledger's current attempt was {B}."]


def test_a_late_completion_of_a_replaced_attempt_breaks_I2_whatever_the_event_says():
    replaced = [AttemptAbandoned(S0, A, "lost-row"), AttemptReserved(S0, B, "lost-row")]
    found = judged(SealIsCurrent, *sent(A), *replaced, CompletionArrived(A), sealed(A, current=A))
    assert found == [f"{A} was sealed while the last reserved attempt was {B}."]


def test_a_seal_without_a_completion_breaks_I2():
    assert judged(SealIsCurrent, *sent(A), sealed(A)) == [f"{A} was sealed but no completion of it had arrived."]


def test_a_completion_that_counts_as_lost_breaks_I2():
    came = [*sent(A), CompletionArrived(A)]
    lost = AttemptAbandoned(S0, A, "lost-row")
    assert judged(SealIsCurrent, *came, lost) == [f"{A} counts as lost; its completion had arrived while it was current."]
    assert judged(SealIsCurrent, *sent(A), lost, CompletionArrived(A)) == []
    assert judged(SealIsCurrent, *came, StreamEnded(G, "gym-0", "cancelled", 0), lost) == []  # before it could be sealed


def test_a_seal_of_an_attempt_that_was_not_dispatched_breaks_I2():
    found = judged(SealIsCurrent, AttemptReserved(S0, A, "new"), CompletionArrived(A), sealed(A))
    assert found == [f"{A} was sealed but is not dispatched in this life."]


FINALIZED = FinalizeDone(G, (S0, S1), ("r0", "r1"), 2)


def test_a_group_finalized_from_its_sealed_receipts_is_held():
    assert judged(OneSealedAttempt, sealed(A, receipt="r0"), sealed(f"{S1}r0-a0", S1, receipt="r1"), FINALIZED) == []


def test_an_identical_repeat_of_a_seal_changes_nothing():
    steps = [sealed(A, receipt="r0"), sealed(A, receipt="r0"), sealed(f"{S1}r0-a0", S1, receipt="r1"), FINALIZED]
    assert judged(OneSealedAttempt, *steps) == []


def test_a_second_result_of_a_sibling_breaks_I3():
    found = judged(OneSealedAttempt, sealed(A, receipt="r0"), sealed(B, receipt="r9"))
    assert found == [f"{B} sealed receipt r9, after {A} had sealed r0."]


def test_a_group_finalized_from_another_receipt_breaks_I3():
    found = judged(OneSealedAttempt, sealed(A, receipt="r0"), sealed(f"{S1}r0-a0", S1, receipt="r2"), FINALIZED)
    assert len(found) == 1 and "not its 2 sealed ones" in found[0]


def test_running_a_sealed_sibling_again_breaks_I3():
    found = judged(OneSealedAttempt, sealed(A, receipt="r0"), AttemptReserved(S0, B, "retry"))
    assert found == [f"{B} was reserved (retry) though {A} is sealed."]


RESTORED = snapshot(group(0, attempt(A, "SEALED", receipt="r0"), attempt(f"{S1}r0-a0", "RESERVED")))


def test_a_sealed_sibling_of_the_restore_point_may_not_run_again():
    assert judged(OneSealedAttempt, AttemptReserved(S0, B, "restart"), start=RESTORED, life=2) == [
        f"{B} was reserved (restart) though {A} is sealed."
    ]


def test_receipts_of_the_restore_point_count_at_finalization():
    assert judged(OneSealedAttempt, sealed(f"{S1}r0-a0", S1, receipt="r1"), FINALIZED, start=RESTORED, life=2) == []


def test_what_was_restored_from_elsewhere_is_not_judged_here():
    steps = [RestoreChosen("step_1", 3), AttemptReserved(S0, B, "restart")]
    assert judged(OneSealedAttempt, *steps, start=RESTORED, life=2) == []
