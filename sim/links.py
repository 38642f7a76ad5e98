"""The links between processes: what one sender has on its way to one receiver, in order.

Every link is a FIFO: one landing is scheduled at a time, so messages stay in order whatever the schedule draws. A fault
that takes a message out of this order, or keeps a link's messages back, wraps the link in the network's table, so that
an ordinary message is asked nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from sim.kernel import ORDER_S, Kernel
from sim.streams import SeededStream

DELAY_S = (0.0002, 0.003)  # one way, uniform

Landing = Callable[[Any, Any], None]


class Way(Protocol):
    """What the network's table holds for a sender and a receiver."""

    def send(self, function: Landing, target: Any, payload: Any) -> None: ...

    @property
    def link(self) -> Link: ...


class Link:
    """Messages of one sender to one receiver, in order: (time of landing, function, its two arguments)."""

    __slots__ = ("kernel", "last", "line", "stream")

    def __init__(self, kernel: Kernel, stream: SeededStream) -> None:
        self.kernel = kernel
        self.stream = stream
        self.line: deque[tuple[float, Landing, Any, Any]] = deque()
        self.last = 0.0

    @property
    def link(self) -> Link:
        return self

    def send(self, function: Landing, target: Any, payload: Any) -> None:
        now = self.kernel.clock()
        low, high = DELAY_S
        time = now + low + (high - low) * self.stream.random()
        if time <= self.last:  # later than the one before it: what two landings of one instant start would be a drawn tie
            time = self.last + ORDER_S
        self.last = time
        self.line.append((time, function, target, payload))
        if len(self.line) == 1:
            self.kernel.at(time - now, self.land)

    def land(self, landing: object) -> None:
        _, function, target, payload = self.line.popleft()
        if self.line:
            wait = self.line[0][0] - self.kernel.clock()
            self.kernel.at(wait if wait > 0.0 else 0.0, self.land)
        function(target, payload)

    def hold_up(self, by_s: float) -> None:
        """The next message, and what comes behind it, lands ``by_s`` from now at the earliest."""
        self.last = max(self.last, self.kernel.clock() + by_s)

    def stop(self) -> None:
        """Nothing lands any more until ``go``. The stop in front of the line keeps ``send`` from scheduling a landing."""
        self.kernel.unschedule(self.land)
        self.line.appendleft((0.0, nothing, None, None))

    def go(self) -> None:
        """What should have landed meanwhile lands now, in order."""
        self.line.popleft()
        now = time = self.kernel.clock()
        for _ in range(len(self.line)):
            due, *message = self.line.popleft()
            time = due if due > time else time + ORDER_S
            self.line.append((time, *message))
        self.last = max(self.last, time)
        if self.line:
            self.kernel.at(self.line[0][0] - now, self.land)

    def replace(self, function: Landing, by: Landing) -> None:
        """Messages on their way that would have been handed to ``function`` will be handed to ``by``."""
        self.line = deque((time, by if to is function else to, *rest) for time, to, *rest in self.line)


def nothing(_: object, __: object) -> None:
    """What a stop in a line does, were it ever to land."""


class Outbox:
    """In the place of a link whose sender stands still in the middle of a step: what it sends leaves once it goes on."""

    __slots__ = ("inner", "kept")

    def __init__(self, inner: Way) -> None:
        self.inner = inner
        self.kept: list[tuple[Landing, Any, Any]] | None = []

    @property
    def link(self) -> Link:
        return self.inner.link

    def send(self, function: Landing, target: Any, payload: Any) -> None:
        if self.kept is None:
            self.inner.send(function, target, payload)
        else:
            self.kept.append((function, target, payload))

    def open(self, sends: bool) -> None:
        """From now on it keeps nothing back; what it kept leaves, or is lost (``sends`` False)."""
        kept, self.kept = self.kept or (), None
        for message in kept if sends else ():
            self.inner.send(*message)


class Overtaking:
    """In the place of a link one of whose messages was set aside: the next one passes it. ``over`` is told which of the
    two happened: True once another has passed, False if none came within ``patience_s``."""

    __slots__ = ("aside", "inner", "over")

    def __init__(self, inner: Way, aside: tuple[Landing, Any, Any], over: Callable[[bool], None], patience_s: float) -> None:
        self.inner = inner
        self.aside: tuple[Landing, Any, Any] | None = aside
        self.over = over
        inner.link.kernel.at(patience_s, self._tired)

    @property
    def link(self) -> Link:
        return self.inner.link

    def send(self, function: Landing, target: Any, payload: Any) -> None:
        self.inner.send(function, target, payload)
        self._let_go(True)

    def _tired(self, landing: object) -> None:
        self._let_go(False)

    def _let_go(self, passed: bool) -> None:
        if self.aside is not None:
            self.inner.send(*self.aside)
            self.aside = None
            self.over(passed)
