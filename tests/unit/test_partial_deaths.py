"""One process alone dies or stands still: the run goes on where it can, and ends with a typed error where it cannot."""

from __future__ import annotations

import pytest
from whole_job import JOB, Lived, changed, every, live

from protocol.checkpoint.lease import decide_renew_in
from protocol.config import RolloutFailure, RolloutRecovery, TokenCapture, Watchdog
from protocol.controller.fleet import decide_push, decide_unhealthy
from protocol.history import (
    AdmissionClosed,
    AdmissionOpened,
    CallBegun,
    CallRefused,
    ControlIssued,
    DeadlineHeld,
    DeadlineReleased,
    ExclusiveEntered,
    ExclusiveLeft,
    LockHeld,
    LockReleased,
    ParticipantsFound,
    ProbeDone,
    ProcessStarted,
    RunFailed,
    SnapshotBroke,
    SnapshotPublished,
    StallReported,
    UnhealthyReported,
    WeightsPushed,
    WeightsReceived,
    WeightsSynced,
)
from scenarios.faults import Fault

UNANSWERED = {"operation": "Probe", "to": "gym-1", "how": "lost", "times": 99}
PATIENT = changed(
    generation_workers=2,
    rollout_failure=RolloutFailure(backoff_base_s=0.2, max_backoff_s=1.0),
    watchdog=Watchdog(interval_s=5.0, stall_timeout_s=60.0, reprobe_s=0.5),
)


def strike(verb: str, process: str, event: str, occurrence: int = 1, at: str = "controller", **arguments: object) -> Fault:
    return Fault(
        process=at, event=event, occurrence=occurrence, life=1, verb=verb, arguments={"process": process, **arguments}
    )  # fmt: skip


def failed_with(lived: Lived) -> tuple[str, str]:
    (failed,) = lived.events(RunFailed)
    assert lived.status.outcome == "failed"
    return failed.error, failed.message


def balanced(lived: Lived) -> None:
    """Nothing is kept closed or held by a phase that is over."""
    for taken, given in ((LockHeld, LockReleased), (DeadlineHeld, DeadlineReleased)):
        assert len(lived.events(taken)) == len(lived.events(given))
    for barrier in ("dispatch", "data-plane"):
        entered = [event for event in lived.events(ExclusiveEntered) if event.barrier == barrier]
        assert len(entered) <= len([event for event in lived.events(ExclusiveLeft) if event.barrier == barrier])


# --- workers


def test_a_worker_that_starts_again_refuses_calls_until_it_has_the_runs_weights() -> None:
    lived = live(PATIENT, strike("restart", "worker-0", "CallBegun", 2, at="worker-0", after_s=0.3))
    assert lived.status.outcome == "ended", lived.status
    of_it = [(record.time, record.event) for record in lived.history if record.process == "worker-0"]
    (again_s,) = [time for time, event in of_it if event == ProcessStarted(2)]
    given_s = min(time for time, event in of_it if isinstance(event, WeightsReceived) and time > again_s)
    begun_s = min(time for time, event in of_it if isinstance(event, CallBegun) and time > again_s)
    assert given_s <= begun_s
    assert lived.events(CallRefused), "a row came before the weights"
    assert lived.events(WeightsPushed) == [WeightsPushed("worker-0", 0)]


def test_a_push_that_does_not_reach_a_dead_worker_ends_nothing() -> None:
    lived = live(PATIENT, strike("restart", "worker-1", "StepCommitted", after_s=0.3))
    assert lived.status.outcome == "ended", lived.status
    assert ("worker-1",) in [event.missing for event in lived.events(WeightsSynced)]


def test_a_worker_that_never_comes_back_ends_the_run_when_the_budget_is_spent() -> None:
    lived = live(PATIENT, strike("kill", "worker-0", "CallBegun", 2, at="worker-0"))
    assert failed_with(lived)[0] == "BudgetExhausted"


# --- Gym


