"""A crash runs no ``finally``; the dead are closed under the fence, and can do nothing."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from toy import Ask, toy_world

from protocol.history import AnchorMade
from protocol.runtime import Fenced


def test_a_dead_finally_neither_writes_a_file_nor_records_an_event() -> None:
    reached = []

    async def main(rt: Any) -> None:
        try:
            await rt.sleep(9.0)
        finally:
            reached.append("finally")
            rt.record(AnchorMade("from the grave"))
            await rt.files.write("grave", b"hand")
            reached.append("never")

    world = toy_world(controller=main)
    world.live(max_time=1.0)
    events, version, steps = len(world.history), world.disk.version, world.steps
    assert reached == []  # the crash itself runs no finally
    world.bury()
    assert reached == ["finally"]
    assert len(world.history) == events
    assert world.disk.version == version
    assert world.disk.surviving("all") == {}
    assert world.steps == steps


def test_members_that_wait_or_start_raise_fenced_and_the_others_do_nothing() -> None:
    kept: dict[str, Any] = {}

    async def gym(rt: Any) -> None:
        async def ask(message: Ask) -> int:
            await rt.sleep(9.0)
            return message.number

        rt.serve({Ask: ask})

    async def main(rt: Any) -> None:
        async def sleeper() -> None:
            await rt.sleep(9.0)

        kept.update(rt=rt, queue=rt.queue(), signal=rt.signal(), lock=rt.lock(), task=rt.spawn(sleeper(), "sleeper"))
        kept.update(call=rt.call("gym-0", Ask(1)), stream=rt.stream("gym-0", Ask(1)), sleep=rt.sleep(1.0))
        await rt.sleep(9.0)

    world = toy_world(controller=main, gym_0=gym)
    world.live(max_time=1.0)
    world.bury()
    rt, task = kept["rt"], kept["task"]

    async def coroutine() -> None: ...

    starting = {
        "sleep": lambda: rt.sleep(1.0),
        "spawn": lambda: rt.spawn(coroutine(), "new"),
        "first_of": lambda: rt.first_of(kept["call"]),
        "all_of": lambda: rt.all_of([task]),
        "call": lambda: rt.call("gym-0", Ask(1)),
        "stream": lambda: rt.stream("gym-0", Ask(1)),
        "on_loop": lambda: rt.on_loop("engine", len, ()),
        "join": task.join,
        "get": kept["queue"].get,
        "wait": kept["signal"].wait,
        "next": kept["stream"].next,
        "lock": lambda: kept["lock"].__aenter__().send(None),
        "await call": lambda: next(kept["call"].__await__()),
        "await sleep": lambda: next(kept["sleep"].__await__()),
        **{name: lambda name=name: getattr(rt.files, name)("a") for name in ("read", "fsync", "fsync_dir", "list", "remove")},
        "write": lambda: rt.files.write("a", b""),
        "rename": lambda: rt.files.rename("a", "b"),
    }
    for name, member in starting.items():
        with pytest.raises(Fenced):
            member()
            pytest.fail(f"{name} did not raise")

    events, queued = len(world.history), len(world.kernel.environment._queue)
    kept["queue"].put(1)
    kept["signal"].set()
    task.cancel()
    kept["call"].cancel()
    kept["stream"].cancel()
    rt.record(AnchorMade("x"))
    rt.serve({})
    assert (len(kept["queue"]), len(world.history), len(world.kernel.environment._queue)) == (0, events, queued)
    assert rt.now() <= 1.0


def test_nothing_of_a_buried_life_runs_at_a_later_garbage_collection() -> None:
    ran = []

    async def main(rt: Any) -> None:
        try:
            await rt.sleep(9.0)
        finally:
            ran.append("finally")

    world = toy_world(controller=main)
    world.live(max_time=1.0)
    world.bury()
    assert ran == ["finally"]
    del world
    gc.collect()
    assert ran == ["finally"]


def test_a_finally_that_fails_in_the_grave_does_not_keep_the_others_open() -> None:
    closed = []

    async def main(rt: Any) -> None:
        async def rude() -> None:
            try:
                await rt.sleep(9.0)
            finally:
                raise ValueError("in the grave")

        async def polite() -> None:
            try:
                await rt.sleep(9.0)
            finally:
                closed.append("polite")

        rt.spawn(rude(), "rude")
        rt.spawn(polite(), "polite")
        await rt.sleep(9.0)

    world = toy_world(controller=main)
    world.live(max_time=1.0)
    world.bury()
    assert closed == ["polite"]
