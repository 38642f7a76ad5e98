"""I58: whatever was generated from images and videos is gone on from with the same ones, or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from invariants.durability.payload import STAGING, Payload, payloads
from invariants.ledger.attempts import is_another_point, restore_point
from invariants.prefix.durable_prefixes import known_cuts
from protocol.external import External
from protocol.history import (
    CallAsked,
    CallEnded,
    FaultInjected,
    MediaAdmitted,
    MediaCompared,
    OptimizerApplied,
    PrefixFellBack,
    PrefixRestored,
    ProcessKilled,
    ProcessStalled,
    Record,
    RestoreChosen,
)
from protocol.identity import GymCheckpointEpisode, call_of_chunk, is_chunk
from protocol.judging import Durable, Judge, RestorePoint, Terms, Violation

CHANGED, VANISHED = "retained_media_changed", "media_source_vanished"
GONE = "gone/"  # how the values of a media store that lost a source begin
KINDS, HEX = ("image", "video"), frozenset("0123456789abcdef")
DTYPES = ("uint8", "float16", "bfloat16", "int32", "float32", "int64")
OF_MEDIA = ("change_media", "vanish_media", "corrupt_media", "tamper", "config")  # faults that no request suffers from
OVER = ("answered", "terminal-prefix", "capture-failed")

Items = Sequence[Mapping[str, Any]]


class Row(msgspec.Struct, frozen=True, gc=False):
    """What this judge reads of a whole call's row; the tensors are skipped."""

    mask: tuple[int, ...]
    extras: msgspec.Raw = msgspec.Raw(b"\xc0")


class Extras(msgspec.Struct, frozen=True, gc=False):
    media: tuple[dict[str, Any], ...] = ()


class Named(msgspec.Struct, frozen=True, gc=False):
    """``digest`` of the media that a call looked at, '' for none; ``fault``: why what its row says cannot be read."""

    digest: str
    fault: str = ""


def digest_of(items: Items) -> str:
    """As the history gives it: of the items as the row holds them."""
    return hashlib.sha256(b"media\x01" + msgspec.msgpack.encode(list(items))).hexdigest() if items else ""


def unreadable(items: Items, carry: int) -> str:
    """Why nobody can tell where the items stood or what they were, '' if it can be told. ``carry``: tokens that were carried."""
    free = 0
    for item in items:
        first, length, tensors = item["position"], item["length"], item["tensors"]
        if item["kind"] not in KINDS or not item["source"]:
            return f"{item['source']!r} is {item['kind']!r}"
        if length < 1 or first < free or first + length > carry:
            return f"{item['source']} stands at {first} to {first + length}, {free} to {carry} are free"
        free = first + length
        if len({tensor["name"] for tensor in tensors}) != len(tensors) or not tensors:
            return f"{item['source']} has {len(tensors)} tensors without names of their own"
        for tensor in tensors:
            if not tensor["name"] or tensor["dtype"] not in DTYPES or not tensor["shape"] or min(tensor["shape"]) < 0:
                return f"{item['source']} has a tensor {tensor['name']!r} of {tensor['dtype']}{tensor['shape']}"
            if len(tensor["sha256"]) != 64 or not HEX.issuperset(tensor["sha256"]):
                return f"{item['source']} has a tensor without a SHA-256"
    return ""


def named_by(data: bytes) -> Named:
    try:
        row = msgspec.msgpack.decode(data, type=Row)
        extras = msgspec.msgpack.decode(row.extras, type=Extras | None)
        media = () if extras is None else extras.media
        return Named(digest_of(media), unreadable(media, len(row.mask) - sum(row.mask)))
    except (msgspec.DecodeError, KeyError, TypeError):
        return Named("", "it is no row of a call")


def calls_of(payload: Payload) -> dict[str, Named]:
    """Of each whole call in staging."""
    rows = payload.read(STAGING)
    if not isinstance(rows, list):
        return {}
    return {key: payload.remembered(("media", data), partial(named_by, data)) for key, data in rows if not is_chunk(key)}


def place(call: str) -> tuple[str, int]:
    """Rollout and turn of a model call, whatever its attempt was."""
    key, _, turn = call.rpartition("/c")
    return GymCheckpointEpisode.of(key).rollout_id, int(turn)


