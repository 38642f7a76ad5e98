"""OWNER-1: PROTOCOL 6.7, claim, then consume or release; a second claimant is refused, a consumed cut is never used again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protocol.config import Level
from protocol.history import (
    CallAsked,
    CallEnded,
    ChunkIssued,
    ChunksDiscarded,
    ChunksLeft,
    PrefixClaimed,
    PrefixReleased,
    PrefixRestored,
    ProcessKilled,
    Record,
    RowStagedDone,
)
from protocol.judging import Judge, Terms, Violation

ANSWERED = ("answered", "terminal-prefix")


class ARestoredCutHasOneOwner(Judge):
    """A restored cut is owned by one call at a time, which goes on from it only while it owns it, consumes it with a row of its
    own or releases it before its answer leaves; nobody owns a cut that was consumed, or goes on from rows that were given up.
    """

    invariant = "OWNER-1"
    needs = (PrefixClaimed, PrefixReleased)
    sees = (CallAsked, CallEnded, ChunkIssued, ChunksDiscarded, ChunksLeft, PrefixRestored, ProcessKilled, RowStagedDone)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.owner: dict[str, tuple[str, str]] = {}  # digest -> call and worker
        self.consumed: dict[str, str] = {}  # digest -> call
        self.gone: dict[str, str] = {}  # chunk key -> why it was given up
        self.staged: dict[str, None] = {}  # calls whose own row is staged

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX

    def on(self, record: Record) -> Iterable[Violation]:
        return [self.broken(text, record) for text in self._wrong(record)]

    def _wrong(self, record: Record) -> Iterator[str]:
        event = record.event
        if isinstance(event, PrefixClaimed):
            yield from self._claimed(event, record.process)
        elif isinstance(event, PrefixRestored):
            owner = self.owner.get(event.digest, ("nobody", ""))[0]
            if owner != event.call:
                yield f"{event.call} goes on from a cut that {owner} owns ({event.digest[:12]})."
            gone = [key for key in event.keys if key in self.gone]
            if gone:
                yield f"{event.call} goes on from {gone[0]}, which was given up ({self.gone[gone[0]]})."
        elif isinstance(event, PrefixReleased):
            yield from self._released(event)
        elif isinstance(event, RowStagedDone):
            self.staged[event.call] = None
        elif isinstance(event, CallAsked):
            self.staged.pop(event.call, None)
        elif isinstance(event, ChunkIssued):
            self.gone.pop(event.key, None)  # written anew
        elif isinstance(event, (ChunksLeft, ChunksDiscarded)):
            self.gone.update(dict.fromkeys(event.keys, event.why))
        elif isinstance(event, CallEnded):
            if event.outcome in ANSWERED:
                kept = [digest for digest, (call, _) in self.owner.items() if call == event.call]
                if kept:
                    yield f"{event.call} is answered, and still owns the cut {kept[0][:12]}."
        elif isinstance(event, ProcessKilled):
            for digest in [digest for digest, (_, worker) in self.owner.items() if worker == event.process]:
                del self.owner[digest]

    def _claimed(self, event: PrefixClaimed, worker: str) -> Iterator[str]:
        digest, call = event.digest, event.call
        owner, user = self.owner.get(digest), self.consumed.get(digest)
        if event.outcome == "owned":
            if owner is not None:
                yield f"{call} claims the cut {digest[:12]}, which {owner[0]} owns."
            if user is not None:
                yield f"{call} claims the cut {digest[:12]}, which {user} has consumed."
            self.owner[digest] = call, worker
        elif owner is None and user is None:
            yield f"{call} is refused the cut {digest[:12]}, which nobody owns and nobody has consumed."

    def _released(self, event: PrefixReleased) -> Iterator[str]:
        owner = self.owner.pop(event.digest, ("nobody", ""))[0]
        if owner != event.call:
            yield f"{event.call} gives up the cut {event.digest[:12]} ({event.outcome}), which {owner} owns."
        if event.outcome == "released" and event.call in self.staged:
            yield f"{event.call} has used the cut {event.digest[:12]} for a row of its own, and gives it back for others."
        if event.outcome == "consumed":
            self.consumed[event.digest] = event.call
            if event.call not in self.staged:
                yield f"{event.call} has consumed the cut {event.digest[:12]}, and no row of its own is staged."
