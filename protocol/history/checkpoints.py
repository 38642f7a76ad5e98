"""Checkpoints and snapshots (controller)."""

from __future__ import annotations

from protocol.history.event import Event, KeySet


class SnapshotStarted(Event, frozen=True):
    anchor: str
    sequence: int
    forced: bool


class SnapshotSkipped(Event, frozen=True):
    """``reason``: unchanged | commit-in-progress | no-durable-anchor."""

    reason: str


class SnapshotDropped(Event, frozen=True):
    """A started snapshot that lost to a train step: neither a failure nor a success."""

    sequence: int
    reason: str


class SnapshotBroke(Event, frozen=True):
    """A started snapshot failed; ``consecutive`` failures so far."""

    sequence: int
    cause: str
    error: str
    message: str
    consecutive: int


class SnapshotStarved(Event, frozen=True):
    """Warning: this many snapshots in a row were lost to train steps."""

    lost: int


class CutTaken(Event, frozen=True):
    """The state inside the exclusive section. ``role``: snapshot | trainer.

    ``ledger`` digests the persisted ledger with unsealed attempts' status left out; ``committing`` is the commit
    flag; ``consumed`` is the cursor; ``open`` groups of the ledger, ``passed`` ordinals passed over so far.
    """

    role: str
    sequence: int
    step: int
    version: int
    committing: bool
    mutation_version: int
    canonical: KeySet
    sidecar: KeySet
    finalized: KeySet
    replay: KeySet
    staging_expected: KeySet
    staging_missing: int
    ledger: str
    consumed: int
    open: int
    passed: int
    rolled_back: int = 0  # claimed groups of an open train step, written as if they were not


class DataPlaneSaveIssued(Event, frozen=True):
    """controller: the data plane was asked to write its rows, inside the exclusive section of the cut of this ``role``."""

    role: str
    sequence: int


class DataPlaneSaveDone(Event, frozen=True):
    role: str
    sequence: int


class SnapshotPublished(Event, frozen=True):
    anchor: str
    sequence: int
    step: int
    version: int
    anchor_step: int
    anchor_version: int


class AnchorMade(Event, frozen=True):
    """The bootstrap anchor is durable."""

    anchor: str


class TrainerSaveAsked(Event, frozen=True):
    """controller: a trainer checkpoint is due and asks for the checkpoint lock."""

    step: int


class TrainerSaveStarted(Event, frozen=True):
    """The checkpoint lock is held by the trainer save."""

    step: int


class TrainerSaveIssued(Event, frozen=True):
    """The cut is taken and the train loop goes on; the rest happens in the background."""

    step: int


class TrainerCheckpointDurable(Event, frozen=True):
    """Renamed, and the parent folder synced."""

    step: int


class PruneIssued(Event, frozen=True):
    """A durable artefact is about to be removed on purpose."""

    path: str


class FileIssued(Event, frozen=True):
    """seam: ``op``: write | fsync | rename | fsync_dir | remove; ``to`` only for rename."""

    op: str
    path: str
    to: str = ""


class FileDone(Event, frozen=True):
    op: str
    path: str
    to: str = ""


class FileRead(Event, frozen=True):
    """seam: a file was read."""

    path: str


class RestoreChosen(Event, frozen=True):
    """controller: what the restore will read. ``anchor`` '' and sequence 0: a fresh start."""

    anchor: str
    sequence: int


class Restored(Event, frozen=True):
    """controller: the state of this life after restore, before any pump starts.

    ``finalized`` group ids of the ledger, ``replay`` group ids of the replay index, ``open`` = groups in the ledger.
    """

    anchor: str
    sequence: int
    step: int
    version: int
    epoch: int
    consumed: int
    dispatch_index: int
    open: int
    sealed: int
    continuations: int
    canonical: KeySet
    sidecar: KeySet
    finalized: KeySet
    replay: KeySet
    ledger: str


class GroupRecovered(Event, frozen=True):
    """controller: an unfinished group of the restored ledger has its turn. ``reused`` of its siblings come sealed, ``unsealed``
    ones are to be dispatched again (unless the group is dropped as stale)."""

    group: str
    reused: int
    unsealed: int