def test_a_gym_instance_that_starts_again_is_discovered_again_before_the_next_prepare() -> None:
    lived = live(PATIENT, strike("restart", "gym-0", "TurnCompleted", 2, at="gym-0", after_s=0.4))
    assert lived.status.outcome == "ended", lived.status
    (again_s,) = [record.time for record in lived.history if record.process == "gym-0" and record.event == ProcessStarted(2)]
    found_s = lived.times(ParticipantsFound, lambda event: event.instance == "gym-0")
    prepared_s = lived.times(ControlIssued, lambda event: event.operation == "prepare" and event.instance == "gym-0")
    after = [time for time in prepared_s if time > again_s]
    assert after and any(again_s < time < after[0] for time in found_s)
    balanced(lived)


@pytest.mark.parametrize("when", ["GymPhaseStarted", "ScopeBuilt", "CutTaken"])
def test_a_gym_instance_that_dies_inside_a_phase_costs_that_snapshot_at_most(when: str) -> None:
    lived = live(PATIENT, strike("restart", "gym-0", when, after_s=0.2))
    assert lived.status.outcome == "ended", lived.status
    assert {event.cause for event in lived.events(SnapshotBroke)} <= {"unavailable"}
    assert lived.events(SnapshotPublished)
    balanced(lived)


def test_a_gym_instance_that_stands_still_through_a_prepare_costs_that_snapshot() -> None:
    lived = live(PATIENT, strike("stall", "gym-0", "GymPhaseStarted", for_s=3.5))
    assert lived.status.outcome == "ended", lived.status
    assert [event.cause for event in lived.events(SnapshotBroke)] == ["unavailable"]
    assert len(lived.events(AdmissionClosed)) == len(lived.events(AdmissionOpened))
    balanced(lived)


def test_a_gym_instance_that_never_comes_back_ends_the_run_with_a_typed_error() -> None:
    error, _ = failed_with(live(PATIENT, strike("kill", "gym-0", "TurnCompleted", 2, at="gym-0")))
    assert error in ("BudgetExhausted", "SnapshotFailed")


# --- trainer, data plane, finalizers


@pytest.mark.parametrize("when", ["TrainStepIssued", "OptimizerIssued", "Restored"])
def test_a_dead_trainer_ends_the_run(when: str) -> None:
    error, message = failed_with(live(JOB, strike("kill", "trainer", when)))
    assert error == "Lost" and "trainer" in message


@pytest.mark.parametrize("when", ["WeightsSynced", "FinalizeIssued", "CanonicalClearIssued", "ExclusiveEntered"])
def test_a_dead_data_plane_ends_the_run(when: str) -> None:
    error, _ = failed_with(live(JOB, strike("kill", "data-plane", when, 2 if when == "ExclusiveEntered" else 1)))
    assert error in ("Lost", "OutcomeUnknown", "SnapshotFailed", "BudgetExhausted")


def test_a_dead_finalizer_leaves_an_outcome_unknown_and_ends_the_run() -> None:
    assert failed_with(live(JOB, strike("kill", "finalizer-0", "FinalizeIssued")))[0] == "OutcomeUnknown"


def test_a_trainer_that_stands_still_is_reported_by_the_watchdog_and_ends_the_run_at_its_bound() -> None:
    job = changed(trainer_timeout_s=100.0)
    lived = live(job, strike("stall", "trainer", "OptimizerIssued", for_s=1e6))
    assert failed_with(lived)[0] == "Lost"
    assert lived.events(StallReported)


def test_a_stall_ends_the_run_where_the_watchdog_is_to_abort_it() -> None:
    job = changed(watchdog=Watchdog(interval_s=5.0, stall_timeout_s=60.0, stall_action="abort"))
    assert failed_with(live(job, strike("stall", "trainer", "OptimizerIssued", for_s=1e6)))[0] == "RolloutStall"


# --- health probes


