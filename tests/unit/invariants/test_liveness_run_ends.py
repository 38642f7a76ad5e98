"""I67: every run progresses or ends with a typed error that its contract allows."""

from __future__ import annotations

import pytest
from run_files import ENDED, by_controller, judge, terms

from invariants.liveness.every_run_progresses_or_ends_typed import EveryRunProgressesOrEndsTyped
from protocol.history import RunEnded
from protocol.judging import Contract, RunStatus


def judged(*events, status, contract=None):
    return judge(EveryRunProgressesOrEndsTyped, *by_controller(*events), given=terms(contract), status=status)


def test_a_run_that_trained_all_its_steps_is_held():
    assert judged(RunEnded(3), status=ENDED) == []


def test_a_crash_discharges_the_run():
    assert judged(status=RunStatus("crashed")) == []


def test_a_run_that_ends_a_step_early_breaks_I67():
    assert "after 2 of 3 steps" in judged(RunEnded(2), status=ENDED)[0].found


def test_a_controller_that_returns_in_silence_breaks_I67():
    assert "recorded no RunEnded" in judged(status=ENDED)[0].found


@pytest.mark.parametrize("outcome", ["idle", "steps", "time"])
def test_a_stuck_run_breaks_I67_and_says_who_waits(outcome):
    found = judged(status=RunStatus(outcome, "", "group-1 waits for gym-0"))[0].found
    assert "group-1 waits for gym-0" in found


def test_a_typed_failure_is_right_only_where_the_contract_says_so():
    failed = RunStatus("failed", "RestoreRefused: gym-1 lacks agent")
    assert judged(status=failed, contract=Contract(may_end=("RestoreRefused",))) == []
    assert "RestoreRefused: gym-1 lacks agent" in judged(status=failed)[0].found
    assert judged(status=RunStatus("failed", "KeyError: 'x'"), contract=Contract(may_end=("RestoreRefused",))) != []
