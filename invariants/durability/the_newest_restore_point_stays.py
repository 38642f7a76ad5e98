"""I23."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from invariants.durability.payload import is_snapshot, is_step, snapshot_folder
from invariants.durability.synced import Synced, base, is_scratch, parent
from protocol.history import (
    ControlDone,
    CutTaken,
    FileDone,
    FileIssued,
    GymPhaseEnded,
    Record,
    RunEnded,
    SnapshotBroke,
    SnapshotDropped,
    SnapshotPublished,
    SnapshotStarted,
)
from protocol.judging import Durable, Judge, RunStatus, Terms, Violation

NONE = (-1, -1)  # no restore point
TAKES = ("remove", "rename", "write")  # what may take something away


class TheNewestRestorePointStays(Judge):
    """The newest durable restore point stays restorable until a newer one is durable, whatever fails meanwhile, a failed resume
    does not undo the publication of a good cut, a run that has ended leaves its last step, and exactly the newest ones that the
    configuration keeps are kept."""

    invariant = "I23"
    needs = (FileIssued,)
    sees = (
        FileDone, SnapshotStarted, CutTaken, ControlDone, GymPhaseEnded, RunEnded, SnapshotPublished, SnapshotDropped,
        SnapshotBroke,
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.mode = terms.job.rollout_checkpointing.restore_mode
        self.synced = Synced()
        self.newest = NONE  # (step, sequence) of the newest durable restore point
        self.renamed: dict[str, tuple[int, int]] = {}  # named, and not yet durable
        self.have: dict[str, None] = {}  # published snapshots and trainer checkpoints that are there
        self.published = ""  # root of the snapshots whose newest one was published in this life, and pruned after
        self.touched: dict[str, bool] = {}  # tmp_snapshot folders of this life -> somebody asked for their removal
        self.left_over: dict[str, None] = {}  # tmp_snapshot folders of this life that nobody tried to remove
        self.ended = 0  # steps of a run that has ended
        self.cut = 0  # sequence of the snapshot cut on its way, 0: none
        self.cut_good = False  # its Gym phase ended with a cut
        self.resume_error = ""  # of a resume that failed after it

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.rollout_checkpointing.restore_mode != "none"  # that mode throws every lineage away

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.synced.begin(durable.files)
        self.newest = self._on_disk(durable)
        for anchor in durable.anchors():
            if is_step(anchor):
                self.have[anchor] = None
            for sequence in durable.snapshots(anchor):
                folder = snapshot_folder(anchor, sequence)
                if durable.json(f"{folder}/manifest.json") is not None:
                    self.have[folder] = None
        self.have = dict.fromkeys(sorted(self.have))
        return ()

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        found = self._on_disk(durable)
        if found < self.newest:
            return (self.broken(f"{_name(self.newest)} was durable, what is left at the end is {_name(found)}"),)
        saved = durable.anchors()[:1]
        if self.ended and self.terms.job.checkpointing.enabled and saved != [f"step_{self.ended}"]:
            newest = saved[0] if saved else "no anchor"
            return (self.broken(f"the run ended after step {self.ended} and {newest} is the newest that it left"),)
        return ()

    def _on_disk(self, durable: Durable) -> tuple[int, int]:
        point = durable.restore_point(self.mode)
        return (point.step, point.sequence) if point.source else NONE

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, FileIssued):
            if event.op not in TAKES or is_scratch(event.path):
                return ()
            return [self.broken(text, record) for text in self._issued(event)]
        if isinstance(event, FileDone):
            if not is_scratch(event.path):
                self._done(event)
            return ()
        if isinstance(event, RunEnded):
            self.ended = event.steps
            return ()
        return [self.broken(text, record) for text in self._publication(event)]

    def _issued(self, event: FileIssued) -> Iterator[str]:
        if event.op != "write":
            self.left_over.pop(event.path, None)
            if event.path in self.touched:
                self.touched[event.path] = True
        if self.newest != NONE and _harms(event.path, event.op, self.newest):
            yield f"{event.op} of {event.path} takes away {_name(self.newest)}, the newest durable restore point"
        if event.op == "remove":
            counted = event.path in self.have  # else it may be a whole anchor of a lineage that is given up
            newer, kept = self._newer(event.path) if counted else (0, 0)
            for path in [path for path in self.have if path == event.path or path.startswith(event.path + "/")]:
                del self.have[path]
            if counted and newer < kept:
                yield f"{event.path} is removed, {newer} newer ones are there and the newest {kept} are kept"

    def _done(self, event: FileDone) -> None:
        self.synced.done(event)
        if event.op == "rename":
            if is_step(event.to) or is_snapshot(base(event.to)):
                self.have[event.to] = None
            rank = self._rank(event.to)
            if rank != NONE:
                self.renamed[event.to] = rank
        elif event.op == "fsync_dir":
            for path in list(self.renamed):
                if self.synced.is_named(path):
                    self.newest = max(self.newest, self.renamed.pop(path))
        elif event.op == "write" and "/tmp_snapshot_" in event.path:
            folder = "/".join(event.path.split("/")[:3])
            self.touched.setdefault(folder, False)
            if parent(event.path) == folder:  # a sidecar: the controller's own write
                self.left_over[folder] = None

    def _newer(self, path: str) -> tuple[int, int]:
        """How many newer ones of its kind are there, and how many must be. Snapshots below an old anchor may all go."""
        rules = self.terms.job
        if is_step(path):
            newer = [step for step in self.have if is_step(step) and int(step[5:]) > int(path[5:])]
            return len(newer), rules.checkpointing.keep_top_k
        anchor = path.partition("/")[0]
        step = int(anchor[5:]) if is_step(anchor) else 0
        if any(is_step(other) and int(other[5:]) > step for other in self.have):
            return 0, 0
        siblings = [other for other in self.have if parent(other) == parent(path)]
        return sum(base(other) > base(path) for other in siblings), rules.rollout_checkpointing.keep_latest_k

    def _rank(self, path: str) -> tuple[int, int]:
        if is_step(path):
            return (int(path[5:]), 0)
        if is_snapshot(base(path)) and self.mode == "latest":
            anchor = path.partition("/")[0]
            return (int(anchor[5:]) if is_step(anchor) else 0, int(base(path)[9:]))
        return NONE

    def _publication(self, event: object) -> Iterator[str]:
        if isinstance(event, SnapshotStarted):
            self.cut, self.cut_good, self.resume_error = 0, False, ""
            root = f"{event.anchor}/rollout_snapshots"
            there, keep = [path for path in self.have if parent(path) == root], self.terms.job.rollout_checkpointing.keep_latest_k
            if self.published == root and len(there) > keep:
                yield f"{len(there)} snapshots are below {event.anchor} after the last one was published, {keep} are kept"
            for folder in [folder for folder in self.left_over if parent(folder) == root]:
                del self.left_over[folder]
                yield f"{folder} of a snapshot that was given up is still there when snapshot {event.sequence} starts"
        elif isinstance(event, CutTaken):
            if event.role == "snapshot":
                self.cut = event.sequence
        elif isinstance(event, ControlDone):
            if self.cut and event.operation == "resume" and event.outcome != "ok":
                self.resume_error = event.error or event.outcome
        elif isinstance(event, GymPhaseEnded):
            self.cut_good = event.outcome == "cut"
        elif isinstance(event, SnapshotBroke):
            yield from self._not_removed(event.sequence)
            undone = self.cut_good or event.error == self.resume_error
            if (
                self.cut == event.sequence
                and self.resume_error
                and undone
                and f"tmp_snapshot_{event.sequence:06d}" not in self._begun()
            ):
                yield f"snapshot {event.sequence} was given up ({event.error}) after its cut was taken, because a resume failed"
            self.cut = 0
        elif isinstance(event, (SnapshotPublished, SnapshotDropped)):
            if isinstance(event, SnapshotDropped):
                yield from self._not_removed(event.sequence)
            self.cut = 0
            if isinstance(event, SnapshotPublished):
                self.published = f"{event.anchor}/rollout_snapshots"

    def _not_removed(self, sequence: int) -> Iterator[str]:
        name = f"tmp_snapshot_{sequence:06d}"
        for folder in [folder for folder, removed in self.touched.items() if base(folder) == name and not removed]:
            self.touched[folder] = True
            yield f"{folder} was given up and nobody removed it"

    def _begun(self) -> list[str]:
        """Folders whose publication had begun: what fails from then on is no resume."""
        return [base(folder) for folder in self.left_over]


def _harms(path: str, operation: str, point: tuple[int, int]) -> bool:
    step, sequence = point
    anchor = f"step_{step}" if step else "bootstrap"
    if sequence:
        folder = snapshot_folder(anchor, sequence)
        if path == folder or path.startswith(folder + "/"):
            return True
        if operation != "write" and folder.startswith(path + "/"):
            return True
    if step:
        in_anchor = path.startswith(anchor + "/") and not path.startswith(f"{anchor}/rollout_snapshots")
        return in_anchor or (path == anchor and operation != "write")
    return path == "bootstrap/manifest.json"


def _name(point: tuple[int, int]) -> str:
    if point == NONE:
        return "nothing"
    anchor = f"step_{point[0]}" if point[0] else "bootstrap"
    return snapshot_folder(anchor, point[1]) if point[1] else anchor
