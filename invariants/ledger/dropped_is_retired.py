"""I7: an attempt that leaves the ledger while Gym may hold it must be ended in Gym too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from invariants.ledger.attempts import group_of, gym_attempt_of, rollout_of
from protocol.config import Level
from protocol.history import (
    AttemptAbandoned,
    AttemptSealed,
    CompletionArrived,
    ControlIssued,
    EpisodeInstalled,
    ExclusiveEntered,
    ExclusiveLeft,
    FailureArrived,
    GroupDropped,
    MutationLeft,
    Record,
    RefusalArrived,
    Restored,
    RetireAccepted,
    RetireMarked,
    RetireQueued,
    RowsSubmitted,
)
from protocol.judging import Durable, Judge, RunStatus, Terms, Violation


class DroppedIsRetired(Judge):
    """An attempt that leaves the ledger while Gym may hold it is queued for retire in the same mutation, and no checkpoint
    parks Gym before that retire was accepted and marked. Retires are asked while dispatch is closed.

    Gym may hold what was submitted in this life and neither answered, failed nor refused, and what a restore installed.
    """

    invariant = "I7"
    needs = (AttemptAbandoned,)
    sees = (
        AttemptSealed, CompletionArrived, ControlIssued, EpisodeInstalled, ExclusiveEntered, ExclusiveLeft, FailureArrived,
        GroupDropped, MutationLeft, RefusalArrived, Restored, RetireAccepted, RetireMarked, RetireQueued, RowsSubmitted,
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.held: dict[str, dict[str, bool]] = {}  # group -> key -> a restore installed it
        self.owed: dict[str, str] = {}  # key that left the ledger, not queued yet -> task
        self.queued: dict[str, None] = {}
        self.due: dict[str, None] = {}  # queued when the dispatch gate closed
        self.dispatch_open = False  # rows may be sent: after the restore, and while no checkpoint holds the gate
        self.place: dict[str, str] = {}  # key -> the instance that may hold it
        self.marks: dict[tuple[str, str], int] = {}  # (instance, rollout) -> highest attempt marked there

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        kind = type(event)
        if kind is MutationLeft:
            if self.owed and event.barrier == "data-plane":  # type: ignore[attr-defined]
                return self._left(record)
            return ()
        handle = _HANDLERS.get(kind)
        return handle(self, event, record) if handle is not None else ()

    def _submitted(self, event: RowsSubmitted, record: Record) -> Iterable[Violation]:
        held = self.held.setdefault(event.group, {})
        for key in event.keys:
            held.setdefault(key, False)
            self.place[key] = event.instance
        return ()

    def _installed(self, event: EpisodeInstalled, record: Record) -> Iterable[Violation]:
        self.held.setdefault(group_of(event.key), {})[event.key] = True
        self.place[event.key] = record.process
        return ()

    def _over(self, event: CompletionArrived | FailureArrived | AttemptSealed, record: Record) -> Iterable[Violation]:
        held = self.held.get(group_of(event.key))
        if held is not None:
            held.pop(event.key, None)
        return ()

    def _refused(self, event: RefusalArrived, record: Record) -> Iterable[Violation]:
        held = self.held.get(group_of(event.key))
        if held is not None and held.get(event.key) is False:
            del held[event.key]
        return ()

    def _abandoned(self, event: AttemptAbandoned, record: Record) -> Iterable[Violation]:
        held = self.held.get(group_of(event.key))
        if held is not None and held.pop(event.key, None) is not None and event.key not in self.queued:
            self.owed[event.key] = record.task
        return ()

    def _dropped(self, event: GroupDropped, record: Record) -> Iterable[Violation]:
        for key in self.held.pop(event.group, {}):
            if key not in self.queued:
                self.owed[key] = record.task
        return ()

    def _queued(self, event: RetireQueued, record: Record) -> Iterable[Violation]:
        self.owed.pop(event.key, None)
        self.queued[event.key] = None
        return ()

    def _left(self, record: Record) -> Iterable[Violation]:
        late = [key for key, task in self.owed.items() if task == record.task]
        for key in late:
            del self.owed[key]
        return [
            self.broken(f"{key} left the ledger while Gym may hold it, and was not queued for retire.", record) for key in late
        ]

    def _marked(self, event: RetireMarked, record: Record) -> Iterable[Violation]:
        at = (record.process, event.rollout)
        self.marks[at] = max(event.attempt, self.marks.get(at, -1))
        return ()

    def _accepted(self, event: RetireAccepted, record: Record) -> Iterable[Violation]:
        found: list[Violation] = []
        if self.queued.pop(event.key, False) is False:
            found.append(self.broken(f"The retire of {event.key} was accepted, but it was not queued.", record))
        place = self.place.pop(event.key, "")
        marks = [mark for (at, rollout), mark in self.marks.items() if rollout == rollout_of(event.key) and at == (place or at)]
        if max(marks, default=-1) < gym_attempt_of(event.key):
            where = f" of {place}" if place else ""
            found.append(
                self.broken(f"The retire of {event.key} counts as accepted, but no participant{where} marked it.", record)
            )
        return found

    def _closed(self, event: ExclusiveEntered, record: Record) -> Iterable[Violation]:
        if event.barrier == "dispatch":
            self.due = dict(self.queued)
            self.dispatch_open = False
        return ()

    def _opened(self, event: ExclusiveLeft, record: Record) -> Iterable[Violation]:
        if event.barrier == "dispatch":
            self.dispatch_open = True
        return ()

    def _restored(self, event: Restored, record: Record) -> Iterable[Violation]:
        self.dispatch_open = True
        return ()

    def _issued(self, event: ControlIssued, record: Record) -> Iterable[Violation]:
        if event.operation == "retire" and self.dispatch_open:
            return (self.broken(f"{event.instance} was asked to retire while rows could be dispatched.", record),)
        if event.operation != "prepare":
            return ()
        late = [key for key in self.due if key in self.queued]
        self.due = {}
        return [self.broken(f"Gym was asked to park while the retire of {key} was not accepted.", record) for key in late]

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        if status.outcome != "ended":
            return ()
        return [
            self.broken(f"{key} left the ledger while Gym may hold it, and was never queued for retire.") for key in self.owed
        ]


_HANDLERS: dict[type, Any] = {
    RowsSubmitted: DroppedIsRetired._submitted,
    EpisodeInstalled: DroppedIsRetired._installed,
    CompletionArrived: DroppedIsRetired._over,
    FailureArrived: DroppedIsRetired._over,
    AttemptSealed: DroppedIsRetired._over,
    RefusalArrived: DroppedIsRetired._refused,
    AttemptAbandoned: DroppedIsRetired._abandoned,
    GroupDropped: DroppedIsRetired._dropped,
    RetireQueued: DroppedIsRetired._queued,
    RetireAccepted: DroppedIsRetired._accepted,
    RetireMarked: DroppedIsRetired._marked,
    ExclusiveEntered: DroppedIsRetired._closed,
    ExclusiveLeft: DroppedIsRetired._opened,
    Restored: DroppedIsRetired._restored,
    ControlIssued: DroppedIsRetired._issued,
}
