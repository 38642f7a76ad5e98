"""I65: one report for each row that is handed to Gym."""

from __future__ import annotations

import pytest
from ledger_files import judged

from invariants.ledger.every_row_is_reported_once import EveryRowIsReportedOnce
from protocol.history import CompletionArrived, FailureArrived, RefusalArrived, RowReported, RowsSubmitted, StreamEnded

G = "e0p0i1"
A, B = f"{G}_g0r0-a0", f"{G}_g1r0-a0"


def of(event, time_s=1.0, task="stream"):
    return ("controller", event, time_s, task)


def sent(*keys, task="stream"):
    return of(RowsSubmitted(G, "gym-0", keys), task=task)


def reported(key, outcome, run_s=0.5, time_s=2.0):
    return of(RowReported(key, outcome, run_s), time_s)


def ended(outcome="clean", missing=0, task="stream"):
    return of(StreamEnded(G, "gym-0", outcome, missing), 3.0, task)


ARRIVALS = {
    "completed": CompletionArrived(A),
    "refused": RefusalArrived(A, "checkpoint_parked"),
    "failed": FailureArrived(A, "infra"),
}


def found(*steps):
    return judged(EveryRowIsReportedOnce, *steps)


@pytest.mark.parametrize("outcome", ARRIVALS)
def test_a_row_that_is_reported_as_what_came_of_it_is_held(outcome):
    assert found(sent(A), of(ARRIVALS[outcome]), reported(A, outcome), ended()) == []


def test_a_row_that_never_came_back_is_reported_as_lost():
    assert found(sent(A, B), reported(A, "lost", 1.0), reported(B, "lost", 1.0), ended("broken", 2)) == []


@pytest.mark.parametrize("outcome", ARRIVALS)
def test_a_row_without_a_report_breaks_I65(outcome):
    steps = [sent(A, B), of(ARRIVALS[outcome]), reported(B, "lost"), ended("broken", 1)]
    assert found(*steps) == [f"The stream of {A} ended (broken) and the row was not reported."]


def test_a_row_reported_twice_breaks_I65():
    steps = [sent(A), of(ARRIVALS["completed"]), reported(A, "completed"), reported(A, "completed"), ended()]
    assert found(*steps) == [f"{A} was reported (completed) and was not handed out, or was reported before."]


def test_a_refused_row_that_is_sent_again_is_reported_again():
    first = [sent(A), of(ARRIVALS["refused"]), reported(A, "refused")]
    again = [sent(A, task="resend"), of(ARRIVALS["completed"]), reported(A, "completed"), ended(task="resend")]
    assert found(*first, *again, ended()) == []
    assert len(found(sent(A), of(ARRIVALS["refused"]), *again, ended())) == 1


def test_a_report_that_says_something_else_than_what_came_breaks_I65():
    steps = [sent(A), of(ARRIVALS["refused"]), reported(A, "completed"), ended()]
    assert found(*steps) == [f"{A} was reported as completed; it was refused."]


@pytest.mark.parametrize("run_s", [-1.0, 1.5])
def test_a_timing_that_does_not_fit_breaks_I65(run_s):
    steps = [sent(A), of(ARRIVALS["completed"]), reported(A, "completed", run_s), ended()]
    assert found(*steps) == [f"The /run of {A} took {run_s:.6f} s; it was out for 1.000000 s."]
