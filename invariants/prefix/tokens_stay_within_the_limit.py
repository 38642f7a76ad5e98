"""I44: a call has one limit, whoever generates its tokens, and every token of it is counted once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protocol.config import Level
from protocol.history import (
    CallAsked,
    CallEnded,
    CallFrozen,
    CutAcknowledged,
    EngineStarted,
    OptimizerApplied,
    PrefixRestored,
    Record,
    RowStagedDone,
    TokensGenerated,
)
from protocol.judging import Judge, Terms, Violation

ANSWERED = ("answered", "terminal-prefix", "capture-failed")
UNKNOWN = -1


class TokensStayWithinTheLimit(Judge):
    """A call generates no more tokens than its effective limit (its own, else the job's), the restored ones included; its cut
    carries that limit, its engine is given what is left of it, and its answer, its staged and its trained row count each of its
    tokens once.
    """

    invariant = "I44"
    needs = (PrefixRestored, CallEnded)
    sees = (CallAsked, CallFrozen, CutAcknowledged, EngineStarted, OptimizerApplied, RowStagedDone, TokensGenerated)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        default = terms.job.max_new_tokens
        self.default = UNKNOWN if default is None else default
        self.limits: dict[str, int] = {}  # call -> effective limit, if the request or the job says one
        self.brought: dict[str, int] = {}
        self.restored: dict[str, int] = {}
        self.generated: dict[str, int] = {}  # as the engine counts
        self.staged: dict[str, int] = {}  # tokens of the call's own row
        self.ended: dict[str, int] = {}

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX

    def limit(self, call: str) -> int:
        return self.limits.get(call, UNKNOWN)

    def on(self, record: Record) -> Iterable[Violation]:
        return [self.broken(text, record) for text in self._wrong(record)]

    def _wrong(self, record: Record) -> Iterator[str]:
        event = record.event
        if isinstance(event, CallAsked):
            self.limits[event.call] = event.limit if event.limit >= 0 else self.default
            self.brought[event.call] = event.carry
            for known in (self.restored, self.generated, self.staged):
                known.pop(event.call, None)  # the same call asked again is another one
        elif isinstance(event, TokensGenerated):
            self.generated[event.call] = event.count
            if 0 <= self.limit(event.call) < event.count:
                yield f"{event.call} has {event.count} tokens, its limit is {self.limit(event.call)}."
        elif isinstance(event, CallFrozen):
            yield from self._bounded(event.call, "is frozen", event.count, event.limit)
        elif isinstance(event, CutAcknowledged):
            if event.kind == "durable_prefix":
                yield from self._bounded(event.call, "is acknowledged", event.count, event.limit)
        elif isinstance(event, PrefixRestored):
            yield from self._restored(event)
        elif isinstance(event, EngineStarted):
            limit = self.limit(event.call)
            if limit != UNKNOWN and event.limit != limit - event.prefix:
                allowed = "without a limit" if event.limit < 0 else f"with {event.limit} tokens to go"
                yield f"The engine goes on with {event.call} {allowed}; of {limit} it has {event.prefix}."
        elif isinstance(event, RowStagedDone):
            self.staged[event.call] = event.tokens
        elif isinstance(event, CallEnded):
            yield from self._ended(event)
        elif isinstance(event, OptimizerApplied):
            for row in event.rows:
                for (call, _, _), (_, generated) in zip(row.calls, row.spans, strict=False):
                    if generated != self.ended.get(call, generated):
                        yield f"Row {row.sample} counts {generated} tokens of {call}, which generated {self.ended[call]}."

    def _bounded(self, call: str, what: str, count: int, limit: int) -> Iterator[str]:
        own = self.limit(call)
        if own not in (UNKNOWN, limit):
            yield f"{call} {what} with a limit of {limit}, it is {own}."
        if count > limit >= 0:
            yield f"{call} {what} with {count} tokens, its limit is {limit}."

    def _restored(self, event: PrefixRestored) -> Iterator[str]:
        call, limit = event.call, self.limit(event.call)
        self.restored[call] = event.count
        if event.remaining < 0 or (limit != UNKNOWN and event.remaining != limit - event.count):
            yield f"{call} goes on with {event.remaining} tokens to go; of {limit} it has {event.count}."
        if event.remaining == 0 and not event.terminal:
            yield f"{call} goes on, though none of its {event.count} tokens' limit is left."

    def _ended(self, event: CallEnded) -> Iterator[str]:
        if event.outcome not in ANSWERED:
            return
        call, limit, generated = event.call, self.limit(event.call), event.generated
        self.ended[call] = generated
        if limit not in (UNKNOWN, event.limit):
            yield f"{call} ended with a limit of {event.limit}, it is {limit}."
        if generated > event.limit >= 0:
            yield f"{call} ended with {generated} tokens, its limit is {event.limit}."
        if event.reported != generated:
            yield f"The answer of {call} reports {event.reported} tokens, it has {generated}."
        # A terminal prefix asks no engine: what was restored is all.
        made = self.restored.get(call, 0) if event.outcome == "terminal-prefix" else self.generated.get(call, generated)
        if generated != made:
            yield f"{call} ended with {generated} tokens, {made} were restored and generated."
        if event.prefix > generated:
            yield f"{call} ended with {generated} tokens, {event.prefix} of them restored."
        if event.finish == "length" and generated < event.limit:
            yield f"{call} ended at its limit of {event.limit} with {generated} tokens."
        brought, stored = self.brought.get(call, -1), self.staged.get(call, -1)
        if brought >= 0 and stored >= 0 and event.outcome != "capture-failed" and stored != brought + generated:
            yield f"The row of {call} holds {stored} tokens, it brought {brought} and has {generated}."
