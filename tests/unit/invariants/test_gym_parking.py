"""I27, I30, I31, I32: what the controller asks of a Gym that it parks, looks for, or that contradicts it."""

from __future__ import annotations

import pytest
from ledger_files import judged

from invariants.gym.admission_reopens import AdmissionReopens
from invariants.gym.calls_end_in_time import CallsEndInTime
from invariants.gym.errors_have_their_cause import ErrorsHaveTheirCause
from invariants.gym.one_owner import OneOwner
from protocol.config import Job
from protocol.history import (
    ControlDone,
    ControlIssued,
    DrainEnded,
    EpisodeExported,
    EpisodeRefused,
    FailureArrived,
    FaultInjected,
    GymPhaseEnded,
    GymPhaseStarted,
    ParticipantsFound,
    Restored,
    RunFailed,
    StepCommitted,
    StreamOver,
    key_set,
)

RULES = Job().rollout_recovery
NONE = key_set(())
RESTORED = Restored("", 0, 0, 0, 0, 0, -1, 0, 0, 0, NONE, NONE, NONE, NONE, "")
STEP = StepCommitted(1, 1, (0, 1), 4, "w")
PHASE, PHASE_OVER = GymPhaseStarted("1.1"), GymPhaseEnded("1.1", "cut", 1.0)
STOPPED = RunFailed("Lost", "unavailable", "m")


def at(time_s, event, process="controller"):
    return (process, event, time_s)


def asked(operation, instance="gym-0", checkpoint="1.1", deadline_s=10.0):
    return ControlIssued(operation, instance, checkpoint, deadline_s, RULES.reply_grace_s)


def answered(operation, instance="gym-0", checkpoint="1.1", outcome="ok"):
    return ControlDone(operation, instance, checkpoint, outcome, "" if outcome == "ok" else "Lost", "")


PREPARE = asked("prepare", deadline_s=RULES.gym_prepare_timeout_s)


# --- I31: who is parked is resumed


def test_a_phase_that_prepares_cuts_and_resumes_is_held():
    steps = [at(0, PHASE), at(1, PREPARE), at(2, answered("prepare")), at(3, asked("resume")), at(4, answered("resume"))]
    assert judged(AdmissionReopens, *steps, at(4, PHASE_OVER), at(5, STOPPED)) == []


def test_a_prepare_with_the_deadline_of_another_call_breaks_I31():
    assert judged(AdmissionReopens, at(1, asked("prepare", deadline_s=60.0))) == [
        "prepare of gym-0 was given 60 s; gym_prepare_timeout_s, which bounds it alone, is 300 s."
    ]


FAILED = [at(3, asked("resume")), at(4, answered("resume", outcome="lost"))]
ELSEWHERE = [at(3, asked("resume", "gym-1")), at(4, answered("resume", "gym-1"))]


def test_a_resume_that_failed_is_asked_again_and_one_that_was_answered_is_not():
    again = [at(5, asked("resume")), at(6, answered("resume"))]
    assert judged(AdmissionReopens, *FAILED, *ELSEWHERE, *again, at(6, PHASE_OVER)) == []
    assert judged(AdmissionReopens, *FAILED, *ELSEWHERE, *again, at(5, asked("resume", "gym-1")), at(6, PHASE_OVER)) == [
        "gym-1 was asked to resume 1.1 again; it had done so."
    ]


@pytest.mark.parametrize("end", [PHASE_OVER, RESTORED, STOPPED])
def test_a_resume_that_is_tried_once_only_breaks_I31(end):
    assert judged(AdmissionReopens, *FAILED, at(6, end)) == ["The resume of 1.1 by gym-0 was lost and tried 1 times, not 2."]


def test_a_resume_that_was_cut_off_with_its_run_is_no_failure():
    assert judged(AdmissionReopens, at(0, RESTORED), *FAILED, at(6, STOPPED)) == []


def test_a_run_that_ends_with_gym_parked_breaks_I31():
    restore = asked("restore", "gym-1", "1.4")
    assert judged(AdmissionReopens, at(1, restore), at(2, asked("resume", "gym-1", "1.4")), at(3, STOPPED)) == []
    assert judged(AdmissionReopens, at(1, restore), at(3, STOPPED)) == [
        "The run ended and nobody had asked gym-1 to resume after its restore."
    ]


def test_a_phase_that_lost_to_a_step_ends_at_once():
    given_up = [at(3, answered("prepare", outcome="cancelled")), at(3, asked("resume")), at(4, answered("resume"))]
    assert judged(AdmissionReopens, at(0, PHASE), at(1, PREPARE), at(3, STEP), *given_up, at(4, PHASE_OVER)) == []


