"""A generation worker with the simulator's engine on the asyncio twin, asked in the same process or through its model server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from protocol.config import Job, TokenCapture
from protocol.history import Event, Record
from protocol.identity import DATA_PLANE
from protocol.messages import Generate
from protocol.runtime import Runtime
from protocol.worker.worker import GenerationWorker
from real.processes import RealTask
from real.recorder import read_history
from real.remote import Sender
from real.world import run_one_life
from sim.fake_data_plane import FakeDataPlane
from sim.fake_engine import FakeEngine

E = TypeVar("E", bound=Event)
WAYS = ("in-process", "http")
TOKEN = "5f" * 16
WORKER = "worker-0"
JOB = Job(generation_workers=1, target_level="prefix", token_capture=TokenCapture(control_timeout_s=2.0))
SLOW: dict[str, Any] = {"tokens_min": 40, "tokens_max": 40, "token_s": 0.01, "jitter_s": 0.0, "race": 0.0}
Way = Callable[[Any], Awaitable[Any]]
Script = Callable[["Told"], Awaitable[None]]


def asked(**changes: Any) -> Generate:
    root = Generate("e0p5i1_g0r0-a0/c0", "e0p5i1_g0r0", 0, 5, 0, 0, "", "", 0, (1, 2, 3), admitted_at=0.1 + 0.2)
    return msgspec.structs.replace(root, **changes)


class Behind:
    """``real.remote.Served`` over one process of the twin."""

    def __init__(self, rt: Any) -> None:
        self.process = rt.process
        self.name = rt.me
        self.senders: list[Sender] = []

    async def answer(self, sender: Sender, message: Any) -> Any:
        self.senders.append(sender)
        handlers = self.process.handlers
        assert handlers is not None
        task = RealTask(self.process, handlers[type(message)](message), type(message).__name__)
        try:
            return await task.join()
        finally:
            task.cancel()

    async def answer_stream(self, sender: Sender, message: Any, send: Callable[[Any], None]) -> None:
        raise NotImplementedError


@asynccontextmanager
async def listening(rt: Runtime, served: Any, **options: Any):  # type: ignore[no-untyped-def]
    """A model server until the block ends; gives its address."""
    from real.engine.server import ModelServer

    server = ModelServer(rt, served, **{"token": TOKEN, **options})
    url = server.listen()
    serving = asyncio.ensure_future(server.serve())
    try:
        yield url
    finally:
        server.close()
        with suppress(asyncio.CancelledError):
            await serving


@dataclass
class Told:
    """What a script has: the runtimes of controller and worker, the way to the worker, and what has been recorded so far."""

    rt: Runtime
    worker: Any
    ask: Way
    history: Path

    def events(self, kind: type[E]) -> list[E]:
        return [record.event for record in read_history(self.history) if isinstance(record.event, kind)]

    async def until(self, kind: type[Event], count: int = 1) -> None:
        async with asyncio.timeout(5):
            while len(self.events(kind)) < count:  # noqa: ASYNC110 - a file grows
                await asyncio.sleep(0.005)


def play(
    folder: Path,
    way: str,
    script: Script,
    *,
    profile: Mapping[str, Any] | None = None,
    engine: Callable[..., Any] = FakeEngine,
    job: Job = JOB,
) -> list[Record]:
    """Run ``script`` as the controller of one life. Raises what it raised."""
    history = folder / f"{way}.jsonl"
    workers: list[Any] = []
    raised: list[BaseException] = []

    async def worker(rt: Any) -> None:
        workers.append(rt)
        await GenerationWorker(rt, job, engine(rt, {**SLOW, **(profile or {})})).main()

    async def controller(rt: Any) -> None:
        try:
            await rt.sleep(0.01)
            if way == "in-process":
                await script(Told(rt, workers[0], lambda message: rt.call(WORKER, message), history))
                return
            from real.engine.client import ModelLink

            async with listening(workers[0], Behind(workers[0])) as url:
                link = ModelLink(WORKER, url, Sender(rt.me, 1, 1), TOKEN)
                try:
                    await script(Told(rt, workers[0], link.call, history))
                finally:
                    await link.close()
        except Exception as error:
            raised.append(error)

    status = run_one_life(
        {DATA_PLANE: lambda rt: FakeDataPlane(rt).main(), WORKER: worker, "controller": controller},
        folder / way,
        history,
        1,
        seed=0,
        time_scale=1.0,
        limit_s=30.0,
        clean_up=_nothing,
    )
    if raised:
        raise raised[0]
    assert status.outcome == "ended", status
    return read_history(history)


async def _nothing(rt: Runtime) -> None:
    pass
