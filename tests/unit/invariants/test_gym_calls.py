"""I30, I31, I32: control calls end, admission reopens, and an error means what caused it."""

from __future__ import annotations

import pytest
from ledger_files import judged, terms
from run_files import cut

from invariants.gym.admission_reopens import AdmissionReopens
from invariants.gym.calls_end_in_time import CallsEndInTime
from invariants.gym.errors_have_their_cause import ErrorsHaveTheirCause
from protocol.history import (
    AdmissionClosed,
    AdmissionOpened,
    ControlCancelled,
    ControlDone,
    ControlIssued,
    ControlReceived,
    ExclusiveEntered,
    ExclusiveLeft,
    FailureArrived,
    FaultInjected,
    GymPhaseEnded,
    GymPhaseStarted,
    ProbeDone,
    ProbeIssued,
    ProcessContinued,
    ProcessKilled,
    ProcessStalled,
    ProcessStarted,
    Restored,
    RunFailed,
    SnapshotBroke,
    SnapshotPublished,
    SnapshotStarted,
    StallReported,
    StepCommitted,
    key_set,
)
from protocol.judging import Contract, RunStatus

NONE = key_set(())
RESTORED = Restored("", 0, 0, 0, 0, 0, -1, 0, 0, 0, NONE, NONE, NONE, NONE, "")
COMMIT = ("commit", "gym-0", "1.1")
ISSUED = ControlIssued(*COMMIT, 10.0, 1.0)
DONE, CANCELLED = ControlDone(*COMMIT, "ok", "", ""), ControlCancelled(*COMMIT)
STEP = StepCommitted(1, 1, (0, 1), 4, "w")
PUBLISHED = SnapshotPublished("bootstrap", 1, 0, 0, 0, 0)


def at(time_s, event, process="controller"):
    return (process, event, time_s)


# --- I30


def test_a_call_that_is_over_at_its_bound_is_held():
    assert judged(CallsEndInTime, at(1, ISSUED), at(11.5, DONE), at(90, STEP)) == []
    cancelled = [at(12, CANCELLED), at(12, ControlDone(*COMMIT, "lost", "Lost", "unavailable"))]
    assert judged(CallsEndInTime, at(1, ISSUED), *cancelled, at(90, STEP)) == []


def test_a_call_answered_too_late_breaks_I30():
    assert judged(CallsEndInTime, at(1, ISSUED), at(12.5, DONE)) == [
        "commit of gym-0 was open at 12.500000 s; it had to be over at 12.000000 s."
    ]


def test_a_call_nobody_gives_up_breaks_I30():
    assert len(judged(CallsEndInTime, at(1, ISSUED), at(20, STEP))) == 1
    assert judged(CallsEndInTime, at(1, ISSUED), status=RunStatus("idle")) == [
        "The run went idle while commit of gym-0 was open."
    ]


def test_a_call_given_up_with_its_phase_is_over():
    assert judged(CallsEndInTime, at(1, ISSUED), at(2, GymPhaseEnded("1.1", "dropped", 1.0)), at(50, STEP)) == []


def test_a_silent_stall_breaks_I30_and_a_reported_one_does_not():
    quiet = [at(0, RESTORED), at(401.5, STEP)]
    assert judged(CallsEndInTime, *quiet) == ["Nothing moved for 401.500 s and nothing was reported within 401 s."]
    assert judged(CallsEndInTime, quiet[0], at(401, StallReported(400.0, "warn")), quiet[1]) == []


def test_a_run_that_never_moves_again_must_have_said_so_by_its_end():
    def found(*steps, **status):
        return judged(CallsEndInTime, at(0, RESTORED), *steps, status=RunStatus(**status))

    assert found(outcome="time", at_s=401.0) == []
    assert found(at(401, StallReported(400.0, "warn")), outcome="time", at_s=402.0) == []
    assert len(found(outcome="time", at_s=402.0)) == len(found(outcome="steps", at_s=402.0)) == 1
    assert found(outcome="idle", at_s=3.0) == ["Nothing can move any more since 0.000 s, and nobody is left to report it."]


