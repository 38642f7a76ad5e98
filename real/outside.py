"""Calls and streams between operating system processes, as the core sees them: the caller's side over a ``Link``, and the
serving side behind a server.

An answer that can no more come is ``Lost``; whatever a link raises that is no ``ProtocolError`` is a broken connection. What
still comes from an older start of the job, or from a process that has started again since, is refused: a killed node's actor
was seen to answer once more, 90 ms after its death (measured).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from protocol.errors import Cause, Lost, PeerFailed, ProtocolError, Refusal
from protocol.runtime import Handler
from real.processes import Incoming, Process, RealTask
from real.remote import Link, Sender
from real.waits import Fence, Wait

_running: set[asyncio.Task[None]] = set()  # the loop holds its tasks weakly


def in_background(work: Any, name: str) -> asyncio.Task[None]:
    task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


def connection_lost(what: str, error: Exception) -> Lost:
    return Lost(f"{what}: the connection broke ({type(error).__name__}: {error})")


class RemoteCall(Wait):
    """It is on its way from the start; its outcome stays, so it may be awaited again."""

    def __init__(self, fence: Fence, link: Link, peer: str, message: Any) -> None:
        super().__init__(fence)
        self.what = f"{type(message).__name__} to {peer}"
        self._asking = in_background(self._ask(link, message), self.what)

    @property
    def done(self) -> bool:
        return self.over

    async def _ask(self, link: Link, message: Any) -> None:
        value: Any = None
        error: Exception | None = None
        try:
            value = await link.call(message)
        except ProtocolError as raised:
            error = raised
        except Exception as raised:
            error = connection_lost(self.what, raised)
        if not self.over and not self.fence.up:
            self.settle(value, error)

    def cancel(self) -> None:
        if not self.over:
            self._asking.cancel()
            self.settle(None, Lost(f"the call of {self.what} was given up"))


class RemoteStream(Incoming):
    def __init__(self, fence: Fence, link: Link, peer: str, message: Any) -> None:
        super().__init__(fence, f"the stream of {type(message).__name__} to {peer}")
        self._reading = in_background(self._read(link, message), self.what)

    async def _read(self, link: Link, message: Any) -> None:
        error: Exception | None = None
        try:
            async for item in link.stream(message):
                if self.fence.up:
                    return
                self.deliver(item)
        except ProtocolError as raised:
            error = raised
        except Exception as raised:
            error = connection_lost(self.what, raised)
        if not self.fence.up:
            self.conclude(None, error)

    def cancel(self) -> None:
        if not self.ended:
            self._reading.cancel()
            self.given_up()


class LocalServed:
    """``real.remote.Served`` of one process of this operating system process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.name = process.name
        self.newest: dict[str, int] = {}  # incarnation of each sender

    async def answer(self, sender: Sender, message: Any) -> Any:
        async def run(handler: Handler) -> Any:
            return await handler(message)

        return await self._answer(sender, message, run)

    async def answer_stream(self, sender: Sender, message: Any, send: Callable[[Any], None]) -> None:
        async def run(handler: Handler) -> None:
            await handler(message, Sending(send))

        await self._answer(sender, message, run)

    async def _answer(self, sender: Sender, message: Any, run: Callable[[Handler], Any]) -> Any:
        kind = type(message).__name__
        self.fenced(sender, kind)
        while self.process.handlers is None:
            await self.process.serves.wait()
        self.fenced(sender, kind)
        handler = self.process.handlers.get(type(message))
        if handler is None:
            raise PeerFailed(f"{self.name} serves no {kind}")
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        task = RealTask(self.process, self._handle(handler, run, kind, outcome), kind)
        try:
            return await outcome
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def _handle(self, handler: Handler, run: Callable[[Handler], Any], kind: str, outcome: asyncio.Future[Any]) -> None:
        value: Any = None
        error: Exception | None = Lost(f"{kind} to {self.name} was broken off")
        try:
            value = await run(handler)
            error = None
        except ProtocolError as raised:
            error = raised
        except Exception as raised:
            error = PeerFailed(f"{kind} to {self.name} failed: {type(raised).__name__}: {raised}")
        finally:
            with contextlib.suppress(asyncio.InvalidStateError):
                if error is None:
                    outcome.set_result(value)
                else:
                    outcome.set_exception(error)
                    outcome.exception()  # nobody may be there to hear it

    def fenced(self, sender: Sender, kind: str) -> None:
        """Raises Refusal(BROKEN) if who asks is not the newest one of its name."""
        life, newest = self.process.job.life, self.newest.get(sender.process, 1)
        if sender.life != life:
            raise Refusal(
                f"{kind}: {sender.process} of life {sender.life} is fenced: {self.name} is of life {life}", Cause.BROKEN
            )
        if sender.incarnation < newest:
            raise Refusal(
                f"{kind}: {sender.process} has started again: its start {sender.incarnation} is fenced, {newest} is known",
                Cause.BROKEN,
            )
        self.newest[sender.process] = sender.incarnation


class Sending:
    """``protocol.runtime.Outlet`` over a server's connection."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send

    def send(self, item: Any) -> None:
        self._send(item)
