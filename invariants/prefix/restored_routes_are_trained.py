"""I55: the rows of a prefix are the same when it is restored, when its call is over, and when it is trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from invariants.durability.payload import STAGING, payloads
from invariants.ledger.attempts import is_another_point, restore_point
from invariants.prefix.chunks import read_chunk
from invariants.prefix.durable_prefixes import known_cuts
from invariants.prefix.routes import added, block_of, digest_of_rows, less, rows_in, rows_of
from protocol.config import Level
from protocol.history import (
    CallAsked,
    CallEnded,
    OptimizerApplied,
    PrefixRestored,
    Record,
    RestoreChosen,
    RoutesAssembled,
    TrainedRow,
)
from protocol.identity import is_chunk
from protocol.judging import Durable, Judge, RestorePoint, Terms, Violation

STAGED = ("answered", "terminal-prefix")


class RestoredRoutesAreTrained(Judge):
    """The route rows of a restored prefix are those of its chunks, they are the same in the row of the call that went on from it,
    and what is trained are the rows that each call was staged with, unless it is said that a call was staged without.

    A call's last token is routed by the next call of its chain, whose boundary row takes its place.
    """

    invariant = "I55"
    needs = (PrefixRestored, OptimizerApplied)
    sees = (CallAsked, CallEnded, RestoreChosen, RoutesAssembled)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.point = RestorePoint("", 0, 0, "")
        self.saved: dict[tuple[str, ...], str] = {}  # chunk keys -> digest of their real rows
        self.ends: dict[tuple[str, ...], str] = {}  # likewise, without the last token's: a call that is over has fed it to nobody
        self.staged: dict[str, tuple[str, str]] = {}  # call -> digests of its own tokens' rows and of its boundary row
        self.restored: dict[str, str] = {}
        self.misfits: dict[str, None] = {}

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX and terms.job.router_replay.enabled

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        for payload in payloads(durable):
            if payload.source != self.point.source:
                continue
            pairs = payload.read(STAGING)
            rows = {str(pair[0]): pair[1] for pair in pairs} if isinstance(pairs, list) else {}
            for _, cut, built in known_cuts(durable, payload):
                if not built.faults:
                    self.saved[cut.keys], self.ends[cut.keys] = _digests([rows[key] for key in cut.keys])
            for key, data in rows.items():
                if not is_chunk(key):
                    staged = durable.remembered(("routes", data), partial(_staged, data))
                    if staged is not None:
                        self.staged[key] = staged
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        return [self.broken(text, record) for text in self._wrong(record)]

    def _wrong(self, record: Record) -> Iterator[str]:
        event = record.event
        if isinstance(event, RestoreChosen):
            if is_another_point(event, self.point):
                self.saved, self.staged = {}, {}
        elif isinstance(event, CallAsked):
            self.restored.pop(event.call, None)
            self.misfits.pop(event.call, None)
        elif isinstance(event, PrefixRestored):
            self.restored[event.call] = event.routes
            right = (self.ends if event.terminal else self.saved).get(event.keys)
            if right is not None and event.routes != right:
                yield f"{event.call} goes on with route rows {event.routes[:8]}, its chunks hold {right[:8]}."
        elif isinstance(event, RoutesAssembled):
            if event.what == "terminal" and event.outcome != "whole":
                self.misfits[event.call] = None
        elif isinstance(event, CallEnded):
            yield from self._ended(event)
        elif isinstance(event, OptimizerApplied):
            for row in event.rows:
                yield from self._trained(row)

    def _ended(self, event: CallEnded) -> Iterator[str]:
        if event.outcome not in STAGED:
            return
        call, before = event.call, self.restored.get(event.call)
        if event.route_rows < 0:
            self.staged[call] = "", ""
            if before is not None and call not in self.misfits:
                yield f"{call} is staged without the route rows of its prefix, and nothing says why."
            return
        self.staged[call] = event.routed, event.boundary
        if before is not None and event.routes != before:
            yield f"{call} is staged with route rows {event.routes[:8]} of its prefix, it was restored with {before[:8]}."

    def _trained(self, row: TrainedRow) -> Iterator[str]:
        calls = [call for call, _, _ in row.calls]
        if not row.valid or any(call not in self.staged for call in calls):
            return
        for index, call in enumerate(calls):
            own, (following,) = self.staged[call][0], [self.staged[after][1] for after in calls[index + 1 : index + 2]] or [""]
            right = added((own, following))
            found = row.routes[index] if index < len(row.routes) else ""
            if added((found,)) != right:
                yield f"Row {row.sample} is trained with route rows {found[:8]} of {call}, it was staged with {right[:8]}."


def _digests(rows: list[bytes]) -> tuple[str, str]:
    """Of all real rows of a prefix, and of all but the last token's."""
    parts: list[str] = []
    last = ""
    for data in rows:
        chunk = read_chunk(data)
        routes = None if chunk is None else block_of(chunk)
        if chunk is None or not routes:
            continue
        carried = rows_in(chunk) - len(chunk.tokens)  # rows of the carry stand before those of the tokens
        place = chunk.previous_length if chunk.start == 0 else -1
        first = place if place >= 0 else chunk.previous_length + _carry(rows) + chunk.start - carried
        parts.append(digest_of_rows(routes, first))
        last = digest_of_rows(routes, first, rows_of(routes) - 1)
    whole = added(parts)
    return whole, less(whole, last)


def _carry(rows: list[bytes]) -> int:
    """Tokens that the call brought: the first chunk has a row for each of them."""
    first = read_chunk(rows[0])
    return 0 if first is None else max(rows_in(first) - len(first.tokens), 0)


def _staged(data: bytes) -> tuple[str, str] | None:
    """As ``CallEnded`` says it of a staged row on disk; None: not one."""
    try:
        row = msgspec.msgpack.decode(data)
    except msgspec.DecodeError:
        return None
    routes = (row.get("extras") or {}).get("routes")
    if not routes or rows_of(routes) < 0:
        return "", ""
    boundary, first = (1 if row["previous_length"] > 0 else 0), row["previous_length"]
    return digest_of_rows(routes, first - boundary, boundary), digest_of_rows(routes, first - boundary, 0, boundary)
