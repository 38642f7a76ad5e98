"""I63."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protocol.config import Level
from protocol.history import (
    ControlIssued,
    CutTaken,
    DeadlineHeld,
    DeadlineReleased,
    ExclusiveEntered,
    ExclusiveLeft,
    FileIssued,
    GymPhaseStarted,
    Record,
    SnapshotBroke,
    SnapshotDropped,
    SnapshotPublished,
    SnapshotStarted,
)
from protocol.judging import Judge, Terms, Violation

DISPATCH_GATE = "dispatch"
HOLDER = "checkpoint"  # of the request deadlines
WRITTEN_BY_OTHERS = ("data_plane", "gym")  # inside the exclusive section, and by a commit


class GymResumesBeforePublication(Judge):
    """Once the cut is taken a snapshot keeps nothing closed: every prepared instance is asked to resume, the dispatch gate is
    open and the request deadlines run, before the first sidecar is written; and so it is once a snapshot was given up."""

    invariant = "I63"
    needs = (GymPhaseStarted, CutTaken)
    sees = (
        SnapshotBroke,
        SnapshotDropped,
        SnapshotStarted,
        SnapshotPublished,
        ControlIssued,
        DeadlineHeld,
        DeadlineReleased,
        ExclusiveEntered,
        ExclusiveLeft,
        FileIssued,
    )

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.prepared: dict[str, None] = {}  # asked to prepare and not yet to resume
        self.gate_closed = False
        self.holds = False  # the request deadlines
        self.cut = 0  # sequence of the snapshot cut whose first sidecar is not yet written

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, FileIssued):
            if self.cut and event.op == "write" and _is_sidecar(event.path):
                return [self.broken(text, record) for text in self._first_sidecar(event.path)]
        elif isinstance(event, ControlIssued):
            if event.operation == "prepare":
                self.prepared[event.instance] = None
            elif event.operation == "resume":
                self.prepared.pop(event.instance, None)
        elif isinstance(event, (ExclusiveEntered, ExclusiveLeft)):
            if event.barrier == DISPATCH_GATE:
                self.gate_closed = isinstance(event, ExclusiveEntered)
        elif isinstance(event, (DeadlineHeld, DeadlineReleased)):
            if event.holder == HOLDER:
                self.holds = isinstance(event, DeadlineHeld)
        elif isinstance(event, CutTaken):
            if event.role == "snapshot":
                self.cut = event.sequence
        elif isinstance(event, SnapshotStarted):
            self.cut = 0
            self.prepared = {}
        elif isinstance(event, SnapshotPublished) and self.cut:
            return [self.broken(text, record) for text in self._first_sidecar(f"snapshot {event.sequence} as a whole")]
        elif isinstance(event, (SnapshotBroke, SnapshotDropped)):
            return [self.broken(text, record) for text in self._kept(f"snapshot {event.sequence} was given up")]
        return ()

    def _first_sidecar(self, path: str) -> Iterator[str]:
        self.cut = 0
        return self._kept(f"{path} was written")

    def _kept(self, what: str) -> Iterator[str]:
        if self.prepared:
            yield f"{what} before {', '.join(self.prepared)} was asked to resume"
        if self.gate_closed:
            yield f"{what} while the dispatch gate was closed"
        if self.holds:
            yield f"{what} while the checkpoint held the request deadlines"


def _is_sidecar(path: str) -> bool:
    parts = path.split("/")
    return len(parts) > 3 and parts[2].startswith("tmp_snapshot_") and parts[3] not in WRITTEN_BY_OTHERS
