"""Every sampler at every recovery level: a small job swept at all of its crash points, or refused at set-up by its key."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest

from invariants.registry import JUDGES
from protocol.config import Job, RolloutCheckpointing, accept, check
from protocol.judging import Verdict
from scenarios.files import load
from scenarios.model import Expect, Scenario
from sim.explore.sweep import sweep

SAMPLERS = ("in_order", "windowed", "weight_fifo")
LEVELS = ("rollout", "sibling", "turn")
NO_SNAPSHOTS = RolloutCheckpointing(interval_s=None)
ALWAYS_REACHED = ("I1", "I2", "I3", "I4", "I6", "I10", "I11", "I12", "I16", "I17", "I18", "I21", "I22", "I23", "I67", "PARITY-1")


def job_of(sampler: str, level: str, *, snapshots: bool = True) -> Job:
    """The small job with this sampler at this level."""
    small = load("small").scenario.job
    changed = msgspec.structs.replace(small, sampler=msgspec.structs.replace(small.sampler, name=sampler), target_level=level)
    return changed if snapshots else msgspec.structs.replace(changed, rollout_checkpointing=NO_SNAPSHOTS)


def scenario_of(job: Job) -> Scenario:
    return msgspec.structs.replace(load("small").scenario, job=accept(job), expect=Expect(judges=ALWAYS_REACHED))


REFUSED = [(sampler, level) for sampler, level in product(SAMPLERS, LEVELS) if check(job_of(sampler, level))]
SWEPT = [(sampler, level, True) for sampler, level in product(SAMPLERS, LEVELS) if (sampler, level) not in REFUSED]
SWEPT += [(sampler, "rollout", False) for sampler in SAMPLERS]


def test_the_refused_ones_are_those_whose_buffer_no_checkpoint_holds() -> None:
    assert REFUSED == [("weight_fifo", level) for level in LEVELS]
    for sampler, level in REFUSED:
        assert all(text.startswith("sampler.name weight_fifo") for text in check(job_of(sampler, level)))
    assert check(job_of("weight_fifo", "rollout", snapshots=False)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "level", "snapshots"), SWEPT)
def test_a_sampler_holds_at_a_level_at_all_points(sampler: str, level: str, snapshots: bool) -> None:
    result = sweep(scenario_of(job_of(sampler, level, snapshots=snapshots)), 0, JUDGES)
    print(
        f"{sampler} {level} {'with' if snapshots else 'without'} snapshots: {result.events} events, {result.steps} steps, "
        f"{result.crash_points} points, {result.classes} classes, {result.runs} runs, {result.wall_s:.1f} s"
    )
    assert (result.verdict, result.messages, result.violations) == (Verdict.HELD, [], [])
    assert result.judged == result.fired == result.crash_points > 500
    assert result.not_covered == 0
