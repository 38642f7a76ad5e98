"""I56: an engine's loop is handed one short function for many calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from protocol.config import Level
from protocol.history import (
    CallAsked,
    CallFrozen,
    CutAcknowledged,
    CutAsked,
    CutRolledBack,
    HandoffDone,
    ReceiptSent,
    Record,
    RoutesAssembled,
    TokensGenerated,
)
from protocol.judging import Judge, Terms, Violation

ENGINE = "engine"
GROUP_MAX = 64
PER_CALL, NEW_CHUNKS = "per_call", "new_chunks"
SLACK_S = 1e-6


@dataclass
class Reading:
    """Of one worker: calls of the inventories of one checkpoint there, and the handoffs since the first was asked for."""

    checkpoint: str = ""
    calls: dict[str, None] = field(default_factory=dict)
    asked: int = 0
    answered: int = 0
    handoffs: int = 0


class RouteReadsAreGrouped(Judge):
    """Routes are read from an engine's loop only with router replay and for an inventory that is being cut, in groups of at most
    min(batch size, 64) calls and the token budget, in no more handoffs than the packing of an inventory needs; the loop copies
    lists and turns no row into bytes; and each row is turned into bytes once for a cut.
    """

    invariant = "I56"
    needs = (CutAsked, CutAcknowledged)
    sees = (CallAsked, CallFrozen, CutRolledBack, HandoffDone, ReceiptSent, RoutesAssembled, TokensGenerated)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        job = terms.job
        self.replay = job.router_replay.enabled
        batch = min(job.token_capture.generation_prefix_batch_size, GROUP_MAX)
        self.calls_max = 1 if job.router_replay.read_mode == PER_CALL else batch
        self.positions_max = job.token_capture.generation_prefix_token_budget
        self.limit = job.max_new_tokens or 0
        self.read = False
        self.asked: dict[str, CallAsked] = {}
        self.tokens: dict[str, int] = {}  # of a call, as far as it is known
        self.workers: dict[str, Reading] = {}
        self.open: dict[str, dict[tuple[str, str], None]] = {}  # worker -> inventories that it has not answered
        self.whole = job.router_replay.read_mode != NEW_CHUNKS
        self.frozen: dict[str, dict[str, int]] = {}  # worker -> frozen calls whose rows are still to be read -> positions
        self.over: dict[str, float] = {}  # worker -> when its last receipt was sent

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX

    def met(self) -> bool:
        return self.read or not self.replay

    def on(self, record: Record) -> Iterable[Violation]:
        return [self.broken(text, record) for text in self._wrong(record)]

    def _wrong(self, record: Record) -> Iterator[str]:
        event = record.event
        if isinstance(event, CallAsked):
            self.asked[event.call] = event
            self.tokens.pop(event.call, None)
        elif isinstance(event, TokensGenerated):
            self.tokens[event.call] = max(event.count, self.tokens.get(event.call, 0))
        elif isinstance(event, CallFrozen):
            self.tokens[event.call] = max(event.published[0], self.tokens.get(event.call, 0))
            if not event.finish and event.count > event.staged:
                self.frozen.setdefault(record.process, {})[event.call] = self._positions(event.call, event.count)
        elif isinstance(event, CutRolledBack):
            self.frozen.get(record.process, {}).pop(event.call, None)
        elif isinstance(event, CutAsked):
            reading = self.workers.get(event.worker)
            if reading is None or reading.checkpoint != event.checkpoint or reading.answered == reading.asked:
                reading = self.workers[event.worker] = Reading(event.checkpoint)
            self.open.setdefault(event.worker, {})[event.checkpoint, event.inventory] = None
            self.frozen.pop(event.worker, None)
            reading.asked += 1
            reading.calls.update(dict.fromkeys(event.calls))
        elif isinstance(event, ReceiptSent):
            self.open.get(record.process, {}).pop((event.checkpoint, event.inventory), None)
            self.over[record.process] = record.time
            yield from self._sent(event, record.process)
        elif isinstance(event, HandoffDone):
            yield from self._handed(event, record)
        elif isinstance(event, RoutesAssembled) and event.materialised > event.available:
            yield (
                f"{event.materialised} route rows of {event.call} were turned into bytes ({event.what}); its engine has "
                f"{event.available}."
            )

    def _handed(self, event: HandoffDone, record: Record) -> Iterator[str]:
        worker = record.process
        if event.loop != ENGINE:
            return
        self.read = True
        if not self.replay:
            yield f"{worker} hands {event.items} calls to its engine's loop without router replay."
        if event.rows > 0:
            yield f"{event.rows} route rows are turned into bytes on {worker}'s engine loop."
        if event.items > self.calls_max:
            yield f"{event.items} calls are handed to {worker}'s engine loop at once; {self.calls_max} are allowed."
        if event.positions > self.positions_max and event.items > 1:
            yield f"{event.positions} token positions are handed over at once; {self.positions_max} are allowed."
        asked_at = record.time - event.waited_s - event.held_s  # a function whose caller has left comes to its end
        if not self.open.get(worker) and asked_at > self.over.get(worker, -1.0) + SLACK_S + self.terms.slack_s:
            yield f"{event.items} calls are handed to {worker}'s engine loop, and no inventory is being cut there."
        if worker in self.workers:
            self.workers[worker].handoffs += 1
        yield from self._unsaid(event, worker)

    def _unsaid(self, event: HandoffDone, worker: str) -> Iterator[str]:
        """Calls are read in the order in which they were frozen, all their rows: so much is handed over, whatever is said."""
        frozen = self.frozen.get(worker, {})
        calls = list(frozen)[: event.items]
        stand_for = sum(frozen.pop(call) for call in calls)
        if len(self.open.get(worker, {})) == 1 and len(calls) == event.items and self.whole and event.positions < stand_for:
            yield f"{event.positions} token positions are said to be handed over; they are {stand_for}, of {event.items} calls."

    def _sent(self, event: ReceiptSent, worker: str) -> Iterator[str]:
        reading = self.workers.get(worker)
        if reading is None or event.repeated or event.checkpoint != reading.checkpoint:
            return
        reading.answered += 1
        if reading.answered < reading.asked:
            return
        calls = len(reading.calls)
        positions = sum(map(self._positions, reading.calls))
        # Next-fit: a group is closed because it is full, or because it and the one after it are over the budget together.
        packed = calls // self.calls_max + 2 * positions // self.positions_max + reading.asked
        most = calls if self.calls_max == 1 else packed
        if reading.handoffs > most:
            yield f"{reading.handoffs} handoffs of {worker}'s engine loop for {calls} calls of an inventory; {most} are enough."

    def _positions(self, call: str, tokens: int | None = None) -> int:
        """Rows of a call of so many tokens (of as many as are known of it): of its parent's last one and its carry, too."""
        asked = self.asked.get(call)
        before = 0 if asked is None else asked.carry + (1 if asked.previous > 0 else 0)
        return before + (self.tokens.get(call, self.limit) if tokens is None else tokens)
