"""One lock class for the data-plane barrier and the dispatch gate (PROTOCOL 1.7, 1.8).

``mutation(kind)`` is the shared side, reentrant per task; ``exclusive()`` is a checkpoint's side. New mutations
wait as soon as a checkpoint *asks*, so that it cannot starve; a task that already holds a mutation enters a nested
one without waiting (else the two would wait for each other). A wait is recorded where it begins, so that two that wait
for each other are seen at that moment (I19).
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.history import (
    Event,
    ExclusiveEntered,
    ExclusiveLeft,
    ExclusiveQueued,
    ExclusiveWaited,
    MutationEntered,
    MutationLeft,
    MutationWaits,
    WaitGivenUp,
)
from protocol.runtime import Runtime, Task

DATA_PLANE_BARRIER = "data-plane"
DISPATCH_GATE = "dispatch"


class ReadersWriter:
    """``version`` counts outermost exits of mutations, failed ones too: a redundant snapshot is safe, a missed change is not."""

    def __init__(self, rt: Runtime, name: str) -> None:
        self.rt = rt
        self.name = name
        self.version = 0
        self.closed = False  # a checkpoint is active or waiting
        self.closer: Task | None = None  # the task of that checkpoint
        self.holders: dict[Task, int] = {}  # task -> depth
        self.changed = rt.signal()
        self.changed.what, self.changed.owed_by = f"the {name} lock", self.awaited_by

    async def until_open(self, begins: Event) -> float:
        """Wait while a checkpoint is active or asks; returns how long, in seconds. A wait that is cancelled says so."""
        asked = self.rt.now()
        self.rt.record(begins)
        waiting = True
        try:
            while self.closed:
                await self.changed.wait()
            waiting = False
        finally:
            if waiting:
                self.rt.record(WaitGivenUp(lock=self.name))
        return self.rt.now() - asked

    def mutation(self, kind: str) -> Mutation:
        return Mutation(self, kind)

    def exclusive(self) -> Exclusive:
        return Exclusive(self)

    def awaited_by(self, waiting: Task) -> Sequence[Sequence[Task]]:
        """Whom this task waits for here (``Signal.owed_by``): a checkpoint for every mutation, anybody else for it."""
        if waiting is self.closer:
            return (tuple(self.holders),)
        return () if self.closer is None else ((self.closer,),)


class Mutation:
    __slots__ = ("kind", "lock", "task")

    def __init__(self, lock: ReadersWriter, kind: str) -> None:
        self.lock = lock
        self.kind = kind

    async def __aenter__(self) -> None:
        lock = self.lock
        self.task = task = lock.rt.task()
        depth = lock.holders.get(task)
        if depth is not None:
            lock.holders[task] = depth + 1
            return
        waited_s = await lock.until_open(MutationWaits(barrier=lock.name, kind=self.kind)) if lock.closed else 0.0
        lock.holders[task] = 1
        lock.rt.record(MutationEntered(barrier=lock.name, kind=self.kind, waited_s=waited_s))

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        lock = self.lock
        depth = lock.holders[self.task] - 1
        if depth:
            lock.holders[self.task] = depth
            return
        del lock.holders[self.task]
        lock.version += 1
        lock.rt.record(MutationLeft(barrier=lock.name, kind=self.kind, version=lock.version, failed=kind is not None))
        if not lock.holders:
            lock.changed.set()


class Exclusive:
    __slots__ = ("lock",)

    def __init__(self, lock: ReadersWriter) -> None:
        self.lock = lock

    async def __aenter__(self) -> None:
        lock = self.lock
        assert lock.rt.task() not in lock.holders, "a task that holds a mutation would wait for itself"
        asked = lock.rt.now()
        if lock.closed:
            await lock.until_open(ExclusiveQueued(barrier=lock.name))
        lock.closed = True  # before the drain: mutations that come from now on wait
        lock.closer = lock.rt.task()
        lock.rt.record(ExclusiveWaited(barrier=lock.name))
        entered = False
        try:
            while lock.holders:
                await lock.changed.wait()
            entered = True
        finally:
            if not entered:  # cancelled while waiting: whoever waits behind us goes on
                self._leave()
        lock.rt.record(ExclusiveEntered(barrier=lock.name, waited_s=lock.rt.now() - asked))

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self._leave()

    def _leave(self) -> None:
        self.lock.closed, self.lock.closer = False, None
        self.lock.rt.record(ExclusiveLeft(barrier=self.lock.name))
        self.lock.changed.set()
