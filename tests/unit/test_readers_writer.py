"""The readers-writer lock, on the simulator's kernel: a test is a few tasks and a literal log of the lock's events."""

from __future__ import annotations

from typing import Any

import pytest
from toy import toy_world

from protocol.errors import Lost
from protocol.history import ExclusiveEntered, MutationEntered, MutationWaits
from protocol.readers_writer import ReadersWriter

Log = list[str]
SHORT = {
    "MutationEntered": "+mutation", "MutationLeft": "-mutation", "ExclusiveWaited": "asks", "ExclusiveEntered": "+exclusive",
    "ExclusiveLeft": "-exclusive",
}  # fmt: skip


def play(main: Any, schedule: str = "0") -> Log:
    """The lock's events of one life, in order: ``<what> <task> [version]``."""
    world = toy_world(controller=main, schedule=schedule)
    status = world.live()
    world.bury()
    if world.failure is not None:
        raise world.failure
    assert status.outcome == "ended", status
    log = []
    for record in world.history:
        short = SHORT.get(type(record.event).__name__)
        if short is not None:
            version = f" {record.event.version}" if short == "-mutation" else ""  # type: ignore[attr-defined]
            log.append(f"{short} {record.task}{version}")
    return log


async def mutate(rt: Any, lock: ReadersWriter, seconds: float) -> None:
    async with lock.mutation("other"):
        await rt.sleep(seconds)


async def check_point(rt: Any, lock: ReadersWriter, seconds: float) -> None:
    async with lock.exclusive():
        assert not lock.holders
        await rt.sleep(seconds)


async def start(rt: Any, *work: tuple[str, Any]) -> list[Any]:
    """Tasks that begin a tenth of a second apart, in this order."""
    tasks = []
    for name, coroutine in work:
        tasks.append(rt.spawn(coroutine, name))
        await rt.sleep(0.1)
    return tasks


def test_mutations_share_and_each_outermost_exit_moves_the_version() -> None:
    async def main(rt: Any) -> None:
        lock = ReadersWriter(rt, "data-plane")
        await rt.all_of(await start(rt, ("a", mutate(rt, lock, 1.0)), ("b", mutate(rt, lock, 0.5))))
        assert (lock.version, lock.holders, lock.closed) == (2, {}, False)

    assert play(main) == ["+mutation a", "+mutation b", "-mutation b 1", "-mutation a 2"]


def test_a_checkpoint_waits_for_the_mutations_inside_and_those_that_come_later_wait_for_it() -> None:
    async def main(rt: Any) -> None:
        lock = ReadersWriter(rt, "data-plane")
        await rt.all_of(
            await start(
                rt, ("early", mutate(rt, lock, 1.0)), ("save", check_point(rt, lock, 1.0)), ("late", mutate(rt, lock, 0.1))
            )
        )

    assert play(main) == [
        "+mutation early",
        "asks save",
        "-mutation early 1",
        "+exclusive save",
        "-exclusive save",
        "+mutation late",
        "-mutation late 2",
    ]


def test_whoever_is_kept_out_says_when_its_wait_began_and_how_long_it_took() -> None:
    async def main(rt: Any) -> None:
        lock = ReadersWriter(rt, "data-plane")
        await rt.all_of(
            await start(
                rt,
                ("early", mutate(rt, lock, 1.0)),
                ("save", check_point(rt, lock, 1.0)),
                ("late", mutate(rt, lock, 0.1)),
                ("next save", check_point(rt, lock, 0.1)),
            )
        )

    world = toy_world(controller=main)
    assert world.live().outcome == "ended"
    world.bury()
    waits = [(round(record.time, 3), record.task) for record in world.history if isinstance(record.event, MutationWaits)]
    entered = {
        record.task: round(record.event.waited_s, 3)
        for record in world.history
        if isinstance(record.event, (MutationEntered, ExclusiveEntered))
    }
    assert waits[0] == (0.2, "late") and {task for _, task in waits} == {"late"}
    assert entered["early"] == 0.0 and entered["save"] == 0.9 and entered["late"] >= 1.8 and entered["next save"] >= 1.7


def test_a_stream_of_mutations_does_not_starve_a_checkpoint() -> None:
    async def main(rt: Any) -> None:
        lock = ReadersWriter(rt, "data-plane")

        async def endless(name: str) -> None:
            while True:
                await mutate(rt, lock, 0.3)

        tasks = await start(rt, ("a", endless("a")), ("b", endless("b")), ("c", endless("c")))
        began = rt.now()
        async with lock.exclusive():
            assert rt.now() - began <= 0.3
        for task in tasks:
            task.cancel()

    log = play(main)
    asked, entered = log.index("asks main"), log.index("+exclusive main")
    assert not [line for line in log[asked:entered] if line.startswith("+mutation")]


