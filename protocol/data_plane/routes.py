"""Routed experts of tokens as rows of bytes: shapes, slices, the placeholder row, digests (PROTOCOL 7).

Row i holds [layers, top_k] expert ids of one token, little-endian in the wire's own dtype: reading a row never changes its
dtype. An engine's unsigned ids are widened first, so that no id can read like the sentinel. Nothing here raises for rows
that do not fit: what is wrong with them is a text, because it costs one call its cut or its routes, and nobody else anything.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence

import msgspec

from protocol.data_plane.extras import RouteBlock

ROUTE_MISSING = -1  # the sentinel: every id of a row that no engine has given
SIZES = {"int8": 1, "int16": 2, "int32": 4}  # bytes of one id on the wire
CODES = {"int8": "b", "int16": "h", "int32": "i"}
WIDENED = {"uint8": "int16"}  # an engine's unsigned dtype -> the wire's, which holds all of its values and the sentinel
ENGINE_SIZES = {**SIZES, "uint8": 1}  # bytes of one id in an engine's piece
NO_ROUTES = f"{0:032x}"  # routes_digest of no real row
_MODULUS = 1 << 128
_NEGATIVE = 0x80  # in the highest byte of an id


class Misfit(msgspec.Struct, frozen=True, gc=False):
    """Why something cannot be read as route rows."""

    reason: str


# --- shapes ------------------------------------------------------------------------------------------------------------


def shaped(dtype: str, layers: int, top_k: int) -> RouteBlock:
    """A block of no rows: the shape that others are made in."""
    return RouteBlock(dtype, layers, top_k, b"")


def wire_dtype(engine: str) -> str:
    """What the ids of an engine's dtype are held in, '' for a dtype that nobody reads."""
    dtype = WIDENED.get(engine, engine)
    return dtype if dtype in SIZES else ""


def row_size(block: RouteBlock) -> int:
    """Bytes of one row."""
    return block.layers * block.top_k * SIZES[block.dtype]


def row_count(block: RouteBlock) -> int:
    return len(block.data) // row_size(block)


def block_fault(block: RouteBlock) -> str:
    """Why the block is no array of [rows, layers, top_k], or ''."""
    if block.dtype not in SIZES:
        return f"routes are {block.dtype!r}, they must be one of {', '.join(SIZES)}"
    if block.layers < 1 or block.top_k < 1:
        return f"routes have {block.layers} layers of {block.top_k} experts, both must be at least 1"
    if len(block.data) % row_size(block):
        return f"routes have {len(block.data)} bytes, which are no whole rows of {row_size(block)}"
    return ""


def rows_between(block: RouteBlock, start: int, end: int) -> RouteBlock:
    """Rows [start, end)."""
    size = row_size(block)
    return RouteBlock(block.dtype, block.layers, block.top_k, block.data[start * size : end * size])


def joined(shape: RouteBlock, parts: Iterable[bytes | bytearray]) -> RouteBlock:
    """One block of ``shape``'s kind from the bytes of several, each copied once."""
    return RouteBlock(shape.dtype, shape.layers, shape.top_k, b"".join(parts))


def boundary_rows(previous_length: int) -> int:
    """How many rows of a staged row stand before its own tokens': its parent's last token's, where there is a parent."""
    return 1 if previous_length > 0 else 0


def with_sorted_experts(block: RouteBlock) -> RouteBlock:
    """The same rows with the experts of each token in ascending order within each layer: in which order an engine gives them
    is not stable, which ones they are is."""
    count = len(block.data) // SIZES[block.dtype]
    ids = struct.unpack(f"<{count}{CODES[block.dtype]}", block.data)
    ordered = [one for start in range(0, count, block.top_k) for one in sorted(ids[start : start + block.top_k])]
    return RouteBlock(block.dtype, block.layers, block.top_k, struct.pack(f"<{count}{CODES[block.dtype]}", *ordered))


# --- the sentinel ------------------------------------------------------------------------------------------------------


def placeholder(shape: RouteBlock, rows: int = 1) -> bytes:
    """Rows that no engine has given. Every one of them, on save and on restore, is made here."""
    ids = shape.layers * shape.top_k
    return struct.pack(f"<{ids}{CODES[shape.dtype]}", *(ROUTE_MISSING,) * ids) * rows


def is_placeholder(block: RouteBlock, row: int) -> bool:
    size = row_size(block)
    return block.data[row * size : (row + 1) * size] == placeholder(block)


def all_real(block: RouteBlock) -> bool:
    """Whether every id of every row names an expert."""
    size = SIZES[block.dtype]
    return max(block.data[size - 1 :: size], default=0) < _NEGATIVE


