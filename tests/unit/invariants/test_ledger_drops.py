"""I7, I8: what is dropped is ended in Gym, and forgotten only then."""

from __future__ import annotations

from ledger_files import judged

from invariants.ledger.dropped_is_retired import DroppedIsRetired
from invariants.ledger.forgotten_was_retired import ForgottenWasRetired
from protocol.history import (
    AttemptAbandoned,
    AttemptSealed,
    CompletionArrived,
    ControlIssued,
    EpisodeInstalled,
    ExclusiveEntered,
    ExclusiveLeft,
    FailureArrived,
    ForgetIssued,
    GroupDropped,
    MarkForgotten,
    MutationLeft,
    RefusalArrived,
    Restored,
    RetireAccepted,
    RetireMarked,
    RetireQueued,
    RowsSubmitted,
    key_set,
)

G = "e0p0i1"
S = f"{G}_g0"
A, RESTORED = f"{S}r0-a0", f"{S}r0-a1"
SENT = RowsSubmitted(G, "gym-0", (A,))
DROPPED = [AttemptAbandoned(S, A, "discarded"), GroupDropped(G, 0, "discarded")]
QUEUED = RetireQueued(A, "discarded")
LEFT = MutationLeft("data-plane", "group_removals", 1, False)
CLOSED = ExclusiveEntered("dispatch")
MARKED = ("gym-0", RetireMarked("agent", f"{S}r0", 0))
PREPARE = ControlIssued("prepare", "gym-0", "1.1", 10.0, 1.0)


def test_a_sent_attempt_is_queued_in_the_mutation_that_drops_it():
    assert judged(DroppedIsRetired, SENT, DROPPED[0], QUEUED, DROPPED[1], LEFT) == []


def test_a_sent_attempt_that_is_dropped_and_not_queued_breaks_I7():
    assert judged(DroppedIsRetired, SENT, *DROPPED, LEFT) == [
        f"{A} left the ledger while Gym may hold it, and was not queued for retire."
    ]


def test_another_task_leaving_its_mutation_proves_nothing():
    assert judged(DroppedIsRetired, SENT, DROPPED[0], ("controller", LEFT, 1.0, "other"), QUEUED, LEFT) == []


def test_a_lost_row_that_is_never_queued_breaks_I7_at_the_end():
    found = judged(DroppedIsRetired, SENT, AttemptAbandoned(S, A, "lost-row"))
    assert found == [f"{A} left the ledger while Gym may hold it, and was never queued for retire."]


def test_what_answered_failed_or_was_refused_is_not_in_gym():
    for over in (CompletionArrived(A), FailureArrived(A, "infra"), RefusalArrived(A, "checkpoint_parked")):
        assert judged(DroppedIsRetired, SENT, over, *DROPPED, LEFT) == []


def test_a_restored_continuation_is_held_by_gym_though_it_was_only_refused():
    installed = ("gym-0", EpisodeInstalled(RESTORED, A, 1, "s"))
    sent = [RowsSubmitted(G, "gym-0", (RESTORED,)), RefusalArrived(RESTORED, "checkpoint_parked")]
    dropped = [AttemptAbandoned(S, RESTORED, "discarded"), LEFT]
    assert judged(DroppedIsRetired, installed, *dropped) == judged(DroppedIsRetired, installed, *sent, *dropped) != []


def test_gym_parks_only_after_the_retire_was_accepted():
    queued = [SENT, DROPPED[0], QUEUED, LEFT, CLOSED]
    assert judged(DroppedIsRetired, *queued, MARKED, RetireAccepted(A), PREPARE) == []
    assert judged(DroppedIsRetired, *queued, PREPARE) == [f"Gym was asked to park while the retire of {A} was not accepted."]


def test_a_drop_recorded_after_the_gate_closed_waits_for_the_next_checkpoint():
    assert judged(DroppedIsRetired, SENT, CLOSED, DROPPED[0], QUEUED, LEFT, PREPARE) == []


def test_a_retire_is_asked_while_dispatch_is_closed():
    none = key_set(())
    restored = Restored("", 0, 0, 0, 0, 0, -1, 0, 0, 0, none, none, none, none, "")
    retire = ControlIssued("retire", "gym-0", "", 1.0, 0.1)
    assert judged(DroppedIsRetired, retire, restored, CLOSED, retire) == []  # a failed restore is undone before anything runs
    asked = "gym-0 was asked to retire while rows could be dispatched."
    assert judged(DroppedIsRetired, restored, retire, CLOSED) == [asked]
    assert judged(DroppedIsRetired, restored, CLOSED, ExclusiveLeft("dispatch"), retire) == [asked]


def test_an_accepted_retire_that_left_no_mark_breaks_I7():
    found = judged(DroppedIsRetired, SENT, DROPPED[0], QUEUED, LEFT, RetireAccepted(A))
    assert found == [f"The retire of {A} counts as accepted, but no participant of gym-0 marked it."]


def test_a_mark_on_another_instance_than_the_one_that_holds_it_breaks_I7():
    elsewhere = ("gym-1", MARKED[1])
    found = judged(DroppedIsRetired, SENT, DROPPED[0], QUEUED, LEFT, elsewhere, RetireAccepted(A))
    assert found == [f"The retire of {A} counts as accepted, but no participant of gym-0 marked it."]


ROLLOUT = f"{S}r0"
FORGOTTEN = ("gym-0", MarkForgotten("agent", ROLLOUT))


def test_a_retired_rollout_is_forgotten():
    assert judged(ForgottenWasRetired, QUEUED, RetireAccepted(A), ForgetIssued(ROLLOUT), FORGOTTEN) == []


def test_a_restored_rollout_is_forgotten_once_its_continuation_has_sealed():
    assert judged(ForgottenWasRetired, AttemptSealed(S, RESTORED, RESTORED, "r", 1), ForgetIssued(ROLLOUT), FORGOTTEN) == []


def test_forgetting_a_queued_rollout_breaks_I8():
    assert judged(ForgottenWasRetired, QUEUED, ForgetIssued(ROLLOUT)) == [
        f"{ROLLOUT} is to be forgotten while the retire of {A} is queued."
    ]


def test_forgetting_after_a_first_attempt_sealed_breaks_I8():
    found = judged(ForgottenWasRetired, AttemptSealed(S, A, A, "r", 1), ForgetIssued(ROLLOUT))
    assert found == [f"{ROLLOUT} is to be forgotten, but was neither retired nor continued and sealed."]


def test_a_mark_cleared_unasked_breaks_I8():
    assert judged(ForgottenWasRetired, FORGOTTEN) == [f"agent cleared the mark of {ROLLOUT}, which nobody asked to forget."]
