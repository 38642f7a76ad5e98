"""I4, I5, I6: what a send, a refusal and a replacement do to the ledger and to its budgets."""

from __future__ import annotations

from ledger_files import attempt, group, judged, snapshot, terms

from invariants.ledger.dispatched_is_submitted import DispatchedIsSubmitted
from invariants.ledger.new_identity_costs_one import NewIdentityCostsOne
from invariants.ledger.refusal_costs_nothing import RefusalCostsNothing
from protocol.history import (
    AttemptAbandoned,
    AttemptDispatched,
    AttemptRefused,
    AttemptReserved,
    AttemptSealed,
    BudgetSpent,
    EpisodeAdmitted,
    EpisodeRefused,
    ExclusiveEntered,
    ExclusiveLeft,
    FailureArrived,
    GroupDropped,
    RefusalArrived,
    RowsSubmitted,
    StreamEnded,
)

G = "e0p0i1"
S = f"{G}_g0"
A, B = f"{S}r0-a0", f"{S}r1-a0"
CLOSED = ExclusiveEntered("dispatch")


def dispatched(key=A, spent=1):
    return AttemptDispatched(S, key, "gym-0", spent)


def submitted(*keys):
    return RowsSubmitted(G, "gym-0", keys)


def test_marked_and_submitted_in_either_order_is_held():
    assert judged(DispatchedIsSubmitted, dispatched(), submitted(A), CLOSED) == []
    assert judged(DispatchedIsSubmitted, submitted(A), dispatched(), CLOSED) == []


def test_a_mark_without_a_submission_breaks_I4():
    assert judged(DispatchedIsSubmitted, dispatched(), CLOSED) == [f"The gate closed while {A} was DISPATCHED but not submitted."]


def test_a_submission_without_a_mark_breaks_I4():
    steps = [dispatched(), submitted(A), AttemptRefused(S, A, 1, 0, 0), submitted(A), CLOSED]
    assert judged(DispatchedIsSubmitted, *steps) == [f"The gate closed while {A} was submitted but not DISPATCHED."]


def test_an_attempt_whose_outcome_is_in_the_ledger_owes_nothing():
    outcomes = [AttemptSealed(S, A, A, "r", 1), AttemptAbandoned(S, A, "discarded"), GroupDropped(G, 0, "discarded")]
    assert [judged(DispatchedIsSubmitted, dispatched(), outcome, CLOSED) for outcome in outcomes] == [[], [], []]


def test_a_dispatch_behind_the_closed_gate_breaks_I4():
    found = judged(DispatchedIsSubmitted, CLOSED, dispatched(), submitted(A))
    assert found == [f"{A} was marked DISPATCHED while the gate was closed.", f"{A} submitted while the gate was closed."]
    assert judged(DispatchedIsSubmitted, CLOSED, ExclusiveLeft("dispatch"), dispatched(), submitted(A)) == []


def test_the_data_plane_barrier_is_not_the_gate():
    assert judged(DispatchedIsSubmitted, dispatched(), ExclusiveEntered("data-plane")) == []


def test_a_row_comes_to_an_instance_only_if_it_was_submitted_to_it():
    arrivals = EpisodeAdmitted(A, 0, 0, False, 0), EpisodeRefused(A, "checkpoint_parked")
    for arrival in arrivals:
        assert judged(DispatchedIsSubmitted, submitted(A), dispatched(), ("gym-0", arrival)) == []
        assert judged(DispatchedIsSubmitted, ("gym-0", arrival)) == [f"{A} came to gym-0: nobody submitted it."]
        found = judged(DispatchedIsSubmitted, submitted(A), dispatched(), ("gym-1", arrival))
        assert found == [f"{A} came to gym-1: it was submitted to gym-0."]


PARKED = ("gym-0", EpisodeRefused(A, "checkpoint_parked"))
HEARD = RefusalArrived(A, "checkpoint_parked")
REFUSED = AttemptRefused(S, A, 1, 0, 0)


def refusal(*steps, start=None):
    return judged(RefusalCostsNothing, dispatched(), *steps, start=start)


def test_a_refused_attempt_is_sent_again_under_its_key():
    assert refusal(PARKED, HEARD, REFUSED, dispatched(), AttemptSealed(S, A, A, "r", 1)) == []


def test_a_refusal_that_spends_a_row_attempt_breaks_I5():
    assert refusal(PARKED, HEARD, AttemptRefused(S, A, 2, 0, 0)) == [f"{A}: row attempts went from 1 to 2 at its refusal."]


def test_a_refusal_that_spends_a_data_failure_breaks_I5():
    assert refusal(PARKED, HEARD, AttemptRefused(S, A, 1, 0, 1)) == [f"{A}: data failures went from 0 to 1 at its refusal."]


def test_budgets_of_the_restore_point_are_the_base():
    start = snapshot(group(0, attempt(A, "RESERVED"), infra_spent=2))
    assert refusal(PARKED, HEARD, AttemptRefused(S, A, 1, 2, 0), start=start) == []
    assert refusal(PARKED, HEARD, REFUSED, start=start) == [f"{A}: infra failures went from 2 to 0 at its refusal."]


def test_a_refusal_counted_as_a_failure_breaks_I5_though_the_core_never_calls_it_a_refusal():
    found = refusal(PARKED, FailureArrived(A, "data"))
    assert found == [f"{A} was refused as parked by Gym and counted as a data failure."]


