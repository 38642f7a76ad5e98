"""I20."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from invariants.durability.held import PUBLICATION, HeldFindings
from protocol.history import (
    AttemptAbandoned,
    AttemptDispatched,
    AttemptRefused,
    AttemptReserved,
    AttemptSealed,
    BudgetSpent,
    CanonicalClearDone,
    CommitFlagSet,
    CursorMoved,
    CutTaken,
    Event,
    FinalizeDone,
    GroupAttemptRaised,
    GroupDropped,
    GroupEvicted,
    GroupMoved,
    GroupReserved,
    GroupsClaimed,
    MutationEntered,
    MutationLeft,
    PromptPassedOver,
    Record,
    Restored,
    SnapshotPublished,
    SnapshotSkipped,
    StagingCleared,
)
from protocol.judging import Durable, Judge, RunStatus, Terms, Violation

BARRIER = "data-plane"
CHANGES: tuple[type[Event], ...] = (
    GroupReserved,
    GroupDropped,
    GroupMoved,
    GroupAttemptRaised,
    GroupsClaimed,
    AttemptReserved,
    AttemptDispatched,
    AttemptRefused,
    AttemptAbandoned,
    AttemptSealed,
    BudgetSpent,
    CursorMoved,
    PromptPassedOver,
    FinalizeDone,
)
ALSO_WORK: tuple[type[Event], ...] = (GroupEvicted, CanonicalClearDone, StagingCleared, CommitFlagSet)
IDLE_MUTATIONS_MIN = 50  # below it a few empty sections are no idle poll


class EveryChangeMovesTheMutationVersion(Judge):
    """Every change of ledger, canonical rows or replay index happens inside a mutation, each outermost exit adds one to the
    mutation version, equal versions mean equal cuts, and the version stands still while nothing changes."""

    invariant = "I20"
    needs = (MutationLeft,)
    sees = (MutationEntered, CutTaken, SnapshotSkipped, Restored, *CHANGES, *ALSO_WORK, *PUBLICATION)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.held = HeldFindings()
        self.restored = False
        self.version = -1  # of the barrier, -1: not yet seen
        self.inside: dict[str, list[int]] = {}  # task -> [open mutations, changes inside]; names of tasks may repeat
        self.changes = 0
        self.idle = 0  # mutations that changed nothing
        self.busy = 0
        self.cuts: dict[str, CutTaken] = {}  # newest of each role
        self.changes_at_cut = 0
        self.changes_at_published = -1

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        kind = type(event)
        if kind is MutationEntered:
            if event.barrier == BARRIER:  # type: ignore[attr-defined]
                self.inside.setdefault(record.task, [0, 0])[0] += 1
            return ()
        if isinstance(event, MutationLeft):
            return self._left(event, record) if event.barrier == BARRIER else ()
        if kind in CHANGES:
            return self._changed(event, record)
        if kind in ALSO_WORK:
            if record.task in self.inside:
                self.inside[record.task][1] += 1
            return ()
        if isinstance(event, CutTaken):
            for text in self._cut(event):
                self.held.hold(event, self.broken(text, record))
            return ()
        if isinstance(event, SnapshotSkipped):
            if event.reason == "unchanged" and self.changes_at_published not in (-1, self.changes):
                found = f"a snapshot was skipped as unchanged after {self.changes - self.changes_at_published} changes"
                return (self.broken(found, record),)
            return ()
        if kind is Restored:
            self.restored = True
            return ()
        if kind is SnapshotPublished:
            self.changes_at_published = self.changes_at_cut
        return self.held.release(event)

    def _left(self, event: MutationLeft, record: Record) -> Iterable[Violation]:
        section = self.inside.get(record.task, [1, 0])
        section[0] -= 1
        if section[1]:
            self.busy += 1
        else:
            self.idle += 1
        section[1] = 0
        if not section[0]:
            self.inside.pop(record.task, None)
        before, self.version = self.version, event.version
        if before >= 0 and event.version != before + 1:
            found = f"mutation {event.kind} left version {event.version}, before it was {before}"
            return (self.broken(found, record),)
        return ()

    def _changed(self, event: Event, record: Record) -> Iterable[Violation]:
        self.changes += 1
        if record.task in self.inside:
            self.inside[record.task][1] += 1
        elif self.restored:
            return (self.broken(f"{type(event).__name__} was recorded by task {record.task!r} outside a mutation", record),)
        return ()

    def _cut(self, event: CutTaken) -> Iterator[str]:
        if event.role == "snapshot":
            self.changes_at_cut = self.changes
        if self.version >= 0 and event.mutation_version != self.version:
            yield f"{event.role} cut {event.sequence} says version {event.mutation_version}, the barrier stands at {self.version}"
        before = self.cuts.get(event.role)
        self.cuts[event.role] = event
        if before is None or before.mutation_version != event.mutation_version:
            return
        for part in ("ledger", "canonical", "finalized", "replay"):
            if getattr(before, part) != getattr(event, part):
                where = f"{event.role} cuts {before.sequence} and {event.sequence}"
                yield f"{where} have version {event.mutation_version} and differ in {part}"

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        if self.idle > IDLE_MUTATIONS_MIN and self.idle > self.busy:
            return (self.broken(f"{self.idle} mutations moved the version and changed nothing, {self.busy} changed something"),)
        return ()
