"""What a task waits for on asyncio: timers, tasks, signals, queues, locks, and the first of several.

As the seam asks, a wait begins when it is awaited or held by a ``first_of``, has one waiter at a time, and can be
withdrawn: then it is as if it had never begun, and what it had already been given goes back (a cancelled ``get`` eats no
item, a cancelled lock is passed on). Cancelling travels as asyncio's own ``CancelledError``, so that code of others under
the core (HTTP clients, actors) is cancelled too; ``real.runtime`` ends a cancelled task as the seam says.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Sequence
from enum import Enum
from typing import Any

from protocol.runtime import Fenced

Waker = Callable[["Wait"], None]


class State(Enum):
    IDLE = 0
    PENDING = 1
    OVER = 2


class Fence:
    """Goes up when a life is over: whoever still waits or starts something gets ``Fenced``, and nothing acts any more."""

    def __init__(self) -> None:
        self.up = False

    def check(self) -> None:
        if self.up:
            raise Fenced


class Wait:
    """Subclasses register in ``begin`` (or ``settle`` there if nothing is to be waited for) and undo it in ``detach``."""

    def __init__(self, fence: Fence) -> None:
        fence.check()
        self.fence = fence
        self.state = State.IDLE
        self.value: Any = None
        self.error: BaseException | None = None
        self._waker: Waker | None = None

    @property
    def over(self) -> bool:
        return self.state is State.OVER

    def hold(self, waker: Waker) -> bool:
        """Begin, and call ``waker`` when it is over; True if it is over at once (``waker`` is not called)."""
        if self.state is State.IDLE:
            self.begin()
        if self.over:
            return True
        assert self._waker is None, f"two tasks await one {type(self).__name__}"
        self.state, self._waker = State.PENDING, waker
        return False

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """It is over: keep the outcome and wake the waiter."""
        self.state, self.value, self.error = State.OVER, value, error
        waker, self._waker = self._waker, None
        if waker is not None:
            waker(self)

    def withdraw(self) -> None:
        """Nobody waits any more, or the one who did will never be handed what came."""
        if self.state is State.PENDING:
            self.state, self._waker = State.IDLE, None
            self.detach()
        elif self.over:
            self.give_back()

    def lose(self) -> None:
        """Withdrawn because another wait of the same ``first_of`` won."""
        self.withdraw()

    def begin(self) -> None:
        pass

    def detach(self) -> None:
        pass

    def give_back(self) -> None:
        pass

    def __await__(self) -> Generator[Any, None, Any]:
        self.fence.check()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: Wait) -> None:
            if not future.done():
                future.set_result(None)

        if not self.hold(wake):
            try:
                yield from future
            except BaseException:
                self.withdraw()
                raise
        if self.error is not None:
            raise self.error
        return self.value


class Timer(Wait):
    """``seconds`` of real time, from the moment it begins."""

    def __init__(self, fence: Fence, seconds: float) -> None:
        super().__init__(fence)
        self.seconds = max(seconds, 0.0)
        self._handle: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(self.seconds, self.settle)

    def detach(self) -> None:
        if self._handle is not None:
            self._handle.cancel()


class FirstOf(Wait):
    """Index of the first wait that is over (the lowest, if several are at once), None at the time-out."""

    def __init__(self, fence: Fence, waits: Sequence[Any], timeout_s: float | None) -> None:
        super().__init__(fence)
        for wait in waits:
            if not isinstance(wait, Wait):
                raise TypeError(f"first_of takes waits of the runtime (a call, a join, a sleep, ...), not {wait!r}")
        self.waits: Sequence[Wait] = waits
        self.timer = None if timeout_s is None else Timer(fence, timeout_s)
        self.winner: Wait | None = None

    def begin(self) -> None:
        for index, wait in enumerate(self.waits):
            if wait.hold(self._woken):
                for held in self.waits[:index]:
                    held.lose()
                self.winner = wait
                self.settle(index)
                return
        if self.timer is not None:
            self.timer.hold(self._woken)

    def _woken(self, winner: Wait) -> None:
        index = None
        for place, wait in enumerate(self.waits):
            if wait is winner:
                index = place
            else:
                wait.lose()
        if self.timer is not None and self.timer is not winner:
            self.timer.withdraw()
        self.winner = winner
        self.settle(index)

    def detach(self) -> None:
        for wait in self.waits:
            wait.withdraw()
        if self.timer is not None:
            self.timer.withdraw()

    def give_back(self) -> None:
        if self.winner is not None:
            self.winner.withdraw()


class Signal:
    """Wakes whoever waits now."""

    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        self.waits: list[SignalWait] = []
        self.what = "a signal"
        self.owed_by: Callable[[Any], Sequence[Sequence[Any]]] | None = None

    def wait(self) -> SignalWait:
        return SignalWait(self)

    def set(self) -> None:
        waits, self.waits = self.waits, []
        for wait in waits:
            wait.settle()


class SignalWait(Wait):
    def __init__(self, signal: Signal) -> None:
        super().__init__(signal.fence)
        self._signal = signal

    def begin(self) -> None:
        self._signal.waits.append(self)

    def detach(self) -> None:
        self._signal.waits.remove(self)


class Queue:
    """Unbounded FIFO. An item goes to the getter that waits longest; one that cannot take it any more puts it back
    in its place, or passes it on."""

    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        self.items: deque[tuple[int, Any]] = deque()  # (order of arrival, item)
        self.getters: deque[Get] = deque()
        self._count = 0

    def __len__(self) -> int:
        return len(self.items)

    def put(self, item: Any) -> None:
        self._count += 1
        self.deliver(self._count, item)

    def get(self) -> Get:
        return Get(self)

    def deliver(self, number: int, item: Any) -> None:
        if self.getters:
            self.getters.popleft().receive(number, item)
            return
        place = next((index for index, (other, _) in enumerate(self.items) if other > number), len(self.items))
        self.items.insert(place, (number, item))


class Get(Wait):
    def __init__(self, queue: Queue) -> None:
        super().__init__(queue.fence)
        self._queue = queue
        self._number = 0

    def begin(self) -> None:
        if self._queue.items:
            self.receive(*self._queue.items.popleft())
        else:
            self._queue.getters.append(self)

    def receive(self, number: int, item: Any) -> None:
        self._number = number
        self.settle(item)

    def detach(self) -> None:
        self._queue.getters.remove(self)

    def give_back(self) -> None:
        self.state = State.IDLE
        self._queue.deliver(self._number, self.value)


class Lock:
    """Mutual exclusion, first come first served: a release hands it to the next in line, so nobody slips in between."""

    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        self.held = False
        self.line: deque[Acquire] = deque()

    async def __aenter__(self) -> Lock:
        await Acquire(self)
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self.release()

    def release(self) -> None:
        if self.line:
            self.line.popleft().settle()
        else:
            self.held = False


class Acquire(Wait):
    def __init__(self, lock: Lock) -> None:
        super().__init__(lock.fence)
        self._lock = lock

    def begin(self) -> None:
        if self._lock.held:
            self._lock.line.append(self)
        else:
            self._lock.held = True
            self.settle()

    def detach(self) -> None:
        self._lock.line.remove(self)

    def give_back(self) -> None:
        self.state = State.IDLE
        self._lock.release()
