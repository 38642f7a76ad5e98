"""What tasks of one process wait for: time, each other, signals, queues and locks (named loops: ``sim.loops``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from sim.kernel import Kernel, Landing
from sim.tasks import IDLE, OVER, Task, Wait


class Sleep(Wait):
    __slots__ = ("landing", "seconds")

    def __init__(self, kernel: Kernel, seconds: float) -> None:
        super().__init__(kernel)
        self.seconds = seconds if seconds > 0.0 else 0.0
        self.landing: Landing | None = None

    def begin(self) -> None:
        self.landing = self.kernel.at(self.seconds, self._pop)

    def _pop(self, landing: object) -> None:
        self.settle(direct=True)

    def detach(self) -> None:
        if self.landing is not None and self.landing.callbacks is not None:
            self.landing.callbacks.clear()

    def describe(self) -> str:
        return f"a sleep of {self.seconds:g} s"


class FirstOf(Wait):
    """Index of the first wait that is over (the lowest, if several are at once), None at the time-out."""

    __slots__ = ("waits", "timer", "winner")

    def __init__(self, kernel: Kernel, waits: Sequence[Any], timeout_s: float | None) -> None:
        super().__init__(kernel)
        for wait in waits:
            if not isinstance(wait, Wait):
                raise TypeError(f"first_of takes waits of the runtime (a call, a join, a sleep, ...), not {wait!r}")
        self.waits: Sequence[Wait] = waits
        self.timer = None if timeout_s is None else Sleep(kernel, timeout_s)
        self.winner: Wait | None = None

    def begin(self) -> None:
        for index, wait in enumerate(self.waits):
            if wait.hold(self):
                for held in self.waits[:index]:
                    held.lose()
                self.winner, self.value, self.state = wait, index, OVER
                return
        if self.timer is not None:
            self.timer.hold(self)

    def wake(self, wait: Wait, direct: bool) -> None:
        index = None
        for place, other in enumerate(self.waits):
            if other is wait:
                index = place
            else:
                other.lose()
        if self.timer is not None and self.timer is not wait:
            self.timer.withdraw()
        self.winner = wait
        self.settle(index, None, direct)

    def detach(self) -> None:
        for wait in self.waits:
            wait.withdraw()
        if self.timer is not None:
            self.timer.withdraw()

    def give_back(self) -> None:
        if self.winner is not None:
            self.winner.withdraw()

    def describe(self) -> str:
        inner = [wait.describe() for wait in self.waits]
        if self.timer is not None:
            inner.append(self.timer.describe())
        return "the first of (" + "; ".join(inner) + ")"


class Signal:
    """Wakes whoever waits now."""

    __slots__ = ("kernel", "owed_by", "waits", "what")

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.waits: list[SignalWait] = []
        self.what = "a signal"
        self.owed_by: Callable[[Any], Sequence[Sequence[Any]]] | None = None

    def wait(self) -> SignalWait:
        return SignalWait(self)

    def set(self) -> None:
        if self.waits and not self.kernel.fenced:
            waits, self.waits = self.waits, []
            for wait in waits:
                wait.settle()


class SignalWait(Wait):
    __slots__ = ("signal",)

    def __init__(self, signal: Signal) -> None:
        super().__init__(signal.kernel)
        self.signal = signal

    def begin(self) -> None:
        self.signal.waits.append(self)

    def detach(self) -> None:
        self.signal.waits.remove(self)

    def describe(self) -> str:
        return self.signal.what


class Queue:
    """Unbounded FIFO. An item goes to the getter that waits longest; a getter that is cancelled after that puts it
    back in its place, or passes it to the next."""

    __slots__ = ("getters", "items", "kernel", "put_count")

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.items: deque[tuple[int, Any]] = deque()  # (order of arrival, item)
        self.getters: deque[Get] = deque()
        self.put_count = 0

    def __len__(self) -> int:
        return len(self.items)

    def put(self, item: Any) -> None:
        if self.kernel.fenced:
            return
        self.put_count += 1
        if self.getters:
            self.getters.popleft().take(self.put_count, item)
        else:
            self.items.append((self.put_count, item))

    def get(self) -> Get:
        return Get(self)

    def put_back(self, number: int, item: Any) -> None:
        if self.getters:
            self.getters.popleft().take(number, item)
            return
        place = 0
        while place < len(self.items) and self.items[place][0] < number:
            place += 1
        self.items.insert(place, (number, item))


class Get(Wait):
    __slots__ = ("number", "queue")

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue.kernel)
        self.queue = queue
        self.number = 0

    def begin(self) -> None:
        if self.queue.items:
            self.number, self.value = self.queue.items.popleft()
            self.state = OVER
        else:
            self.queue.getters.append(self)

    def take(self, number: int, item: Any) -> None:
        self.number = number
        self.settle(item)

    def detach(self) -> None:
        self.queue.getters.remove(self)

    def give_back(self) -> None:
        self.state = IDLE
        self.queue.put_back(self.number, self.value)

    def describe(self) -> str:
        return "an item of a queue"


class Lock:
    """Mutual exclusion, first come first served: a release hands it to the next in line."""

    __slots__ = ("held", "holder", "kernel", "line")

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.held = False
        self.holder: Task | None = None  # for the drawing of who waits for whom
        self.line: deque[Acquire] = deque()

    async def __aenter__(self) -> Lock:
        await Acquire(self)
        self.holder = self.kernel.current
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if not self.kernel.fenced:
            self.holder = None
            self.release()

    def release(self) -> None:
        if self.line:
            self.line.popleft().settle()
        else:
            self.held = False


class Acquire(Wait):
    __slots__ = ("lock",)

    def __init__(self, lock: Lock) -> None:
        super().__init__(lock.kernel)
        self.lock = lock

    def begin(self) -> None:
        if self.lock.held:
            self.lock.line.append(self)
        else:
            self.lock.held = True
            self.state = OVER

    def detach(self) -> None:
        self.lock.line.remove(self)

    def give_back(self) -> None:
        self.state = IDLE
        self.lock.release()

    def describe(self) -> str:
        return "a lock"
