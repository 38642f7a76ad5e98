from typing import Any

import pytest

from protocol.errors import Refusal
from protocol.history import (
    EpisodeAdmitted,
    EpisodeEnded,
    EpisodeRefused,
    ReplySent,
    RetireMarked,
    RowStagedDone,
    TurnCompleted,
)
from protocol.identity import sample_of_key
from protocol.messages import RowCompleted, RowFailed, RowRefused
from sim.disk import Disk
from sim.world import World
from tests.unit.gym_bench import (
    Bench,
    collect,
    events,
    forget,
    key,
    prepare,
    resume,
    retire,
    row,
    rows,
    until,
)


def test_each_row_is_answered_and_owns_a_staged_chain() -> None:
    got: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        got.extend(await collect(rt.stream("gym-0", rows())))

    bench = Bench()
    world = bench.run(script)
    assert sorted(item.key for item in got) == [key(generation) for generation in range(4)]
    assert all(isinstance(item, RowCompleted) and 0.0 <= item.reward <= 1.0 for item in got)
    staged = {event.call: event for event in events(world, RowStagedDone)}
    for item in got:
        assert [call.key for call in item.calls] == [f"{item.key}/c{turn}" for turn in range(len(item.calls))]
        assert all(staged[call.key].digest == call.digest for call in item.calls)
    assert sum(len(item.calls) for item in got) == len(staged)
    assert [event.outcome for event in events(world, EpisodeEnded)] == ["replied"] * 4
    assert [event.key for event in events(world, ReplySent)] == [item.key for item in got]
    assert bench.tasks_left == []
    assert bench.live == []


def test_no_episode_takes_more_than_max_turns() -> None:
    async def script(rt: Any, world: World) -> None:
        await collect(rt.stream("gym-0", rows(*(row(generation) for generation in range(12)))))

    world = Bench().run(script)
    turns = [event.turn for event in events(world, TurnCompleted)]
    assert max(turns) == 3
    assert {sample_of_key(event.key) for event in events(world, TurnCompleted)} <= {f"e0p5i1_g{index}" for index in range(12)}


def test_a_row_that_arrives_while_admission_is_closed_is_refused_and_changes_nothing_for_the_others() -> None:
    got: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        first = rt.stream("gym-0", rows(row(0)))
        await until(rt, world, EpisodeAdmitted)
        await rt.call("gym-0", prepare())
        got.extend(await collect(rt.stream("gym-0", rows(row(1)))))
        await rt.call("gym-0", resume())
        got.extend(await collect(first))

    world = Bench().run(script)
    assert got[0] == RowRefused(key(1), "checkpoint_parked", got[0].run_s)
    assert 0 < got[0].run_s < 0.1 < got[1].run_s  # how long each was in Gym
    assert isinstance(got[1], RowCompleted)
    assert events(world, EpisodeRefused) == [EpisodeRefused(key(1), "checkpoint_parked")]


def test_a_continuation_that_is_not_installed_fails_as_transport_since_a_new_identity_can_succeed() -> None:
    got: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        got.extend(await collect(rt.stream("gym-0", rows(row(0, attempt=1, continued=True)))))

    world = Bench().run(script)
    assert [(type(item), item.key, item.transport) for item in got] == [(RowFailed, key(0, 1), True)]
    assert events(world, EpisodeRefused) == [EpisodeRefused(key(0, 1), "unknown-continuation")]


def test_a_key_that_is_live_is_let_in_again() -> None:
    got: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        got.extend(await collect(rt.stream("gym-0", rows(row(0), row(0)))))

    world = Bench().run(script)
    assert [event.key for event in events(world, EpisodeAdmitted)] == [key(0)] * 2
    assert [item.key for item in got] == [key(0)] * 2


