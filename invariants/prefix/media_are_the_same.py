"""I58: a call goes on only with the media that its prefix was generated from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from invariants.durability.payload import STAGING, payloads
from invariants.ledger.attempts import is_another_point, restore_point
from invariants.prefix.durable_prefixes import known_cuts
from protocol.config import Level
from protocol.history import (
    CallAsked,
    CallEnded,
    MediaAdmitted,
    MediaCompared,
    OptimizerApplied,
    PrefixFellBack,
    PrefixRestored,
    Record,
    RestoreChosen,
)
from protocol.identity import is_chunk
from protocol.judging import Durable, Judge, RestorePoint, Terms, Violation

KINDS = ("image", "video")
WIDTHS = ("uint8", "float16", "bfloat16", "int32", "float32", "int64")
CHANGED, VANISHED = "retained_media_changed", "media_source_vanished"
OVER = ("answered", "terminal-prefix")


def media_digest(items: Sequence[Any]) -> str:
    """SHA-256 hex of media items as they lie on disk; '' for none."""
    return hashlib.sha256(b"media\x01" + msgspec.msgpack.encode(list(items))).hexdigest() if items else ""


def is_malformed(items: Sequence[Any], carry: int) -> bool:
    """Whether these cannot be the media of ``carry`` carried tokens (-1: it is not known how many)."""
    end = 0
    try:
        for item in items:
            names = [tensor["name"] for tensor in item["tensors"]]
            shapes = [tensor["shape"] for tensor in item["tensors"]]
            if item["kind"] not in KINDS or not item["source"] or item["length"] < 1 or item["position"] < end:
                return True
            if not names or not all(names) or len(dict.fromkeys(names)) != len(names):
                return True
            if any(not shape or min(shape) < 0 for shape in shapes):
                return True
            if any(tensor["dtype"] not in WIDTHS or not _is_sha256(tensor["sha256"]) for tensor in item["tensors"]):
                return True
            end = item["position"] + item["length"]
            if end > carry >= 0:
                return True
    except (KeyError, TypeError):
        return True
    return False


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)


class MediaAreTheSame(Judge):
    """A call goes on after a prefix only if its media have the digests that its first chunk names, and is trained only with the
    media that it was admitted with; if they differ it is rejected as retained_media_changed, if they are the same it is not, and
    where nobody can read what was saved it is generated again.
    """

    invariant = "I58"
    needs = (MediaAdmitted, MediaCompared)
    sees = (CallAsked, CallEnded, OptimizerApplied, PrefixFellBack, PrefixRestored, RestoreChosen)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.point = RestorePoint("", 0, 0, "")
        self.saved: dict[tuple[str, ...], tuple[Any, ...]] = {}  # chunk keys -> media items of the first one
        self.rows: dict[str, str] = {}  # call -> digest of the media in its staged row
        self.asked: dict[str, CallAsked] = {}
        self.admitted: dict[str, str] = {}
        self.compared: dict[str, dict[str, str]] = {}  # call -> key of a row -> outcome

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        for payload in payloads(durable):
            if payload.source != self.point.source:
                continue
            self.saved = {cut.keys: built.media for _, cut, built in known_cuts(durable, payload) if not built.faults}
            for key, data in payload.read(STAGING) or ():
                if not is_chunk(key):
                    digest = durable.remembered(("media", data), partial(_media_in, data))
                    if digest is not None:
                        self.rows[key] = digest
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        return [self.broken(text, record) for text in self._wrong(record)]

    def _wrong(self, record: Record) -> Iterator[str]:
        event = record.event
        if isinstance(event, RestoreChosen):
            if is_another_point(event, self.point):
                self.saved, self.rows = {}, {}
        elif isinstance(event, CallAsked):
            self.asked[event.call] = event
            self.admitted.pop(event.call, None)
            self.compared.pop(event.call, None)
        elif isinstance(event, MediaAdmitted):
            self.admitted[event.call] = event.digest
        elif isinstance(event, MediaCompared):
            yield from self._compared(event)
        elif isinstance(event, PrefixRestored):
            yield from self._restored(event)
        elif isinstance(event, PrefixFellBack):
            yield from self._fell_back(event)
        elif isinstance(event, CallEnded):
            if event.outcome in OVER:
                changed = [key for key, outcome in self.compared.get(event.call, {}).items() if outcome != "kept"]
                parents = [key for key in changed if not is_chunk(key)]
                if parents:
                    outcome = self.compared[event.call][parents[0]]
                    yield f"{event.call} is answered and staged, though the media of {parents[0]} are {outcome}."
                self.rows[event.call] = self.admitted.get(event.call, "")
        elif isinstance(event, OptimizerApplied):
            for row in event.rows:
                for index, (call, _, _) in enumerate(row.calls):
                    found = row.media[index] if index < len(row.media) else ""
                    if row.valid and found != self.rows.get(call, found):
                        right = self.rows[call][:8]
                        yield f"Row {row.sample} is trained with media {found[:8]} of {call}, it was staged with {right}."

    def _compared(self, event: MediaCompared) -> Iterator[str]:
        self.compared.setdefault(event.call, {})[event.key] = event.outcome
        if event.outcome == "kept" and event.saved != event.now:
            yield f"{event.call} keeps the media of {event.key}, whose digest was {event.saved[:8]} and is {event.now[:8]}."
        if event.outcome == "changed" and event.saved == event.now:
            yield f"{event.call} takes the media of {event.key} for changed, their digest is {event.now[:8]} as before."
        if event.path == "prefix":
            asked = self.asked.get(event.call)
            saved = None if asked is None else self.saved.get(asked.keys)
            if saved is not None and media_digest(saved) != event.saved:
                yield f"{event.call} compares with media {event.saved[:8]}, {event.key} names {media_digest(saved)[:8]}."
            admitted = self.admitted.get(event.call, "")
            if event.now != admitted:
                yield f"{event.call} compares media {event.now[:8]}, it was admitted with {admitted[:8]}."

    def _restored(self, event: PrefixRestored) -> Iterator[str]:
        call, saved = event.call, self.saved.get(event.keys)
        if saved is None:
            return
        ours, theirs = self.admitted.get(call, ""), media_digest(saved)
        if ours != theirs:
            yield f"{call} goes on with media {ours[:8] or 'none'}, its prefix was generated from {theirs[:8] or 'none'}."
        elif saved and is_malformed(saved, self._carry(call)):
            yield f"{call} goes on after a prefix whose media nobody can place."

    def _carry(self, call: str) -> int:
        asked = self.asked.get(call)
        return -1 if asked is None else asked.carry

    def _fell_back(self, event: PrefixFellBack) -> Iterator[str]:
        call, saved = event.call, self.saved.get(event.keys)
        outcomes = self.compared.get(call, {})
        said = CHANGED in event.reason
        if event.rejected and said and "changed" not in outcomes.values():
            yield f"{call} is rejected ({event.reason}), and no media of it were found changed."
        if not event.rejected and "changed" in outcomes.values():
            yield f"{call} is not rejected ({event.reason}), and media of it were found changed."
        if saved is None or not outcomes or not any(is_chunk(key) for key in outcomes):
            return
        ours, theirs = self.admitted.get(call, ""), media_digest(saved)
        sound = bool(saved) and not is_malformed(saved, self._carry(call))
        own = [outcome for key, outcome in outcomes.items() if is_chunk(key)]
        if own[-1] == "changed" and (ours == theirs or not sound):
            yield f"{call} is rejected for media that are {'the same' if sound else 'unreadable where they were saved'}."
        if own[-1] != "changed" and sound and ours != theirs:
            yield f"{call} is generated again ({event.reason}): its media have changed, which must reject it."


def _media_in(data: bytes) -> str | None:
    try:
        row = msgspec.msgpack.decode(data)
    except msgspec.DecodeError:
        return None
    return media_digest((row.get("extras") or {}).get("media") or ()) if isinstance(row, dict) else None
