"""I48: a cut is a transaction of one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protocol.config import Level
from protocol.history import (
    CallBegun,
    CallEnded,
    CallFrozen,
    ChunkIssued,
    ChunksDiscarded,
    ChunksLeft,
    ChunkStaged,
    CutAcknowledged,
    CutAsked,
    CutRolledBack,
    CutSealed,
    PrefixRestored,
    ProcessKilled,
    ReceiptSent,
    Record,
)
from protocol.judging import Judge, Terms, Violation

GIVEN_UP = ("aborted", "rejected")


class AFailedCutLeavesNothing(Judge):
    """A call that is frozen is sealed or rolled back before its receipt leaves; a cut that fails leaves its staged count and its
    frozen mark as they were before, and none of its rows; what was sealed last is where the next cut begins.

    A row that could not be deleted at once counts as gone when it has been handed to the clean-up.
    """

    invariant = "I48"
    needs = (CallFrozen, CutRolledBack)
    sees = (CallBegun, CallEnded, ChunkIssued, ChunksDiscarded, ChunksLeft, ChunkStaged, CutAcknowledged, CutAsked, CutSealed,
            PrefixRestored, ProcessKilled, ReceiptSent)  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.asked: dict[tuple[str, str], tuple[str, ...]] = {}  # checkpoint and inventory -> calls
        self.sealed: dict[str, int] = {}  # call -> tokens that lie in chunks
        self.frozen: dict[str, CallFrozen] = {}
        self.where: dict[str, str] = {}  # frozen call -> its worker
        self.rows: dict[str, dict[str, None]] = {}  # call -> rows of its last cut that may lie in staging
        self.running: dict[str, int] = {}  # call -> how often it was asked for and has not ended
        self.failed: dict[str, None] = {}  # rolled back, until it is acknowledged

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX

    def on(self, record: Record) -> Iterable[Violation]:
        return [self.broken(text, record) for text in self._wrong(record)]

    def _wrong(self, record: Record) -> Iterator[str]:
        event = record.event
        if isinstance(event, CutAsked):
            self.asked[event.checkpoint, event.inventory] = event.calls
        elif isinstance(event, PrefixRestored):
            self.sealed[event.call] = event.count
        elif isinstance(event, CallFrozen):
            yield from self._froze(event, record.process)
        elif isinstance(event, (ChunkIssued, ChunkStaged)):
            self.rows.setdefault(event.call, {})[event.key] = None
        elif isinstance(event, (ChunksDiscarded, ChunksLeft)):
            for key in event.keys:
                self.rows.get(event.call, {}).pop(key, None)
        elif isinstance(event, CutSealed):
            yield from self._sealed(event)
        elif isinstance(event, CutRolledBack):
            yield from self._rolled_back(event)
        elif isinstance(event, CutAcknowledged):
            yield from self._acknowledged(event)
        elif isinstance(event, ReceiptSent):
            for call in self.asked.get((event.checkpoint, event.inventory), ()):
                if call in self.frozen and self.where[call] == record.process:
                    yield f"the receipt of {event.checkpoint} leaves, and {call} is still frozen."
                yield from self._left(call, "its receipt leaves")
        elif isinstance(event, CallBegun):
            self.running[event.call] = self.running.get(event.call, 0) + 1
        elif isinstance(event, CallEnded):
            self.running[event.call] = self.running.get(event.call, 1) - 1
            if self.running[event.call] > 0:
                return  # asked again meanwhile: what is known of it is the newer one's
            if event.call in self.frozen and event.outcome in GIVEN_UP:
                return  # its cut goes on without it: it must still be sealed or rolled back before the receipt leaves
            if event.call in self.frozen:
                yield f"{event.call} ended ({event.outcome}) while it is frozen."
            yield from self._left(event.call, "it ends")
            self._forget(event.call)
        elif isinstance(event, ProcessKilled):
            for call in [call for call, worker in self.where.items() if worker == event.process]:
                self._forget(call)

    def _froze(self, event: CallFrozen, worker: str) -> Iterator[str]:
        call, staged = event.call, self.sealed.get(event.call, 0)
        if call in self.frozen:
            yield f"{call} is frozen at {event.count} tokens while it is frozen at {self.frozen[call].count}."
        if event.staged != staged:
            yield f"{call} is frozen with {event.staged} tokens staged; {staged} were sealed or restored."
        self.frozen[call], self.where[call] = event, worker
        yield from self._left(call, "it is frozen again")
        self.rows[call] = {}

    def _sealed(self, event: CutSealed) -> Iterator[str]:
        frozen = self.frozen.pop(event.call, None)
        if frozen is None:
            yield f"{event.call} is sealed at {event.staged} tokens, and was not frozen."
        elif event.staged != frozen.count:
            yield f"{event.call} is sealed at {event.staged} tokens; it was frozen at {frozen.count}."
        self.sealed[event.call] = event.staged
        self.rows.pop(event.call, None)

    def _rolled_back(self, event: CutRolledBack) -> Iterator[str]:
        frozen, staged = self.frozen.pop(event.call, None), self.sealed.get(event.call, 0)
        self.failed[event.call] = None
        if event.frozen:
            yield f"{event.call} is rolled back ({event.reason}) and still frozen."
        if event.staged != staged:
            before = "" if frozen is None else f" before its freeze at {frozen.count}"
            yield f"{event.call} is rolled back ({event.reason}) to {event.staged} staged tokens; it had {staged}{before}."

    def _acknowledged(self, event: CutAcknowledged) -> Iterator[str]:
        call = event.call
        failed = self.failed.pop(call, 0) is None
        if event.kind == "durable_prefix":
            if failed:
                yield f"{call} was rolled back, and is acknowledged as a durable prefix."
            return
        if call in self.frozen:
            yield f"{call} is acknowledged as {event.kind} ({event.reason}), and is still frozen."

    def _left(self, call: str, when: str) -> Iterator[str]:
        left = self.rows.pop(call, None)
        if left:
            yield f"{next(iter(left))} of a cut of {call} that failed may still be staged when {when}."

    def _forget(self, call: str) -> None:
        for known in (self.sealed, self.frozen, self.where, self.rows, self.failed, self.running):
            known.pop(call, None)
