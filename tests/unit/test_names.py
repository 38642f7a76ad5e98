"""The few names a researcher imports are there and work together."""

from __future__ import annotations

import pytest

import rollproof
from protocol.judging import Verdict


def test_ten_lines_sweep_a_scenario() -> None:
    scenario = rollproof.load("trainer-only").scenario
    result = rollproof.sweep(scenario, 0, rollproof.JUDGES, points=20)
    assert result.verdict is Verdict.HELD
    assert result.judged == result.fired == 20


def test_a_plan_kills_and_restores() -> None:
    setting = rollproof.Setting(scenario=rollproof.load("trainer-only").scenario, seed=0, judges=rollproof.JUDGES)
    lives = rollproof.run_plan(setting, rollproof.parse_plan("controller-TrainerCheckpointDurable-1-none"))
    assert [(life.number, life.status.outcome) for life in lives] == [(1, "crashed"), (2, "ended")]


def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(AttributeError, match="run_plan"):
        rollproof.explode  # noqa: B018
