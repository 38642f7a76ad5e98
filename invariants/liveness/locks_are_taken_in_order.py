"""I19."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from protocol.history import (
    Event,
    ExclusiveEntered,
    ExclusiveLeft,
    ExclusiveQueued,
    ExclusiveWaited,
    LockHeld,
    LockReleased,
    LockWaits,
    MutationEntered,
    MutationLeft,
    MutationWaits,
    Record,
    WaitGivenUp,
)
from protocol.judging import Durable, Judge, RunStatus, Terms, Violation

ORDER = {"checkpoint": 0, "dispatch": 1, "data-plane": 2}  # PROTOCOL 1.8
SHARED, WHOLE = "a mutation of", "the whole of"


class LocksAreTakenInOrder(Judge):
    """A task inside a mutation can always enter a nested one: no tasks wait for each other over checkpoint lock, dispatch gate
    and data-plane barrier, and nobody takes an earlier one of these while it holds a later one.

    Tasks are told apart by their names. A cycle that goes through other waits as well (a join, a call) shows only when
    nothing moves any more: it is read from the drawing of who waits for whom.
    """

    invariant = "I19"
    needs = (MutationEntered, ExclusiveEntered)
    sees = (
        MutationWaits, MutationLeft, ExclusiveQueued, ExclusiveWaited, ExclusiveLeft, LockWaits, LockHeld, LockReleased,
        WaitGivenUp,
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.holds: dict[str, dict[str, str]] = {}  # task -> lock -> how
        self.waits: dict[str, tuple[str, bool]] = {}  # task -> lock, and whether it waits for the mutations inside to end
        self.owner: dict[str, str] = {}  # lock -> the task that has closed it, or holds it

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        kind = type(event)
        task = f"{record.process}/{record.task}"
        if kind is MutationLeft:
            self._gives(task, event.barrier)  # type: ignore[attr-defined]
            return ()
        if kind is MutationEntered:
            return self._takes(task, event.barrier, SHARED, record)  # type: ignore[attr-defined]
        name = _lock_of(event)
        if kind is ExclusiveEntered or kind is LockHeld:
            self.owner[name] = task
            return self._takes(task, name, WHOLE, record)
        if kind is ExclusiveLeft or kind is LockReleased:
            self._gives(task, name)
            self.waits.pop(task, None)
            if self.owner.get(name) == task:
                del self.owner[name]
            return ()
        if kind is WaitGivenUp:
            self.waits.pop(task, None)
            return ()
        if kind is ExclusiveWaited:
            self.owner[name] = task
        self.waits[task] = name, kind is ExclusiveWaited
        return [self.broken(text, record) for text in self._begins_to_wait(task, name)]

    def _takes(self, task: str, name: str, how: str, record: Record) -> Iterable[Violation]:
        self.waits.pop(task, None)
        held = self.holds.setdefault(task, {})
        late = [self.broken(text, record) for text in _later(task, name, held, "took")] if held else ()
        held[name] = how
        return late

    def _gives(self, task: str, name: str) -> None:
        held = self.holds.get(task)
        if held is not None:
            held.pop(name, None)
            if not held:
                del self.holds[task]

    def _begins_to_wait(self, task: str, name: str) -> Iterator[str]:
        held = self.holds.get(task, {})
        yield from _later(task, name, held, "waits for")
        if name in held:
            yield f"{task} is inside {held[name]} {name} and waits to enter it again"
            return
        path = self._path(task)
        if path:
            yield "wait for each other: " + "; ".join(self._link(one) for one in path)

    def _blockers(self, task: str) -> list[str]:
        waiting = self.waits.get(task)
        if waiting is None:
            return []
        name, drains = waiting
        if drains:
            return [other for other, held in self.holds.items() if held.get(name) == SHARED]
        return [self.owner[name]] if name in self.owner else []

    def _path(self, start: str) -> list[str]:
        """Tasks of a cycle of waits through ``start``, in order; empty if there is none."""
        trail: dict[str, str] = {start: ""}
        todo = [start]
        while todo:
            task = todo.pop()
            for blocker in self._blockers(task):
                if blocker == start:
                    path = [task]
                    while trail[path[-1]]:
                        path.append(trail[path[-1]])
                    return path[::-1]
                if blocker not in trail:
                    trail[blocker] = task
                    todo.append(blocker)
        return []

    def _link(self, task: str) -> str:
        name, drains = self.waits[task]
        held = ", ".join(f"{how} {what}" for what, how in self.holds.get(task, {}).items())
        return f"{task} holds {held or 'nothing'} and waits for {'the end of every mutation of ' if drains else ''}{name}"

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        for cycle in status.waits.cycles():
            if any(edge.how == "lock" for edge in cycle):
                yield self.broken("wait for each other: " + "; ".join(edge.text for edge in cycle))


def _lock_of(event: Event) -> str:
    name: str = event.lock if isinstance(event, (LockWaits, LockHeld, LockReleased, WaitGivenUp)) else event.barrier  # type: ignore[attr-defined]
    return name


def _later(task: str, name: str, held: dict[str, str], does: str) -> Iterator[str]:
    place = ORDER.get(name, -1)
    for other, how in held.items():
        if place >= 0 and ORDER.get(other, -1) > place:
            yield f"{task} {does} {name} while it holds {how} {other}: the order is {', '.join(ORDER)}"
