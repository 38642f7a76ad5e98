"""Media of a model call: digested once at admission, named in what is staged, compared before a call goes on (PROTOCOL 8).

Both places where earlier media come back have one rule, ``decide_retained``: a child call looks at the media of the calls before
it (their rows name them), and a restored call goes on after a prefix that was generated from media (its first chunk names them).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import msgspec

from protocol.calls import ask
from protocol.data_plane.digests import StagedRow, decode_row, encode_row
from protocol.data_plane.extras import Extras, MediaItem, TensorDigest, media_digest
from protocol.errors import Cause, MissingFile, ProtocolError, Refusal
from protocol.history import MediaAdmitted, MediaCompared
from protocol.identity import DATA_PLANE
from protocol.messages import STAGING, Generate, GetSamples, MediaSource
from protocol.parts import Engine, Media
from protocol.runtime import Runtime

IMAGE, VIDEO = "image", "video"
PARENT, PREFIX = "parent", "prefix"  # where earlier media come back
LOOP = "media"  # what takes time with the size of a tensor runs there, and never on the serving loop
WIDTHS = {"uint8": 1, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8}  # bytes of one element
SHA256_DIGITS, HEX = 64, frozenset("0123456789abcdef")

CHANGED = "retained_media_changed"
VANISHED = "media_source_vanished"
UNREADABLE = "media_metadata_unreadable"
MALFORMED = "media_request_malformed"


class AdmittedMedia(msgspec.Struct, frozen=True):
    """``items`` are what is staged of them; ``tensors`` their bytes, item by item in the order of its digests. ``retained``: of
    the calls before, in the order of the request, what their sources give now."""

    items: tuple[MediaItem, ...] = ()
    tensors: tuple[bytes, ...] = ()
    retained: tuple[tuple[MediaItem, ...], ...] = ()


NO_MEDIA = AdmittedMedia()


# --- decisions ---------------------------------------------------------------------------------------------------------


def span_fault(items: Sequence[MediaItem], carry: int) -> str:
    """Why these items cannot be what a call of ``carry`` carried tokens has looked at, or ''.

    The only reader of spans: of a request, of a parent's row and of a chunk."""
    end = 0
    for place, item in enumerate(items):
        where = f"item {place}"
        if item.kind not in (IMAGE, VIDEO):
            return f"{where} is {item.kind!r}: it must be {IMAGE} or {VIDEO}"
        if not item.source:
            return f"{where} names no source"
        if item.length < 1 or item.position < 0:
            return f"{where} has {item.length} places from {item.position} on"
        if item.position < end:
            return f"{where} begins at {item.position}, the one before it ends at {end}"
        end = item.position + item.length
        if end > carry:
            return f"{where} ends at {end}, the call carried {carry} tokens"
        fault = tensor_fault(item.tensors)
        if fault:
            return f"{where} {fault}"
    return ""


def tensor_fault(tensors: Sequence[TensorDigest]) -> str:
    names = [tensor.name for tensor in tensors]
    if not names or not all(names) or len(dict.fromkeys(names)) != len(names):
        return f"has the tensors {names}: each must have a name of its own, and there must be one"
    for tensor in tensors:
        if tensor.dtype not in WIDTHS:
            return f"has {tensor.name} of dtype {tensor.dtype!r}: known are {', '.join(WIDTHS)}"
        if not tensor.shape or min(tensor.shape) < 0:
            return f"has {tensor.name} of shape {list(tensor.shape)}"
        if len(tensor.sha256) != SHA256_DIGITS or not HEX.issuperset(tensor.sha256):
            return f"has no SHA-256 of {tensor.name}"
    return ""