def test_once_every_step_is_trained_nothing_must_move():
    last = StepCommitted(3, 3, (0,), 1, "w")
    assert judged(CallsEndInTime, at(0, RESTORED), at(9, last), status=RunStatus("time", at_s=900.0)) == []


# --- I31


def received(operation, lease_s):
    return ControlReceived(operation, "1.1", lease_s)


CLOSED = AdmissionClosed("1.1")


def opened(why):
    return AdmissionOpened("1.1", why)


def gym(*timed, status=None):
    steps = [at(time_s, event, "gym-0") for time_s, event in timed]
    return judged(AdmissionReopens, *steps, **({"status": status} if status else {}))


def test_admission_reopened_by_resume_or_by_its_lease_is_held():
    assert gym((0, received("prepare", 20)), (1, CLOSED), (5, received("resume", 20)), (5, opened("resume"))) == []
    assert gym((0, received("prepare", 20)), (1, CLOSED), (20, opened("lease"))) == []


def test_admission_closed_beyond_its_lease_breaks_I31():
    found = gym((0, received("prepare", 20)), (1, CLOSED), (20.5, opened("lease")))
    assert found == ["gym-0 was still closed for checkpoint 1.1 at 20.500000 s; its lease ended at 20.000000 s."]
    steps = [at(0, received("prepare", 20), "gym-0"), at(1, CLOSED, "gym-0"), at(30, STEP)]
    assert len(judged(AdmissionReopens, *steps)) == 1
    assert gym((0, received("prepare", 20)), (1, CLOSED), status=RunStatus("idle")) == [
        "gym-0 was still closed for checkpoint 1.1 when nothing could happen any more."
    ]


def test_a_later_control_call_extends_the_lease():
    assert gym((0, received("prepare", 20)), (1, CLOSED), (15, received("renew", 20)), (35, opened("lease"))) == []


def test_a_lease_given_up_early_breaks_I31():
    found = gym((0, received("prepare", 20)), (1, CLOSED), (10, opened("lease")))
    assert found == ["gym-0 gave up its lease at 10.000000 s; it lasts until 20.000000 s."]


def test_a_stopped_or_restarted_instance_keeps_its_own_time():
    begun = [at(0, received("prepare", 20), "gym-0"), at(1, CLOSED, "gym-0")]
    stood = [at(5, ProcessStalled("gym-0", 25.0), "job"), at(30, ProcessContinued("gym-0"), "job")]
    assert judged(AdmissionReopens, *begun, *stood, at(30, opened("lease"), "gym-0")) == []
    assert judged(AdmissionReopens, *begun, *stood, at(45, opened("lease"), "gym-0")) == []
    assert len(judged(AdmissionReopens, *begun, *stood, at(46, opened("lease"), "gym-0"))) == 1
    assert judged(AdmissionReopens, *begun, at(5, ProcessKilled("gym-0"), "job"), at(90, STEP)) == []
    assert len(judged(AdmissionReopens, *begun, at(5, ProcessKilled("gym-1"), "job"), at(90, STEP))) == 1
    assert gym((0, received("prepare", 20)), (1, CLOSED), (25, ProcessStarted()))[0].startswith("gym-0 was still closed")
    assert gym((0, received("prepare", 20)), (1, CLOSED), (9, ProcessStarted()), (99, received("resume", 20))) == []


def test_a_lease_that_does_not_cover_the_call_breaks_I31():
    prepare = at(0, ControlIssued("prepare", "gym-0", "1.1", 300.0, 1.0))
    assert judged(AdmissionReopens, prepare, at(1, received("prepare", 310), "gym-0")) == []
    found = judged(AdmissionReopens, prepare, at(1, received("prepare", 20), "gym-0"))
    assert found == ["prepare gave gym-0 a lease of 20 s; its deadline is 300 s and the grace 10 s."]


GATE, GATE_LEFT = ExclusiveEntered("dispatch"), ExclusiveLeft("dispatch")
SNAPSHOT = SnapshotStarted("bootstrap", 1, False)