# --- from and to the wire ------------------------------------------------------------------------------------------------


def from_engine(data: bytes, dtype: str) -> bytes:
    """An engine's rows in the wire's dtype."""
    if dtype != "uint8":
        return data
    wide = bytearray(2 * len(data))
    wide[::2] = data
    return bytes(wide)


def widened(block: RouteBlock, dtype: str) -> RouteBlock:
    """The same ids, sentinels included, in a dtype at least as wide."""
    if dtype == block.dtype:
        return block
    count = len(block.data) // SIZES[block.dtype]
    ids = struct.unpack(f"<{count}{CODES[block.dtype]}", block.data)
    return RouteBlock(dtype, block.layers, block.top_k, struct.pack(f"<{count}{CODES[dtype]}", *ids))


def widest(dtypes: Iterable[str]) -> str:
    return max(dtypes, key=SIZES.__getitem__)


def encoded(block: RouteBlock | None, encoding: str) -> object:
    """``none``; ``envelope``: {dtype, shape [rows, layers, top_k], data}; ``list``: ids, nested like the shape."""
    if block is None or encoding == "none":
        return None
    shape = [row_count(block), block.layers, block.top_k]
    if encoding == "envelope":
        return {"dtype": block.dtype, "shape": shape, "data": block.data}
    count = len(block.data) // SIZES[block.dtype]
    ids = list(struct.unpack(f"<{count}{CODES[block.dtype]}", block.data))
    layers = [ids[start : start + block.top_k] for start in range(0, count, block.top_k)]
    return [layers[start : start + block.layers] for start in range(0, len(layers), block.layers)]


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dtype: str
    shape: tuple[int, int, int]
    data: bytes


def decoded(wire: object, dtype: str = "") -> RouteBlock | Misfit | None:
    """What ``encoded`` made. An envelope keeps its dtype; a list has none of its own and is held in ``dtype`` (int32)."""
    if wire is None:
        return None
    try:
        if isinstance(wire, list):
            return _from_list(wire, dtype or "int32")
        envelope = msgspec.convert(wire, _Envelope)
    except (msgspec.ValidationError, struct.error) as error:
        return Misfit(f"not route rows: {error}")
    rows, layers, top_k = envelope.shape
    block = RouteBlock(envelope.dtype, layers, top_k, envelope.data)
    fault = block_fault(block)
    if not fault and row_count(block) != rows:
        fault = f"routes have {row_count(block)} rows, their envelope says {rows}"
    return Misfit(fault) if fault else block


def _from_list(wire: list[object], dtype: str) -> RouteBlock | Misfit:
    rows = msgspec.convert(wire, list[list[list[int]]])
    shapes = {(len(row), len(layer)) for row in rows for layer in row}
    if dtype not in SIZES or len(shapes) != 1 or len({len(row) for row in rows}) != 1:
        return Misfit(f"not route rows in {dtype!r}: rows of shapes {sorted(shapes)}, they must be of one")
    layers, top_k = shapes.pop()
    ids = [expert for row in rows for layer in row for expert in layer]
    return RouteBlock(dtype, layers, top_k, struct.pack(f"<{len(ids)}{CODES[dtype]}", *ids))


# --- digests -------------------------------------------------------------------------------------------------------------


def routes_digest(block: RouteBlock, first: int) -> str:
    """Order-free digest of the real rows, each hashed with its token's position in the sample; ``first`` is row 0's.

    The sum of BLAKE2b-128 of every (position, ids as 32-bit integers), modulo 2^128, in hex. So neither the dtype nor the cut
    of a range in parts changes it (``digests_added`` of the parts is the whole's), a row at another position does, and
    placeholders count for nothing.
    """
    size, ids = row_size(block), block.layers * block.top_k
    wide = _as_32_bits(block.data, SIZES[block.dtype])
    missing, total = placeholder(block), 0
    for row in range(row_count(block)):
        if block.data[row * size : (row + 1) * size] != missing:
            text = struct.pack("<q", first + row) + wide[4 * ids * row : 4 * ids * (row + 1)]
            total += int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")
    return f"{total % _MODULUS:032x}"


def _as_32_bits(data: bytes, size: int) -> bytes:
    """Ids of ``size`` bytes that are 0 or more as 32-bit ones: byte by byte, for all of them at once."""
    if size == 4:
        return data
    wide = bytearray(len(data) // size * 4)
    for place in range(size):
        wide[place::4] = data[place::size]
    return bytes(wide)


def digests_added(digests: Sequence[str]) -> str:
    """``routes_digest`` of ranges that do not overlap, taken together; '' counts for nothing."""
    return f"{sum(int(digest, 16) for digest in digests if digest) % _MODULUS:032x}"
