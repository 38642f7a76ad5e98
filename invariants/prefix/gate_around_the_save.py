"""The part of I13 that is about the snapshot gate: what a receipt names stays until it is saved."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.config import Level
from protocol.history import (
    CallFrozen,
    ChunksDiscarded,
    CutAcknowledged,
    CutAsked,
    DataPlaneSaveDone,
    GateClosed,
    GateOpened,
    GatePassed,
    GymPhaseStarted,
    ManifestBuilt,
    ProcessKilled,
    Record,
    RowStagedDone,
    RowStagedIssued,
)
from protocol.judging import Terms

FOLLOWED = (CallFrozen, ChunksDiscarded, CutAcknowledged, CutAsked, DataPlaneSaveDone, GateClosed, GateOpened, GatePassed,
            GymPhaseStarted, ManifestBuilt, ProcessKilled, RowStagedDone, RowStagedIssued)  # fmt: skip
PREFIX = "durable_prefix"
OWN = ("put-failed", "unsealed", "rolled-back")  # of the cut itself: no receipt names them


class GateAroundTheSave:
    """``found`` grows while a checkpoint is open; it is taken by the snapshot whose data plane save ends it."""

    def __init__(self, terms: Terms) -> None:
        self.watched = terms.job.level >= Level.PREFIX
        self.holds: dict[tuple[str, str], tuple[int, str]] = {}  # worker and holder -> epoch and checkpoint
        self.checkpoint = ""
        self.asked: dict[tuple[str, str], tuple[str, int]] = {}  # worker and call -> holder and epoch, of this checkpoint
        self.cut: dict[str, dict[tuple[str, int], None]] = {}  # worker with a durable prefix -> holders and epochs
        self.frozen: dict[str, dict[tuple[str, int], None]] = {}  # worker that has frozen a call -> likewise
        self.saved = True  # the data plane's save of this checkpoint is done, or there is none
        self.found: list[str] = []

    def on(self, record: Record) -> Iterator[str]:
        """Findings about the open checkpoint, when its data plane save is done."""
        event, worker = record.event, record.process
        if isinstance(event, GymPhaseStarted):
            self.checkpoint, self.saved = event.checkpoint, False
            self.asked, self.cut, self.frozen, self.found = {}, {}, {}, []
        elif isinstance(event, GateClosed):
            self.holds[worker, event.holder] = event.epoch, event.checkpoint
        elif isinstance(event, GateOpened):
            self.holds.pop((worker, event.holder), None)
            if (event.holder, event.epoch) in self.cut.get(worker, {}) and not self.saved:
                self._say(f"{worker}'s gate was opened ({event.why}) between the cut of {event.holder} and the save")
        elif isinstance(event, ProcessKilled):
            for held in [held for held in self.holds if held[0] == event.process]:
                del self.holds[held]
            self.cut.pop(event.process, None)  # what it had closed died with it, and so did every call that could pass
            self.frozen.pop(event.process, None)
        elif isinstance(event, CutAsked):
            if event.checkpoint == self.checkpoint:
                self.asked.update({(event.worker, call): (record.process, event.epoch) for call in event.calls})
        elif isinstance(event, CallFrozen):
            self._closed(worker, event.call, event.checkpoint, "froze", self.frozen)
        elif isinstance(event, CutAcknowledged):
            if event.kind == PREFIX:
                self._closed(worker, event.call, event.checkpoint, "acknowledged", self.cut)
        elif isinstance(event, (RowStagedIssued, RowStagedDone, GatePassed)):
            if self._shut(worker):
                what = "a clean-up" if isinstance(event, GatePassed) else "a terminal write"
                self._say(f"{what} of {event.call} passed {worker}'s gate between a cut and the save")
        elif isinstance(event, ChunksDiscarded):
            if self._shut(worker) and event.why not in OWN:
                self._say(f"{len(event.keys)} chunks of {event.call} were deleted ({event.why}) between a cut and the save")
        elif isinstance(event, DataPlaneSaveDone) and event.role == "snapshot":
            self.saved = True
            yield from self.found
            self.found = []

    def _shut(self, worker: str) -> bool:
        return not self.saved and (worker in self.frozen or worker in self.cut)

    def _closed(self, worker: str, call: str, checkpoint: str, what: str, known: dict[str, dict[tuple[str, int], None]]) -> None:
        if checkpoint != self.checkpoint or self.saved:
            return
        asked = self.asked.get((worker, call))
        if asked is None:
            self._say(f"{worker} {what} {call}, which no inventory of this checkpoint names")
            return
        holder, epoch = asked
        known.setdefault(worker, {})[holder, epoch] = None
        if self.holds.get((worker, holder)) != (epoch, checkpoint):
            self._say(f"{worker} {what} {call} for {holder}, whose gate is not closed")

    def _say(self, text: str) -> None:
        if len(self.found) < 8:
            self.found.append(text)
