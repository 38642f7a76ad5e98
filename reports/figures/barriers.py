"""Figures of waiting inside the controller: who the barrier and the gate kept out, by kind, how long checkpoints waited for
them and held them, and who waited for the checkpoint lock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from protocol.history import (
    Event,
    ExclusiveEntered,
    ExclusiveLeft,
    LockHeld,
    LockReleased,
    LockWaits,
    MutationEntered,
    Record,
    WaitGivenUp,
)
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


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that one task at a time holds: `checkpoint`, which a snapshot holds until its cut is taken."""

    wait_s: Annotated[dict[str, Durations], figure("Durations", "of those who found it held, by task, until they had it")]
    hold_s: Annotated[dict[str, Durations], figure("Durations", "by task")]


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


class LocksArea(Area):
    """Figures: lock name -> ``Lock``."""

    def __init__(self) -> None:
        self._wait: dict[str, dict[str, Stopwatch]] = {}
        self._hold: dict[str, dict[str, Stopwatch]] = {}
        self._waiting: dict[tuple[str, str], float] = {}  # (lock, task) -> since
        self._held: dict[str, tuple[str, float]] = {}  # lock -> by whom, since

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {LockWaits: self._waits, LockHeld: self._has, LockReleased: self._released, WaitGivenUp: self._gave_up}

    def _waits(self, record: Record, event: LockWaits) -> None:
        self._waiting[event.lock, record.task] = record.time

    def _has(self, record: Record, event: LockHeld) -> None:
        self._held[event.lock] = (record.task, record.time)
        since = self._waiting.pop((event.lock, record.task), None)
        if since is not None:
            self._wait.setdefault(event.lock, {}).setdefault(record.task, Stopwatch()).add(record.time - since)

    def _released(self, record: Record, event: LockReleased) -> None:
        holder = self._held.pop(event.lock, None)
        if holder is not None:
            task, since = holder
            self._hold.setdefault(event.lock, {}).setdefault(task, Stopwatch()).add(record.time - since)

    def _gave_up(self, record: Record, event: WaitGivenUp) -> None:
        self._waiting.pop((event.lock, record.task), None)

    def figures(self) -> dict[str, Lock]:
        return {
            name: Lock(wait_s=watches(self._wait.get(name, {})), hold_s=watches(by_task)) for name, by_task in self._hold.items()
        }
