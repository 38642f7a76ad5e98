"""Route rows as judges count and read them: [rows, layers, top_k] of a signed type, little-endian (PROTOCOL 7)."""

from __future__ import annotations

from typing import Any

from invariants.prefix.chunks import ITEM_BYTES, SENTINEL, Chunk, extras_of


def row_bytes(routes: Any) -> int:
    """Bytes of one row of a route block as plain data; 0: of no known type."""
    return int(routes["layers"]) * int(routes["top_k"]) * ITEM_BYTES.get(routes["dtype"], 0)


def block_of(row: Chunk) -> Any:
    return extras_of(row).get("routes")


def rows_in(row: Chunk) -> int:
    """Route rows in a chunk; -1: it has none, -2: what it has is no whole number of rows."""
    routes = block_of(row)
    if not routes:
        return -1
    size = row_bytes(routes)
    return len(routes["data"]) // size if size and len(routes["data"]) % size == 0 else -2


def missing_rows(routes: Any) -> list[int]:
    """Which rows of a block are the sentinel: -1 in every place."""
    size, data = row_bytes(routes), routes["data"]
    return (
        [index for index in range(len(data) // size) if data[index * size : (index + 1) * size] == SENTINEL * size]
        if size
        else []
    )