def test_the_gate_closes_only_for_an_active_checkpoint():
    held = [at(1, GATE), at(1, GymPhaseStarted("1.1")), at(5, GymPhaseEnded("1.1", "cut", 4.0)), at(5, GATE_LEFT)]
    assert judged(AdmissionReopens, at(0, SNAPSHOT), *held, at(9, PUBLISHED)) == []
    assert judged(AdmissionReopens, *held) == []


def test_a_gate_that_stays_closed_breaks_I31():
    kept = [at(0, SNAPSHOT), at(1, GATE), at(2, SnapshotBroke(1, "unavailable", "Lost", "", 1))]
    found = judged(AdmissionReopens, *kept, at(3, STEP))
    assert found == ["The dispatch gate was closed at 3.000000 s; no checkpoint is active since 2.000000 s."]
    assert judged(AdmissionReopens, *kept) == ["The dispatch gate was still closed when the run was over (ended)."]


# --- I32


def done(outcome, error, cause):
    return ControlDone("prepare", "gym-0", "1.1", outcome, error, cause)


def broke(cause, error, consecutive):
    return SnapshotBroke(1, cause, error, "m", consecutive)


def failed(error, cause):
    return RunFailed(error, cause, "m")


def causes(*steps, contract=None):
    return judged(ErrorsHaveTheirCause, RESTORED, *steps, given=terms(contract))


@pytest.mark.parametrize(
    ("outcome", "error", "cause"),
    [
        ("lost", "Lost", "unavailable"),
        ("failed", "PeerFailed", "unavailable"),
        ("refused", "Refusal", "unavailable"),
        ("ok", "", ""),
    ],
)
def test_a_class_that_fits_its_cause_is_held(outcome, error, cause):
    assert causes(done(outcome, error, cause)) == []


@pytest.mark.parametrize(
    ("outcome", "error", "cause"),
    [("lost", "Lost", "broken"), ("failed", "PeerFailed", "data"), ("failed", "OwnershipError", "unavailable")],
)
def test_a_class_that_does_not_fit_breaks_I32(outcome, error, cause):
    assert len(causes(done(outcome, error, cause))) == 1


def test_a_busy_gym_counted_as_a_contradiction_breaks_I32():
    assert causes(done("refused", "Refusal", "unavailable")) == []
    assert causes(done("refused", "Refusal", "broken")) == [
        "prepare of gym-0 was refused (Refusal) and counts as broken; it is unavailable or infra."
    ]


def test_a_commit_may_contradict_unless_a_fault_made_the_outage():
    commit = ControlDone("commit", "gym-0", "1.1", "refused", "Refusal", "broken")
    injected = ("job", FaultInjected("fail_call", "Commit to gym-0: error"))
    assert causes(commit) == []
    assert len(causes(injected, commit)) == 1


def test_a_snapshot_takes_the_class_of_its_control_failures():
    outage = done("refused", "Refusal", "unavailable")
    assert causes(outage, broke("unavailable", "Refusal", 1)) == []
    assert len(causes(outage, broke("broken", "Refusal", 1), failed("SnapshotFailed", "broken"))) == 1
    commit = ControlDone("commit", "gym-0", "1.1", "refused", "Refusal", "broken")
    assert len(causes(outage, commit, broke("unavailable", "Refusal", 1))) == 1


def test_a_mismatch_counted_as_an_outage_breaks_I32():
    assert causes(broke("unavailable", "OwnershipError", 1)) == [
        "A snapshot ended with OwnershipError, which counts as unavailable; it is broken."
    ]


def test_a_mismatch_that_is_tried_again_breaks_I32():
    again = [broke("broken", "OwnershipError", 1), SnapshotStarted("bootstrap", 2, False)]
    assert causes(*again) == ["Another snapshot was started after OwnershipError, a mismatch that ends the run."]
    assert causes(broke("broken", "OwnershipError", 1)) == [
        "The run went on to its end after OwnershipError, a mismatch that ends it."
    ]
    assert causes(broke("broken", "OwnershipError", 1), failed("SnapshotFailed", "broken")) == []


