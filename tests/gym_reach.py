"""One Gym instance, its worker and data plane, and three ways to reach it: simulated, on asyncio, and over HTTP.

A test's script is the controller, and speaks to a ``Reach``: the same script plays on all three.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from protocol.config import Job
from protocol.errors import Lost
from protocol.gym.instance import GymInstance
from protocol.history import Event, Record
from protocol.messages import SetWeightVersion
from protocol.parts import Factory
from protocol.runtime import END
from protocol.worker.worker import GenerationWorker
from real.processes import Job as Life
from real.processes import Process, RealCall, RealStream, RealTask
from real.remote import Sender
from real.runtime import AsyncioRuntime
from sim.environments import environment, layout_of
from sim.fake_data_plane import FakeDataPlane
from sim.fake_engine import FakeEngine
from sim.world import World
from tests.unit.gym_bench import ALL_SAVABLE, JOB, TOKEN, Bench

E = TypeVar("E", bound=Event)
GYM, CONTROLLER = "gym-0", "controller"
ME = Sender(CONTROLLER, 1, 1)
TIME_SCALE = 0.1  # real seconds for each of the core's


class Reach:
    """The controller's way to the instance. ``call`` gives an awaitable with ``cancel``, ``stream`` one with ``next`` and
    ``cancel``; ``gym`` is the instance itself, to look at."""

    gym: GymInstance

    def __init__(self, rt: Any, history: list[Record]) -> None:
        self.rt = rt
        self.history = history

    def call(self, message: Any) -> Any:
        return self.rt.call(GYM, message)

    def stream(self, message: Any) -> Any:
        return self.rt.stream(GYM, message)

    async def close(self) -> None:
        pass

    def events(self, kind: type[E]) -> list[E]:
        return [record.event for record in self.history if isinstance(record.event, kind)]

    async def until(self, kind: type[Event], count: int = 1) -> None:
        """Look every few milliseconds until that many events of this kind are recorded."""
        while len(self.events(kind)) < count:
            await self.rt.sleep(0.005)

    async def items(self, message: Any) -> list[Any]:
        """Of a whole stream."""
        stream, found = self.stream(message), []
        while (item := await stream.next()) is not END:
            found.append(item)
        return found


Script = Callable[[Reach], Coroutine[Any, Any, None]]


class HttpCall:
    def __init__(self, asked: Coroutine[Any, Any, Any]) -> None:
        self._task = asyncio.ensure_future(asked)

    def __await__(self) -> Iterator[Any]:
        try:
            return (yield from self._task.__await__())
        except asyncio.CancelledError:
            if self._task.cancelled():
                raise Lost("the call was given up") from None
            raise

    def cancel(self) -> None:
        self._task.cancel()


class HttpStream:
    def __init__(self, items: Any) -> None:
        self._items = items
        self._left: asyncio.Queue[Any] = asyncio.Queue()
        self._task = asyncio.ensure_future(self._pump())

    async def _pump(self) -> None:
        try:
            async for item in self._items:
                self._left.put_nowait(item)
            self._left.put_nowait(END)
        except Exception as error:
            self._left.put_nowait(error)
        finally:
            await self._items.aclose()

    async def next(self) -> Any:
        item = await self._left.get()
        if isinstance(item, Exception):
            raise item
        return item

    def cancel(self) -> None:
        self._task.cancel()


class HttpReach(Reach):
    def __init__(self, rt: Any, history: list[Record], link: Any) -> None:
        super().__init__(rt, history)
        self.link = link

    def call(self, message: Any) -> Any:
        return HttpCall(self.link.call(message))

    def stream(self, message: Any) -> Any:
        return HttpStream(self.link.stream(message))


class LocalServed:
    """``real.remote.Served`` of a process on this very loop; ``asked`` are its senders."""

    def __init__(self, process: Process) -> None:
        self.name = process.name
        self.process = process
        self.asked: list[Sender] = []

    async def answer(self, sender: Sender, message: Any) -> Any:
        self.asked.append(sender)
        call = RealCall(self.process, message)
        try:
            return await call
        finally:
            call.cancel()

    async def answer_stream(self, sender: Sender, message: Any, send: Callable[[Any], None]) -> None:
        self.asked.append(sender)
        stream = RealStream(self.process, message)
        try:
            while (item := await stream.next()) is not END:
                send(item)
        finally:
            stream.cancel()


class Kept:
    """A recorder that keeps the history in memory."""

    def __init__(self, life: int = 1) -> None:
        self.life = life
        self.history: list[Record] = []

    def record(self, time_s: float, process: str, task: str, event: Event) -> None:
        self.history.append(Record(len(self.history), time_s, process, self.life, task, event))


async def play_on_asyncio(
    script: Callable[[Any], Coroutine[Any, Any, None]], root: Path, processes: Mapping[str, Factory], kept: Kept
) -> None:
    """One life of these processes beside a controller that plays the script; it ends with it, and raises what failed."""
    life = Life(kept.life, kept, TIME_SCALE)  # type: ignore[arg-type]
    for name, factory in processes.items():
        rt = AsyncioRuntime(life, name, root, seed=0)
        RealTask(rt.process, factory(rt), "main")
    rt = AsyncioRuntime(life, CONTROLLER, root, seed=0)
    life.main = RealTask(rt.process, script(rt), "main")
    try:
        async with asyncio.timeout(60):
            await life.over.wait()
    finally:
        await life.stop()
    if life.failure is not None:
        raise life.failure[2]


class Ways:
    """How the instance is reached; ``run`` plays a script to its end and returns the history."""

    def __init__(self, way: str, root: Path) -> None:
        self.way = way
        self.root = root

    def run(self, script: Script, profile: Mapping[str, Any] = ALL_SAVABLE, job: Job = JOB) -> list[Record]:
        if self.way == "simulated":
            return self._simulated(script, profile, job)
        kept = Kept()
        asyncio.run(self._on_asyncio(script, profile, job, kept))
        return kept.history

    def _simulated(self, script: Script, profile: Mapping[str, Any], job: Job) -> list[Record]:
        async def play(rt: Any, world: World) -> None:
            reach = Reach(rt, world.history)
            reach.gym = bench.gym
            await script(reach)

        bench = Bench(profile, job=job)
        return bench.run(play).history

    async def _on_asyncio(self, script: Script, profile: Mapping[str, Any], job: Job, kept: Kept) -> None:
        made: list[Any] = []

        async def gym_main(rt: Any) -> None:
            gym = GymInstance(rt, job, environment("workplace", rt, profile), layout_of("workplace").participants, TOKEN)
            made.append(gym)
            await gym.main()

        async def play(rt: Any) -> None:
            await rt.call("worker-0", SetWeightVersion(0))
            if self.way == "http":
                await self._over_http(script, rt, made[0], kept)
            else:
                reach = Reach(rt, kept.history)
                reach.gym = made[0]
                await script(reach)

        processes: dict[str, Factory] = {
            "data-plane": lambda rt: FakeDataPlane(rt).main(),
            "worker-0": lambda rt: GenerationWorker(rt, job, FakeEngine(rt, profile)).main(),
            GYM: gym_main,
        }
        await play_on_asyncio(play, self.root, processes, kept)

    async def _over_http(self, script: Script, rt: Any, gym: GymInstance, kept: Kept) -> None:
        from real.gym.client import GymLink
        from real.gym.server import serve_gym

        server = await serve_gym(LocalServed(gym.rt.process), TOKEN, gym.rt.record)  # type: ignore[attr-defined]
        link = GymLink(server.address, GYM, ME)
        try:
            reach = HttpReach(rt, kept.history, link)
            reach.gym = gym
            await script(reach)
        finally:
            await link.close()
            await server.close()
