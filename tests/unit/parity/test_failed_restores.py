"""A restored life that dies before anything was trained is a finding: BROKEN, not an input that cannot be read."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from parity.compare import compare
from parity.profiles import NAMED
from parity.sources.lineage import LifeTold
from parity.sources.saved import saved_run
from parity.tables import Run
from protocol.errors import ConfigError
from protocol.judging import RunStatus, Verdict
from rollproof.parity_reading import run_of_lives
from scenarios.files import load
from sim.explore.lives import Life, Setting, run_life, run_plan
from sim.explore.points import PlanItem

SCENARIO = load("turn").scenario
SETTING = Setting(scenario=SCENARIO, seed=0, judges=())
BEGUN = 60  # events of a life that was killed early, and of one that failed as it began


@cache
def reference() -> Run:
    return run_of_lives(SCENARIO, [run_life(SETTING, 1, {}, {}, None)], "reference")


@cache
def failed() -> list[Life]:
    first, second = run_plan(SETTING, (PlanItem("controller", "SnapshotPublished", 1, 0, "all"),), {})
    assert not first.trained
    return [first, replace(second, history=second.history[:BEGUN], trained=(), status=RunStatus("failed", error="planted"))]


def told() -> list[LifeTold]:
    return [LifeTold(number=life.number, records=life.history) for life in failed()]


def test_a_restored_run_that_trained_on_nothing_is_broken() -> None:
    result = compare(reference(), run_of_lives(SCENARIO, failed(), "restored"), NAMED["exact"])
    assert result.verdict is Verdict.BROKEN
    (broken,) = [gate for gate in result.gates if gate.verdict is Verdict.BROKEN]
    assert broken.name == "what was trained"
    assert broken.findings[0] == "step 1: the restored run never trained it"
    assert broken.findings[-1] == "the restored run did not reach its end"


def test_a_saved_one_needs_no_folder_of_rows(tmp_path: Path) -> None:
    facts = run_of_lives(SCENARIO, failed(), "restored").facts
    assert len(saved_run(facts, told(), tmp_path / "rows" / "crashed").rows.index) == 0


def test_a_run_that_nothing_interrupted_must_have_rows(tmp_path: Path) -> None:
    facts = run_of_lives(SCENARIO, failed(), "restored").facts
    with pytest.raises(ConfigError, match="rows/reference: is no folder"):
        saved_run(facts, told()[:1], tmp_path / "rows" / "reference")
    (tmp_path / "rows").mkdir()
    with pytest.raises(ConfigError, match="rows: holds no rows of a step that counts: the run committed none"):
        saved_run(facts, told()[:1], tmp_path / "rows")
