"""I49: no row of the staging partition outlives what may still need it. Told by workers' events and by the files of a save."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from invariants.durability.payload import STAGING, Payload, payloads
from invariants.prefix.chunk_rows import FOLLOWED, ChunkRows
from protocol.history import (
    AttemptDispatched,
    CutTaken,
    FinalizeDone,
    GroupDropped,
    GroupsClaimed,
    OptimizerIssued,
    Record,
    RowStagedDone,
    RowStagedIssued,
    StagingCleared,
    StepCommitted,
)
from protocol.identity import group_of_sample, is_chunk, sample_of_key
from protocol.judging import Durable, Judge, RunStatus, Terms, Violation

EARLIER = -1  # staged by an earlier life: before everything that this one does


class NoStagedRowIsLeftBehind(Judge):
    """A staged row leaves staging when its group is published or dropped, and the step after it at the latest; a chunk row when
    its call is over, unless it is handed to the clean-up, waits in a restored cut for its call, or is named by a receipt of the
    checkpoint in progress: no save holds another, no group that is finalized or trained has one, and no run ends with one.

    A group that is published or dropped clears every row staged until then. Gym may run an attempt that was given up a little
    longer and stage more: such rows go with the next step that commits after its group has left the ledger. Rows of an execution
    that the controller never sent are not known to it: they stay until the next restore.
    """

    invariant = "I49"
    needs = (CutTaken, RowStagedDone)
    sees = (
        AttemptDispatched,
        RowStagedIssued,
        FinalizeDone,
        StagingCleared,
        GroupDropped,
        GroupsClaimed,
        OptimizerIssued,
        StepCommitted,
        *FOLLOWED,
    )

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.staged: dict[str, int | None] = {}  # key -> when its put was answered; None: sent, and it may land at any time
        self.sent: dict[str, None] = {}  # executions that the controller sent to Gym in this life
        self.cleared: dict[str, int] = {}  # group -> when its rows were to be gone
        self.left: dict[str, int] = {}  # group -> the commit with or after which it is in no ledger
        self.dropped: list[str] = []  # since the last commit
        self.claimed: list[str] = []
        self.optimizer = EARLIER
        self.commits: list[tuple[int, int]] = []  # the optimizer was asked, the step was committed
        self.cuts: dict[tuple[int, int], int] = {}  # (step, sequence; 0: the trainer checkpoint) -> when
        self.chunks = ChunkRows(terms)

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.chunks.begin(durable)
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        event, now = record.event, record.sequence
        match event:
            case AttemptDispatched(key=key):
                self.sent[key] = None
            case RowStagedIssued(call=call):
                self.staged[call] = None
            case RowStagedDone(call=call):
                self.staged[call] = now
            case FinalizeDone(group=group) | StagingCleared(group=group):
                self.cleared[group] = now
            case GroupDropped(group=group):
                self.dropped.append(group)
            case GroupsClaimed(groups=groups):
                self.claimed.extend(groups)
            case OptimizerIssued():
                self.optimizer = now
            case StepCommitted():
                self.commits.append((self.optimizer, now))
                self.left.update(dict.fromkeys((*self.dropped, *self.claimed), now))
                self.dropped, self.claimed = [], []
            case CutTaken():
                self.cuts[event.step, event.sequence if event.role == "snapshot" else 0] = now
        if self.chunks.watched and type(event) in FOLLOWED:
            return [self.broken(text, record) for text in self.chunks.on(record)]
        return ()

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterator[Violation]:
        for payload in payloads(durable):
            cut = self.cuts.get((payload.step, payload.sequence))
            if cut is None:
                continue  # another life's
            keys = durable.remembered((self.invariant, payload.key()), partial(_staged_keys, payload))
            place = payload.step, payload.sequence
            left = [key for key in keys if self._is_left(key, cut, place)]
            if left:
                yield self.broken(f"{payload.source} holds {len(left)} staged rows that nothing needs, such as {left[0]}")

    def _is_left(self, key: str, cut: int, place: tuple[int, int]) -> bool:
        if self.chunks.watched and is_chunk(key):
            return self.chunks.is_left_behind(key, place)
        return self._is_left_behind(key, cut)

    def _is_left_behind(self, key: str, cut: int) -> bool:
        staged = self.staged.get(key, EARLIER)
        execution = key.partition("/")[0]
        if staged is None or (staged != EARLIER and execution not in self.sent):
            return False
        group = group_of_sample(sample_of_key(execution))
        cleared = self.cleared.get(group)
        if cleared is not None and staged < cleared < cut:
            return True
        left = self.left.get(group)
        return left is not None and any(max(staged, left) < asked and done < cut for asked, done in self.commits)


def _staged_keys(payload: Payload) -> tuple[str, ...]:
    """Keys of the saved staging rows; an unreadable file is I21's."""
    pairs = payload.read(STAGING)
    return tuple(str(pair[0]) for pair in pairs) if isinstance(pairs, list) else ()