class MediaAreTheSame(Judge):
    """A call goes on from a prefix, or from the calls before it, only with the media that those were generated with, item by
    item and tensor by tensor; changed or vanished media reject it by that name, and media that nobody can read reject nothing.
    """

    invariant = "I58"
    needs = (MediaAdmitted,)
    sees = (CallAsked, CallEnded, FaultInjected, MediaCompared, OptimizerApplied, PrefixFellBack, PrefixRestored, ProcessKilled,
            ProcessStalled, RestoreChosen)  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.point = RestorePoint("", 0, 0, "")
        self.cuts: dict[tuple[str, ...], Items] = {}  # chunk keys of a saved cut -> the items that its first chunk names
        self.calls: dict[str, Named] = {}  # of each call: as saved, or as admitted in this life
        self.looked: dict[tuple[str, int], None] = {}  # (rollout, turn) of calls that looked at media
        self.asked: dict[str, CallAsked] = {}
        self.admitted: dict[str, str] = {}  # call of this life -> digest of its own media
        self.compared: dict[str, dict[str, MediaCompared]] = {}  # call -> key -> what came of it
        self.rejected: dict[str, None] = {}  # calls whose prefix was refused with its named cause
        self.vanished = False  # some source is not there
        self.disturbed = False  # a request may have failed in this life

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.media

    def obligations(self, durable: Durable, external: External) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        self.vanished = any(value.name.startswith(GONE) for value in external.values)
        self._forget()
        for payload in payloads(durable):
            if payload.source == self.point.source:
                self.cuts = {cut.keys: built.media for _, cut, built in known_cuts(durable, payload)}
                self.calls = calls_of(payload)
                self.looked = {place(call): None for call, named in self.calls.items() if named.digest}
        return ()

    def _forget(self) -> None:
        self.cuts, self.calls, self.looked = {}, {}, {}

    def on(self, record: Record) -> Iterable[Violation]:
        return [self.broken(text, record) for text in self._wrong(record)]

    def _wrong(self, record: Record) -> Iterator[str]:
        event = record.event
        if isinstance(event, CallAsked):
            self.asked[event.call] = event
            for known in (self.admitted, self.compared, self.rejected):
                known.pop(event.call, None)  # the same call asked again is another one
        elif isinstance(event, MediaAdmitted):
            self.admitted[event.call] = event.digest
            self.calls[event.call] = Named(event.digest)
            self.looked[place(event.call)] = None
        elif isinstance(event, MediaCompared):
            self.compared.setdefault(event.call, {})[event.key] = event
            yield from self._compared(event)
        elif isinstance(event, PrefixRestored):
            yield from self._restored(event)
        elif isinstance(event, PrefixFellBack):
            yield from self._fell_back(event)
        elif isinstance(event, CallEnded):
            yield from self._ended(event)
        elif isinstance(event, OptimizerApplied):
            yield from self._trained(event)
        elif isinstance(event, RestoreChosen):
            if is_another_point(event, self.point):
                self._forget()
        elif isinstance(event, FaultInjected):
            self.vanished = self.vanished or event.fault == "vanish_media"
            self.disturbed = self.disturbed or event.fault not in OF_MEDIA
        else:
            self.disturbed = True

    # --- prefixes

    def _saved(self, call: str, keys: tuple[str, ...]) -> Named | None:
        """What the prefix in these chunks was generated with; None if nobody here knows."""
        items = self.cuts.get(keys)
        if items is not None:
            asked = self.asked.get(call)
            return Named(digest_of(items), unreadable(items, asked.carry if asked is not None else 0))
        first = call_of_chunk(keys[0]) if keys else ""
        return Named(self.admitted.get(first, "")) if first in self.asked else None

    def _restored(self, event: PrefixRestored) -> Iterator[str]:
        saved, now = self._saved(event.call, event.keys), self.admitted.get(event.call, "")
        if saved is None:
            return
        if saved.fault:
            yield f"{event.call} goes on from a prefix whose media nobody can read: {saved.fault}."
        elif saved.digest != now:
            before, after = saved.digest[:12] or "none", now[:12] or "none"
            yield f"{event.call} goes on with media {after}, its prefix was generated with {before}."

    def _fell_back(self, event: PrefixFellBack) -> Iterator[str]:
        call, now = event.call, self.admitted.get(event.call, "")
        saved = self._saved(call, event.keys)
        if event.rejected:
            self.rejected[call] = None
            if event.reason.startswith(VANISHED) and not self.vanished:
                yield f"{call} is rejected ({event.reason}), and every source is there."
            if not event.reason.startswith(CHANGED) or saved is None or self._changed(call, "parent"):
                return
            if saved.fault:
                yield f"{call} is rejected ({event.reason}) over media that nobody can read: {saved.fault}."
            elif saved.digest == now:
                yield f"{call} is rejected ({event.reason}), and its media are those of its prefix."
        elif self._changed(call):
            yield f"{call} starts at its turn boundary ({event.reason}), and media of it have changed: that rejects it."
        elif saved is not None and saved.digest and not saved.fault and saved.digest != now and self._told_of(call, "prefix"):
            yield f"{call} starts at its turn boundary ({event.reason}), and its media are not those of its prefix."

    # --- what was compared

    def _told_of(self, call: str, path: str) -> bool:
        return any(event.path == path for event in self.compared.get(call, {}).values())

    def _compared(self, event: MediaCompared) -> Iterator[str]:
        what = f"{event.call} takes the media of {event.key}"
        if event.outcome == "kept" and event.saved != event.now:
            yield f"{what} for the same, and they are {event.saved[:12]} and {event.now[:12]}."
        if event.outcome == "changed" and event.saved == event.now:
            yield f"{what} for changed, and they are {event.now[:12]} as before."
        if event.path == "prefix":
            asked, now = self.asked.get(event.call), self.admitted.get(event.call, "")
            saved = None if asked is None else self._saved(event.call, asked.keys)
            if saved is not None and saved.digest != event.saved:
                yield f"{what} for {event.saved[:12] or 'none'}, and it names {saved.digest[:12] or 'none'}."
            if event.now != now:
                yield f"{what} with {event.now[:12] or 'none'}, and it was admitted with {now[:12] or 'none'}."
            return
        truth = self.calls.get(event.key)
        if truth is None:
            return
        if truth.fault and event.outcome != "unreadable":
            yield f"{what} for {event.outcome}, and nobody can read them: {truth.fault}."
        elif event.outcome == "kept" and truth.digest != event.now:
            yield f"{what} for the same, and they were {truth.digest[:12]} and are {event.now[:12]}."
        elif event.outcome == "changed" and truth.digest == event.now:
            yield f"{what} for changed, and they are the same."
        elif event.outcome == "unreadable" and not truth.fault and not self.disturbed:
            yield f"{what} for unreadable, and there they lie."

    def _changed(self, call: str, path: str = "") -> bool:
        found = self.compared.get(call, {}).values()
        return any(event.outcome == "changed" and path in ("", event.path) for event in found)

    def _ended(self, event: CallEnded) -> Iterator[str]:
        call, asked = event.call, self.asked.get(event.call)
        if asked is None:
            return
        compared = self.compared.get(call, {})
        if event.outcome == "rejected" and not (self._changed(call) or call in self.rejected or self.vanished):
            yield f"{call} is rejected, and nothing has changed or vanished that it looked at."
        if event.outcome == "capture-failed":
            self.calls.pop(call, None)  # nobody knows whether its row is there
        if event.outcome not in OVER:
            return
        if self._changed(call):
            yield f"{call} is answered, though media that it rests on have changed."
        if event.outcome != "capture-failed" and any(
            (one.path, one.outcome) == ("parent", "unreadable") for one in compared.values()
        ):
            yield f"{call} is captured, though it rests on media that nobody can read."
        rollout, turn = place(call)
        seen = {place(key) for key, one in compared.items() if one.path == "parent"}
        for before in range(turn):
            if (rollout, before) in self.looked and (rollout, before) not in seen:
                yield f"{call} is answered, and the media of turn {before} were compared with nothing."

    def _trained(self, event: OptimizerApplied) -> Iterator[str]:
        for row in event.rows:
            keys = [key for key, _, _ in row.calls if key]
            for key, digest in zip(keys, row.media or ("",) * len(keys), strict=False):
                known = self.calls.get(key)
                if known is not None and known.digest != digest:
                    yield f"{row.sample} is trained with media {digest[:12]} for {key}, which looked at {known.digest[:12]}."
