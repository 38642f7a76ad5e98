"""I47: whoever fails has a reason of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from invariants.prefix.asked import forbidden
from protocol.config import Level
from protocol.history import (
    CallAsked,
    CallBegun,
    CallEnded,
    ChunkIssued,
    ChunksDiscarded,
    ChunksLeft,
    CutAcknowledged,
    CutAnswered,
    CutAsked,
    EngineAborted,
    EngineFound,
    EngineStarted,
    FaultInjected,
    GateClosed,
    GateCloseIgnored,
    MediaCompared,
    ProcessKilled,
    ProcessStalled,
    ReceiptSent,
    Record,
    RoutesAssembled,
    RowStagedDone,
    RowStagedIssued,
    TokensGenerated,
)
from protocol.judging import Judge, Terms, Violation

FAILURE, UNANSWERED = "durable_failure", "unanswered"
# What only the core can see of a call: that it has no token yet, that its tokens end inside a character, that it lost an output.
UNSEEN = ("token", "character", "dropped")
SLACK_S = 1e-6


@dataclass
class Inventory:
    """``began``: its gate is closed. ``failed``: calls that were acknowledged as failures, with why they might have been."""

    holder: str
    worker: str
    epoch: int
    calls: dict[str, None]
    timeout_s: float
    began: float = -1.0
    ignored: bool = False
    failed: dict[str, tuple[str, bool, Record]] = field(default_factory=dict)
    answered: bool = False


class OneCallFailsAlone(Judge):
    """Each call of a receipt that is acknowledged as a failure has a cause of its own: what it asks for forbids a cut, it does
    not run there any more, its own row could not be put even alone, its own routes do not fit, nobody can read the media that
    it rests on, or the deadline had passed; and an inventory goes unanswered only if its worker or its connection failed.
    """

    invariant = "I47"
    needs = (CutAsked, CutAcknowledged, ReceiptSent)
    sees = (CallAsked, CallBegun, CallEnded, ChunkIssued, ChunksDiscarded, ChunksLeft, CutAnswered, EngineAborted, EngineFound,
            EngineStarted, FaultInjected, GateClosed, GateCloseIgnored, MediaCompared, ProcessKilled, ProcessStalled,
            RoutesAssembled, RowStagedDone, RowStagedIssued, TokensGenerated)  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.engines: dict[str, EngineFound] = {}
        self.asked: dict[str, CallAsked] = {}
        self.running: dict[str, str] = {}  # call -> worker
        self.published: dict[str, None] = {}  # calls of which a token is known
        self.stopped: dict[str, None] = {}  # the engine gave them up, or their own row is being staged
        self.open: dict[tuple[str, str, str], Inventory] = {}  # worker, checkpoint, inventory digest
        self.tries: dict[str, list[int]] = {}  # call -> rows of each put of its row in this cut
        self.unread: dict[str, None] = {}  # calls that rest on media which nobody can read
        self.unput: dict[str, None] = {}  # calls whose newest put has failed, and was taken back
        self.misfits: dict[str, None] = {}  # calls whose routes did not fit in this cut
        self.disturbed = False  # a process or a connection has failed in this life

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX

    def on(self, record: Record) -> Iterable[Violation]:
        handle = getattr(self, _HANDLERS[type(record.event)])
        found: Iterable[Violation] | None = handle(record.event, record)
        return found or ()

    # --- calls

    def _found(self, event: EngineFound, record: Record) -> None:
        self.engines[record.process] = event

    def _asked(self, event: CallAsked, record: Record) -> None:
        self.asked[event.call] = event

    def _begun(self, event: CallBegun, record: Record) -> None:
        self.running[event.call] = record.process
        self.published.pop(event.call, None)
        self.stopped.pop(event.call, None)
        self.unread.pop(event.call, None)

    def _compared(self, event: MediaCompared, record: Record) -> None:
        if (event.path, event.outcome) == ("parent", "unreadable"):
            self.unread[event.call] = None

    def _ended(self, event: CallEnded, record: Record) -> None:
        self.running.pop(event.call, None)

    def _generated(self, event: TokensGenerated, record: Record) -> None:
        if event.count > 0:
            self.published[event.call] = None

    def _started(self, event: EngineStarted, record: Record) -> None:
        if event.prefix:
            self.published[event.call] = None

    def _stopped(self, event: EngineAborted | RowStagedIssued | RowStagedDone, record: Record) -> None:
        self.stopped[event.call] = None

    # --- the cut

    def _cut(self, event: CutAsked, record: Record) -> None:
        name = (event.worker, event.checkpoint, event.inventory)
        self.open[name] = Inventory(
            record.process, event.worker, event.epoch, dict.fromkeys(event.calls), event.timeout_s
        )  # fmt: skip
        for call in event.calls:
            self.tries.pop(call, None)
            self.misfits.pop(call, None)

    def _closed(self, event: GateClosed, record: Record) -> None:
        for inventory in self.open.values():
            if (inventory.worker, inventory.holder, inventory.epoch) == (record.process, event.holder, event.epoch):
                inventory.began = record.time

    def _ignored(self, event: GateCloseIgnored, record: Record) -> None:
        for inventory in self.open.values():
            if (inventory.worker, inventory.holder, inventory.epoch) == (record.process, event.holder, event.epoch):
                inventory.ignored = True

    def _issued(self, event: ChunkIssued, record: Record) -> None:
        self.tries.setdefault(event.call, []).append(event.rows)
        self.unput.pop(event.call, None)

    def _deleted(self, event: ChunksDiscarded | ChunksLeft, record: Record) -> None:
        if event.why == "put-failed":
            self.unput[event.call] = None

    def _routes(self, event: RoutesAssembled, record: Record) -> None:
        if event.outcome != "whole":
            self.misfits[event.call] = None

    def _acknowledged(self, event: CutAcknowledged, record: Record) -> None:
        if event.kind != FAILURE:
            return
        for (worker, checkpoint, _), inventory in self.open.items():
            if (worker, checkpoint) == (record.process, event.checkpoint) and event.call in inventory.calls:
                cause = next(self._causes(event, record, inventory), "")
                inventory.failed[event.call] = event.reason, bool(cause), record

    def _causes(self, event: CutAcknowledged, record: Record, inventory: Inventory) -> Iterator[str]:
        call = event.call
        if inventory.ignored:
            yield "its driver had given up"
        if call in self.asked:
            yield from forbidden(self.asked[call], self.engines.get(record.process), self.terms.job.max_new_tokens)
        if self.running.get(call) != record.process or call in self.stopped:
            yield "it does not run there any more"
        slack_s = SLACK_S + self.terms.slack_s
        if inventory.timeout_s > 0 and inventory.began >= 0 and record.time >= inventory.began + inventory.timeout_s - slack_s:
            yield "the deadline had passed"
        tries = self.tries.get(call, ())
        if len(tries) > 1 and tries[-1] == 1 and call in self.unput:  # with the others of its batch, and then alone
            yield "its row could not be put"
        if tries and inventory.timeout_s > 0 and inventory.began >= 0:
            # A put has half of the time that is left: who has used it up may not get a second one.
            if record.time >= inventory.began + inventory.timeout_s / 2 - slack_s:
                yield "there was no time for a second put"
        if call in self.misfits:
            yield "its routes do not fit"
        if call in self.unread:
            yield "the media that it rests on cannot be read"
        if any(word in event.reason for word in UNSEEN) and ("token" not in event.reason or call not in self.published):
            yield event.reason

    def _sent(self, event: ReceiptSent, record: Record) -> list[Violation]:
        inventory = self.open.get((record.process, event.checkpoint, event.inventory))
        if inventory is None:
            return []
        inventory.answered = True
        failed, inventory.failed = inventory.failed, {}
        return [
            self.broken(f"{call} is acknowledged as a failure ({reason}), and nothing of its own explains it.", at)
            for call, (reason, caused, at) in failed.items()
            if not caused
        ]

    def _told(self, event: CutAnswered, record: Record) -> list[Violation]:
        if UNANSWERED not in event.kinds or self.disturbed:
            return []
        for (worker, checkpoint, _), inventory in self.open.items():
            if (worker, checkpoint, inventory.holder) == (event.worker, event.checkpoint, record.process):
                what = "a receipt was sent" if inventory.answered else "it sent no receipt"
                text = f"{event.kinds.count(UNANSWERED)} calls at {worker} are unanswered for {record.process}, though {what}"
                return [self.broken(f"{text} and nothing has failed in this life.", record)]
        return []

    def _disturbed(self, event: FaultInjected | ProcessKilled | ProcessStalled, record: Record) -> None:
        self.disturbed = True


_HANDLERS = {
    EngineFound: "_found",
    CallAsked: "_asked",
    CallBegun: "_begun",
    CallEnded: "_ended",
    TokensGenerated: "_generated",
    EngineStarted: "_started",
    MediaCompared: "_compared",
    EngineAborted: "_stopped",
    RowStagedIssued: "_stopped",
    RowStagedDone: "_stopped",
    CutAsked: "_cut",
    GateClosed: "_closed",
    GateCloseIgnored: "_ignored",
    ChunkIssued: "_issued",
    ChunksDiscarded: "_deleted",
    ChunksLeft: "_deleted",
    RoutesAssembled: "_routes",
    CutAcknowledged: "_acknowledged",
    ReceiptSent: "_sent",
    CutAnswered: "_told",
    FaultInjected: "_disturbed",
    ProcessKilled: "_disturbed",
    ProcessStalled: "_disturbed",
}
