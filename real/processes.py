"""The processes of one real life on one asyncio loop: their tasks, and the calls and streams between them.

What crosses between processes is pickled and unpickled on the way, as it would be between real ones: nothing is shared,
and an error arrives as its own copy or, if it is no ``ProtocolError``, as ``PeerFailed``. Messages of one sender to one
receiver stay in order: each lands in a later turn of the loop, in the order of sending.

A failure that nobody joins ends the life, as in the simulator and by its rules: nobody waits for the task when it fails,
it was not cancelled, and no ``first_of`` that held its join was won by another wait.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from protocol.errors import Lost, PeerFailed, ProtocolError
from protocol.history import Event
from protocol.runtime import END, Cancelled, Fenced, Handler
from real.recorder import Recorder
from real.remote import Link
from real.waits import Fence, State, Wait

CURRENT: ContextVar[RealTask] = ContextVar("current")


class RealTask:
    """A coroutine of one process, as an asyncio task. A cancelled one joins as None."""

    def __init__(self, process: Process, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        if process.job.fence.up:
            coroutine.close()
        process.job.fence.check()
        self.process = process
        self.name = name
        self.done = False
        self.result: Any = None
        self.error: Exception | None = None
        self.watched = False  # a first_of that held its join was won by another wait
        self.joiners: list[Join | AllOf] = []
        self._cancelled = False
        self._coroutine = coroutine
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"{process.name}/{name}")
        self._task.add_done_callback(self._never_begun)
        process.job.tasks[self] = None

    def join(self) -> Join:
        return Join(self)

    def cancel(self) -> None:
        if not self.done:
            self._cancelled = True
            self._task.cancel()

    async def stop(self) -> None:
        """Cancel, and wait until it is over."""
        self.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        CURRENT.set(self)
        try:
            result = await self._coroutine
        except (asyncio.CancelledError, Cancelled, Fenced):
            self._finish(None, None)
        except Exception as error:
            self._finish(None, error)
        else:
            self._finish(result, None)

    def _never_begun(self, task: asyncio.Task[None]) -> None:
        if not self.done:  # cancelled before its first step
            self._coroutine.close()
            self._finish(None, None)

    def _finish(self, result: Any, error: Exception | None) -> None:
        self.done, self.result, self.error = True, result, error
        self.process.job.tasks.pop(self, None)
        joiners, self.joiners = self.joiners, []
        for joiner in joiners:
            joiner.finished(self)
        if self.process.job.fence.up:
            return
        if error is not None and not joiners and not self._cancelled and not self.watched:
            self.process.job.failure = (self.process.name, self.name, error)
            self.process.job.end()
        elif self is self.process.job.main:
            self.process.job.end()


class Join(Wait):
    def __init__(self, task: RealTask) -> None:
        super().__init__(task.process.job.fence)
        self._task = task

    def begin(self) -> None:
        if self._task.done:
            self.finished(self._task)
        else:
            self._task.joiners.append(self)

    def finished(self, task: RealTask) -> None:
        self.settle(task.result, task.error)

    def detach(self) -> None:
        self._task.joiners.remove(self)
        self._task.watched = False

    def lose(self) -> None:
        self.withdraw()
        self._task.watched = True


class AllOf(Wait):
    """Joins every task at once, so that no failure among them is unjoined."""

    def __init__(self, fence: Fence, tasks: Sequence[RealTask]) -> None:
        super().__init__(fence)
        self._tasks = tuple(tasks)

    def begin(self) -> None:
        for task in self._tasks:
            if not task.done:
                task.joiners.append(self)
        self.finished(None)

    def finished(self, task: RealTask | None) -> None:
        if all(other.done for other in self._tasks):
            error = next((other.error for other in self._tasks if other.error is not None), None)
            self.settle(None if error is not None else [other.result for other in self._tasks], error)

    def detach(self) -> None:
        for task in self._tasks:
            if self in task.joiners:
                task.joiners.remove(self)
                task.watched = False

    def lose(self) -> None:
        self.withdraw()
        for task in self._tasks:
            task.watched = True


class Job:
    """What the processes of one life share in one operating system process. ``time_scale`` is real seconds for each second of the
    core, ``began`` the moment of CLOCK_MONOTONIC at which its clock stood at 0 (None: now), ``links`` the ways to the
    processes that live elsewhere."""

    def __init__(
        self,
        life: int,
        recorder: Recorder,
        time_scale: float,
        *,
        incarnation: int = 1,
        began: float | None = None,
        links: Mapping[str, Link] | None = None,
    ) -> None:
        self.life = life
        self.incarnation = incarnation
        self.links: Mapping[str, Link] = links if links is not None else {}
        self.recorder = recorder
        self.time_scale = time_scale
        self.by_name: dict[str, Process] = {}
        self.tasks: dict[RealTask, None] = {}  # unfinished ones
        self.failure: tuple[str, str, Exception] | None = None  # (process, task, error) of the first unjoined one
        self.main: RealTask | None = None  # the life ends with it
        self.over = asyncio.Event()
        self.fence = Fence()
        self.began = time.monotonic() if began is None else began

    def process(self, name: str) -> Process:
        found = self.by_name.get(name)
        if found is None:
            found = self.by_name[name] = Process(self, name)
        return found

    def now(self) -> float:
        return (time.monotonic() - self.began) / self.time_scale

    def record(self, process: str, event: Event) -> None:
        if self.fence.up:
            return
        task = CURRENT.get(None)
        self.recorder.record(self.now(), process, task.name if task is not None else "", event)

    def end(self) -> None:
        """The life is over at this very step: no other task gets another turn that could do anything."""
        self.fence.up = True
        self.over.set()

    async def stop(self) -> None:
        """No task outlives its life: what still runs is closed under the fence, where its ``finally`` can do nothing."""
        self.fence.up = True
        while self.tasks:
            for task in list(self.tasks):
                await task.stop()


class Process:
    """What one process serves, and the requests that came before it did."""

    def __init__(self, job: Job, name: str) -> None:
        self.job = job
        self.name = name
        self.handlers: dict[type, Handler] | None = None
        self.waiting: deque[Request] = deque()
        self.serves = asyncio.Event()

    def serve(self, handlers: Mapping[type, Handler]) -> None:
        self.handlers = {**(self.handlers or {}), **handlers}
        self.serves.set()
        while self.waiting:
            self.waiting.popleft().start(self.handlers)


def later(land: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(land)


def copied(value: Any) -> Any:
    """The value as the other side gets it."""
    return pickle.loads(pickle.dumps(value))


def copied_error(error: ProtocolError) -> ProtocolError:
    """As above; one that cannot cross arrives untyped."""
    try:
        copy: ProtocolError = copied(error)
    except Exception as failure:
        return PeerFailed(f"{type(error).__name__} cannot cross a process boundary ({failure}): {error}")
    return copy


class Request:
    """One call or stream on its way: what both its ends know."""

    def __init__(self, peer: Process, message: Any, reply: RealCall | RealStream) -> None:
        self.peer = peer
        self.message = copied(message)
        self.reply = reply
        self.handler: RealTask | None = None
        self.given_up = False
        later(self._arrive)

    @property
    def name(self) -> str:
        return f"{type(self.message).__name__} to {self.peer.name}"

    def _arrive(self) -> None:
        if self.given_up:
            return
        if self.peer.handlers is None:
            self.peer.waiting.append(self)
        else:
            self.start(self.peer.handlers)

    def start(self, handlers: Mapping[type, Handler]) -> None:
        handler = handlers.get(type(self.message))
        if not self.peer.job.fence.up:
            self.handler = RealTask(self.peer, self._answer(handler), type(self.message).__name__)

    async def _answer(self, handler: Handler | None) -> None:
        value: Any = None
        error: Exception | None = None
        if handler is None:
            error = PeerFailed(f"{self.peer.name} serves no {type(self.message).__name__}")
        else:
            try:
                value = copied(await self.reply.run(handler, self.message))
            except ProtocolError as raised:
                error = copied_error(raised)
            except Exception as raised:
                error = PeerFailed(f"{self.name} failed: {type(raised).__name__}: {raised}")
        later(lambda: self.reply.conclude(value, error))

    def give_up(self) -> None:
        self.given_up = True
        if self in self.peer.waiting:
            self.peer.waiting.remove(self)
        if self.handler is not None:
            later(self.handler.cancel)


class RealCall(Wait):
    """It is on its way from the start; its outcome stays, so it may be awaited again."""

    def __init__(self, peer: Process, message: Any) -> None:
        super().__init__(peer.job.fence)
        self.request = Request(peer, message, self)

    @property
    def done(self) -> bool:
        return self.over

    async def run(self, handler: Handler, message: Any) -> Any:
        return await handler(message)

    def conclude(self, value: Any, error: Exception | None) -> None:
        if not self.over:
            self.settle(value, error)

    def cancel(self) -> None:
        if not self.over:
            self.request.give_up()
            self.settle(None, Lost(f"the call of {self.request.name} was given up"))


class Incoming:
    """The caller's side of a stream: what has arrived and was not yet taken, then how it ended (again and again)."""

    def __init__(self, fence: Fence, what: str) -> None:
        fence.check()
        self.fence = fence
        self.what = what
        self.items: deque[Any] = deque()
        self.ended = False
        self.error: Exception | None = None
        self.reader: NextItem | None = None

    def next(self) -> NextItem:
        return NextItem(self)

    def deliver(self, item: Any) -> None:
        if self.ended:
            return
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.settle(item)
        else:
            self.items.append(item)

    def conclude(self, _: Any, error: Exception | None) -> None:
        if self.ended:
            return
        self.ended, self.error = True, error
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.settle(None if error is not None else END, error)

    def given_up(self) -> None:
        self.items.clear()
        self.conclude(None, Lost(f"{self.what} was given up"))


