"""No false alarm: every scenario of the library at other seeds than 0, which ``test_scenarios_library`` has: a reference run and
100 sampled crash points (40 at the prefix level) at each.

``ROLLPROOF_SEEDS`` says how many seeds (1 unless set; the nightly run takes 20).
"""

from __future__ import annotations

import os

import pytest

from invariants.registry import JUDGES
from protocol.config import Level
from protocol.judging import Verdict
from scenarios.files import library, load
from sim.explore.sweep import sweep

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("ROLLPROOF_SEEDS", "1"))


def points_of(name: str) -> int:
    """Runs of the prefix level are long: they are cut at every snapshot."""
    return 40 if load(name).scenario.job.level >= Level.PREFIX else 100


@pytest.mark.parametrize("seed", range(1, 1 + SEEDS))
@pytest.mark.parametrize("name", library())
def test_the_unbroken_core_holds_at_every_seed(name: str, seed: int) -> None:
    points = points_of(name)
    result = sweep(load(name).scenario, seed, JUDGES, points=points, verify=False)
    assert (result.verdict, result.messages, result.violations) == (Verdict.HELD, [], [])
    assert result.fired == result.judged == min(points, result.crash_points)