@pytest.mark.parametrize(
    ("late", "said"),
    [
        (asked("commit"), "commit of gym-0 was asked after the step that committed at 3.000000 s."),
        (answered("prepare"), "prepare of gym-0 went on after the step that committed at 3.000000 s."),
        (DrainEnded("1.1", 1, 0), "The drain of 1.1 went on after the step that committed at 3.000000 s."),
    ],
)
def test_a_phase_that_goes_on_after_a_step_has_committed_breaks_I31(late, said):
    steps = [at(0, PHASE), at(3, STEP), at(3.5, late), at(4, asked("resume")), at(4, answered("resume"))]
    assert judged(AdmissionReopens, *steps, at(4, PHASE_OVER)) == [said]
    assert judged(AdmissionReopens, at(3, STEP), at(3, PHASE), at(3.5, late), at(4, asked("resume")), at(4, PHASE_OVER)) == []


# --- I30: the start


def discover(deadline_s):
    return asked("discover", checkpoint="", deadline_s=deadline_s)


FOUND = ParticipantsFound("gym-0", ("agent",))


def test_a_start_that_finds_its_participants_in_time_is_held():
    lost = answered("discover", checkpoint="", outcome="lost")
    assert (
        judged(
            CallsEndInTime,
            at(0, discover(20.0)),
            at(25, lost),
            at(25, discover(17.5)),
            at(40, answered("discover", checkpoint="")),
            at(40, FOUND),
            at(99, STEP),
        )
        == []
    )


def test_a_start_that_looks_for_its_participants_too_long_breaks_I30():
    assert judged(CallsEndInTime, at(0, discover(20.0)), at(20, answered("discover", checkpoint="")), at(66, STOPPED)) == [
        "Looking for participants took 66.000 s; all tries together have 65 s."
    ]


def test_a_call_with_a_longer_deadline_than_its_own_breaks_I30():
    assert judged(CallsEndInTime, at(0, asked("commit", deadline_s=61.0))) == [
        "commit of gym-0 was given 61 s, the configuration says 10 s."
    ]
    assert judged(CallsEndInTime, at(0, asked("retire", deadline_s=30.0)), at(1, answered("retire"))) == []


# --- I27: one export


def test_an_episode_written_twice_by_one_participant_breaks_I27():
    export = at(1, EpisodeExported("e0p0i1_g0r0-a0", "agent", "session", 1), "gym-0")
    assert judged(OneOwner, at(0, PHASE), export) == []
    assert judged(OneOwner, at(0, PHASE), export, export) == ["e0p0i1_g0r0-a0 was written twice by agent in one commit."]
    assert judged(OneOwner, at(0, PHASE), export, at(2, GymPhaseStarted("1.2")), export) == []


# --- I32: the class is the cause's, whoever carries it


def test_an_error_that_arrives_untyped_is_still_an_outage():
    untyped = ControlDone("prepare", "gym-0", "1.1", "failed", "Unserializable", "broken")
    assert judged(ErrorsHaveTheirCause, at(0, RESTORED), at(1, untyped)) == [
        "prepare of gym-0 was failed (Unserializable) and counts as broken; it is unavailable or infra."
    ]


def injected(detail):
    return at(0, FaultInjected("fail_call", detail), "job")


def test_a_contradiction_that_counts_as_an_outage_breaks_I32():
    refused = [ControlDone("commit", "gym-1", "1.1", "refused", "Refusal", cause) for cause in ("broken", "unavailable")]
    made = injected("Commit to gym-1: error (broken)")
    assert judged(ErrorsHaveTheirCause, made, at(1, refused[0])) == []
    assert judged(ErrorsHaveTheirCause, made, at(1, refused[1])) == [
        "commit of gym-1 met a contradiction (Refusal) and counts as unavailable; it is broken."
    ]


@pytest.mark.parametrize(
    ("how", "cause"),
    [("broken", "infra"), ("error (unavailable)", "infra"), ("error (infra)", "infra"), ("error (data)", "data")],
)
def test_a_row_has_the_class_of_the_model_call_that_failed_it(how, cause):
    other = "data" if cause == "infra" else "infra"
    made = injected(f"Generate to worker-0: {how}")
    assert judged(ErrorsHaveTheirCause, made, at(1, FailureArrived("k", cause)), at(2, FailureArrived("l", other))) == []
    assert judged(ErrorsHaveTheirCause, made, at(1, FailureArrived("k", other))) == [
        f"A model call failed as {cause}; the failure of k counts as {other}."
    ]


def test_a_row_that_gym_turned_away_or_that_nobody_heard_of_is_not_that_model_call():
    made, failure = injected("Generate to worker-0: broken"), at(2, FailureArrived("k", "data"))
    assert judged(ErrorsHaveTheirCause, made, at(1, EpisodeRefused("k", "stale-attempt"), "gym-0"), failure) == []
    assert judged(ErrorsHaveTheirCause, made, at(1, StreamOver("gym-0", "lost")), failure) == []