class RealStream(Incoming):
    """From a process of this operating system process."""

    def __init__(self, peer: Process, message: Any) -> None:
        super().__init__(peer.job.fence, f"the stream of {type(message).__name__} to {peer.name}")
        self.request = Request(peer, message, self)

    async def run(self, handler: Handler, message: Any) -> None:
        await handler(message, RealOutlet(self))

    def cancel(self) -> None:
        if not self.ended:
            self.request.give_up()
            self.given_up()


class NextItem(Wait):
    def __init__(self, stream: Incoming) -> None:
        super().__init__(stream.fence)
        self._stream = stream

    def begin(self) -> None:
        stream = self._stream
        if stream.items:
            self.settle(stream.items.popleft())
        elif stream.ended:
            self.settle(END, stream.error)
        else:
            assert stream.reader is None, f"two tasks read {stream.what}"
            stream.reader = self

    def detach(self) -> None:
        self._stream.reader = None

    def give_back(self) -> None:
        self.state = State.IDLE
        if self.error is None and self.value is not END:
            self._stream.items.appendleft(self.value)


class RealOutlet:
    """The serving side of a stream."""

    def __init__(self, stream: RealStream) -> None:
        self._stream = stream

    def send(self, item: Any) -> None:
        crossed = copied(item)
        later(lambda: self._stream.deliver(crossed))
