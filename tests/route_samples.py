"""Route rows that say whose they are, for tests that then move or damage them."""

from __future__ import annotations

import struct

from protocol.data_plane.digests import StagedRow
from protocol.data_plane.extras import Extras, RouteBlock
from protocol.data_plane.routes import CODES, joined, placeholder, shaped

LAYERS, TOP_K = 3, 2
SHAPE = shaped("int16", LAYERS, TOP_K)


def route_row(position: int, shape: RouteBlock = SHAPE, salt: int = 0) -> bytes:
    """The row of the token at this position of the sample."""
    ids = [(position * 7 + place * 3 + salt) % 100 for place in range(shape.layers * shape.top_k)]
    return struct.pack(f"<{len(ids)}{CODES[shape.dtype]}", *ids)


def route_rows(start: int, end: int, shape: RouteBlock = SHAPE, salt: int = 0) -> RouteBlock:
    return joined(shape, [route_row(position, shape, salt) for position in range(start, end)])


def staged_routes(row: StagedRow, shape: RouteBlock = SHAPE) -> Extras:
    """As a worker stages them: the boundary row, a row for each token that was fed, the placeholder."""
    first = row.previous_length - (1 if row.previous_length else 0)
    last = row.previous_length + len(row.tokens) - 1
    return Extras(routes=joined(shape, [route_rows(first, last, shape).data, placeholder(shape)]))
