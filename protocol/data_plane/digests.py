"""Staged rows (one model call each) and the digests that hold a chain of them together (PROTOCOL 3.3).

``row_digest`` covers every identity, length, token, mask and logprob of one row; ``cumulative_digest`` chains
it to its parent's, so a coordinate names the whole chain up to its call. Both are SHA-256 hex. Digests of what
the trainer reads (``tokens_digest``, ``content_digest``) are BLAKE2b-128 hex: they name content only, so that
two runs can be compared whatever their keys are.

Each encoding is typed and prefixed by its lengths: no two different rows have the same bytes. Each kind of
digest has its own domain: a digest of one kind can never pass for another's.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import msgspec

from protocol.data_plane.extras import Extras, extras_digest

STAGED_ROW_VERSION = 2
ROOT_MODE = "text"  # a call without a parent: its prompt was text
CHILD_MODE = "token_in"  # a call whose prompt starts with its parent's tokens


class StagedRow(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Row of the staging partition: the tokens that one model call adds to its chain.

    ``tokens``, ``mask`` and ``logprobs`` have the same length, at least 1: first the carry (mask 0, logprob 0),
    then what was generated (mask 1). ``previous_length`` tokens of the chain lie before them (0 for a root).
    ``digest`` is ``row_digest`` of the row, ``cumulative`` the chain's digest up to and with this row. ``extras`` lie in the
    row's bytes and in its digest only where there are some. Its routes are one row for each token, and in front of them one
    for the parent's last token, where there is a parent (the boundary row); the last one is the placeholder.

    ``segments`` of a call that a restore went on with under newer weights: (weight version, generated tokens) in order, at
    least two; ``weight_version`` is then the first, the oldest.
    """

    v: int
    key: str
    rollout_id: str
    attempt: int
    call: str  # model call id, the last part of the key
    ordinal: int
    generation: int
    turn: int
    mode: str  # ROOT_MODE | CHILD_MODE
    parent: str  # the parent's staging key, '' for a root
    previous_length: int
    tokens: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]  # each exactly a 32-bit float
    weight_version: int
    digest: str
    cumulative: str
    extras: Extras | None = None
    segments: tuple[tuple[int, int], ...] = ()

    @property
    def generated(self) -> int:
        """Generated tokens, carry left out."""
        return sum(self.mask)


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(StagedRow)


def encode_row(row: StagedRow) -> bytes:
    return _encode(row)


def decode_row(data: bytes) -> StagedRow:
    """Raises ``msgspec.DecodeError`` (or its subclass ``ValidationError``) for anything but a staged row."""
    return _decoder.decode(data)


def _texts(*texts: str) -> bytes:
    parts = [text.encode() for text in texts]
    return struct.pack(f">{len(parts)}I", *(len(part) for part in parts)) + b"".join(parts)


def _columns(tokens: Sequence[int], mask: Sequence[int], logprobs: Sequence[float]) -> bytes:
    """Three columns, each behind its length: u32 tokens, f32 mask, f32 logprobs, big-endian."""
    return struct.pack(
        f">3I{len(tokens)}I{len(mask)}f{len(logprobs)}f", len(tokens), len(mask), len(logprobs), *tokens, *mask, *logprobs
    )


def row_digest(row: StagedRow) -> str:
    """Call digest, version 2: everything in the row but the two digests themselves."""
    identities = _texts(row.key, row.rollout_id, row.call, row.mode, row.parent)
    counts = struct.pack(
        ">7q", row.v, row.attempt, row.ordinal, row.generation, row.turn, row.previous_length, row.weight_version
    )
    columns = _columns(row.tokens, row.mask, row.logprobs)
    segments = struct.pack(f">{2 * len(row.segments)}q", *(number for segment in row.segments for number in segment))
    if segments:
        segments = b"segments" + segments
    return hashlib.sha256(b"call\x02" + identities + counts + columns + extras_digest(row.extras) + segments).hexdigest()


def joined_segments(*parts: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """(weight version, tokens) of tokens that follow each other; neighbours of one version are one segment, empty ones none."""
    out: list[tuple[int, int]] = []
    for version, count in (segment for part in parts for segment in part):
        if count and out and out[-1][0] == version:
            out[-1] = (version, out[-1][1] + count)
        elif count:
            out.append((version, count))
    return tuple(out)


def cumulative_digest(parent_cumulative: str, digest: str) -> str:
    """Digest of a chain: the parent's cumulative digest ('' for a root), then this row's."""
    return hashlib.sha256(b"chain\x02" + _texts(parent_cumulative, digest)).hexdigest()


def tokens_digest(tokens: Sequence[int]) -> str:
    """BLAKE2b-128 hex of token ids."""
    return hashlib.blake2b(b"tokens\x01" + struct.pack(f">I{len(tokens)}I", len(tokens), *tokens), digest_size=16).hexdigest()


def content_digest(tokens: Sequence[int], mask: Sequence[int], logprobs: Sequence[float]) -> str:
    """BLAKE2b-128 hex of tokens, masks and the 32-bit floats of the logprobs."""
    return hashlib.blake2b(b"content\x01" + _columns(tokens, mask, logprobs), digest_size=16).hexdigest()


def carry_digest(tokens: Sequence[int]) -> str:
    """``content_digest`` of carried tokens: mask 0, logprob 0."""
    return content_digest(tokens, (0,) * len(tokens), (0.0,) * len(tokens))


def generated_digest(tokens: Sequence[int], logprobs: Sequence[float]) -> str:
    """``content_digest`` of generated tokens: mask 1, logprobs as 32-bit floats."""
    return content_digest(tokens, (1,) * len(tokens), as_float32s(logprobs))


def as_float32s(values: Sequence[float]) -> tuple[float, ...]:
    """Each value's nearest 32-bit float: what a row may hold."""
    layout = f">{len(values)}f"
    return struct.unpack(layout, struct.pack(layout, *values))
