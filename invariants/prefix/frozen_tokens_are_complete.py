"""I46: the engine publishes a token, its logprob and its route row at moments of their own; a cut takes what has all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from invariants.durability.payload import STAGING, OnDisk, Payload
from invariants.prefix.chunks import read_chunk
from invariants.prefix.routes import rows_in
from protocol.config import Level
from protocol.history import CallBegun, CallFrozen, ChunkStaged, Record, TokensGenerated
from protocol.identity import is_chunk
from protocol.judging import Terms, Violation


class FrozenTokensAreComplete(OnDisk):
    """Each token of a cut has a finite logprob and, with router replay, a route row, which only the last token of a call that
    has finished may lack; what is frozen is what is staged, and a finished call is frozen whole.
    """

    invariant = "I46"
    needs = (CallFrozen, ChunkStaged)
    sees = (CallBegun, TokensGenerated)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.replay = terms.job.router_replay.enabled
        self.frozen: dict[str, CallFrozen] = {}
        self.whole: dict[str, int] = {}  # call that has finished -> its tokens

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, TokensGenerated):
            if event.content:  # the last one
                self.whole[event.call] = event.count
            return ()
        if isinstance(event, CallBegun):
            self.whole.pop(event.call, None)
            return ()
        if isinstance(event, CallFrozen):
            self.frozen[event.call] = event
            return [self.broken(text, record) for text in self._incomplete(event)]
        if isinstance(event, ChunkStaged):
            return [self.broken(text, record) for text in self._staged(event)]
        return ()

    def _incomplete(self, event: CallFrozen) -> Iterator[str]:
        tokens, logprobs, routes = event.published
        call, count = event.call, event.count
        if count > min(tokens, logprobs):
            yield f"{call} is frozen at {count} tokens; it has {tokens} and {logprobs} logprobs."
        if self.replay and count > routes + (1 if event.finish else 0):
            yield f"{call} is frozen at {count} tokens; it has {routes} route rows."
        if not event.finish and self.whole.get(call) == count:
            yield f"{call} has finished with {count} tokens, and its freeze does not say so."
        if event.finish and count != tokens:
            yield f"{call} has finished with {tokens} tokens, and is frozen at {count}."
        if not 0 <= event.inherited <= event.staged <= count or count == 0:
            yield f"{call} is frozen at {count} tokens; {event.staged} are staged, {event.inherited} restored."

    def _staged(self, event: ChunkStaged) -> Iterator[str]:
        frozen = self.frozen.get(event.call)
        if frozen is not None and (event.start, event.end) != (frozen.staged, frozen.count):
            yield (
                f"{event.key} holds tokens {event.start} to {event.end}; {event.call} is frozen at {frozen.count}, with "
                f"{frozen.staged} staged."
            )
        if (event.route_rows >= 0) != self.replay:
            yield f"{event.key} holds {event.route_rows if event.route_rows >= 0 else 'no'} route rows."

    def examine(self, payload: Payload) -> Iterator[str]:
        replay = payload.job(self.terms.job).router_replay.enabled
        for key, data in payload.read(STAGING) or ():
            row = read_chunk(data) if is_chunk(key) else None
            if row is None:
                continue
            whole = [value for value in row.logprobs if math.isfinite(value)]
            if not len(row.tokens) == len(row.logprobs) == len(whole):
                yield f"{key} holds {len(row.tokens)} tokens and {len(whole)} finite logprobs"
            routes = rows_in(row)
            if replay and routes < len(row.tokens):
                yield f"{key} holds {len(row.tokens)} tokens and {max(routes, 0)} route rows"