def test_an_instance_that_answers_no_probe_is_reported_once_and_keeps_nobody() -> None:
    job = changed(watchdog=Watchdog(interval_s=0.3, stall_timeout_s=60.0, unhealthy_probes=2, reprobe_s=0.2))
    lived = live(job, Fault(process="controller", event="WeightsSynced", verb="fail_call", arguments=UNANSWERED))
    assert lived.status.outcome == "ended", lived.status
    assert lived.events(UnhealthyReported) == [UnhealthyReported("gym-1", 2, "warn")]
    assert "cancelled" in [event.outcome for event in lived.events(ProbeDone) if event.peer == "gym-1"]


def test_an_instance_that_answers_no_probe_ends_the_run_where_the_watchdog_is_to_abort_it() -> None:
    rules = Watchdog(interval_s=0.3, stall_timeout_s=60.0, unhealthy_probes=2, reprobe_s=0.2, stall_action="abort")
    lived = live(
        changed(watchdog=rules), Fault(process="controller", event="WeightsSynced", verb="fail_call", arguments=UNANSWERED)
    )
    error, message = failed_with(lived)
    assert error == "RolloutStall" and message == "gym-1 left 2 health probes in a row unanswered"


def test_a_worker_is_pushed_to_only_if_it_is_behind_and_no_push_is_under_way() -> None:
    assert decide_push(3, -1, syncing=False) and decide_push(3, 2, syncing=False)
    assert not decide_push(3, 3, syncing=False) and not decide_push(3, -1, syncing=True)
    assert [decide_unhealthy(missed, 3) for missed in range(5)] == [False, False, False, True, False]


# --- leases

SLOW = changed(
    rollout_checkpointing=every(1.2),
    rollout_recovery=RolloutRecovery(gym_prepare_timeout_s=1.2, drain_timeout_s=3.0, reply_grace_s=0.1, resume_retry_s=0.1),
    token_capture=TokenCapture(control_timeout_s=0.3),
)
SLOW_PLANE = {"data_plane": {"service_s": [0.4, 0.6]}}


def renews(lived: Lived) -> int:
    return len([event for event in lived.events(ControlIssued) if event.operation == "renew"])


def test_a_cut_that_outlasts_its_lease_is_renewed_and_published() -> None:
    lived = live(SLOW, profile=SLOW_PLANE)
    assert lived.status.outcome == "ended", lived.status
    assert renews(lived) and lived.events(SnapshotPublished)
    assert {event.why for event in lived.events(AdmissionOpened)} == {"resume"}


def test_a_short_phase_sends_no_renew() -> None:
    lived = live()
    assert lived.events(SnapshotPublished) and renews(lived) == 0


@pytest.mark.parametrize("how", ["error", "broken", "lost"])
def test_a_renew_that_fails_gives_the_snapshot_up_as_unavailable(how: str) -> None:
    failing = {"operation": "Renew", "to": "gym-1", "how": how, "times": 1}
    lived = live(
        SLOW, Fault(process="controller", event="WeightsSynced", verb="fail_call", arguments=failing), profile=SLOW_PLANE
    )
    assert lived.status.outcome == "ended", lived.status
    assert [(event.cause, event.consecutive) for event in lived.events(SnapshotBroke)] == [("unavailable", 1)]
    assert lived.events(SnapshotPublished)
    balanced(lived)


def test_a_controller_that_stood_still_for_longer_than_the_lease_publishes_no_such_cut() -> None:
    lived = live(SLOW, strike("stall", "controller", "ScopeBuilt", for_s=5.0), profile=SLOW_PLANE)
    assert lived.status.outcome == "ended", lived.status
    assert lived.events(SnapshotBroke)[0].cause == "unavailable"


def test_a_lease_is_renewed_one_time_out_before_its_end() -> None:
    assert decide_renew_in(10.0, 4.0, 2.0) == 4.0
    assert decide_renew_in(10.0, 9.0, 2.0) < 0