def test_a_cancelled_stream_cancels_its_episodes_and_no_other() -> None:
    async def script(rt: Any, world: World) -> None:
        doomed = rt.stream("gym-0", rows(row(0), row(1)))
        kept = rt.stream("gym-0", rows(row(2)))
        await until(rt, world, EpisodeAdmitted, 3)
        doomed.cancel()
        assert len(await collect(kept)) == 1

    bench = Bench()
    world = bench.run(script)
    outcomes = {event.key: event.outcome for event in events(world, EpisodeEnded)}
    assert outcomes == {key(0): "cancelled", key(1): "cancelled", key(2): "replied"}
    assert bench.tasks_left == []


def test_a_retired_episode_ends_and_its_identity_may_not_run_until_forgotten() -> None:
    late: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows(row(0), row(1)))
        await until(rt, world, EpisodeAdmitted, 2)
        await rt.call("gym-0", retire(key(0), key(7)))
        assert events(world, EpisodeEnded) == [EpisodeEnded(key(0), "retired")]
        for attempt in (0, 1):
            late.extend(await collect(rt.stream("gym-0", rows(row(0, attempt), row(7, attempt)))))
        await rt.call("gym-0", retire(key(0)))
        await rt.call("gym-0", forget("e0p5i1_g0r0"))
        late.extend(await collect(rt.stream("gym-0", rows(row(0)))))

    bench = Bench()
    world = bench.run(script)
    assert [type(item) for item in late] == [RowFailed, RowFailed, RowCompleted, RowCompleted, RowCompleted]
    marks = [(event.participant, event.rollout, event.attempt) for event in events(world, RetireMarked)]
    order = ["environment", "agent", "policy-model", "resources"]
    assert marks == [(name, rollout, 0) for name in order for rollout in ("e0p5i1_g0r0", "e0p5i1_g7r0")]
    assert [participant.marks for participant in bench.gym.control.participants] == [{"e0p5i1_g7r0": 0}] * 4


def test_a_retire_is_refused_while_a_checkpoint_is_open() -> None:
    async def script(rt: Any, world: World) -> None:
        await rt.call("gym-0", prepare())
        with pytest.raises(Refusal):
            await rt.call("gym-0", retire(key(0)))
        await rt.call("gym-0", resume())

    assert events(Bench().run(script), RetireMarked) == []


def journal_names(disk: Disk, life: int) -> tuple[str, ...]:
    return disk.names(f"life-{life}/scratch/gym-0/sessions")


def test_the_journal_holds_a_session_from_its_first_turn_to_its_end() -> None:
    bench = Bench()
    during: list[str] = []

    async def script(rt: Any, world: World) -> None:
        stream = rt.stream("gym-0", rows(row(0), row(1)))
        await until(rt, world, TurnCompleted, 2)
        await rt.sleep(0.005)
        during.extend(journal_names(bench.disk, 1))
        await collect(stream)
        await rt.sleep(0.05)

    bench.run(script)
    assert during
    assert journal_names(bench.disk, 1) == ()


@pytest.mark.parametrize(("life", "revived"), [(1, True), (2, False)])
def test_an_instance_revives_the_sessions_of_its_own_life_only(life: int, revived: bool) -> None:
    first = Bench()

    async def cut_short(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows(row(0)))
        await until(rt, world, TurnCompleted)
        await rt.sleep(0.005)

    first.run(cut_short)
    assert journal_names(first.disk, 1)

    async def wait(rt: Any, world: World) -> None:
        await rt.sleep(20.0)

    world = Bench(disk=first.disk, life=life).run(wait)
    assert bool(events(world, EpisodeAdmitted)) is revived
    assert [event.outcome for event in events(world, EpisodeEnded)] == ["replied"] * revived
    assert events(world, ReplySent) == []


def test_equal_seeds_give_equal_histories_and_others_do_not() -> None:
    async def script(rt: Any, world: World) -> None:
        stream = rt.stream("gym-0", rows())
        await until(rt, world, TurnCompleted)
        await rt.call("gym-0", prepare())
        await rt.call("gym-0", resume())
        await collect(stream)

    digests = [Bench(seed=seed).run(script).digest() for seed in (3, 3, 4)]
    assert digests[0] == digests[1] != digests[2]
