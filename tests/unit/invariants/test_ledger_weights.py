"""WEIGHTS-1: a call carries the weights that its worker was given."""

from __future__ import annotations

from run_files import judge, terms

from invariants.ledger.calls_carry_their_weights import CallsCarryTheirWeights
from protocol.history import CallBegun, ProcessKilled, ProcessStarted, WeightsPushed, WeightsReceived, WeightsSynced


def judged(*steps):
    return [found.found for found in judge(CallsCarryTheirWeights, *steps, given=terms(generation_workers=2))]


def given(version, worker="worker-0"):
    return (worker, WeightsReceived(version))


def called(version, worker="worker-0"):
    return (worker, CallBegun("k/c0", version))


KILLED = ("job", ProcessKilled("worker-0"))
AGAIN = ("worker-0", ProcessStarted(2))


def synced(version, *missing):
    return ("controller", WeightsSynced(version, missing))


def test_calls_that_carry_what_their_worker_was_given_are_held():
    both = [given(0), given(0, "worker-1"), synced(0)]
    assert judged(*both, called(0), given(1), called(1), called(0, "worker-1"), given(1, "worker-1"), synced(1)) == []


def test_a_worker_that_starts_again_is_held_if_it_waits_for_its_weights():
    both = [given(0), given(0, "worker-1"), synced(0)]
    pushed = ("controller", WeightsPushed("worker-0", 0))
    assert judged(*both, KILLED, AGAIN, given(0), pushed, called(0)) == []


def test_a_call_with_another_version_breaks_it():
    assert judged(given(1), called(0)) == ["k/c0 is stamped 0; worker-0 was given version 1 since it started"]


def test_a_call_of_a_worker_that_starts_again_without_weights_breaks_it():
    assert judged(given(0), KILLED, AGAIN, called(0)) == ["k/c0 is stamped 0; worker-0 was given no weights since it started"]


def test_weights_that_go_back_break_it():
    assert judged(given(2), given(1)) == ["worker-0 went back from version 2 to 1"]


def test_a_push_that_is_said_to_have_reached_whom_it_did_not_reach_breaks_it():
    assert len(judged(given(0), given(0, "worker-1"), given(1), synced(1))) == 1
    assert judged(given(0), given(0, "worker-1"), given(1), synced(1, "worker-1")) == []
    assert len(judged(given(0), ("controller", WeightsPushed("worker-0", 1)))) == 1


def test_a_worker_that_died_after_it_answered_carries_nothing_and_nobody_lied():
    assert judged(given(1), given(1, "worker-1"), KILLED, synced(1)) == []