def decide_retained(saved: Sequence[MediaItem], now: Sequence[MediaItem], carry: int) -> str:
    """Whether a call may go on from what was generated with ``saved``, if its sources give ``now``: '', or why not.

    ``CHANGED`` rejects the call; ``UNREADABLE`` says that nobody can tell, so nothing may rest on what was saved."""
    fault = span_fault(saved, carry)
    if fault:
        return f"{UNREADABLE}: {fault}"
    if now and not saved:
        return f"{UNREADABLE}: it names none of {len(now)} items"
    change = media_change(saved, now)
    return f"{CHANGED}: {change}" if change else ""


def media_change(saved: Sequence[MediaItem], now: Sequence[MediaItem]) -> str:
    """The first difference: items, then the tensors of each, then their dtypes and shapes, then their bytes; or ''."""
    places = [[(item.kind, item.source, item.position, item.length) for item in items] for items in (saved, now)]
    if places[0] != places[1]:
        return f"the items were {places[0]}, they are {places[1]}"
    for before, after in zip(saved, now, strict=True):
        was, is_now = ({tensor.name: tensor for tensor in item.tensors} for item in (before, after))
        if list(was) != list(is_now):
            return f"{before.source} had the tensors {list(was)}, it has {list(is_now)}"
        for name, tensor in was.items():
            other = is_now[name]
            if (tensor.dtype, tensor.shape) != (other.dtype, other.shape):
                return f"{name} of {before.source} was {tensor.dtype}{list(tensor.shape)}, it is {other.dtype}{list(other.shape)}"
            if tensor.sha256 != other.sha256:
                return f"{name} of {before.source} has other bytes"
    return ""


def rejects(reason: str) -> bool:
    """Whether a call that cannot go on for this reason is rejected; for any other one it starts at its turn boundary."""
    return reason.startswith((CHANGED, VANISHED))


def outcome_of(reason: str) -> str:
    """As ``MediaCompared`` says it."""
    return "kept" if not reason else "changed" if rejects(reason) else "unreadable"


def media_evidence(admitted: AdmittedMedia, start: int) -> tuple[MediaItem, ...]:
    """What the chunk that begins with generated token ``start`` says of the media: the first one all, later ones nothing.

    Digests, never a pixel: those go with the terminal row, once."""
    return admitted.items if start == 0 else ()


# --- admission ---------------------------------------------------------------------------------------------------------


async def admit(rt: Runtime, engine: Engine, request: Generate) -> AdmittedMedia:
    """Read, preprocess and digest everything the request names, before anything else is done for it.

    Raises Refusal(DATA): a source is not there (``VANISHED``), or the request's own spans are malformed."""
    asked = (request.media, *(retained.media for retained in request.retained))
    sources = [source for sources in asked for source in sources]
    if not sources:
        return NO_MEDIA
    try:
        media = await engine.media(sources)
    except MissingFile as error:
        raise Refusal(f"{VANISHED}: {error}", Cause.DATA) from error
    items = await rt.on_loop(LOOP, digested, media)
    fault = span_fault(items[: len(request.media)], len(request.carry))
    if fault:
        raise Refusal(f"{MALFORMED}: {fault}", Cause.DATA)
    own = items[: len(request.media)]
    tensors = tuple(data for one in media[: len(own)] for _, _, _, data in one.tensors)
    if own:
        rt.record(MediaAdmitted(request.call, len(own), sum(map(len, tensors)), media_digest(own)))
    return AdmittedMedia(own, tensors, tuple(_parts(items, [len(sources) for sources in asked])[1:]))


def digested(media: Sequence[Media]) -> tuple[MediaItem, ...]:
    """What is said of media beside their bytes. It reads every byte: only to be run on the loop ``LOOP``."""
    return tuple(item_of(one.source, one.tensors) for one in media)


