"""Chunk rows: the durable pieces of a model call that has not finished, and their digest chain (PROTOCOL 3.5, 6).

Chunk k holds what was generated after chunk k-1, whoever staged that one: a call that continues a restored prefix goes on
with the chain of the call that was cut.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import msgspec

from protocol.data_plane.digests import as_float32s, generated_digest
from protocol.data_plane.extras import Extras, extras_digest

CHUNK_ROW_VERSION = 1


class ChunkRow(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True):
    """Row of the staging partition: generated tokens [start, start + len(tokens)) of one model call.

    ``tokens`` and ``logprobs`` have the same length, at least 1. ``carry`` digests the tokens that the call brought
    (``carry_digest``). ``extras`` of the first chunk: routes of the carry and of its tokens, media; of later ones: routes of
    their tokens alone. ``finish``: the call has finished with this chunk's last token. ``limit``: effective output limit of
    the whole call. ``digest`` is ``chunk_digest`` of the row, ``cumulative`` the chain's up to and with it.
    """

    v: int
    key: str
    call: str
    rollout_id: str
    attempt: int
    ordinal: int
    generation: int
    turn: int
    previous_length: int
    carry: str
    start: int
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    limit: int
    finish: str
    weight_version: int
    extras: Extras | None
    digest: str
    cumulative: str

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(ChunkRow)


def encode_chunk(row: ChunkRow) -> bytes:
    return _encode(row)


def decode_chunk(data: bytes) -> ChunkRow:
    """Raises ``msgspec.DecodeError`` (or its subclass ``ValidationError``) for anything but a chunk row."""
    return _decoder.decode(data)


def chunk_digest(row: ChunkRow) -> str:
    """SHA-256 hex of everything in the row but the two digests themselves."""
    texts = [text.encode() for text in (row.key, row.call, row.rollout_id, row.carry, row.finish)]
    head = struct.pack(f">{len(texts)}I", *(len(text) for text in texts)) + b"".join(texts)
    counts = struct.pack(
        ">9q", row.v, row.attempt, row.ordinal, row.generation, row.turn, row.previous_length, row.start, row.limit,
        row.weight_version,
    )  # fmt: skip
    size = len(row.tokens)
    columns = struct.pack(f">2I{size}I{len(row.logprobs)}f", size, len(row.logprobs), *row.tokens, *row.logprobs)
    return hashlib.sha256(b"chunk\x01" + head + counts + columns + extras_digest(row.extras)).hexdigest()


def prefix_digest(before: str, digest: str) -> str:
    """Digest of a chain of chunks: the one before ('' for the first chunk), then this chunk's."""
    return hashlib.sha256(b"prefix\x01" + struct.pack(">2I", len(before), len(digest)) + (before + digest).encode()).hexdigest()


def sealed_chunk(row: ChunkRow, before: str) -> ChunkRow:
    """The row with its digests."""
    digest = chunk_digest(row)
    return msgspec.structs.replace(row, digest=digest, cumulative=prefix_digest(before, digest))


def prefix_content(tokens: Sequence[int], logprobs: Sequence[float]) -> str:
    return generated_digest(tokens, as_float32s(logprobs))
