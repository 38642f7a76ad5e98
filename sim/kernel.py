"""The simulator's trampoline: tasks, waits and steps over a SimPy ``Environment`` with bare events.

A *step* is one kernel event with one callback: the resumption of one task, or one landing (network, disk, loop).
A landing and the resumption that it causes are two steps; a timer's own pop is the resumption of the task that
slept; an await that need not wait, and a dead timer that pops, are none.

Events of one instant run in the order of priorities drawn from the ``schedule`` stream; with the schedule
``fifo`` all priorities are equal and they run in the order they were scheduled.

One process can die alone (``kill``) or stand still (``park``, ``unpark``): what the queue holds for it is found by its
owner, so that nothing of this costs a step of an ordinary run anything.

When a failure counts as unjoined is said in ``sim.tasks``.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Coroutine
from typing import Any, cast

import simpy
from simpy.events import Event as SimpyEvent
from simpy.events import EventPriority

from protocol.runtime import Fenced
from sim.streams import stream_seed
from sim.tasks import Task, Waiter

FIFO = "fifo"
ORDER_S = 1e-9  # between two events that must keep their order; far above the resolution of a life's clock
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
        self.doomed = ""  # the process of the running step, which dies in the middle of it
        self.when_doomed: Callable[[str], None] | None = None  # told once that step has been torn off
        self.parked: dict[str, list[tuple[float, Any, int, Any]]] = {}  # of each process that stands still, in order

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
            try:
                step()
            except Fenced:
                self._tear_off()
            if after_step:
                due = after_step[:]
                after_step.clear()
                for effect in due:
                    effect()
            if boundary is not None:
                boundary()
            if crash is not None and crash():
                return "crashed"

    # --- one process alone ---------------------------------------------------------------------------------------

    def doom(self) -> None:
        """The running step, of the process that is ``doomed``, goes no further: raises Fenced, under a fence, through all
        that it is in."""
        self.fenced = True
        raise Fenced

    def _tear_off(self) -> None:
        assert self.doomed, "Fenced was raised in a life that goes on"
        process, self.doomed = self.doomed, ""
        self.fenced = False
        self.current = None
        if self.when_doomed is not None:
            self.when_doomed(process)

    def kill(self, process: str) -> list[Task]:
        """No task of it is resumed again: their waits are withdrawn, what they had issued does not land, and they are
        closed now, under the fence. The tasks that died."""
        running = self.current
        dead = [task for task in self.tasks if task.process == process]
        self.fenced = True
        for task in dead:
            if task.wait is not None:
                task.wait.withdraw()
        for event in [entry[3] for entry in (*self.environment._queue, *self.parked.pop(process, ()))]:
            if owner(event) == process:
                event.callbacks.clear()
        for task in dead:
            task.wait = None
            task.close()
            del self.tasks[task]
        self.fenced = False
        self.current = running
        return dead

    def park(self, process: str) -> None:
        """It stands still: what the queue holds for it is put aside."""
        queue: list[Any] = self.environment._queue
        self.parked[process] = sorted(entry for entry in queue if owner(entry[3]) == process)
        queue[:] = [entry for entry in queue if owner(entry[3]) != process]
        heapq.heapify(queue)

    def unpark(self, process: str) -> None:
        """It goes on: what was due meanwhile comes now, in its order; the rest at its time."""
        queue: list[Any] = self.environment._queue
        time = self.clock()
        for due, priority, number, event in self.parked.pop(process):
            time += ORDER_S
            heapq.heappush(queue, (due if due > time else time, priority, number, event))

    def unschedule(self, callback: Callable[[Any], None]) -> None:
        """What the queue holds for ``callback`` pops as a dead timer does."""
        for entry in self.environment._queue:
            if entry[3].callbacks and entry[3].callbacks[0] == callback:
                entry[3].callbacks.clear()

    def bury(self) -> None:
        """End of this stage: raise the fence, close every unfinished coroutine now (not at a later collection)."""
        self.fenced = True
        for task in list(self.tasks):
            task.close()
        self.tasks.clear()
        self.after_step.clear()
        self.parked.clear()
        self.environment._queue.clear()


def owner(event: Any) -> str:
    """The process that an event of the queue resumes, or whose operation lands with it; '' for the network and the world."""
    if not event.callbacks:
        return ""
    target = getattr(event.callbacks[0], "__self__", None)
    return target.owner() if isinstance(target, Waiter) else ""
