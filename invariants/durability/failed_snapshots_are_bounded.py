"""I33."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from protocol.history import (
    CommitFlagSet,
    ControlDone,
    DrainEnded,
    FaultInjected,
    Record,
    RunFailed,
    SnapshotBroke,
    SnapshotDropped,
    SnapshotPublished,
    SnapshotStarted,
    StepCommitted,
)
from protocol.judging import Durable, Judge, RunStatus, Terms, Violation


class FailedSnapshotsAreBounded(Judge):
    """A snapshot is published, lost to a train step or failed, it fails only of an outage, and the run stops when more than
    max_consecutive_failures of them have failed in a row, and no earlier.

    Counted from starts and publications: what the core says about its failures is checked, not believed.
    """

    invariant = "I33"
    needs = (SnapshotStarted,)
    sees = (CommitFlagSet, ControlDone, DrainEnded, FaultInjected, RunFailed, SnapshotBroke, SnapshotDropped, SnapshotPublished,
            StepCommitted)  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.limit = terms.job.rollout_checkpointing.max_consecutive_failures
        self.open = 0  # sequence of the snapshot under way
        self.failed = 0  # in a row
        self.stepped = False  # a step has begun to commit since the snapshot was started
        self.committing = False
        self.outage = False  # a control call failed, or a reply stayed away, since the snapshot was started
        self.faulty = False  # the world made something fail in this life

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.snapshots_on

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, CommitFlagSet):
            self.stepped = self.committing = True
        elif isinstance(event, StepCommitted):
            self.stepped, self.committing = True, False
        elif isinstance(event, ControlDone):
            self.outage = self.outage or event.outcome != "ok"
        elif isinstance(event, DrainEnded):
            self.outage = self.outage or event.left > 0
        elif isinstance(event, FaultInjected):
            self.faulty = True
        else:
            return [self.broken(text, record) for text in self._snapshot(event)]
        return ()

    def _snapshot(self, event: object) -> Iterator[str]:
        if isinstance(event, SnapshotStarted):
            if self.open:
                yield f"snapshot {self.open} was neither published nor given up when snapshot {event.sequence} was started"
                self.failed += 1
            if self.failed > self.limit:
                yield f"snapshot {event.sequence} was started after {self.failed} failed in a row, {self.limit} are allowed"
            self.open, self.stepped, self.outage = event.sequence, self.committing, False
        elif isinstance(event, SnapshotPublished):
            self.open = self.failed = 0
        elif isinstance(event, SnapshotDropped):
            self.open = 0
            if not self.stepped:
                self.failed += 1
                yield f"snapshot {event.sequence} was given up as lost to a train step, and no step has committed since its start"
        elif isinstance(event, SnapshotBroke):
            self.open = 0
            self.failed += 1
            if not (self.outage or self.faulty):
                yield f"snapshot {event.sequence} failed with no outage behind it ({event.error}: {event.message})"
        elif isinstance(event, RunFailed) and event.error == "SnapshotFailed" and event.cause == "unavailable":
            if self.failed <= self.limit:
                yield f"the run stopped after {self.failed} failed snapshots in a row, {self.limit} are allowed"

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        if status.outcome == "ended" and self.failed > self.limit:
            return (self.broken(f"the run went on after {self.failed} failed snapshots in a row, it stops after {self.limit}"),)
        return ()
