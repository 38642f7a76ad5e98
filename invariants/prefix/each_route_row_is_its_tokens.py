"""I54: which row belongs to which token. The engine is the witness: its digests go with each row's position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from invariants.durability.payload import CANONICAL, STAGING, OnDisk, Payload
from invariants.prefix.chunks import read_chunk
from invariants.prefix.routes import added, block_of, missing_rows, rows_of, torn_rows
from protocol.config import Level
from protocol.history import (
    CallAsked,
    CallEnded,
    CallFrozen,
    ChunkStaged,
    EngineFound,
    EngineStarted,
    PrefixRestored,
    Record,
    RoutesAssembled,
    TokensGenerated,
)
from protocol.identity import is_chunk
from protocol.judging import Terms, Violation

STAGED = ("answered", "terminal-prefix")
NO_SHAPE = (0, 0)


class EachRouteRowIsItsTokens(OnDisk):
    """With router replay a chunk holds exactly one route row for each of its tokens, and the first one those of the carry before
    them; a call's own row holds one for each token behind the boundary row of its parent's last one; a row is the sentinel only
    where its token was fed to nobody; every other one is, at its place, what the engine routed; and none is done without for
    any other reason than that the engine does not have it, or that nobody can read it.
    """

    invariant = "I54"
    needs = (ChunkStaged, CallEnded)
    sees = (CallAsked, CallFrozen, EngineFound, EngineStarted, PrefixRestored, RoutesAssembled, TokensGenerated)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.replay = terms.job.router_replay.enabled
        self.asked: dict[str, CallAsked] = {}
        self.misfits: dict[str, None] = {}  # calls of which it was said that they are staged without routes
        self.prefix: dict[str, str] = {}  # call -> digest of the rows that it was restored with
        self.routed: dict[str, str] = {}  # call -> digest of the rows that its engine made
        self.frozen: dict[str, CallFrozen] = {}
        self.shapes: dict[str, tuple[int, int]] = {}  # call -> layers and top_k of the rows that it was restored with
        self.restored: dict[str, int] = {}  # call -> tokens that it was restored with
        self.chunks: dict[str, dict[int, ChunkStaged]] = {}  # call -> its chunks by their first token
        self.layouts: dict[str, EngineFound] = {}  # by worker
        self.short: dict[str, RoutesAssembled] = {}  # calls whose own row is staged without: rows are said to be missing

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX and terms.job.router_replay.enabled

    def on(self, record: Record) -> Iterable[Violation]:
        return [self.broken(text, record) for text in self._wrong(record)]

    def _wrong(self, record: Record) -> Iterator[str]:
        event = record.event
        if isinstance(event, CallAsked):
            self.asked[event.call] = event
            for known in (self.misfits, self.prefix, self.routed, self.frozen, self.restored, self.chunks, self.short):
                known.pop(event.call, None)
            self.shapes.pop(event.call, None)
        elif isinstance(event, EngineFound):
            self.layouts[record.process] = event
        elif isinstance(event, CallFrozen):
            self.frozen[event.call] = event
        elif isinstance(event, ChunkStaged):
            self.chunks.setdefault(event.call, {})[event.start] = event
            yield from self._chunk(event)
        elif isinstance(event, PrefixRestored):
            self.prefix[event.call] = event.routes
            self.restored[event.call] = event.count
            self.shapes[event.call] = event.shape
        elif isinstance(event, EngineStarted):
            if event.routes and self.prefix.get(event.call, event.routes) != event.routes:
                yield f"{event.call} goes on with other route rows, or at other places, than its engine made for its prefix."
        elif isinstance(event, RoutesAssembled):
            yield from self._assembled(event, record.process)
        elif isinstance(event, TokensGenerated):
            if event.routes:
                self.routed[event.call] = event.routes
        elif isinstance(event, CallEnded) and event.outcome in STAGED:
            yield from self._ended(event)

    def _chunk(self, event: ChunkStaged) -> Iterator[str]:
        asked = self.asked.get(event.call)
        tokens = event.end - event.start
        carried = asked.carry if asked is not None and event.start == 0 else 0
        if event.route_rows != tokens + carried or event.carried != carried:
            yield (
                f"{event.key} holds {event.route_rows} route rows ({event.carried} of the carry) for {tokens} tokens and a carry "
                f"of {carried}."
            )

    def _ended(self, event: CallEnded) -> Iterator[str]:
        call, asked = event.call, self.asked.get(event.call)
        if event.route_rows < 0:
            if call not in self.misfits:
                yield f"{call} is staged without routes, and nothing says why."
            elif call in self.short:
                yield from self._short(self.short[call], event.generated - 1)
            return
        if asked is None:
            return
        boundary = 1 if asked.previous > 0 else 0
        rows = boundary + asked.carry + event.generated
        if event.route_rows != rows:
            yield f"{call} is staged with {event.route_rows} route rows; its {event.generated} tokens need {rows}."
        if event.outcome == "terminal-prefix":
            right = self.prefix.get(call)
        elif call in self.routed:
            right = added((self.prefix.get(call, ""), self.routed[call]))
        else:
            right = None
        if right is not None and added((event.routed, event.boundary)) != right:
            yield f"{call} is staged with other route rows, or at other places, than its engine and its prefix have."
        cut = self._cut_whole(call, event.generated)
        if cut is not None and event.routed != cut:
            yield f"{call} was cut whole with other route rows, or at other places, than it is staged with."

    def _cut_whole(self, call: str, generated: int) -> str | None:
        """Digest of all rows that its prefix and its chunks have; None if they are not of all its tokens."""
        parts, end = [self.prefix.get(call, "")], self.restored.get(call, 0)
        chunks = self.chunks.get(call, {})
        while end in chunks and end < generated:
            parts.append(chunks[end].routes)
            end = chunks[end].end
        return added(parts) if chunks and end == generated else None

    def _assembled(self, event: RoutesAssembled, worker: str) -> Iterator[str]:
        call = event.call
        if event.what == "terminal" and event.outcome != "whole":
            self.misfits[call] = None
        if event.outcome == "whole":
            return
        if event.outcome == "misfit":
            found = self.layouts.get(worker)
            if found is None or self.shapes.get(call, NO_SHAPE) in (NO_SHAPE, (found.layers, found.top_k)):
                yield f"the route rows of {call} are said not to fit ({event.reason}): no other shape stands before them."
        elif not self.terms.torn_routes:
            why = f"{event.what}, {event.outcome}: {event.reason}"
            yield f"{call} is to do without its route rows ({why}); its engine has them all."
        elif event.outcome == "short" and event.what == "terminal":
            self.short[call] = event
        elif event.outcome == "short" and call in self.frozen:
            frozen = self.frozen[call]
            yield from self._short(event, frozen.count - bool(frozen.finish))

    def _short(self, event: RoutesAssembled, fed: int) -> Iterator[str]:
        """``fed`` tokens of those that it has generated have a row: are they, and those before them, really missing?"""
        asked = self.asked.get(event.call)
        if asked is not None and event.available >= (1 if asked.previous > 0 else 0) + asked.carry + fed:
            found = f"its engine has {event.available}, which is enough"
            yield f"{event.call} is to do without its route rows ({event.reason}); {found}."

    # --- what lies on disk

    def examine(self, payload: Payload) -> Iterator[str]:
        replay = payload.job(self.terms.job).router_replay.enabled
        for key, data in payload.read(STAGING) or ():
            yield from _chunk_on_disk(key, data, replay) if is_chunk(key) else _row_on_disk(key, data)
        for key, data in payload.read(CANONICAL) or ():
            yield from _canonical_on_disk(key, data)


def _chunk_on_disk(key: str, data: bytes, replay: bool) -> Iterator[str]:
    row = read_chunk(data)
    routes = None if row is None else block_of(row)
    if row is None or not routes:
        if row is not None and replay:
            yield f"{key} holds no route rows"
        return
    count, missing, torn = rows_of(routes), missing_rows(routes), torn_rows(routes)
    if count < len(row.tokens) or (row.start > 0) is not (count == len(row.tokens)):  # the first has rows of the carry, too
        yield f"{key} holds {count} route rows for {len(row.tokens)} tokens"
    if missing != ([count - 1] if row.finish else []):
        yield f"{key} holds the sentinel in rows {missing[:4]} of {count}; the call has {row.finish or 'not'} ended with it"
    if torn:
        yield f"{key} holds rows {torn[:4]} that name experts in some places only"


def _plain(data: bytes) -> Any:
    try:
        row = msgspec.msgpack.decode(data)
    except msgspec.DecodeError:
        return {}
    return row if isinstance(row, dict) else {}


def _row_on_disk(key: str, data: bytes) -> Iterator[str]:
    row = _plain(data)
    routes = (row.get("extras") or {}).get("routes")
    if not routes:
        return
    boundary = 1 if row["previous_length"] > 0 else 0
    count, missing, torn = rows_of(routes), missing_rows(routes), torn_rows(routes)
    if count != boundary + len(row["tokens"]):
        yield f"{key} holds {count} route rows for {len(row['tokens'])} tokens"
    allowed = [0, count - 1] if boundary else [count - 1]
    odd = [index for index in missing if index not in allowed]
    if odd or count - 1 not in missing:
        yield f"{key} holds the sentinel in rows {missing[:4]} of {count}; only its last token was fed to nobody"
    if torn:
        yield f"{key} holds rows {torn[:4]} that name experts in some places only"


def _canonical_on_disk(key: str, data: bytes) -> Iterator[str]:
    row = _plain(data)
    routes = row.get("routes")
    if routes and rows_of(routes) != len(row["tokens"]):
        yield f"the trained row {key} holds {rows_of(routes)} route rows for {len(row['tokens'])} tokens"
