"""A life depends on what survives, the scenario, the seed and its number, and on nothing else (RULES 2)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from seed_hashes import hashes, small

from sim.explore.lives import Life, Setting, run_life, run_plan
from sim.explore.points import Address, PlanItem

SEEDS = 50
SCRIPT = Path(__file__).with_name("seed_hashes.py")
SETTING = Setting(scenario=small("workplace"), seed=7, judges=())


def in_another_process(hash_seed: str, seeds: int) -> list[list[str]]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "workplace", "0", str(seeds)], capture_output=True, env=environment, check=True
    )
    found: list[list[str]] = json.loads(done.stdout)
    return found


def test_fifty_seeds_give_the_same_hashes_in_two_processes() -> None:
    one, two = in_another_process("1", SEEDS), in_another_process("2", SEEDS)
    assert one == two
    lives = [digest for lives in one for digest in lives]
    assert len(lives) == 2 * SEEDS, "every seed was killed once and restored"
    assert len(set(lives)) == len(lives), "no two seeds and no two lives look alike"


@pytest.mark.parametrize("schedule", ["0", "1", "fifo"])
def test_the_schedule_is_an_input_like_the_seed(schedule: str) -> None:
    assert hashes("workplace", range(2), schedule) == hashes("workplace", range(2), schedule)


def test_another_schedule_is_another_history() -> None:
    assert hashes("workplace", range(1), "0") != hashes("workplace", range(1), "1")


@pytest.fixture(scope="module")
def life_1() -> Life:
    return run_life(SETTING, 1, {}, {}, None)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), k=st.integers(0, 4), outcome=st.sampled_from(["none", "all"]))
def test_a_crash_anywhere_is_the_same_crash_twice(life_1: Life, place: float, k: int, outcome: str) -> None:
    """Killed at any event, plus some steps: the same prefix, the same bytes kept, the same restored life."""
    index = int(place * (life_1.events - 20))
    record = life_1.history[index]
    kind = type(record.event).__name__
    n = sum(1 for other in life_1.history[: index + 1] if (other.process, type(other.event).__name__) == (record.process, kind))
    plan = (PlanItem(record.process, kind, n, k, outcome),)
    first, second = run_plan(SETTING, plan, {}), run_plan(SETTING, plan, {})
    assert first[0].fired
    assert first[0].history == life_1.history[: first[0].events], "a life does not know where it will be killed"
    assert first[0].files == second[0].files
    assert first[0].scratch == second[0].scratch
    assert first[1].digest == second[1].digest


def test_the_canonical_address_of_a_crash_is_the_same_crash(life_1: Life) -> None:
    asked = Address("gym-0", "TurnCompleted", 2)
    crashed, restored = run_plan(SETTING, (PlanItem.at(asked, "none"),), {})
    assert crashed.address is not None
    again, restored_again = run_plan(SETTING, (PlanItem.at(crashed.address, "none"),), {})
    assert again.history == crashed.history
    assert restored_again.digest == restored.digest


def test_scratch_of_an_earlier_life_changes_nothing() -> None:
    """What a process keeps for itself lies there and is never read by a later life."""
    first = run_plan(SETTING, (PlanItem("gym-0", "TurnCompleted", 6, 0, "all"),), {})[0]
    assert first.fired and first.scratch
    with_scratch = run_life(SETTING, 2, first.files, first.scratch, {})
    without = run_life(SETTING, 2, first.files, {}, {})
    assert with_scratch.digest == without.digest
    assert with_scratch.files == without.files
