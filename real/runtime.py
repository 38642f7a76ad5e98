"""``protocol.runtime.Runtime`` on asyncio with real files, for one process of the job.

Every process is a set of tasks on one loop (``real.processes``). Times are the core's seconds: ``time_scale`` real
seconds each. Cancelling a task is asyncio's own cancelling, so ``finally`` blocks run and the core sees no exception
that it could catch.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from pathlib import Path
from typing import Any, TypeVar, cast

from protocol.history import Event, HandoffDone
from protocol.runtime import Files, Handler
from real.files import RealFiles
from real.outside import RemoteCall, RemoteStream
from real.processes import CURRENT, AllOf, Job, RealCall, RealStream, RealTask, later
from real.waits import Fence, FirstOf, Lock, Queue, Signal, State, Timer, Wait

T = TypeVar("T")


class SeededStream:
    """The same (seed, purpose, entity, life) gives the same draws."""

    def __init__(self, seed: int, purpose: str, entity: str, life: int) -> None:
        text = f"{seed}\0{purpose}\0{entity}\0{life}"
        self._random = random.Random(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big"))

    def random(self) -> float:
        return self._random.random()

    def below(self, n: int) -> int:
        return self._random.randrange(n)


class Loop:
    """A named loop of one process: one handoff at a time, in order."""

    def __init__(self) -> None:
        self.line: deque[Handoff] = deque()

    def enter(self, handoff: Handoff) -> None:
        self.line.append(handoff)
        if len(self.line) == 1:
            later(self._run)

    def _run(self) -> None:
        handoff = self.line[0]
        handoff.context.run(handoff.land)
        self.line.popleft()
        if self.line:
            later(self._run)


class Handoff(Wait):
    """One function on its way through a loop; it runs even if its caller has left by then."""

    def __init__(
        self, rt: AsyncioRuntime, fence: Fence, name: str, function: Callable[[Sequence[Any]], Any], items: Sequence[Any]
    ) -> None:
        super().__init__(fence)
        self._rt = rt
        self._name = name
        self._function = function
        self._items = items
        self._since = 0.0

    def begin(self) -> None:
        self._since = self._rt.now()
        self.context = copy_context()  # what it records is recorded in the name of the task that asked
        self._rt.loop(self._name).enter(self)

    def land(self) -> None:
        value: Any = None
        error: Exception | None = None
        began = self._rt.now()
        try:
            value = self._function(self._items)
        except Exception as raised:
            error = raised
        positions = sum(getattr(item, "positions", 0) for item in self._items)
        held_s = self._rt.now() - began
        self._rt.record(HandoffDone(self._name, len(self._items), positions, began - self._since, held_s, -1))
        if self.state is State.PENDING:
            self.settle(value, error)


class AsyncioRuntime:
    """One process's view of the world. ``root`` is the run's folder."""

    def __init__(self, job: Job, me: str, root: Path, seed: int) -> None:
        self.me = me
        self.life = job.life
        self.incarnation = job.incarnation
        self.files: Files = RealFiles(root, self.record, job.fence)
        self._job = job
        self.process = job.process(me)
        self._seed = seed
        self._streams: dict[tuple[str, str], SeededStream] = {}
        self._loops: dict[str, Loop] = {}
        self._section = 0
        self._asked: RealTask | None = None  # who asked for the section last in this turn of the event loop

    def task(self) -> RealTask:
        return CURRENT.get()

    def section(self) -> int:
        """A task runs at most once in a turn of the event loop, and what is put off now comes before it runs again."""
        task = CURRENT.get()
        if task is not self._asked:
            self._section += 1
            self._asked = task
            later(self._turn_over)
        return self._section

    def _turn_over(self) -> None:
        self._asked = None

    def now(self) -> float:
        return self._job.now()

    def sleep(self, seconds: float) -> Timer:
        return Timer(self._job.fence, seconds * self._job.time_scale)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> RealTask:
        return RealTask(self.process, coroutine, name)

    def signal(self) -> Signal:
        return Signal(self._job.fence)

    def lock(self) -> Lock:
        return Lock(self._job.fence)

    def queue(self) -> Queue:
        return Queue(self._job.fence)

    def first_of(self, *waits: Awaitable[Any], timeout_s: float | None = None) -> FirstOf:
        return FirstOf(self._job.fence, waits, None if timeout_s is None else timeout_s * self._job.time_scale)

    def all_of(self, tasks: Sequence[Any]) -> AllOf:
        return AllOf(self._job.fence, tasks)

    def call(self, peer: str, message: Any) -> RealCall | RemoteCall:
        link = self._job.links.get(peer)
        if link is not None:
            return RemoteCall(self._job.fence, link, peer, message)
        return RealCall(self._job.process(peer), message)

    def stream(self, peer: str, message: Any) -> RealStream | RemoteStream:
        link = self._job.links.get(peer)
        if link is not None:
            return RemoteStream(self._job.fence, link, peer, message)
        return RealStream(self._job.process(peer), message)

    def serve(self, handlers: Mapping[type, Handler]) -> None:
        self.process.serve(handlers)

    def on_loop(self, name: str, function: Callable[[Sequence[Any]], T], items: Sequence[Any]) -> Awaitable[T]:
        return cast("Awaitable[T]", Handoff(self, self._job.fence, name, function, items))

    def loop(self, name: str) -> Loop:
        return self._loops.setdefault(name, Loop())

    def random(self, purpose: str, entity: str) -> SeededStream:
        """This process's stream of that name; asked for again, it goes on where it stands."""
        key = (purpose, entity)
        if key not in self._streams:
            self._streams[key] = SeededStream(self._seed, purpose, entity, self.life)
        return self._streams[key]

    def record(self, event: Event) -> None:
        self._job.record(self.me, event)
