"""The seam: everything the core may ask of the world (RULES 11 closes the list).

The core is plain ``async def`` code. Whatever it awaits comes from a ``Runtime``: each await is a window in
which the world may change. Two worlds implement it: ``sim.kernel`` (a trampoline over SimPy) and
``real.runtime`` (asyncio). One more member needs a line in ``docs/design.md``.

``Cancelled`` and ``Fenced`` are BaseExceptions. The core never catches them and never says
``except BaseException``: it cleans up with ``finally``. ``Cancelled`` is an ordinary act of the protocol
(``Task.cancel``) and runs ``finally``; a crash does not: a killed task is never resumed, and when the world
later closes it, every member below that waits or starts something raises ``Fenced`` and every other does
nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from protocol.history import Event

T = TypeVar("T")


class Cancelled(BaseException):
    """Thrown into a task by ``Task.cancel``; its ``finally`` blocks run."""


class Fenced(BaseException):
    """Raised by every member that waits or starts something once its life is over."""


class Signal(Protocol):
    """Wakes whoever waits *now*. Always used as ``while not condition: await signal.wait()``.

    ``what`` names it, ``owed_by(waiting task)`` says who may set it, as far as its owner knows: alternatives, each of tasks
    that must all act. Only the world reads the two, when it draws who waits for whom; no decision does.
    """

    what: str
    owed_by: Callable[[Task], Sequence[Sequence[Task]]] | None

    def wait(self) -> Awaitable[None]: ...
    def set(self) -> None: ...


class Queue(Protocol):
    """Unbounded FIFO. A cancelled or withdrawn ``get`` never eats an item."""

    def put(self, item: Any) -> None: ...
    def get(self) -> Awaitable[Any]: ...
    def __len__(self) -> int: ...


class Lock(Protocol):
    """Mutual exclusion, first come first served: ``async with lock``."""

    @property
    def held(self) -> bool: ...
    async def __aenter__(self) -> Lock: ...
    async def __aexit__(self, kind: object, error: object, trace: object) -> None: ...


class Task(Protocol):
    """A running coroutine of one process. The exception of a task nobody joins ends its process."""

    name: str

    @property
    def done(self) -> bool: ...
    def join(self) -> Awaitable[Any]: ...
    def cancel(self) -> None: ...


class Call(Protocol):
    """A request on its way. Await it (once or again) for the reply.

    Raises the ``ProtocolError`` that the peer's handler raised, ``PeerFailed`` if it raised anything else,
    ``Lost`` if no answer can come any more. ``cancel`` gives up the answer and cancels the peer's handler.
    """

    @property
    def done(self) -> bool: ...
    def __await__(self) -> Any: ...
    def cancel(self) -> None: ...


END = "end-of-stream"


class Stream(Protocol):
    """Replies of one long request. ``next`` returns an item or ``END``; raises as ``Call`` does.

    ``cancel`` stops listening and cancels the peer's handler.
    """

    def next(self) -> Awaitable[Any]: ...
    def cancel(self) -> None: ...


class Outlet(Protocol):
    """The serving side of a ``Stream``: items leave in order; returning from the handler ends it."""

    def send(self, item: Any) -> None: ...


class Files(Protocol):
    """Files of the run's folder; paths are relative, with ``/``.

    A write is pending until ``fsync`` of the file; a name (create, rename, remove) until ``fsync_dir`` of its
    folder. ``write`` replaces the whole content and makes parents. Every effect is recorded by the seam itself:
    ``FileIssued`` before and ``FileDone`` after; ``read`` records ``FileRead``.
    Raises ``MissingFile``. ``list`` of a missing folder is empty; its result is sorted.
    """

    def write(self, path: str, data: bytes) -> Awaitable[None]: ...
    def read(self, path: str) -> Awaitable[bytes]: ...
    def fsync(self, path: str) -> Awaitable[None]: ...
    def rename(self, old: str, new: str) -> Awaitable[None]: ...
    def fsync_dir(self, path: str) -> Awaitable[None]: ...
    def list(self, path: str) -> Awaitable[tuple[str, ...]]: ...
    def remove(self, path: str) -> Awaitable[None]: ...


class Stream64(Protocol):
    """A seeded random stream; the same (seed, purpose, entity, life) gives the same draws."""

    def random(self) -> float: ...
    def below(self, n: int) -> int: ...


Handler = Callable[..., Coroutine[Any, Any, Any]]


class Runtime(Protocol):
    """One process's view of the world."""

    me: str  # name of this process: "controller", "gym-0", ...
    life: int  # 1 for the first start of the job, +1 at every restart
    incarnation: int  # of this process within its life: 1, +1 each time it alone starts again
    files: Files

    def task(self) -> Task: ...
    def section(self) -> int: ...  # another number after each await that waited: what runs under one of them is synchronous
    def now(self) -> float: ...  # seconds; 0 at the start of a life in the simulator
    def sleep(self, seconds: float) -> Awaitable[None]: ...
    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> Task: ...
    def signal(self) -> Signal: ...
    def lock(self) -> Lock: ...
    def queue(self) -> Queue: ...

    def first_of(self, *waits: Awaitable[Any], timeout_s: float | None = None) -> Awaitable[int | None]:
        """Index of the first wait that is over, None at the time-out. The others are withdrawn.

        A ``Call`` that lost, or a task whose ``join()`` lost, may be awaited again. The value or error of the
        winner is had by awaiting it (a ``Call``) or is dropped (a sleep, a signal).
        """
        ...

    def all_of(self, tasks: Sequence[Task]) -> Awaitable[list[Any]]:
        """Join all; then return their results in order, or raise the first failure in order."""
        ...

    def call(self, peer: str, message: Any) -> Call: ...
    def stream(self, peer: str, message: Any) -> Stream: ...

    def serve(self, handlers: Mapping[type, Handler]) -> None:
        """``handler(message)`` answers a call; ``handler(message, outlet)`` answers a stream."""
        ...

    def on_loop(self, name: str, function: Callable[[Sequence[Any]], T], items: Sequence[Any]) -> Awaitable[T]:
        """Hand ``function(items)`` to a named loop of this process: wait until it is free, hold it, run."""
        ...

    def random(self, purpose: str, entity: str) -> Stream64: ...
    def record(self, event: Event) -> None: ...
