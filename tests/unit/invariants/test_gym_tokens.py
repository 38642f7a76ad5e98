"""I64: which control calls may begin at a Gym instance, and what a refused one may leave behind."""

from __future__ import annotations

import pytest
from ledger_files import judged

from invariants.gym.control_calls_are_this_runs import ControlCallsAreThisRuns
from protocol.history import (
    AdmissionClosed,
    ControlIssued,
    ControlReceived,
    ControlRefused,
    EpisodeExported,
    EpisodeInstalled,
    MarkForgotten,
    ProcessStarted,
    RetireMarked,
)

OWN, OTHER = "aaaaaaaa", "bbbbbbbb"


def issued(operation="prepare", checkpoint="1.1", token=OWN):
    return ControlIssued(operation, "gym-0", checkpoint, 1.0, 1.0, token)


def received(operation="prepare", checkpoint="1.1", token=OWN):
    return ("gym-0", ControlReceived(operation, checkpoint, 2.0, token))


def refused(token=OTHER):
    return ("gym-0", ControlRefused("prepare", "9.9", token))


def found(*steps, life=1, reference=None):
    return judged(ControlCallsAreThisRuns, *steps, life=life, reference=reference)


def test_this_runs_calls_begin_and_another_runs_call_is_refused():
    assert found(issued(), received(), ("gym-0", AdmissionClosed("1.1")), refused()) == []


def test_a_call_with_another_runs_token_that_begins_breaks_I64():
    text = f"prepare of checkpoint '9.9' began at gym-0 with token {OTHER}, which this run never sent."
    assert found(issued(), received("prepare", "9.9", OTHER)) == [text]


def test_this_runs_own_call_that_is_refused_breaks_I64():
    assert found(issued(), refused(OWN)) == ["gym-0 refused prepare with this run's own token."]


def test_a_refused_call_that_closes_the_door_breaks_I64():
    text = "gym-0 recorded AdmissionClosed; no call that may do so had begun there."
    assert found(issued(), received(), refused(), ("gym-0", AdmissionClosed("9.9"))) == [text]


@pytest.mark.parametrize(
    "event, operation",
    [
        (RetireMarked("agent", "r", 0), "retire"),
        (MarkForgotten("agent", "r"), "forget"),
        (EpisodeExported("k-a0", "agent", "session", 1), "commit"),
        (EpisodeInstalled("k-a1", "k-a0", 1, "s"), "restore"),
    ],
)
def test_a_change_that_no_call_has_asked_for_breaks_I64(event, operation):
    began = [issued(operation), received(operation)]
    assert found(*began, ("gym-0", event)) == []
    assert len(found(*began, ("gym-1", event))) == 1
    assert len(found(*began, ("gym-0", ProcessStarted()), ("gym-0", event))) == 1


def test_two_runs_with_one_token_break_I64():
    assert found(issued(), received(), life=2, reference=(OWN,)) == [f"Life 2 sent token {OWN}, as life 1 did."]
    assert found(issued(), received(), life=2, reference=(OTHER,)) == []
    assert found(issued(), received(), life=1, reference=(OWN,)) == []


def test_a_history_that_does_not_name_tokens_says_nothing():
    assert found(issued(token=""), received(token="")) == []
