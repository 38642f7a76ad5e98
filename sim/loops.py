"""Named loops of a process, and the decode steps that the loop of an engine runs: a scarce resource, modelled.

A loop does one thing at a time. While calls run, decode steps follow each other without a pause; a function that is handed
to the loop waits for the end of the running step, holds the loop for as long as it costs, and the next step begins that much
later. Who was waiting when a step ended is served before the next one; who comes later waits for its end.

Nothing of a step is an event of the kernel: the clock of the steps is asked, at times that never go back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from protocol.history import Event, HandoffDone
from sim.kernel import Kernel
from sim.streams import SeededStream
from sim.tasks import PENDING, Task, Wait

STEP_S = 0.01  # of an engine that has not said otherwise
EPSILON_S = 1e-9  # times closer than this are one instant: they were added up in another order


class LoopCosts(msgspec.Struct, frozen=True, kw_only=True):
    """How long one handoff holds a loop, in seconds: a call into another thread and back, drawn between the two bounds; to
    find one item; to copy one reference (a list slice of CPython); to turn one route row into bytes."""

    base_from_s: float = 0.0001
    base_to_s: float = 0.0003
    item_s: float = 2e-6
    reference_s: float = 5e-9
    row_s: float = 2e-5


class StepClock:
    """Decode steps of one engine, numbered from 0: back to back while at least one call runs.

    ``duration(k)`` of step k, in seconds. ``ended`` steps are over, the last one at ``last_end``; ``delays``: for how long
    holds have put off a step, for those that any has.
    """

    __slots__ = ("_end", "_free_from", "_held_s", "_start", "delays", "duration", "ended", "last_end", "running")

    def __init__(self, duration: Callable[[int], float] = lambda step: STEP_S) -> None:
        self.duration = duration
        self.running = 0
        self.ended = 0
        self.last_end = 0.0
        self.delays: dict[int, float] = {}
        self._start = 0.0  # of the step that runs or comes next
        self._end: float | None = None  # of the same; None while nothing runs
        self._free_from = 0.0  # the end of the last hold
        self._held_s = 0.0  # by all holds, to their ends

    def join(self, now: float) -> int:
        """A call begins to run: the first step that decodes a token of it."""
        self.advance(now)
        self.running += 1
        if self._end is None:
            self._start = max(now, self._free_from)
            self._end = self._start + self.duration(self.ended)
        return self.ended if self._start >= now - EPSILON_S else self.ended + 1

    def leave(self, now: float) -> None:
        """A call runs no more. A step that has begun comes to its end all the same."""
        self.advance(now)
        self.running -= 1
        if not self.running and self._start >= now - EPSILON_S:
            self._end = None

    def advance(self, now: float) -> int:
        """Steps that are over by now."""
        while self._end is not None and self._end <= now + EPSILON_S:
            self.ended += 1
            self._start = self.last_end = self._end
            self._end = self._end + self.duration(self.ended) if self.running else None
        return self.ended

    def end_of(self, step: int) -> float:
        """When a step that is not over will be, if nothing holds the loop until then."""
        assert self._end is not None, "no step will end: no call runs"
        return self._end + sum(self.duration(later) for later in range(self.ended + 1, step + 1))

    def next_gap(self, now: float) -> float:
        """When the loop can next take a function that comes now: at once, or when the running step ends."""
        self.advance(now)
        if self._end is None:
            return max(now, self._free_from)
        # A step that begins this very instant has begun.
        return self._end if self._start <= now + EPSILON_S else max(now, self._free_from)

    def in_gap(self, now: float) -> bool:
        """Whether a function that has waited may run now: no step has begun."""
        self.advance(now)
        return self._end is None or self._start >= now - EPSILON_S

    def worked(self, now: float) -> float:
        """Time, less that for which the loop was held: it stands still during a hold."""
        return now - self._held_s + max(0.0, self._free_from - now)

    def hold(self, now: float, seconds: float) -> None:
        """The loop is held from now on, which is in a gap: the next step begins later."""
        self.advance(now)
        self._free_from = now + seconds
        self._held_s += seconds
        if self._end is not None:
            delay = self._free_from - self._start
            self._start += delay
            self._end += delay
            self.delays[self.ended] = self.delays.get(self.ended, 0.0) + delay


class Loop:
    """One named loop of one process. What runs on it says what it costs by ``copy`` and ``materialise``."""

    __slots__ = (
        "copied", "costs", "gap_began", "held", "kernel", "line", "materialised", "name", "record", "running", "steps", "stream",
        "waking",
    )  # fmt: skip

    def __init__(self, kernel: Kernel, name: str, stream: SeededStream, record: Callable[[Event], None]) -> None:
        self.kernel = kernel
        self.name = name
        self.stream = stream
        self.record = record
        self.costs = LoopCosts()
        self.steps = StepClock()
        self.line: deque[Handoff] = deque()
        self.held: Handoff | None = None
        self.running = False  # its function is being run this instant
        self.waking = False  # a landing at the next gap is on its way
        self.gap_began = 0.0
        self.copied = 0
        self.materialised = 0

    def copy(self, references: int) -> None:
        """What runs has copied so many references. Another task that copies while the loop is held costs the loop nothing."""
        if self.running:
            self.copied += references

    def materialise(self, rows: int) -> None:
        """What runs has turned so many route rows into bytes."""
        if self.running:
            self.materialised += rows

    def ask(self, handoff: Handoff) -> None:
        self.line.append(handoff)
        self.wake(handoff)

    def wake(self, handoff: Handoff) -> None:
        if self.held is None and not self.waking:
            self.waking = True
            now = self.kernel.clock()
            self.kernel.at(max(0.0, self.steps.next_gap(now) - now), handoff.enter)

    def enter(self) -> None:
        """At a gap: the first in line runs, unless all have left."""
        self.waking = False
        if not self.line:
            return
        now = self.kernel.clock()
        if not self.steps.in_gap(now):  # its process had stood still
            self.wake(self.line[0])
            return
        self.gap_began = now
        self.take()

    def take(self) -> None:
        handoff = self.held = self.line.popleft()
        self.copied = self.materialised = 0
        self.running = True
        handoff.run()
        self.running = False
        costs = self.costs
        held_s = costs.base_from_s + (costs.base_to_s - costs.base_from_s) * self.stream.random()
        held_s += costs.item_s * len(handoff.items) + costs.reference_s * self.copied + costs.row_s * self.materialised
        handoff.held_s = held_s
        self.steps.hold(self.kernel.clock(), held_s)
        self.kernel.at(held_s, handoff.land)

    def free(self) -> None:
        """Who was waiting when the gap began comes now; who came later waits for the end of the next step."""
        self.held = None
        if self.line:
            if self.line[0].since <= self.gap_began or not self.steps.running:
                self.take()
            else:
                self.wake(self.line[0])


class Handoff(Wait):
    """One function on its way through a loop; once it runs it comes to its end, even if its caller has left by then."""

    __slots__ = ("failed", "function", "held_s", "items", "loop", "made", "since", "task", "waited_s")

    def __init__(self, loop: Loop, function: Callable[[Sequence[Any]], Any], items: Sequence[Any]) -> None:
        super().__init__(loop.kernel)
        self.loop = loop
        self.function = function
        self.items = items
        self.task: Task | None = None
        self.since = self.waited_s = self.held_s = 0.0
        self.made: Any = None
        self.failed: Exception | None = None

    def begin(self) -> None:
        self.task = self.kernel.current
        self.since = self.kernel.clock()
        self.loop.ask(self)

    def enter(self, landing: object) -> None:
        self.loop.enter()

    def run(self) -> None:
        self.waited_s = self.kernel.clock() - self.since
        running, self.kernel.current = self.kernel.current, self.task
        try:
            self.made = self.function(self.items)
        except Exception as raised:
            self.failed = raised
        self.kernel.current = running

    def land(self, landing: object) -> None:
        loop = self.loop
        rows = loop.materialised
        loop.free()
        self.kernel.current = self.task  # the record is in the name of the task that asked
        loop.record(
            HandoffDone(
                loop.name,
                len(self.items),
                sum(getattr(item, "positions", 0) for item in self.items),
                self.waited_s,
                self.held_s,
                rows,
            )
        )
        self.kernel.current = None
        if self.state == PENDING:
            self.settle(self.made, self.failed)

    def owner(self) -> str:
        return self.task.process if self.task is not None else ""

    def detach(self) -> None:
        if self in self.loop.line:
            self.loop.line.remove(self)

    def describe(self) -> str:
        return f"loop {self.loop.name!r}"
