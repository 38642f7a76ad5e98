"""I9: retire marks go at the checkpoint after they have served."""

from __future__ import annotations

from ledger_files import judged

from invariants.ledger.marks_are_forgotten import MarksAreForgotten
from protocol.history import (
    AttemptAbandoned,
    AttemptSealed,
    ControlDone,
    ControlIssued,
    ForgetAccepted,
    ForgetQueued,
    GymPhaseEnded,
    GymPhaseStarted,
    MarkForgotten,
    ProcessStarted,
    RetireAccepted,
    RetireMarked,
)

R = "e0p0i1_g0r0"
MARKED = [("gym-0", RetireMarked(name, R, 0)) for name in ("agent", "environment")]
CLEARED = [("gym-0", MarkForgotten(name, R)) for name in ("agent", "environment")]
RETIRED = [*MARKED, RetireAccepted(f"{R}-a0")]
QUEUED = ForgetQueued(R, "retired")
STARTED, CUT = GymPhaseStarted("1.2"), GymPhaseEnded("1.2", "cut", 0.1)
PARKS = ControlIssued("prepare", "gym-0", "1.2", 1.0, 0.1)
REFUSED = ControlDone("forget", "gym-0", "", "refused", "Refusal", "unavailable")


def test_marks_that_go_with_the_next_cut_are_held():
    assert judged(MarksAreForgotten, *RETIRED, STARTED, *CLEARED, ForgetAccepted(R), CUT) == []


def test_a_mark_may_stay_until_the_checkpoint_after_its_retire():
    assert judged(MarksAreForgotten, STARTED, *RETIRED, CUT) == []
    assert judged(MarksAreForgotten, *RETIRED, STARTED, GymPhaseEnded("1.2", "failed", 0.1)) == []


def test_a_mark_that_stays_breaks_I9():
    found = judged(MarksAreForgotten, *RETIRED, STARTED, CLEARED[0], CUT)
    assert found == [f"gym-0: environment still holds a mark of {R}."]


def test_a_sealed_continuation_leaves_no_mark():
    sealed = AttemptSealed("e0p0i1_g0", f"{R}-a1", f"{R}-a1", "r", 1)
    assert judged(MarksAreForgotten, *MARKED, sealed, STARTED, *CLEARED, CUT) == []
    found = judged(MarksAreForgotten, *MARKED, sealed, STARTED, CUT)
    assert found == [f"gym-0: agent still holds a mark of {R}."]


def test_a_continuation_that_was_given_up_leaves_no_mark():
    given_up = AttemptAbandoned("e0p0i1_g0", f"{R}-a1", "row-failed")
    retired = RetireAccepted(f"{R}-a1")
    assert judged(MarksAreForgotten, *MARKED, given_up, STARTED, retired, *CLEARED, CUT) == []
    assert judged(MarksAreForgotten, *MARKED, STARTED, given_up, CUT) == []
    assert judged(MarksAreForgotten, *MARKED, given_up, STARTED, CUT) == [f"gym-0: agent still holds a mark of {R}."]


def test_a_refused_forget_must_stay_queued():
    assert judged(MarksAreForgotten, *RETIRED, QUEUED, STARTED, REFUSED, CUT) == []
    found = judged(MarksAreForgotten, *RETIRED, QUEUED, STARTED, REFUSED, ForgetAccepted(R), CUT)
    counts = f"The forget of {R} counts as accepted; ('gym-0', 'agent') keeps its mark."
    assert found == [counts, f"gym-0: agent still holds a mark of {R}."]


def asked(operation):
    return ControlIssued(operation, "gym-0", "", 1.0, 0.1)


def test_a_refused_forget_is_retired_and_asked_once_more():
    refused = [*RETIRED, QUEUED, STARTED, asked("forget"), REFUSED]
    assert judged(MarksAreForgotten, *refused, asked("retire"), asked("forget"), REFUSED, PARKS, CUT) == []
    assert judged(MarksAreForgotten, *refused, GymPhaseEnded("1.2", "dropped", 0.1), STARTED, asked("forget")) == []
    again = "gym-0 refused to forget and was asked again without another retire before it."
    assert judged(MarksAreForgotten, *refused, asked("forget"), PARKS) == [again]
    parked = "gym-0 refused to forget and was parked before it was asked once more."
    assert judged(MarksAreForgotten, *refused, PARKS) == [parked]
    assert judged(MarksAreForgotten, *refused, asked("retire"), PARKS) == [parked]


def test_marks_go_with_their_process():
    assert judged(MarksAreForgotten, *RETIRED, ("gym-0", ProcessStarted()), STARTED, CUT) == []
