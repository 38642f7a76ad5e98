"""I22."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from invariants.durability.payload import DATALOADER, GYM, LEDGER, SIDECAR, is_step, snapshot_folder
from invariants.durability.synced import is_scratch, parent
from protocol.history import CleanupDone, FileDone, FileRead, Record, RestoreChosen, Restored
from protocol.judging import Durable, Judge, RestorePoint, Terms, Violation

FRESH = RestorePoint("", 0, 0, "")
MUST_READ = (LEDGER, SIDECAR, DATALOADER)


class TheNewestValidStateIsRestored(Judge):
    """A life restores the newest committed snapshot that matches the newest trainer checkpoint, from its files alone, after it
    has removed what unfinished saves left, and reads nothing that a dead life left behind."""

    invariant = "I22"
    needs = (Restored,)
    sees = (RestoreChosen, CleanupDone, FileRead, FileDone)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.point = FRESH
        self.must_read: dict[str, None] = {}
        self.consumed = 0
        self.cleaned = False
        self.chosen: tuple[str, int] | None = None
        self.restored = False
        self.own: dict[str, None] = {}  # temporary folders that this life made
        self.leftovers: dict[str, None] = {}  # temporary folders that this life found and has not removed for good

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = durable.restore_point(self.terms.job.rollout_checkpointing.restore_mode)
        self.leftovers = {folder: None for path in durable.files if (folder := _temporary(path)) and not is_scratch(path)}
        source = self.point.source
        if source:
            parts = [*MUST_READ, GYM] if self.point.sequence and durable.has(f"{source}/{GYM}") else MUST_READ
            self.must_read = {f"{source}/{part}": None for part in parts}
            loader = durable.dataloader(source)
            if isinstance(loader, dict):
                self.consumed = loader.get("consumed", 0)
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, FileRead):
            return [self.broken(text, record) for text in self._read(event.path, record.life)]
        if isinstance(event, FileDone):
            if event.op in ("write", "rename"):
                folder = _temporary(event.to or event.path)
                if folder:
                    self.own[folder] = None
            elif event.op == "remove":
                self.own.pop(event.path, None)
                self.leftovers.pop(event.path, None)
            return ()
        if isinstance(event, CleanupDone):
            self.cleaned = True
            return [
                self.broken(f"{folder} of an unfinished save is still there after the clean-up", record)
                for folder in self.leftovers
            ]
        if isinstance(event, RestoreChosen):
            self.chosen = (event.anchor, event.sequence)
            return [self.broken(text, record) for text in self._choice(self.chosen)]
        assert isinstance(event, Restored)
        self.restored = True
        return [self.broken(text, record) for text in self._result(event)]

    def _choice(self, chosen: tuple[str, int]) -> Iterator[str]:
        want = (self.point.anchor, self.point.sequence)
        if chosen != want and not (self.point.source == "" and chosen in (("", 0), ("bootstrap", 0))):
            yield f"{_name(*chosen)} was chosen, the newest valid state is {_name(*want)}"

    def _read(self, path: str, life: int) -> Iterator[str]:
        if path.startswith("life-"):
            if path.partition("/")[0] != f"life-{life}":
                yield f"life {life} read {path}, which a dead life left behind"
            return
        folder = _temporary(path)
        if folder:
            if self.cleaned and folder not in self.own:
                yield f"{path} was read, which no finished save wrote"
            return
        if self.chosen is not None and not self.restored:
            self.must_read.pop(path, None)
            if not _within(path, *self.chosen):
                yield f"{path} was read while {_name(*self.chosen)} was restored"

    def _result(self, event: Restored) -> Iterator[str]:
        chosen = (event.anchor, event.sequence)
        if self.chosen is None:
            yield from self._choice(chosen)
        elif chosen != self.chosen and not (self.point.source == "" and event.sequence == 0):
            yield f"{_name(*chosen)} was restored, {_name(*self.chosen)} was chosen"
        if (event.step, event.version) != (self.point.step, self.point.step):
            yield f"step {event.step} and version {event.version} were restored, the newest valid state is at {self.point.step}"
        elif event.consumed != self.consumed:
            yield f"cursor {event.consumed} was restored, the newest valid state holds {self.consumed}"
        if self.must_read:
            yield f"{next(iter(self.must_read))} was not read by the restore"


def _temporary(path: str) -> str:
    """The outermost folder above ``path`` (or itself) with a temporary name, or ''."""
    if "tmp_" not in path and "old_" not in path:
        return ""
    parts = path.split("/")
    for index, part in enumerate(parts):
        if part.startswith(("tmp_", "old_")):
            return "/".join(parts[: index + 1])
    return ""


def _within(path: str, anchor: str, sequence: int) -> bool:
    """May a restore of this choice read ``path``? Files of the run that are no save (a data set, a log) may always be read."""
    top = path.partition("/")[0]
    if not (top == "bootstrap" or is_step(top)):
        return True
    if path.startswith(f"{top}/rollout_snapshots/"):
        return sequence > 0 and path.startswith(snapshot_folder(anchor, sequence) + "/")
    return top == anchor or (anchor == "" and parent(path) == "bootstrap")


def _name(anchor: str, sequence: int) -> str:
    if not anchor:
        return "a fresh start"
    return snapshot_folder(anchor, sequence) if sequence else f"{anchor} itself"
