"""The driver of one life: ``python -m real.cluster.driver SETTING.json``, started by the supervisor.

    boot     a cluster, one actor a process, as many loading at once as there are cores; nothing of this counts as the life's time
    stage 1  LifeStarted, then the clean-up alone, in the controller's actor
    stage 2  every process, in start order; the life ends with the controller, or with a failure that nobody joined

Processes that the killer restarts are made anew here, under the next incarnation. The status of the life lies beside its history
when it is over; a killed one leaves none. Nothing is taken down in order: what is worth keeping is on disk by then, the
supervisor kills what still runs, and proves that nothing is left (a graceful end took 8 s a life, 5 of them for an idle core).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import ray
from ray.exceptions import RayActorError

from protocol import identity
from protocol.history import LifeStarted
from protocol.job import processes
from protocol.judging import RunStatus
from protocol.parts import Parts
from real import temporary
from real.cluster import cluster
from real.cluster.actor import ProcessActor
from real.cluster.ray_link import NAMESPACE, actor_name
from real.cluster.setting import MARK, LifeSetting, read_setting
from real.killer.control import Booted, Control, Died, Follow, StartAgain, encode, read_ask
from real.recorder import Recorder, save_status
from real.world import JOB, status_file

SLOW = ("worker", "trainer", "data-plane", "gym", "finalizer", "controller")  # what loads longest starts first
AT_ONCE = len(os.sched_getaffinity(0))  # more would only keep the longest from its core: the others are done long before it
BEGAN = time.monotonic()
NO_PARTS = SimpleNamespace(secret="")
NOT_READY = "boot"  # outcome of a life whose processes could not be made ready


class Driver:
    def __init__(self, setting: LifeSetting, content: bytes) -> None:
        self.setting = setting
        self.content = content
        self.control = Control(setting.control)
        self.recorder = Recorder(Path(setting.history), setting.life)
        self.actors: dict[str, Any] = {}
        self.book: dict[str, tuple[str, int]] = {}
        self.dead: set[str] = set()  # killed on purpose
        self.began = 0.0
        self.over: asyncio.Queue[tuple[str, RunStatus]] = asyncio.Queue()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.loading = asyncio.Semaphore(AT_ONCE)
        # Workers of our own cluster inherit them; those of another one must be given them.
        given = {**environment_of(setting), MARK: setting.mark, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        self.variables = {"env_vars": given} if setting.ray else {}

    def names(self) -> list[str]:
        scenario = self.setting.scenario
        made = processes(scenario.tables or scenario.job, scenario.tasks, cast(Parts, NO_PARTS))  # no factory is called here
        return list(made)

    async def live(self) -> RunStatus:
        names = self.names()
        await asyncio.to_thread(cluster.start, self.setting.ray, f"{self.setting.scratch}/r")
        told("cluster up")
        order = sorted(names, key=lambda name: SLOW.index(name.rstrip("0123456789").rstrip("-")))
        async with asyncio.timeout(self.setting.boot_s):
            found = await asyncio.gather(*[self.make_in_turn(name) for name in order])
        told("all ready")
        wrong = [error for error in found if error]
        if wrong:
            return RunStatus(NOT_READY, error="; ".join(wrong))
        self.background(self.follow())
        await self.introduce()
        self.began = time.monotonic()
        self.recorder.record(0.0, JOB, "", LifeStarted(self.setting.life))
        status = cast(RunStatus, await self.actors[identity.CONTROLLER].clean_up.remote(self.began))
        if status.outcome != "ended":
            return status
        self.began = time.monotonic()
        self.control.ask(Booted({}, self.began))
        for name in names:
            await self.start(name)
        return await self.outcome()

    async def make_in_turn(self, name: str) -> str:
        async with self.loading:
            return await self.make(name, 1)

    async def make(self, name: str, incarnation: int) -> str:
        """A ready actor; returns what went wrong."""
        remote = ray.remote(
            num_cpus=0, max_restarts=0, max_concurrency=10_000, scheduling_strategy=cluster.here(), namespace=NAMESPACE,
            name=actor_name(self.setting.mark, name), runtime_env=self.variables or None,
        )(ProcessActor)  # fmt: skip
        actor = self.actors[name] = remote.remote(self.content, name, incarnation)
        try:
            pid = await actor.pid.remote()
            self.control.ask(Booted({name: pid}))
            told(f"{name} is process {pid}")
            address, error = await actor.boot.remote()
            told(f"{name} is ready")
        except RayActorError as died:
            return f"{name}: its process died while it was made ready ({died})"
        self.book[name] = (address, incarnation)
        return cast(str, error)

    async def introduce(self) -> None:
        await asyncio.gather(*[self.meet(name) for name in self.actors if name not in self.dead])

    async def meet(self, name: str) -> None:
        with contextlib.suppress(RayActorError):
            await self.actors[name].meet.remote(self.book)

    async def start(self, name: str) -> None:
        actor = self.actors[name]
        with contextlib.suppress(RayActorError):  # whoever died here is found by its watch
            await actor.start.remote(self.began)
        self.background(self.watch(name, actor))

    def background(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def watch(self, name: str, actor: Any) -> None:
        try:
            status = cast(RunStatus, await actor.over.remote())
        except RayActorError as error:
            if name in self.dead:
                return
            status = RunStatus("failed", error=f"{name}: its process died ({type(error).__name__})")
        self.over.put_nowait((name, status))

    async def outcome(self) -> RunStatus:
        try:
            async with asyncio.timeout(self.setting.limit_s):
                _, status = await self.over.get()
                return status
        except TimeoutError:
            return RunStatus("time", at_s=self.setting.limit_s)

    async def follow(self) -> None:
        """Deaths and restarts, as the killer tells them."""
        reader, writer = await asyncio.open_unix_connection(self.control.path)
        writer.write(encode(Follow()) + b"\n")
        while line := await reader.readline():
            match read_ask(line):
                case Died(process):
                    self.dead.add(process)
                case StartAgain(process, incarnation, _) as again:
                    await self.start_again(process, incarnation)
                    await asyncio.to_thread(self.control.ask, again)

    async def start_again(self, name: str, incarnation: int) -> None:
        with contextlib.suppress(ValueError, RayActorError):
            ray.kill(self.actors[name], no_restart=True)
        error = await self.make(name, incarnation)
        if error:
            self.over.put_nowait((name, RunStatus("failed", error=error)))
            return
        self.dead.discard(name)
        await self.introduce()
        await self.start(name)


def told(text: str) -> None:
    """Into the driver's log: seconds since it began."""
    print(f"{time.monotonic() - BEGAN:7.2f} {text}", flush=True)


async def drive(setting: LifeSetting, content: bytes) -> RunStatus:
    driver = Driver(setting, content)
    try:
        status = await driver.live()
    except TimeoutError:
        status = RunStatus(NOT_READY, error=f"the processes were not ready after {setting.boot_s:g} s")
    save_status(status_file(Path(setting.history)), status)
    return status


def environment_of(setting: LifeSetting) -> Mapping[str, str]:
    """What ``environment`` of the module of the parts says: variables that its packages must find before they are imported; and
    where temporary files lie."""
    module = importlib.import_module(setting.parts.partition(":")[0])
    found: Mapping[str, str] = module.environment(setting) if hasattr(module, "environment") else {}
    return {**temporary.variables(Path(setting.scratch)), **found}


def main(path: Path) -> NoReturn:
    content = path.read_bytes()
    setting = read_setting(content)
    os.environ.update(environment_of(setting))
    told("begins")
    status = asyncio.run(drive(setting, content))
    print(status, flush=True)
    os._exit(0 if status.outcome == "ended" else 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