def item_of(source: MediaSource, tensors: Sequence[tuple[str, str, tuple[int, ...], bytes]]) -> MediaItem:
    for name, dtype, shape, data in tensors:
        # An engine that preprocesses wrongly is no fault of the run: nothing may be staged of it.
        assert len(data) == math.prod(shape) * WIDTHS[dtype], (
            f"{name} of {source.source}: {dtype}{list(shape)}, {len(data)} bytes"
        )
    digests = tuple(TensorDigest(name, dtype, shape, hashlib.sha256(data).hexdigest()) for name, dtype, shape, data in tensors)
    return MediaItem(source.kind, source.source, source.position, source.length, digests)


def _parts(items: tuple[MediaItem, ...], sizes: Sequence[int]) -> list[tuple[MediaItem, ...]]:
    parts, start = [], 0
    for size in sizes:
        parts.append(items[start : start + size])
        start += size
    return parts


# --- what comes back ---------------------------------------------------------------------------------------------------


def compare(rt: Runtime, call: str, key: str, path: str, saved: Sequence[MediaItem], now: Sequence[MediaItem], carry: int) -> str:
    """``decide_retained`` for the media that the durable row ``key`` names, told to the history. ``path``: PARENT | PREFIX."""
    reason = decide_retained(saved, now, carry)
    rt.record(MediaCompared(call, key, path, media_digest(saved), media_digest(now), outcome_of(reason)))
    return reason


class Named(msgspec.Struct, frozen=True):
    """What a parent's row says of media, ``carry`` tokens it carried; or why that cannot be read."""

    items: tuple[MediaItem, ...] = ()
    carry: int = 0
    fault: str = ""


async def compare_parents(rt: Runtime, request: Generate, admitted: AdmittedMedia, timeout_s: float) -> str:
    """Whether the media of the calls before are those that their rows name: '', or why not (``decide_retained``).

    Each row is told of; a change weighs more than what is unreadable."""
    if not request.retained:
        return ""
    keys = tuple(retained.call for retained in request.retained)
    try:
        rows = dict(await ask(rt, DATA_PLANE, GetSamples(STAGING, keys), timeout_s))
    except ProtocolError as error:
        return f"{UNREADABLE}: the rows of {len(keys)} calls before cannot be read ({error})"
    # Rows hold their tensors: reading one takes time with the size of its media.
    named = await rt.on_loop(LOOP, named_in, [rows.get(key) for key in keys])
    reasons: list[str] = []
    for key, saved, now in zip(keys, named, admitted.retained, strict=True):
        if saved.fault:
            rt.record(MediaCompared(request.call, key, PARENT, "", media_digest(now), outcome_of(UNREADABLE)))
            reasons.append(f"{UNREADABLE}: {key} {saved.fault}")
        else:
            reasons.append(compare(rt, request.call, key, PARENT, saved.items, now, saved.carry))
    return next(filter(rejects, reasons), next(filter(None, reasons), ""))


def named_in(rows: Sequence[bytes | None]) -> list[Named]:
    return [_named(data) for data in rows]


def _named(data: bytes | None) -> Named:
    if data is None:
        return Named(fault="is not there")
    try:
        row = decode_row(data)
    except msgspec.DecodeError as error:
        return Named(fault=f"is no staged row ({error})")
    return Named(row.extras.media if row.extras is not None else (), len(row.tokens) - row.generated)


# --- what goes with the row of a whole call ------------------------------------------------------------------------------


def with_tensors(extras: Extras | None, admitted: AdmittedMedia) -> Extras | None:
    """What the row of a whole call holds beside its columns: the media named, and their bytes, stored nowhere else."""
    if not admitted.items:
        return extras
    return msgspec.structs.replace(extras or Extras(), media=admitted.items, tensors=admitted.tensors)


async def encoded(rt: Runtime, row: StagedRow) -> bytes:
    """The row's bytes; one with tensors is not put together on the serving loop."""
    if row.extras is None or not row.extras.tensors:
        return encode_row(row)
    return await rt.on_loop(LOOP, encoded_on_loop, (row,))


def encoded_on_loop(rows: Sequence[StagedRow]) -> bytes:
    (row,) = rows
    return encode_row(row)