def test_a_task_inside_a_mutation_enters_a_nested_one_while_a_checkpoint_waits() -> None:
    async def main(rt: Any) -> None:
        lock = ReadersWriter(rt, "data-plane")

        async def nests() -> None:
            async with lock.mutation("group_removals"):
                await rt.sleep(0.5)
                assert lock.closed
                async with lock.mutation("other"), lock.mutation("sample_clears"):
                    await rt.sleep(0.1)

        await rt.all_of(await start(rt, ("nests", nests()), ("save", check_point(rt, lock, 0.1))))
        assert lock.version == 1  # only the outermost exit counts

    assert play(main) == ["+mutation nests", "asks save", "-mutation nests 1", "+exclusive save", "-exclusive save"]


def test_a_task_that_only_descends_from_a_holder_waits_like_anybody() -> None:
    async def main(rt: Any) -> None:
        lock = ReadersWriter(rt, "data-plane")

        async def parent() -> None:
            async with lock.mutation("other"):
                await rt.sleep(0.5)
                child = rt.spawn(mutate(rt, lock, 0.1), "child")
                await rt.sleep(0.1)
            await child.join()

        await rt.all_of(await start(rt, ("parent", parent()), ("save", check_point(rt, lock, 0.1))))

    log = play(main)
    assert log.index("+mutation child") > log.index("-exclusive save")


def test_the_version_moves_also_when_the_body_raised_or_was_cancelled() -> None:
    async def main(rt: Any) -> None:
        lock = ReadersWriter(rt, "data-plane")
        with pytest.raises(Lost):
            async with lock.mutation("other"):
                raise Lost("no answer")
        (task,) = await start(rt, ("cancelled", mutate(rt, lock, 9.0)))
        task.cancel()
        await task.join()
        assert (lock.version, lock.holders) == (2, {})
        async with lock.exclusive():
            assert lock.closed

    world = toy_world(controller=main)
    assert world.live().outcome == "ended", world.failure
    failed = [record.event.failed for record in world.history if type(record.event).__name__ == "MutationLeft"]  # type: ignore[attr-defined]
    world.bury()
    assert failed == [True, True]


def test_a_cancelled_waiting_checkpoint_leaves_the_flag_clear_and_wakes_who_waited_behind_it() -> None:
    async def main(rt: Any) -> None:
        lock = ReadersWriter(rt, "data-plane")
        early, save, late = await start(
            rt, ("early", mutate(rt, lock, 5.0)), ("save", check_point(rt, lock, 1.0)), ("late", mutate(rt, lock, 0.1))
        )
        assert lock.closed
        save.cancel()
        await save.join()
        assert not lock.closed
        await late.join()
        assert rt.now() < 1.0
        await early.join()

    assert play(main) == [
        "+mutation early",
        "asks save",
        "-exclusive save",
        "+mutation late",
        "-mutation late 1",
        "-mutation early 2",
    ]


def test_a_checkpoint_that_is_cancelled_inside_opens_the_door() -> None:
    async def main(rt: Any) -> None:
        lock = ReadersWriter(rt, "data-plane")
        save, late = await start(rt, ("save", check_point(rt, lock, 9.0)), ("late", mutate(rt, lock, 0.1)))
        save.cancel()
        await late.join()
        assert not lock.closed

    assert play(main)[-2:] == ["+mutation late", "-mutation late 1"]


def test_a_second_checkpoint_waits_for_the_first() -> None:
    async def main(rt: Any) -> None:
        lock = ReadersWriter(rt, "data-plane")
        await rt.all_of(await start(rt, ("one", check_point(rt, lock, 0.5)), ("two", check_point(rt, lock, 0.5))))

    assert play(main) == ["asks one", "+exclusive one", "-exclusive one", "asks two", "+exclusive two", "-exclusive two"]


def test_a_second_checkpoint_that_gives_up_waiting_disturbs_nobody() -> None:
    async def main(rt: Any) -> None:
        lock = ReadersWriter(rt, "data-plane")
        one, two = await start(rt, ("one", check_point(rt, lock, 0.5)), ("two", check_point(rt, lock, 0.5)))
        two.cancel()
        await rt.sleep(0.1)
        assert lock.closed  # the first is still inside
        await one.join()
        assert not lock.closed

    assert play(main) == ["asks one", "+exclusive one", "-exclusive one"]


def test_a_checkpoint_that_would_wait_for_itself_is_impossible() -> None:
    async def main(rt: Any) -> None:
        lock = ReadersWriter(rt, "data-plane")
        async with lock.mutation("other"):
            with pytest.raises(AssertionError, match="would wait for itself"):
                async with lock.exclusive():
                    pass

    assert play(main) == ["+mutation main", "-mutation main 1"]


def test_two_locks_do_not_know_each_other() -> None:
    async def main(rt: Any) -> None:
        gate, barrier = ReadersWriter(rt, "dispatch"), ReadersWriter(rt, "data-plane")
        async with gate.mutation("dispatch"):
            async with barrier.exclusive():
                assert (gate.closed, barrier.closed) == (False, True)
        assert (gate.version, barrier.version) == (1, 0)

    assert len(play(main)) == 5
