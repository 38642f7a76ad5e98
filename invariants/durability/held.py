"""Findings about a cut, held until the cut is published: only published cuts are judged (RULES 7)."""

from __future__ import annotations

from protocol.history import (
    CutTaken,
    Event,
    SnapshotBroke,
    SnapshotDropped,
    SnapshotPublished,
    SnapshotStarted,
    TrainerCheckpointDurable,
    TrainerSaveStarted,
)
from protocol.judging import Violation

PUBLICATION = (SnapshotStarted, SnapshotPublished, SnapshotDropped, SnapshotBroke, TrainerSaveStarted, TrainerCheckpointDurable)
SNAPSHOT = "snapshot"


class HeldFindings:
    """At most one snapshot and one trainer checkpoint are on their way at a time (both hold the checkpoint lock)."""

    def __init__(self) -> None:
        self.snapshot: list[Violation] = []
        self.trainer: list[Violation] = []

    def hold(self, cut: CutTaken, violation: Violation) -> None:
        (self.snapshot if cut.role == SNAPSHOT else self.trainer).append(violation)

    def release(self, event: Event) -> list[Violation]:
        """Findings about the cut that ``event`` publishes; forgets those about a cut that is given up."""
        kind = type(event)
        found: list[Violation] = []
        if kind is SnapshotPublished:
            found, self.snapshot = self.snapshot, []
        elif kind is TrainerCheckpointDurable:
            found, self.trainer = self.trainer, []
        elif kind is TrainerSaveStarted:
            self.trainer = []
        elif kind in (SnapshotStarted, SnapshotDropped, SnapshotBroke):
            self.snapshot = []
        return found
