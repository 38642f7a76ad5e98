"""Lost work: what a life did before its crash and the next one does again, with numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from whole_job import TASKS, changed, every

from protocol.history import (
    EpisodeAdmitted,
    Event,
    Record,
    RunEnded,
    SnapshotStarted,
    StepCommitted,
    TokensGenerated,
    TurnCompleted,
)
from protocol.identity import group_of_sample, ordinal_of_group, sample_of_key
from protocol.judging import smallest
from protocol.spread import Spread, spread_of
from protocol.work import Work, WorkLog, done_again, lost_work
from scenarios.model import Scenario
from sim.explore.lives import Setting, run_plan
from sim.explore.lost import events_by_then, lost_work_of
from sim.explore.points import PlanItem
from sim.explore.repeated import Repeated
from sim.explore.sweep import sweep

# Two rollouts of prompt 4, as two lives name them: the ids differ, the coordinates do not.
FIRST, SECOND = "e0p4i1_g0r0-a0", "e0p4i1_g1r0-a0"
LIFE_1: tuple[tuple[str, Event], ...] = (
    ("gym-0", EpisodeAdmitted(FIRST, 4, 0, False, 0)),  # record 1
    ("worker-0", TokensGenerated(f"{FIRST}/c0", 6)),
    ("gym-0", EpisodeAdmitted(SECOND, 4, 1, False, 0)),
    ("worker-0", TokensGenerated(f"{FIRST}/c0", 13)),
    ("gym-0", TurnCompleted(FIRST, 0, "send", "s")),  # record 5
    ("worker-0", TokensGenerated(f"{SECOND}/c0", 4)),
    ("worker-0", TokensGenerated(f"{FIRST}/c1", 5)),
)


def life(number: int, *steps: tuple[str, Event]) -> list[Record]:
    return list(smallest(number, *steps))


def test_a_life_that_starts_everything_again_repeats_all_that_was_done_partial_calls_too() -> None:
    again = life(2, *LIFE_1)
    assert lost_work(life(1, *LIFE_1), again) == Work(tokens=13 + 4 + 5, turns=1, rollouts=2)


@pytest.mark.parametrize(
    ("events", "lost"),
    [
        (0, Work()),
        (2, Work(rollouts=1)),
        (3, Work(tokens=6, rollouts=1)),
        (5, Work(tokens=13, rollouts=2)),
        (6, Work(tokens=13, turns=1, rollouts=2)),
        (8, Work(tokens=22, turns=1, rollouts=2)),
    ],
)
def test_a_crash_loses_what_was_done_before_it(events: int, lost: Work) -> None:
    log = WorkLog(life(1, *LIFE_1))
    assert Repeated(log.repeated_by(log)).before(events) == lost


def test_only_what_the_next_life_does_again_is_lost() -> None:
    """A continuation goes on at turn 1: its first call and turn were kept; the other rollout began anew, longer this time."""
    after = life(
        2,
        ("gym-0", EpisodeAdmitted("e0p4i1_g0r0-a1", 4, 0, True, 1)),
        ("worker-0", TokensGenerated("e0p4i1_g0r0-a1/c1", 9)),
        ("gym-0", TurnCompleted("e0p4i1_g0r0-a1", 1, "send", "s")),
        ("gym-0", EpisodeAdmitted("e0p4i1_g1r1-a0", 4, 1, False, 0)),
        ("worker-0", TokensGenerated("e0p4i1_g1r1-a0/c0", 30)),
    )
    assert lost_work(life(1, *LIFE_1), after) == Work(tokens=5 + 4, turns=0, rollouts=1)


def test_another_prompt_is_no_repetition() -> None:
    after = life(2, ("gym-0", EpisodeAdmitted("k", 5, 0, False, 0)), ("worker-0", TokensGenerated("k/c0", 9)))
    assert lost_work(life(1, *LIFE_1), after) == Work()


def test_a_call_that_life_1_made_twice_counts_once_with_the_longer_execution() -> None:
    again = "e0p4i1_g0r1-a0"
    twice = (
        *LIFE_1,
        ("gym-0", EpisodeAdmitted(again, 4, 0, False, 0)),
        ("worker-0", TokensGenerated(f"{again}/c0", 6)),
        ("worker-0", TokensGenerated(f"{again}/c0", 15)),
    )
    assert lost_work(life(1, *twice), life(2, *LIFE_1)) == Work(tokens=15 + 4 + 5, turns=1, rollouts=2)


def test_an_execution_nobody_admitted_has_no_name_and_counts_nowhere() -> None:
    stray = life(1, ("worker-0", TokensGenerated("k/c0", 9)), ("gym-0", TurnCompleted("k", 0, "send", "s")))
    assert lost_work(stray, stray) == Work()


def test_what_a_run_did_more_than_once_is_all_executions_less_the_furthest_of_each() -> None:
    """A process failed alone: rollout 0 is begun anew in the same life, and its first call runs twice under one name too."""
    anew = "e0p4i1_g0r1-a0"
    one_life = life(
        1,
        *LIFE_1,
        ("worker-0", TokensGenerated(f"{FIRST}/c1", 3)),  # from the start again: this worker had died after 5 tokens
        ("worker-0", TokensGenerated(f"{FIRST}/c1", 9)),
        ("gym-0", EpisodeAdmitted(anew, 4, 0, False, 0)),
        ("worker-0", TokensGenerated(f"{anew}/c0", 13)),
        ("gym-0", TurnCompleted(anew, 0, "send", "s")),
    )
    assert done_again([one_life]) == Work(tokens=5 + 13, turns=1, rollouts=1)
    assert done_again([life(1, *LIFE_1)]) == Work()
    assert done_again([life(1, *LIFE_1), life(2, *LIFE_1)]) == WorkLog(life(1, *LIFE_1)).total()


def test_a_spread_is_mean_nearest_rank_and_maximum() -> None:
    assert spread_of(range(1, 101)) == Spread(mean=50.5, p95=95, max=100)
    assert spread_of([3]) == Spread(mean=3.0, p95=3, max=3) and spread_of([]) == Spread(mean=0.0, p95=0.0, max=0.0)
    lost = lost_work_of([Work(tokens=10, turns=1), Work(tokens=20, rollouts=1)])
    assert (lost.points, lost.tokens.mean, lost.turns.max, lost.rollouts.mean) == (2, 15.0, 1, 0.5)


def small(level: str, **changes: Any) -> Scenario:
    job = changed(target_level=level, rollout_checkpointing=every(0.2), **changes)
    return Scenario(name="small", job=job, tasks=TASKS)


def everything_done(records: Sequence[Record], but: Sequence[int] = ()) -> Work:
    """The same by another way: the last count of each call, each turn and each admission (no row is lost here), read off
    the ids. Prompts in ``but`` are left out."""

    def counted(key: str) -> bool:
        return ordinal_of_group(group_of_sample(sample_of_key(key))) not in but

    events = [record.event for record in records]
    calls = {event.call: event.count for event in events if isinstance(event, TokensGenerated)}
    turns = [event for event in events if isinstance(event, TurnCompleted) and counted(event.key)]
    begun = [event for event in events if isinstance(event, EpisodeAdmitted) and counted(event.key)]
    tokens = sum(count for call, count in calls.items() if counted(call.split("/")[0]))
    return Work(tokens=tokens, turns=len(turns), rollouts=len(begun))


@pytest.mark.parametrize("level", ["rollout", "sibling", "turn", "prefix"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_crash_before_any_snapshot_loses_everything_and_one_at_the_end_nothing_trained(level: str, seed: int) -> None:
    result = sweep(small(level), seed, (), verify=False)
    records = result.reference.history
    places = events_by_then(records)
    first = next(index for index, record in enumerate(records) if isinstance(record.event, SnapshotStarted))
    early = {address: work for address, work in result.losses.points.items() if places[address[:3]] <= first}
    assert len(early) > 20 and len(result.losses.points) == result.judged == result.crash_points
    for address, work in early.items():
        assert work == everything_done(records[: places[address[:3]]]), address.words()
    assert any(work.tokens for work in early.values())
    trained = [ordinal for record in records if isinstance(record.event, StepCommitted) for ordinal in record.event.ordinals]
    untrained = everything_done(records, trained)  # begun for a step that the run was not asked for
    (end,) = [work for address, work in result.losses.points.items() if address.kind == RunEnded.__name__]
    assert end.tokens <= untrained.tokens and end.turns <= untrained.turns and end.rollouts <= untrained.rollouts
    assert everything_done(records).tokens > 2 * untrained.tokens


def test_a_finer_level_never_loses_more_on_average() -> None:
    means = [sweep(small(level), 0, (), verify=False).lost_work["tokens"]["mean"] for level in ("turn", "sibling", "rollout")]
    assert means == sorted(means) and means[0] < means[-1]


def test_where_calls_are_long_level_prefix_loses_less_than_level_turn() -> None:
    """Where they are short it may lose more: a snapshot at level turn waits for the calls, and so holds them whole."""
    profile = {"tokens_min": 60, "tokens_max": 120}
    levels = ("prefix", "turn")
    scenarios = [msgspec.structs.replace(small(level, train_steps=1), profile=profile) for level in levels]
    prefix, turn = (sweep(one, 0, (), points=150, verify=False).lost_work for one in scenarios)
    assert prefix["points"] == turn["points"] == 150
    assert 0 < prefix["tokens"]["mean"] < 0.8 * turn["tokens"]["mean"]


def test_every_class_row_says_what_its_points_lose() -> None:
    result = sweep(small("turn"), 0, (), points=40, verify=False)
    assert result.lost_work["level"] == "turn" and result.lost_work["points"] == 40
    assert all(row.lost_work["points"] == row.points for row in result.rows)
    assert max(row.lost_work["tokens"]["max"] for row in result.rows) == result.lost_work["tokens"]["max"]


def test_what_a_sweep_says_of_a_point_is_what_its_plan_run_alone_loses() -> None:
    """No sharing, no prefix sums: two lives from the beginning, for each disk outcome, and their histories compared."""
    result = sweep(small("turn"), 0, (), points=12, verify=False)
    setting = Setting(scenario=small("turn"), seed=0, judges=())
    checked = 0
    for address, work in list(result.losses.points.items())[::2]:
        alone = []
        for outcome in ("none", "all"):
            first, second = run_plan(setting, (PlanItem.at(address, outcome),))
            alone.append(lost_work(first.history, second.history))
        assert work.tokens == max(one.tokens for one in alone), address.words()
        assert work.turns == max(one.turns for one in alone) and work.rollouts == max(one.rollouts for one in alone)
        checked += work.tokens > 0
    assert checked > 2


def test_a_gym_instance_that_dies_alone_loses_work_and_a_sweep_says_how_much() -> None:
    result = sweep(small("turn"), 0, (), points=3, verify=False, partial=(("gym-0",), "restart", 0.5))
    assert result.partial is not None
    lost = result.partial["lost_work"]
    assert 10 < lost["points"] == len(result.losses.partial) <= result.partial["run"]
    assert lost["tokens"]["max"] == max(work.tokens for work in result.losses.partial) > 0
    assert lost["rollouts"]["mean"] > 0