def test_one_outage_that_ends_the_run_breaks_I32():
    once = [done("lost", "Lost", "unavailable"), broke("unavailable", "Lost", 1)]
    assert causes(*once) == []
    assert len(causes(*once, failed("SnapshotFailed", "unavailable"))) == 1
    assert causes(*once, broke("unavailable", "Lost", 2), failed("SnapshotFailed", "unavailable")) == []
    assert causes(*once, failed("SnapshotFailed", "unavailable"), contract=Contract(may_end=("SnapshotFailed",))) == []


def test_an_outage_that_escapes_raw_breaks_I32():
    assert causes(done("lost", "Lost", "unavailable"), failed("Lost", "infra")) == [
        "One transient Lost of Gym ended the run (Lost: m)."
    ]


def test_a_run_that_ends_for_another_reason_is_held():
    assert causes(done("lost", "Lost", "unavailable"), broke("unavailable", "Lost", 1), failed("BudgetExhausted", "data")) == []
    assert causes(broke("unavailable", "Lost", 1), PUBLISHED, failed("Lost", "infra")) == []


def test_a_refused_row_counted_as_a_failure_class_of_its_own_breaks_I32():
    assert causes(FailureArrived("k", "data")) == []
    assert causes(FailureArrived("k", "parked")) == ["The failure of k counts as parked; a row's failure is infra or data."]


# --- I30: probes, and a controller that stands still

PROBED = ProbeIssued("gym-0", 1.0)


def test_a_probe_answered_or_cancelled_within_an_interval_is_held():
    done = ProbeDone("gym-0", "cancelled", 0, -1)
    assert judged(CallsEndInTime, at(0, RESTORED), at(1, PROBED), at(2, done), at(3, STEP)) == []


def test_a_probe_that_outlives_its_interval_breaks_I30():
    assert len(judged(CallsEndInTime, at(0, RESTORED), at(1, PROBED), at(3, STEP))) == 1
    assert len(judged(CallsEndInTime, at(0, RESTORED), at(1, PROBED), at(2.5, ProbeDone("gym-0", "well", 1, -1)))) == 1
    assert len(judged(CallsEndInTime, at(1, ProbeIssued("gym-0", 9.0)))) == 1


def test_bounds_are_of_the_controllers_own_running_time():
    stood = [at(1.5, ProcessStalled("controller", 50.0), "job"), at(51.5, ProcessContinued("controller"), "job")]
    late = [at(0, RESTORED), at(1, PROBED), *stood, at(51.9, ProbeDone("gym-0", "well", 1, -1)), at(440, STEP)]
    assert judged(CallsEndInTime, *late) == []
    other = [at(2, ProcessStalled("gym-0", 50.0), "job"), at(52, ProcessContinued("gym-0"), "job")]
    assert len(judged(CallsEndInTime, at(0, RESTORED), at(1, PROBED), *other, at(53, STEP))) == 1


def test_a_published_cut_that_a_lease_did_not_outlast_breaks_I31():
    parked = [
        at(0, SnapshotStarted("bootstrap", 1, False)),
        at(0, GymPhaseStarted("1.1")),
        at(0, received("prepare", 20), "gym-0"),
        at(1, CLOSED, "gym-0"),
        at(20, opened("lease"), "gym-0"),
        at(21, cut()),
    ]
    ended = at(21, GymPhaseEnded("1.1", "cut", 21.0))
    published = at(22, SnapshotPublished("bootstrap", 1, 0, 0, 0, 0))
    found = judged(AdmissionReopens, *parked, ended, published)
    assert found == ["gym-0 had reopened by its lease at 20.000000 s; cut 1 was taken at 21.000000 s."]
    given_up = at(22, SnapshotBroke(1, "unavailable", "SnapshotFailed", "", 1))
    assert judged(AdmissionReopens, *parked, ended, given_up) == []
