"""Canonical rows: what is trained on, one a sample, under the sample's id (PROTOCOL 1.1, 3.4).

A valid row is a whole episode: the prompt, then by turns what was generated (mask 1) and what the tools
answered (mask 0). A masked row (``sample_mask`` 0) takes the place of a sample whose chain could not be
trusted: its prompt, and nothing to learn from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from protocol.data_plane.digests import content_digest, tokens_digest
from protocol.data_plane.extras import MediaItem, RouteBlock, media_digest
from protocol.data_plane.media import bytes_fault
from protocol.data_plane.routes import routes_digest, rows_between
from protocol.history import TrainedRow

CANONICAL_ROW_VERSION = 1


class CanonicalRow(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Row of the canonical partition; its key is ``sample``.

    ``tokens``, ``mask`` and ``logprobs`` have the same length; the first ``prompt_length`` are the prompt's.
    ``spans`` holds (weight version, generated tokens) of each model call, ``keys`` the staging keys it was made
    from, both root first. ``tools`` digests the tool replies, ``digest`` (SHA-256 hex) everything else in the row.
    ``routes``, where there are any: one row for each token; the last one, and those of a call that was staged without
    routes, are placeholders. ``media``, where there are any, with their places in the row, and the bytes of their ``tensors`` in
    the order of their digests, which alone are part of the row's. ``segments``, where a call has more than one: (weight version,
    tokens) of everything that was generated.
    """

    v: int
    sample: str
    group: str
    ordinal: int
    generation: int
    tokens: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    prompt_length: int
    spans: tuple[tuple[int, int], ...]
    reward: float
    sample_mask: int
    tools: str
    keys: tuple[str, ...]
    digest: str
    routes: RouteBlock | None = None
    media: tuple[MediaItem, ...] = ()
    tensors: tuple[bytes, ...] = ()
    segments: tuple[tuple[int, int], ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(CanonicalRow)
_DIGESTED = CanonicalRow.__struct_fields__.index("digest")  # the columns before it


def encode_canonical(row: CanonicalRow) -> bytes:
    """The row's only encoding: equal rows have equal bytes."""
    return _encode(row)


def canonical_digest(row: CanonicalRow) -> str:
    """SHA-256 hex of every field but the digest itself."""
    columns = msgspec.structs.astuple(row)[:_DIGESTED]
    routes = b"" if row.routes is None else _encode(row.routes)
    media = media_digest(row.media).encode()
    segments = _encode(row.segments) if row.segments else b""
    return hashlib.sha256(b"canonical\x01" + _encode(columns) + routes + media + segments).hexdigest()


def sealed(row: CanonicalRow) -> CanonicalRow:
    """``row`` under its own digest."""
    return msgspec.structs.replace(row, digest=canonical_digest(row))


def decode_canonical(data: bytes) -> CanonicalRow:
    """Raises ``msgspec.DecodeError`` (or its subclass ``ValidationError``) for anything but a canonical row."""
    return _decoder.decode(data)


def row_fault(row: CanonicalRow) -> str:
    """Why a row that was read back may not be trained on, or ''."""
    if row.v != CANONICAL_ROW_VERSION:
        return f"canonical row {row.sample} has version {row.v}: it must be {CANONICAL_ROW_VERSION}"
    if canonical_digest(row) != row.digest:
        return f"canonical row {row.sample} differs from its digest {row.digest}"
    fault = bytes_fault(row.media, row.tensors)
    return f"canonical row {row.sample}: {fault}" if fault else ""


def tools_digest(replies: Sequence[Sequence[int]]) -> str:
    """BLAKE2b-128 hex of tool replies in order; where one ends and the next begins is part of it."""
    return hashlib.blake2b(b"tools\x01" + "".join(map(tokens_digest, replies)).encode(), digest_size=16).hexdigest()


def trained_row(row: CanonicalRow) -> TrainedRow:
    """The row as the history tells of it once it is trained on."""
    return TrainedRow(
        ordinal=row.ordinal,
        generation=row.generation,
        sample=row.sample,
        prompt=tokens_digest(row.tokens[: row.prompt_length]),
        content=content_digest(row.tokens, row.mask, row.logprobs),
        spans=row.spans,
        tools=row.tools,
        reward=row.reward,
        valid=row.sample_mask == 1,
        calls=calls_of(row),
        routes=routes_of(row),
        media=media_of(row),
        segments=row.segments,
    )


def routes_of(row: CanonicalRow) -> tuple[str, ...]:
    """``routes_digest`` of the tokens of each model call, root first; empty for a row without routes."""
    if row.routes is None:
        return ()
    digests: list[str] = []
    start = 0
    for length in call_lengths(row):
        digests.append(routes_digest(rows_between(row.routes, start, start + length), start))
        start += length
    return tuple(digests)


def media_of(row: CanonicalRow) -> tuple[str, ...]:
    """``media_digest`` of what each model call looked at, as the call's own carry places it; empty for a row without media."""
    if not row.media:
        return ()
    digests: list[str] = []
    start = 0
    for length in call_lengths(row):
        own = [item for item in row.media if start <= item.position < start + length]
        digests.append(media_digest([moved(item, -start) for item in own]))
        start += length
    return tuple(digests)


def moved(item: MediaItem, by: int) -> MediaItem:
    """The item, its places counted from another token."""
    return msgspec.structs.replace(item, position=item.position + by)


def call_lengths(row: CanonicalRow) -> tuple[int, ...]:
    """Tokens of each model call, its carry included. A call's carry is what is masked before its generated tokens."""
    lengths: list[int] = []
    end = 0
    for _, (_, generated) in zip(row.keys, row.spans, strict=False):
        start = end
        while end < len(row.mask) and not row.mask[end]:
            end += 1
        end += generated
        lengths.append(end - start)
    return tuple(lengths)


def calls_of(row: CanonicalRow) -> tuple[tuple[str, str, str], ...]:
    """(staging key, digest of the carry, digest of what was generated) of each model call, root first.

    What no call accounts for stands last, without a key.
    """
    calls: list[tuple[str, str, str]] = []
    end = 0
    for key, (_, generated), length in zip(row.keys, row.spans, call_lengths(row), strict=False):
        carried = end + length - generated
        calls.append((key, _part(row, end, carried), _part(row, carried, end + length)))
        end += length
    if end < len(row.tokens) and calls:
        calls.append(("", "", _part(row, end, len(row.tokens))))
    return tuple(calls)


def _part(row: CanonicalRow, start: int, end: int) -> str:
    return content_digest(row.tokens[start:end], row.mask[start:end], row.logprobs[start:end])
