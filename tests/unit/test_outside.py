"""Calls and streams to another operating system process: how they end, who is fenced, what a link's failure becomes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import Cause, Lost, PeerFailed, ProtocolError, Refusal
from protocol.messages import Health, Probe
from protocol.runtime import END
from real.outside import LocalServed
from real.processes import Job, RealTask
from real.recorder import Recorder
from real.remote import Sender
from real.runtime import AsyncioRuntime

ASKER = Sender("controller", 1, 1)


class Wire:
    """A link straight into the other process's door, which can be cut."""

    def __init__(self, served: LocalServed | None, error: Exception | None = None) -> None:
        self.served = served
        self.error = error

    async def call(self, message: Any) -> Any:
        if self.error is not None:
            raise self.error
        assert self.served is not None
        return await self.served.answer(ASKER, message)

    async def stream(self, message: Any) -> AsyncIterator[Any]:
        items: asyncio.Queue[Any] = asyncio.Queue()
        assert self.served is not None
        answering = asyncio.ensure_future(self.served.answer_stream(ASKER, message, items.put_nowait))
        while not (answering.done() and items.empty()):
            try:
                yield await asyncio.wait_for(items.get(), 0.05)
            except TimeoutError:
                continue
        await answering
        if self.error is not None:
            raise self.error

    async def close(self) -> None:
        pass


def play(
    folder: Path,
    serve: Callable[[AsyncioRuntime], dict[type, Any]],
    client: Callable[[AsyncioRuntime], Coroutine[Any, Any, Any]],
    error: Exception | None = None,
) -> Any:
    """``client`` runs in one process, and reaches ``worker-0`` in another over a wire."""

    async def run() -> Any:
        theirs = Job(1, Recorder(folder / "theirs.jsonl", 1), 1.0)
        there = AsyncioRuntime(theirs, "worker-0", folder, 1)
        there.serve(serve(there))
        mine = Job(1, Recorder(folder / "mine.jsonl", 1), 1.0, links={"worker-0": Wire(LocalServed(there.process), error)})
        here = AsyncioRuntime(mine, "controller", folder, 1)
        task = RealTask(here.process, client(here), "client")
        result = await task.join()
        await mine.stop()
        await theirs.stop()
        return result

    return asyncio.run(run())


async def well(request: Probe) -> Health:
    return Health(1, 7)


def test_a_call_brings_the_answer_and_keeps_it(tmp_path: Path) -> None:
    async def client(rt: AsyncioRuntime) -> Any:
        call = rt.call("worker-0", Probe())
        return await call, await call, call.done

    assert play(tmp_path, lambda rt: {Probe: well}, client) == (Health(1, 7), Health(1, 7), True)


@pytest.mark.parametrize(
    ("raised", "kind", "cause"),
    [(Refusal("no", Cause.PARKED), Refusal, Cause.PARKED), (ValueError("odd"), PeerFailed, Cause.INFRA)],
)
def test_a_typed_error_arrives_typed_and_another_one_as_the_peers_failure(
    tmp_path: Path, raised: Exception, kind: type, cause: Cause
) -> None:
    async def refuse(request: Probe) -> None:
        raise raised

    async def client(rt: AsyncioRuntime) -> Any:
        try:
            await rt.call("worker-0", Probe())
        except ProtocolError as error:
            return type(error), error.cause

    assert play(tmp_path, lambda rt: {Probe: refuse}, client) == (kind, cause)


def test_a_broken_connection_is_lost(tmp_path: Path) -> None:
    async def client(rt: AsyncioRuntime) -> Any:
        with pytest.raises(Lost, match="Probe to worker-0: the connection broke"):
            await rt.call("worker-0", Probe())
        return True

    assert play(tmp_path, lambda rt: {Probe: well}, client, ConnectionResetError("reset"))


def test_a_call_that_is_given_up_cancels_the_handler(tmp_path: Path) -> None:
    seen: list[str] = []

    async def for_ever(request: Probe) -> None:
        try:
            await asyncio.sleep(30)
        finally:
            seen.append("cancelled")

    async def client(rt: AsyncioRuntime) -> Any:
        call = rt.call("worker-0", Probe())
        assert await rt.first_of(call, timeout_s=0.05) is None
        call.cancel()
        with pytest.raises(Lost, match="given up"):
            await call
        await rt.sleep(0.05)
        return list(seen)

    assert play(tmp_path, lambda rt: {Probe: for_ever}, client) == ["cancelled"]


def test_a_stream_brings_its_items_and_then_how_it_ended(tmp_path: Path) -> None:
    async def three(request: Probe, outlet: Any) -> None:
        for number in range(3):
            outlet.send(number)

    async def client(rt: AsyncioRuntime) -> Any:
        stream = rt.stream("worker-0", Probe())
        got = [await stream.next() for _ in range(3)]
        try:
            end: Any = await stream.next()
        except ProtocolError as error:
            end = type(error)
        return got, end

    assert play(tmp_path, lambda rt: {Probe: three}, client) == ([0, 1, 2], END)
    broken = play(tmp_path, lambda rt: {Probe: three}, client, ConnectionResetError("reset"))
    assert broken == ([0, 1, 2], Lost)


@pytest.mark.parametrize(
    ("sender", "what"),
    [
        (Sender("gym-0", 1, 1), "has started again"),
        (Sender("gym-0", 2, 9), "life 2 is fenced"),
        (Sender("gym-1", 0, 1), "life 0 is fenced"),
    ],
)
def test_an_older_start_is_fenced(tmp_path: Path, sender: Sender, what: str) -> None:
    async def run() -> None:
        job = Job(1, Recorder(tmp_path / "life.jsonl", 1), 1.0)
        rt = AsyncioRuntime(job, "worker-0", tmp_path, 1)
        rt.serve({Probe: well})
        served = LocalServed(rt.process)
        assert await served.answer(Sender("gym-0", 1, 2), Probe()) == Health(1, 7)
        with pytest.raises(Refusal, match=what) as refused:
            await served.answer(sender, Probe())
        assert refused.value.cause is Cause.BROKEN
        assert await served.answer(Sender("gym-1", 1, 1), Probe()) == Health(1, 7)

    asyncio.run(run())


def test_a_request_that_comes_before_the_process_serves_waits(tmp_path: Path) -> None:
    async def run() -> None:
        job = Job(1, Recorder(tmp_path / "life.jsonl", 1), 1.0)
        rt = AsyncioRuntime(job, "worker-0", tmp_path, 1)
        early = asyncio.ensure_future(LocalServed(rt.process).answer(ASKER, Probe()))
        await asyncio.sleep(0.01)
        assert not early.done()
        rt.serve({Probe: well})
        assert await early == Health(1, 7)

    asyncio.run(run())
