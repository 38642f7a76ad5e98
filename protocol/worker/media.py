"""Media of a model call: digested once at admission, named in what is staged, compared before a call goes on (PROTOCOL 8).

Earlier media come back in two places: a child call looks at the media of the calls before it, which their rows name, and a
restored call goes on after a prefix that was generated from media, which its first chunk names. ``decide_retained`` rules both.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import msgspec

from protocol.calls import ask
from protocol.data_plane.digests import StagedRow, decode_row, encode_row
from protocol.data_plane.extras import Extras, MediaItem, TensorDigest, media_digest
from protocol.data_plane.media import UNREADABLE, VANISHED, WIDTHS, decide_retained, outcome_of, rejects, span_fault
from protocol.errors import Cause, MissingFile, ProtocolError, Refusal
from protocol.history import MediaAdmitted, MediaCompared
from protocol.identity import DATA_PLANE
from protocol.messages import STAGING, Generate, GetSamples, MediaSource
from protocol.parts import Engine, Media
from protocol.runtime import Runtime

PARENT, PREFIX = "parent", "prefix"  # where earlier media come back
LOOP = "media"  # what takes time with the size of a tensor runs there, and never on the serving loop
READS = 2  # of the rows of the calls before, until they count as unreadable
MALFORMED = "media_request_malformed"


class AdmittedMedia(msgspec.Struct, frozen=True):
    """``items`` are what is staged of them; ``tensors`` their bytes, item by item in the order of its digests. ``retained``: of
    the calls before, in the order of the request, what their sources give now."""

    items: tuple[MediaItem, ...] = ()
    tensors: tuple[bytes, ...] = ()
    retained: tuple[tuple[MediaItem, ...], ...] = ()


NO_MEDIA = AdmittedMedia()


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
    rows = await _read(rt, keys, timeout_s)
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


async def _read(rt: Runtime, keys: tuple[str, ...], timeout_s: float) -> dict[str, bytes]:
    """Rows by key; those that two requests could not give are left out."""
    for _ in range(READS):
        try:
            return dict(await ask(rt, DATA_PLANE, GetSamples(STAGING, keys), timeout_s))
        except ProtocolError:
            pass  # an outage, or none of them is there
    return {}


def named_in(rows: Sequence[bytes | None]) -> list[Named]:
    return [_named(data) for data in rows]


def _named(data: bytes | None) -> Named:
    if data is None:
        return Named(fault="cannot be read")
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
