"""One Gym instance, its worker and data plane, and three ways to reach it: simulated, on asyncio, and over HTTP.

A test's script is the controller, and speaks to a ``Reach``: the same script plays on all three.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from protocol.config import Job
from protocol.external import Service
from protocol.gym.instance import GymInstance
from protocol.history import Event, Record
from protocol.messages import SetWeightVersion
from protocol.parts import Environment, Factory
from protocol.runtime import END
from protocol.worker.worker import GenerationWorker
from real.outside import LocalServed
from real.processes import Job as Life
from real.processes import RealTask
from real.remote import Link, Sender
from real.runtime import AsyncioRuntime
from sim.environments import environment
from sim.fake_data_plane import FakeDataPlane
from sim.fake_engine import FakeEngine
from sim.world import World
from tests.unit.gym_bench import ALL_SAVABLE, JOB, TOKEN, Bench

E = TypeVar("E", bound=Event)
GYM, CONTROLLER = "gym-0", "controller"
ME = Sender(CONTROLLER, 1, 1)
TIME_SCALE = 0.2  # real seconds for each of the core's: a busy machine does not use up a lease between two calls


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


class Kept:
    """A recorder that keeps the history in memory."""

    def __init__(self, life: int = 1) -> None:
        self.life = life
        self.history: list[Record] = []

    def record(self, time_s: float, process: str, task: str, event: Event) -> None:
        self.history.append(Record(len(self.history), time_s, process, self.life, task, event))


async def play_on_asyncio(
    script: Callable[[Any], Coroutine[Any, Any, None]],
    root: Path,
    processes: Mapping[str, Factory],
    kept: Kept,
    links: Mapping[str, Link] | None = None,
) -> None:
    """One life of these processes beside a controller that plays the script; it ends with it, and raises what failed.

    ``links``: how processes are reached that are not to be reached directly.
    """
    life = Life(kept.life, kept, TIME_SCALE, links=links)  # type: ignore[arg-type]
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
    """How the instance is reached; ``run`` plays a script to its end and returns the history.

    For the ways on asyncio: another environment (``made_of``), the ``services`` outside, the processes ``beside``.
    """

    def __init__(
        self,
        way: str,
        root: Path,
        made_of: Callable[[Any, Mapping[str, Any]], Environment] | None = None,
        services: tuple[Service, ...] = (),
        beside: Mapping[str, Factory] | None = None,
    ) -> None:
        self.way = way
        self.root = root
        self.environment = made_of or partial(environment, "workplace")
        self.services = services
        self.beside = beside or {}

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
        made: list[GymInstance] = []
        links: dict[str, Link] = {}

        async def gym_main(rt: Any) -> None:
            acts_in = self.environment(rt, profile)
            gym = GymInstance(rt, job, acts_in, acts_in.layout.participants, TOKEN, self.services)
            made.append(gym)
            await gym.main()

        async def play(rt: Any) -> None:
            await rt.call("worker-0", SetWeightVersion(0))
            reach = Reach(rt, kept.history)
            reach.gym = made[0]
            if self.way == "http":
                await self._over_http(script, reach, links)
            else:
                await script(reach)

        processes: dict[str, Factory] = {
            "data-plane": lambda rt: FakeDataPlane(rt).main(),
            "worker-0": lambda rt: GenerationWorker(rt, job, FakeEngine(rt, profile)).main(),
            GYM: gym_main,
            **self.beside,
        }
        await play_on_asyncio(play, self.root, processes, kept, links)

    async def _over_http(self, script: Script, reach: Reach, links: dict[str, Link]) -> None:
        from real.gym.client import GymLink
        from real.gym.server import serve_gym

        rt: Any = reach.gym.rt
        server = await serve_gym(LocalServed(rt.process), TOKEN, rt.record)
        links[GYM] = link = GymLink(server.address, GYM, ME)
        try:
            await script(reach)
        finally:
            await link.close()
            await server.close()
