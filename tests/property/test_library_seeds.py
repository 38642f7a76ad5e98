"""No false alarm: every scenario of the library, a reference run and 100 sampled crash points at each of several seeds.

``ROLLPROOF_SEEDS`` says how many seeds (2 unless set; the nightly run takes 20).
"""

from __future__ import annotations

import os

import pytest

from invariants.registry import JUDGES
from protocol.judging import Verdict
from scenarios.files import library, load
from sim.explore.sweep import sweep

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("ROLLPROOF_SEEDS", "2"))
POINTS = 100


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", library())
def test_the_unbroken_core_holds_at_every_seed(name: str, seed: int) -> None:
    result = sweep(load(name).scenario, seed, JUDGES, points=POINTS, verify=False)
    assert (result.verdict, result.messages, result.violations) == (Verdict.HELD, [], [])
    assert result.fired == result.judged == min(POINTS, result.crash_points)