def test_a_budget_charged_for_a_refused_key_breaks_I5():
    found = refusal(PARKED, HEARD, REFUSED, BudgetSpent(G, A, "row", 2, 3))
    assert found == [f"{A} was refused as parked and cost a row attempt (2 spent)."]


def test_a_new_identity_for_a_refused_row_breaks_I5():
    found = refusal(PARKED, HEARD, REFUSED, AttemptAbandoned(S, A, "lost-row"))
    assert found == [f"{A} was abandoned (lost-row) after its refusal, without being sent again."]


def test_a_new_identity_before_the_refusal_is_in_the_ledger_breaks_I5():
    found = refusal(PARKED, HEARD, AttemptReserved(S, B, "lost-row"))
    assert found == [f"{B} (lost-row) took the place of {A}, which was only refused."]


def test_a_row_that_was_never_sent_keeps_its_identity():
    assert judged(RefusalCostsNothing, AttemptAbandoned(S, A, "lost-row")) == [
        f"{A} was abandoned (lost-row) though it was never sent in this life."
    ]


def test_a_refused_row_that_was_sent_again_and_lost_is_replaced():
    lost = [StreamEnded(G, "gym-0", "broken", 1), AttemptAbandoned(S, A, "lost-row"), BudgetSpent(G, A, "row", 2, 3)]
    assert refusal(PARKED, HEARD, REFUSED, dispatched(), *lost) == []


def test_a_refusal_that_its_broken_stream_lost_is_a_lost_row():
    lost = [StreamEnded(G, "gym-0", "broken", 1), AttemptAbandoned(S, A, "lost-row"), BudgetSpent(G, A, "row", 2, 3)]
    assert refusal(PARKED, *lost) == []


def test_the_end_of_another_stream_does_not_make_a_refusal_unheard():
    assert refusal(PARKED, HEARD, StreamEnded(G, "gym-1", "clean", 0), REFUSED) == []


def test_a_dropped_group_takes_its_refused_rows_along():
    dropped = [AttemptAbandoned(S, A, "discarded"), GroupDropped(G, 0, "discarded")]
    assert refusal(PARKED, HEARD, *dropped) == []
    assert refusal(PARKED, HEARD, REFUSED, *dropped) == []


def test_an_admitted_attempt_that_becomes_reserved_breaks_I5():
    found = refusal(("gym-0", EpisodeAdmitted(A, 0, 0, False, 0)), HEARD, REFUSED)
    assert found == [f"{A} became RESERVED though Gym had admitted it."]


def test_a_reservation_without_any_refusal_breaks_I5():
    assert refusal(REFUSED) == [f"{A} became RESERVED though no refusal of it had arrived."]


def identity(*steps, start=None, **job):
    return judged(NewIdentityCostsOne, *steps, start=start, given=terms(**job))


NEW = AttemptReserved(S, A, "new")
LOST = [AttemptAbandoned(S, A, "lost-row"), BudgetSpent(G, A, "row", 2, 3), AttemptReserved(S, B, "lost-row")]


def test_a_replacement_costs_one_row_attempt():
    assert identity(NEW, dispatched(), *LOST, dispatched(B, 2)) == []


def test_a_free_replacement_breaks_I6():
    assert identity(NEW, dispatched(), *LOST, dispatched(B, 1)) == [f"{B} was sent with 1 row attempts spent; its chain has 2."]


def test_a_resend_that_costs_breaks_I6():
    assert identity(NEW, dispatched(), dispatched(A, 2)) == [f"{A} was sent with 2 row attempts spent; its chain has 1."]


def test_more_sends_than_allowed_break_I6():
    found = identity(NEW, dispatched(), *LOST, dispatched(B, 2), rollout_failure={"nemo_gym": {"max_row_attempts": 1}})
    assert f"{B} is send 2 of its chain; 1 are allowed." in found


def test_a_key_charged_twice_breaks_I6():
    found = identity(NEW, dispatched(), *LOST, BudgetSpent(G, A, "row", 2, 3))
    assert found == [f"{A} was charged a second row attempt."]


RESTORED = snapshot(group(0, attempt(A, "DISPATCHED"), infra_spent=3))


def test_a_restart_spends_no_row_attempt():
    assert identity(AttemptReserved(S, B, "restart"), dispatched(B, 1), start=RESTORED) == []
    found = identity(AttemptReserved(S, B, "restart"), dispatched(B, 2), start=RESTORED)
    assert found == [f"{B} was sent with 2 row attempts spent; its chain has 1."]


def test_a_budget_reset_by_a_restart_breaks_I6():
    assert identity(BudgetSpent(G, "", "infra", 4, 5), start=RESTORED) == []
    assert identity(BudgetSpent(G, "", "infra", 1, 5), start=RESTORED) == [f"{G}: infra failures went from 3 to 1."]


def test_a_group_that_failed_whole_starts_a_new_chain():
    retry = [BudgetSpent(G, "", "infra", 1, 5), AttemptReserved(S, f"{S}r2-a0", "retry"), dispatched(f"{S}r2-a0", 1)]
    assert identity(NEW, dispatched(), *LOST, dispatched(B, 2), *retry) == []
