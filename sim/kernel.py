"""The simulator's trampoline: tasks, waits and steps over a SimPy ``Environment`` with bare events.

A *step* is one kernel event with one callback: the resumption of one task, or one landing (network, disk, loop).
A landing and the resumption that it causes are two steps; a timer's own pop is the resumption of the task that
slept; an await that need not wait, and a dead timer that pops, are none.

Events of one instant run in the order of priorities drawn from the ``schedule`` stream; with the schedule
``fifo`` all priorities are equal and they run in the order they were scheduled.

When a failure counts as unjoined is said in ``sim.tasks``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any, cast

import simpy
from simpy.events import Event as SimpyEvent
from simpy.events import EventPriority

from protocol.runtime import Fenced
from sim.streams import stream_seed
from sim.tasks import Task

FIFO = "fifo"
PRIORITY_BITS = 16


def _no_priority(bits: int) -> EventPriority:
    return EventPriority(0)


class Landing(SimpyEvent):
    """A bare event: one callback, already triggered. A dead one has no callback."""

    _ok = True
    _value = None

    def __init__(self, callback: Callable[[Any], None]) -> None:
        self.callbacks = [callback]


class Kernel:
    """One clock, one queue of events, the tasks of one stage of a life."""

    def __init__(self, seed: int, life: int, schedule: str = "0", timed: bool = False) -> None:
        self.environment = simpy.Environment(0.0)
        self.draw: Callable[[int], EventPriority] = _no_priority
        if schedule != FIFO:
            bits = random.Random(stream_seed(seed, "schedule", schedule, life)).getrandbits
            self.draw = cast("Callable[[int], EventPriority]", bits)
        self.timed = timed
        self.tasks: dict[Task, None] = {}  # unfinished, in the order of their start
        self.current: Task | None = None
        self.main: Task | None = None  # the run ends with it
        self.ended = False
        self.failure: tuple[Task, Exception] | None = None  # the first unjoined one
        self.fenced = False
        self.steps = 0
        self.core_ns = 0  # inside coroutines, judges left out; only if timed
        self.judge_ns = 0
        self.after_step: list[Callable[[], None]] = []  # run once, at the boundary after the running step

    def clock(self) -> float:
        """Virtual seconds since the start of this stage."""
        return self.environment._now

    def at(self, delay_s: float, callback: Callable[[Any], None]) -> Landing:
        """Run ``callback`` as a step of its own, ``delay_s`` from now (0 or more)."""
        landing = Landing(callback)
        self.environment.schedule(landing, self.draw(PRIORITY_BITS), delay_s)
        return landing

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str, process: str) -> Task:
        if self.fenced:
            coroutine.close()
            raise Fenced
        return Task(self, coroutine, name, process)

    def run(
        self,
        boundary: Callable[[], None] | None,
        crash: Callable[[], bool] | None,
        max_steps: int,
        max_time: float,
    ) -> str:
        """Step until something ends it: ended | failed | idle | steps | time | crashed."""
        environment = self.environment
        queue, step, after_step = environment._queue, environment.step, self.after_step
        last = self.steps + max_steps
        while True:
            if self.failure is not None:
                return "failed"
            if self.ended:
                return "ended"
            if not queue:
                return "idle"
            head = queue[0]
            if not head[3].callbacks:
                step()  # a dead timer
                continue
            if head[0] > max_time:
                return "time"
            if self.steps >= last:
                return "steps"
            self.steps += 1
            step()
            if after_step:
                due = after_step[:]
                after_step.clear()
                for effect in due:
                    effect()
            if boundary is not None:
                boundary()
            if crash is not None and crash():
                return "crashed"

    def bury(self) -> None:
        """End of this stage: raise the fence, close every unfinished coroutine now (not at a later collection)."""
        self.fenced = True
        for task in list(self.tasks):
            task.close()
        self.tasks.clear()
        self.after_step.clear()
        self.environment._queue.clear()
