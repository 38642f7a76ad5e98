"""Figures of the two readers-writer locks: who was kept out, by kind, and how long checkpoints waited and held them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from protocol.history import Event, ExclusiveEntered, ExclusiveLeft, MutationEntered, Record
from reports.figures.definition import Area, Durations, Handler, Stopwatch, figure, watches


class Barrier(msgspec.Struct, frozen=True, kw_only=True):
    """One of the locks: `data-plane`, or `dispatch` (the gate)."""

    mutations: Annotated[int, figure("entries", "outermost entries of its shared side")]
    blocked_s: Annotated[
        dict[str, Durations], figure("Durations", "of mutations that a checkpoint kept out, by kind, until they entered")
    ]
    exclusive_wait_s: Annotated[
        Durations, figure("Durations", "of checkpoints, from asking to having it alone, earlier ones included")
    ]
    exclusive_hold_s: Annotated[Durations, figure("Durations", "of checkpoints, from having it alone to giving it back")]


class _Lock:
    def __init__(self) -> None:
        self.mutations = 0
        self.blocked: dict[str, Stopwatch] = {}
        self.wait = Stopwatch()
        self.hold = Stopwatch()
        self.entered: float | None = None


class BarriersArea(Area):
    """Figures: barrier name -> ``Barrier``."""

    def __init__(self) -> None:
        self._locks: dict[str, _Lock] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {MutationEntered: self._mutation, ExclusiveEntered: self._entered, ExclusiveLeft: self._left}

    def _lock(self, name: str) -> _Lock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = _Lock()
        return lock

    def _mutation(self, record: Record, event: MutationEntered) -> None:
        lock = self._lock(event.barrier)
        lock.mutations += 1
        if event.waited_s > 0.0:
            lock.blocked.setdefault(event.kind, Stopwatch()).add(event.waited_s)

    def _entered(self, record: Record, event: ExclusiveEntered) -> None:
        lock = self._lock(event.barrier)
        lock.wait.add(event.waited_s)
        lock.entered = record.time

    def _left(self, record: Record, event: ExclusiveLeft) -> None:
        lock = self._lock(event.barrier)
        if lock.entered is not None:  # None: the wait was cancelled
            lock.hold.add(record.time - lock.entered)
            lock.entered = None

    def figures(self) -> dict[str, Barrier]:
        return {
            name: Barrier(
                mutations=lock.mutations,
                blocked_s=watches(lock.blocked),
                exclusive_wait_s=lock.wait.figures(),
                exclusive_hold_s=lock.hold.figures(),
            )
            for name, lock in self._locks.items()
        }
