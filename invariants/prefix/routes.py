"""Route rows as judges count, read and digest them: [rows, layers, top_k] of a signed type, little-endian (PROTOCOL 7)."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Any

from invariants.prefix.chunks import ITEM_BYTES, SENTINEL, Chunk, extras_of

NONE = f"{0:032x}"  # digest of no real row
_CODES = {"int8": "b", "int16": "h", "int32": "i"}
_MODULUS = 1 << 128


def row_bytes(routes: Any) -> int:
    """Bytes of one row of a route block as plain data; 0: of no known type."""
    return int(routes["layers"]) * int(routes["top_k"]) * ITEM_BYTES.get(routes["dtype"], 0)


def block_of(row: Chunk) -> Any:
    return extras_of(row).get("routes")


def rows_of(routes: Any) -> int:
    """Rows of a block; -1: there is none, -2: it is no whole number of rows."""
    if not routes:
        return -1
    size = row_bytes(routes)
    return len(routes["data"]) // size if size and len(routes["data"]) % size == 0 else -2


def rows_in(row: Chunk) -> int:
    """Route rows in a chunk, as ``rows_of``."""
    return rows_of(block_of(row))


def missing_rows(routes: Any) -> list[int]:
    """Which rows of a block are the sentinel: -1 in every place."""
    size, data = row_bytes(routes), routes["data"]
    count = len(data) // size if size else 0
    return [index for index in range(count) if data[index * size : (index + 1) * size] == SENTINEL * size]


def torn_rows(routes: Any) -> list[int]:
    """Which rows hold the sentinel in some places and experts in others, or a number that names no expert."""
    size, missing = row_bytes(routes), missing_rows(routes)
    if not size or rows_of(routes) < 0:
        return []
    places = int(routes["layers"]) * int(routes["top_k"])
    code = f"<{places}{_CODES[routes['dtype']]}"
    return [
        index
        for index in range(rows_of(routes))
        if index not in missing and min(struct.unpack_from(code, routes["data"], index * size)) < 0
    ]


def digest_of_rows(routes: Any, first: int, start: int = 0, end: int | None = None) -> str:
    """Digest of the real rows [start, end), as the history gives it: the sum of BLAKE2b-128 of each row's position (``first`` is
    row 0's) and its ids as 32-bit integers, modulo 2^128, in hex."""
    size, count = row_bytes(routes), rows_of(routes)
    places = int(routes["layers"]) * int(routes["top_k"])
    code, missing, total = f"<{places}{_CODES[routes['dtype']]}", dict.fromkeys(missing_rows(routes)), 0
    for row in range(start, count if end is None else end):
        if row not in missing:
            ids = struct.unpack_from(code, routes["data"], row * size)
            text = struct.pack(f"<q{places}i", first + row, *ids)
            total += int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")
    return f"{total % _MODULUS:032x}"


def added(digests: Sequence[str]) -> str:
    """Digest of rows that were digested in parts; '' counts as none."""
    return f"{sum(int(digest, 16) for digest in digests if digest) % _MODULUS:032x}"


def less(whole: str, part: str) -> str:
    return f"{(int(whole or '0', 16) - int(part or '0', 16)) % _MODULUS:032x}"
