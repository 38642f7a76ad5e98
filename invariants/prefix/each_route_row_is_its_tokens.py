"""I54: which row belongs to which token. The engine is the witness: its digests go with each row's position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from invariants.durability.payload import CANONICAL, STAGING, OnDisk, Payload
from invariants.prefix.chunks import read_chunk
from invariants.prefix.routes import added, block_of, missing_rows, rows_of, torn_rows
from protocol.config import Level
from protocol.history import CallAsked, CallEnded, ChunkStaged, PrefixRestored, Record, RoutesAssembled, TokensGenerated
from protocol.identity import is_chunk
from protocol.judging import Terms, Violation

STAGED = ("answered", "terminal-prefix")


class EachRouteRowIsItsTokens(OnDisk):
    """With router replay a chunk holds exactly one route row for each of its tokens, and the first one those of the carry before
    them; a call's own row holds one for each token behind the boundary row of its parent's last one; a row is the sentinel only
    where its token was fed to nobody; and every other one is, at its place, what the engine routed.
    """

    invariant = "I54"
    needs = (ChunkStaged, CallEnded)
    sees = (CallAsked, PrefixRestored, RoutesAssembled, TokensGenerated)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.replay = terms.job.router_replay.enabled
        self.asked: dict[str, CallAsked] = {}
        self.misfits: dict[str, None] = {}  # calls of which it was said that they are staged without routes
        self.prefix: dict[str, str] = {}  # call -> digest of the rows that it was restored with
        self.routed: dict[str, str] = {}  # call -> digest of the rows that its engine made

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX and terms.job.router_replay.enabled

    def on(self, record: Record) -> Iterable[Violation]:
        return [self.broken(text, record) for text in self._wrong(record)]

    def _wrong(self, record: Record) -> Iterator[str]:
        event = record.event
        if isinstance(event, CallAsked):
            self.asked[event.call] = event
            for known in (self.misfits, self.prefix, self.routed):
                known.pop(event.call, None)
        elif isinstance(event, ChunkStaged):
            yield from self._chunk(event)
        elif isinstance(event, PrefixRestored):
            self.prefix[event.call] = event.routes
        elif isinstance(event, RoutesAssembled):
            if event.what == "terminal" and event.outcome != "whole":
                self.misfits[event.call] = None
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
