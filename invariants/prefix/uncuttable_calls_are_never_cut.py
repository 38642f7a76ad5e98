"""I50: the judge reads what a call asked for, never what the core made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from invariants.prefix.asked import forbidden
from protocol.config import Level
from protocol.history import (
    CallAsked,
    CallFrozen,
    CutAcknowledged,
    CutAsked,
    EngineFound,
    EngineStarted,
    GateClosed,
    PrefixRestored,
    ProcessKilled,
    Record,
)
from protocol.judging import Judge, Terms, Violation

PREFIX = "durable_prefix"


class UncuttableCallsAreNeverCut(Judge):
    """A call with stop strings, bad words, a penalty, a grammar, no output limit, or draws of its own seed that its engine does
    not key by position, one that has no token, and one whose tokens end inside a character, is neither frozen nor acknowledged
    as cut, and no call is cut after its control call's deadline.
    """

    invariant = "I50"
    needs = (CallAsked, CutAcknowledged)
    sees = (CallFrozen, CutAsked, EngineFound, EngineStarted, GateClosed, PrefixRestored, ProcessKilled)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.engines: dict[str, EngineFound] = {}  # worker -> what its engine can do
        self.reasons: dict[str, tuple[str, ...]] = {}  # call -> why it may not be cut
        self.timeouts: dict[tuple[str, str, int], float] = {}  # worker, checkpoint, epoch -> what it has been given
        self.until: dict[tuple[str, str], float] = {}  # worker, checkpoint -> when the last of its inventories is late

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX

    def on(self, record: Record) -> Iterable[Violation]:
        return [self.broken(text, record) for text in self._wrong(record)]

    def _wrong(self, record: Record) -> Iterator[str]:
        event = record.event
        if isinstance(event, EngineFound):
            self.engines[record.process] = event
        elif isinstance(event, CallAsked):
            engine = self.engines.get(record.process)
            self.reasons[event.call] = tuple(forbidden(event, engine, self.terms.job.max_new_tokens))
        elif isinstance(event, CallFrozen):
            yield from self._cut(event.call, "is frozen", event.count)
            yield from self._late(event.call, event.checkpoint, record)
        elif isinstance(event, CutAcknowledged):
            if event.kind == PREFIX:
                yield from self._cut(event.call, "is acknowledged as cut", event.count)
        elif isinstance(event, PrefixRestored):
            yield from self._cut(event.call, "goes on from a cut", event.count)
        elif isinstance(event, EngineStarted):
            if event.prefix and event.inside:
                yield f"{event.call} was cut at {event.prefix} tokens, inside a character."
        elif isinstance(event, CutAsked):
            self.timeouts[event.worker, event.checkpoint, event.epoch] = event.timeout_s
        elif isinstance(event, GateClosed):
            given = self.timeouts.get((record.process, event.checkpoint, event.epoch), 0.0)
            if given > 0:
                at = record.process, event.checkpoint
                self.until[at] = max(self.until.get(at, 0.0), record.time + given)
        elif isinstance(event, ProcessKilled):
            self.engines.pop(event.process, None)

    def _cut(self, call: str, what: str, count: int) -> Iterator[str]:
        reasons = self.reasons.get(call, ())
        if reasons:
            yield f"{call} {what}; it has {' and '.join(reasons)}."
        if count <= 0:
            yield f"{call} {what} without a token."

    def _late(self, call: str, checkpoint: str, record: Record) -> Iterator[str]:
        until = self.until.get((record.process, checkpoint))
        if until is not None and record.time > until + self.terms.slack_s:
            yield f"{call} is frozen {record.time - until:.3f} s after the deadline of its cut."
