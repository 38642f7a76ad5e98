"""The readers-writer lock under random tasks, delays, cancellations and schedules, against what it promises."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from small_world import SmallScenario

from protocol.errors import Lost
from protocol.history import MutationLeft
from protocol.readers_writer import ReadersWriter
from sim.disk import Disk
from sim.world import World

TICK_S = 0.01
TICKS = st.integers(0, 6)
# (begins at, kind, holds for, depth of nesting or whether it raises, is cancelled after, or never)
TASK = st.tuples(TICKS, st.sampled_from(["mutation", "exclusive"]), TICKS, st.integers(0, 2), st.none() | st.integers(0, 8))


@settings(deadline=None, max_examples=150)
@given(st.lists(TASK, min_size=1, max_size=8), st.integers(0, 5))
def test_sections_never_overlap_nobody_is_stuck_and_every_exit_moves_the_version(tasks: list[Any], schedule: int) -> None:
    inside: dict[str, str] = {}
    seen: dict[str, int] = {"left": 0, "nested while asked": 0}

    async def main(rt: Any) -> None:
        lock = ReadersWriter(rt, "data-plane")

        def enter(name: str, kind: str) -> None:
            others = [held for other, held in inside.items() if other != name]
            assert "exclusive" not in others, "something is inside together with an exclusive section"
            assert kind == "mutation" or not others
            inside[name] = kind

        async def mutation(name: str, ticks: int, depth: int) -> None:
            async with lock.mutation("other"):
                enter(name, "mutation")
                try:
                    await rt.sleep(ticks * TICK_S)
                    for _ in range(depth):
                        seen["nested while asked"] += lock.closed
                        before = rt.now()
                        async with lock.mutation("nested"):
                            assert rt.now() == before, "a nested mutation waited"
                    if depth == 2:
                        raise Lost("the body failed")
                finally:
                    del inside[name]
                    seen["left"] += 1

        async def exclusive(name: str, ticks: int) -> None:
            async with lock.exclusive():
                enter(name, "exclusive")
                version = lock.version
                try:
                    await rt.sleep(ticks * TICK_S)
                    assert lock.version == version, "a mutation ended inside an exclusive section"
                finally:
                    del inside[name]

        async def work(name: str, begins: int, kind: str, ticks: int, depth: int) -> None:
            await rt.sleep(begins * TICK_S)
            try:
                await (mutation(name, ticks, depth) if kind == "mutation" else exclusive(name, ticks))
            except Lost:
                return

        started = [(rt.spawn(work(f"task-{index}", *task[:4]), f"task-{index}"), task[4]) for index, task in enumerate(tasks)]
        for tick in range(10):
            for task, cancelled in started:
                if cancelled == tick:
                    task.cancel()
            await rt.sleep(TICK_S)
        await rt.all_of([task for task, _ in started])
        assert (inside, lock.holders, lock.closed) == ({}, {}, False)
        assert lock.version == seen["left"]

    world = World(SmallScenario(), 0, 1, Disk(), processes={"controller": main}, schedule=str(schedule))
    status = world.live(max_time=10.0)
    world.bury()
    if world.failure is not None:
        raise world.failure
    assert status.outcome == "ended", f"somebody waits for ever: {status}"
    versions = [record.event.version for record in world.history if isinstance(record.event, MutationLeft)]
    assert versions == list(range(1, len(versions) + 1))
