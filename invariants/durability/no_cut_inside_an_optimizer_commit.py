"""I17."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from invariants.durability.held import PUBLICATION, HeldFindings
from invariants.durability.payload import OnDisk, Payload
from protocol.history import (
    CommitFlagCleared,
    CommitFlagSet,
    CutTaken,
    OptimizerApplied,
    Record,
    SnapshotPublished,
    StepCommitted,
)
from protocol.judging import Terms, Violation


class NoCutInsideAnOptimizerCommit(OnDisk):
    """No cut is taken while an optimizer commit is in progress, a published snapshot has its anchor's step and version, and a
    trainer checkpoint those that its name says.
    """

    invariant = "I17"
    needs = (CutTaken, CommitFlagSet)
    sees = (CommitFlagCleared, OptimizerApplied, StepCommitted, *PUBLICATION)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.held = HeldFindings()
        self.committing = 0  # the step whose flag is up, 0: none
        self.applied = 0  # the step whose optimizer has run and whose counters have not moved, 0: none
        self.cut: tuple[int, int] = (-1, -1)  # (step, version) of the newest snapshot cut

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, CutTaken):
            for text in self._cut(event):
                self.held.hold(event, self.broken(text, record))
            return ()
        if isinstance(event, CommitFlagSet):
            self.committing = event.step
            return ()
        if isinstance(event, CommitFlagCleared):
            self.committing = 0
            return ()
        if isinstance(event, OptimizerApplied):
            self.applied = event.step
            return ()
        if isinstance(event, StepCommitted):
            self.applied = 0
            return ()
        found = self.held.release(event)
        if isinstance(event, SnapshotPublished):
            found.extend(self.broken(text, record) for text in self._published(event))
        return found

    def _cut(self, event: CutTaken) -> Iterator[str]:
        if event.role == "snapshot":
            self.cut = (event.step, event.version)
        where = f"{event.role} cut {event.sequence} was taken"
        if event.committing or self.committing:
            yield f"{where} while the commit of step {self.committing or event.step + 1} was in progress"
        elif self.applied:
            yield f"{where} after step {self.applied} was applied and before its counters moved"

    def _published(self, event: SnapshotPublished) -> Iterator[str]:
        at, anchor = (event.step, event.version), (event.anchor_step, event.anchor_version)
        if at != anchor:
            yield f"snapshot {event.sequence} is at step and version {at}, its anchor {event.anchor} at {anchor}"
        named = 0 if event.anchor == "bootstrap" else int(event.anchor.rpartition("_")[2])
        if event.anchor_step != named:
            yield f"snapshot {event.sequence} lies under {event.anchor} and says that its anchor is step {event.anchor_step}"
        if self.cut not in ((-1, -1), at):
            yield f"snapshot {event.sequence} says step and version {at}, its cut was taken at {self.cut}"

    def examine(self, payload: Payload) -> Iterator[str]:
        if not payload.sequence:
            info = payload.read("training_info.json") or {}
            found = (info.get("step", payload.step), info.get("trainer_version", payload.step))
            if found != (payload.step, payload.step):
                yield f"training_info.json says step and version {found}, the folder's name says {payload.step}"
            return
        manifest = payload.read("manifest.json")
        if manifest is None:
            return  # an unreadable payload is I21's
        found = (manifest["base_train_step"], manifest["trainer_version"])
        if found != (payload.step, payload.step):
            yield f"the manifest says step and version {found}, the anchor is at {payload.step}"
