"""Doubled, delayed and overtaken control calls change nothing; a process that starts again owns what it can answer for."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import Cause, Refusal
from protocol.gym.decisions import Course, decide_lost, decide_number
from protocol.gym.records import journal_folder
from protocol.history import (
    AdmissionClosed,
    AdmissionOpened,
    EpisodeAdmitted,
    EpisodeCannotSave,
    EpisodeEnded,
    EpisodeInstalled,
    FileDone,
    ReplySent,
    RetireMarked,
    TurnCompleted,
)
from protocol.messages import Forget, Retire, RowFailed
from sim.disk import Disk
from sim.world import World
from tests.unit.gym_bench import (
    TOKEN,
    Bench,
    collect,
    commit,
    events,
    key,
    prepare,
    renew,
    restore,
    resume,
    retire,
    row,
    rows,
    until,
)

ROLLOUT = key(0).removesuffix("-a0")


async def refused(call: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await call
    return caught.value


def counted(number: int, *keys: str) -> Retire:
    return Retire("", 5.0, 1.0, keys, number, token=TOKEN)


def counted_forget(number: int, *rollouts: str) -> Forget:
    return Forget("", 5.0, 1.0, rollouts, number, token=TOKEN)


# --- doubled and delayed calls


def test_a_retire_that_comes_again_after_its_forget_leaves_no_mark() -> None:
    async def script(rt: Any, world: World) -> None:
        await rt.call("gym-0", counted(1, key(0)))
        await rt.call("gym-0", counted(1, key(0)))  # doubled: done before
        await rt.call("gym-0", counted_forget(2, ROLLOUT))
        assert (await refused(rt.call("gym-0", counted(1, key(0))))).cause is Cause.UNAVAILABLE
        await rt.call("gym-0", counted_forget(2, ROLLOUT))
        await rt.call("gym-0", counted(3, key(1)))

    bench = Bench()
    world = bench.run(script)
    assert [sorted(one.marks) for one in bench.gym.control.participants] == [[key(1).removesuffix("-a0")]] * 4
    assert len(events(world, RetireMarked)) == 8


def test_a_forget_that_is_overtaken_by_the_next_retire_forgets_nothing() -> None:
    async def script(rt: Any, world: World) -> None:
        await rt.call("gym-0", counted(1, key(0)))
        await rt.call("gym-0", counted(3, key(0, 1)))
        assert (await refused(rt.call("gym-0", counted_forget(2, ROLLOUT)))).cause is Cause.UNAVAILABLE

    bench = Bench()
    bench.run(script)
    assert bench.gym.control.mark(ROLLOUT) == 1


def test_a_refused_retire_does_not_use_up_its_number() -> None:
    async def script(rt: Any, world: World) -> None:
        await rt.call("gym-0", prepare())
        assert (await refused(rt.call("gym-0", counted(1, key(0))))).cause is Cause.UNAVAILABLE
        await rt.call("gym-0", resume())
        await rt.call("gym-0", counted(1, key(0)))

    bench = Bench()
    bench.run(script)
    assert bench.gym.control.mark(ROLLOUT) == 0


def test_the_newest_number_is_replayed_and_an_older_one_refused() -> None:
    assert decide_number("retire", 0, 9) is Course.BEGIN  # not said
    assert decide_number("retire", 10, 9) is Course.BEGIN
    assert decide_number("retire", 9, 9) is Course.REPLAY
    assert not isinstance(decide_number("retire", 8, 9), Course)


def test_doubled_calls_of_one_checkpoint_close_write_and_open_once() -> None:
    async def script(rt: Any, world: World) -> None:
        stream = rt.stream("gym-0", rows())
        await until(rt, world, TurnCompleted)
        first = [rt.call("gym-0", prepare()) for _ in range(3)]
        assert len({await call for call in first}) == 1
        second = [rt.call("gym-0", commit(key(0))) for _ in range(3)]
        answers = [await call for call in second]
        assert answers[0] == answers[1] == answers[2]
        third = [rt.call("gym-0", resume()) for _ in range(3)]
        for call in third:
            await call
        await collect(stream)

    world = Bench().run(script)
    assert len(events(world, AdmissionClosed)) == len(events(world, AdmissionOpened)) == 1
    manifests = [event.path for event in events(world, FileDone) if event.path.endswith("agent/manifest.json")]
    assert len(manifests) == 1


def test_late_calls_of_a_checkpoint_that_was_resumed_do_not_touch_the_next_one() -> None:
    async def script(rt: Any, world: World) -> None:
        stream = rt.stream("gym-0", rows())
        await until(rt, world, TurnCompleted)
        await rt.call("gym-0", prepare("k1"))
        await rt.call("gym-0", resume("k1"))
        await rt.call("gym-0", prepare("k2"))
        for late in (prepare("k1"), commit(key(0), checkpoint="k1"), renew("k1"), resume("k1")):
            assert (await refused(rt.call("gym-0", late))).cause is Cause.UNAVAILABLE
        assert len(events(world, AdmissionOpened)) == 1
        assert (await rt.call("gym-0", commit(*(key(g) for g in range(4)), checkpoint="k2"))).episodes
        await rt.call("gym-0", resume("k2"))
        await collect(stream)

    Bench().run(script)


def saved() -> tuple[Disk, tuple[str, ...]]:
    keys: list[str] = []

    async def script(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows())
        await until(rt, world, TurnCompleted, 3)
        await rt.call("gym-0", prepare())
        committed = await rt.call("gym-0", commit(*(key(g) for g in range(4))))
        keys.extend(episode.key for episode in committed.episodes)

    bench = Bench()
    bench.run(script)
    return bench.disk, tuple(keys)


def test_a_restore_that_comes_twice_installs_once_and_after_its_resume_nothing() -> None:
    disk, keys = saved()

    async def script(rt: Any, world: World) -> None:
        twice = [rt.call("gym-0", restore(*keys)) for _ in range(2)]
        assert await twice[0] == await twice[1]
        await rt.call("gym-0", resume())
        assert (await refused(rt.call("gym-0", restore(*keys)))).cause is Cause.UNAVAILABLE

    world = Bench(disk=disk, life=2).run(script)
    assert len(events(world, EpisodeInstalled)) == len(keys)


# --- a process that starts again inside a life


def next_start(disk: Disk, script: Any) -> tuple[Bench, World]:
    """Another start in the same life: volatile state is gone, scratch files are there."""
    bench = Bench(disk=disk)
    return bench, bench.run(script)


def test_a_continuation_that_died_unclaimed_is_reported_lost_and_its_row_fails_as_transport() -> None:
    disk, keys = saved()
    again = tuple(name.replace("-a0", "-a1") for name in keys)
    first = Bench(disk=disk, life=2)

    async def install(rt: Any, world: World) -> None:
        await rt.call("gym-0", restore(*keys))
        await rt.call("gym-0", resume())

    first.run(install)
    assert first.installed == list(again)
    found: dict[str, Any] = {}

    async def after(rt: Any, world: World) -> None:
        await rt.call("gym-0", prepare("k2"))
        found["commit"] = await rt.call("gym-0", commit(*again, key(9), checkpoint="k2", folder="bootstrap/tmp"))
        await rt.call("gym-0", resume("k2"))
        found["rows"] = await collect(rt.stream("gym-0", rows(row(int(again[0][8]), attempt=1, continued=True))))

    second = Bench(disk=first.disk, life=2)
    world = second.run(after)
    assert found["commit"].lost == again and found["commit"].episodes == ()  # key(9) was never a continuation: on the wire
    assert sorted(event.key for event in events(world, EpisodeCannotSave)) == sorted(again)
    assert [(type(item), item.transport) for item in found["rows"]] == [(RowFailed, True)]


def test_who_was_claimed_or_is_installed_is_not_lost() -> None:
    assert decide_lost(("a-a1", "b-a1", "c-a2", "d-a0"), {"a-a1": None}, {"b-a1": None}) == ["c-a2"]


def journal(disk: Disk) -> list[str]:
    return list(disk.names("life-1/scratch/gym-0/sessions"))


def cut_short() -> Disk:
    """A start that dies with sessions in its journal."""
    bench = Bench()

    async def script(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows())
        await until(rt, world, TurnCompleted, 2)
        await rt.sleep(0.005)
        assert journal_folder(bench.gym.rt) == "life-1/scratch/gym-0/sessions"

    bench.run(script)
    assert len(journal(bench.disk)) >= 2
    return bench.disk


def test_a_torn_journal_file_is_skipped_and_the_others_are_revived() -> None:
    disk = cut_short()
    names = journal(disk)
    path = f"life-1/scratch/gym-0/sessions/{names[0]}"
    disk.write(path, disk.read(path)[:-7])

    async def script(rt: Any, world: World) -> None:
        await rt.sleep(1.0)

    _, world = next_start(disk, script)
    assert sorted(event.key for event in events(world, EpisodeAdmitted)) == sorted(
        name.removesuffix(".msgpack") for name in names[1:]
    )


def test_a_revived_session_is_retired_like_any_other_and_its_mark_may_be_forgotten_though_an_earlier_start_made_it() -> None:
    disk = cut_short()
    names = [name.removesuffix(".msgpack") for name in journal(disk)]

    async def script(rt: Any, world: World) -> None:
        await until(rt, world, EpisodeAdmitted, len(names))
        await rt.call("gym-0", retire(*names))
        await rt.call("gym-0", counted_forget(7, "never-marked", *(name[:-3] for name in names)))

    bench, world = next_start(disk, script)
    assert {event.outcome for event in events(world, EpisodeEnded)} == {"retired"}
    assert journal(disk) == [] and bench.gym.control.mark(names[0][:-3]) is None
    assert events(world, ReplySent) == []


def test_an_answer_leaves_after_the_session_has_left_the_journal() -> None:
    bench = Bench()
    late: list[str] = []

    async def script(rt: Any, world: World) -> None:
        stream = rt.stream("gym-0", rows())
        for _ in range(4):
            item = await stream.next()
            late.extend(name for name in journal(bench.disk) if name.startswith(item.key))

    world = bench.run(script)
    order = [
        (type(record.event).__name__, getattr(record.event, "key", getattr(record.event, "path", "")))
        for record in world.history
        if isinstance(record.event, ReplySent) or (isinstance(record.event, FileDone) and record.event.op == "remove")
    ]
    for place, (kind, name) in enumerate(order):
        if kind == "ReplySent":
            assert any(kind == "FileDone" and name in path for kind, path in order[:place])
    assert late == [] and len(events(world, ReplySent)) == 4


def test_a_retire_is_answered_after_the_session_has_left_the_journal() -> None:
    bench = Bench()

    async def script(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows())
        await until(rt, world, TurnCompleted, 3)
        await rt.sleep(0.005)
        assert journal(bench.disk)
        await rt.call("gym-0", retire(*(key(generation) for generation in range(4))))
        assert journal(bench.disk) == []

    bench.run(script)
