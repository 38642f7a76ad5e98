"""Whatever pieces an engine appends and wherever a call is cut, its chunks and its own row hold one row a token, the same one."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from route_samples import LAYERS, TOP_K, route_rows

from protocol.data_plane.extras import RouteBlock
from protocol.data_plane.routes import (
    SIZES,
    digests_added,
    from_engine,
    joined,
    placeholder,
    routes_digest,
    row_size,
    rows_between,
    shaped,
    wire_dtype,
)
from protocol.parts import RouteLayout
from protocol.worker.routes import CallRoutes


class Piece:
    def __init__(self, data: bytes, rows: int) -> None:
        self.data = data
        self.rows = rows
        self.reads = 0

    def read(self) -> bytes:
        self.reads += 1
        return self.data


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    previous = draw(st.sampled_from([0, 1, 7]))
    carry, restored, new = draw(st.integers(1, 6)), draw(st.integers(0, 5)), draw(st.integers(1, 12))
    count = restored + new
    rows = (1 if previous else 0) + carry + count - 1
    cuts = sorted(draw(st.sets(st.integers(restored + 1, count), max_size=4)))
    return {
        "previous": previous,
        "carry": carry,
        "restored": restored,
        "count": count,
        "cuts": cuts,
        "sizes": draw(st.lists(st.integers(1, 5), min_size=rows, max_size=rows)),
        "dtype": draw(st.sampled_from(["uint8", *SIZES])),
        "since": draw(st.booleans()),
    }


def engine_pieces(call: dict[str, Any], whole: bytes, size: int) -> list[Piece]:
    found, at, rows = [], 0, len(whole) // size
    for wanted in call["sizes"]:
        taken = min(wanted, rows - at)
        if taken:
            found.append(Piece(whole[at * size : (at + taken) * size], taken))
        at += taken
    return found


@given(calls())
@settings(max_examples=300, deadline=None)
def test_chunks_and_the_finished_row_hold_each_tokens_row_once(call: dict[str, Any]) -> None:
    previous, carry, restored, count = call["previous"], call["carry"], call["restored"], call["count"]
    dtype = wire_dtype(call["dtype"])
    shape = shaped(dtype, LAYERS, TOP_K)
    boundary = 1 if previous else 0
    first, start = previous - boundary, previous + carry
    # As the engine has it: the bytes of an unsigned one are those of int8, all ids here are below 128.
    engine_shape = shaped("int8" if call["dtype"] == "uint8" else dtype, LAYERS, TOP_K)
    data = route_rows(first, start + count - 1, engine_shape).data
    pieces = engine_pieces(call, data, row_size(engine_shape))
    routes = CallRoutes(layout=RouteLayout(LAYERS, TOP_K, call["dtype"]), boundary=boundary, carry=carry)
    prefix = route_rows(previous, start + restored, shape, salt=9) if restored else None

    blocks: list[RouteBlock] = [prefix] if prefix is not None else []
    done = restored
    for cut in call["cuts"]:
        finish = "stop" if cut == count else ""
        known = len(routes.pieces) if call["since"] else 0
        routes.absorb(known, pieces[known:])
        made = routes.chunk(done, cut, finish)
        assert made.block is not None
        assert made.materialised <= routes.rows
        lead = carry if done == 0 else 0
        parts = [
            route_rows(start + done - lead, start + cut - (1 if finish else 0), shape).data,
            placeholder(shape) if finish else b"",
        ]
        assert made.block == joined(shape, parts)
        blocks.append(made.block)
        done = cut
    assert max((piece.reads for piece in pieces), default=0) <= len(call["cuts"])

    routes.absorb(0, pieces)
    for piece in pieces:
        piece.reads = 0
    whole = routes.whole(count, prefix, restored)
    assert whole.block is not None
    assert max((piece.reads for piece in pieces), default=0) <= 1
    own = rows_between(whole.block, boundary, boundary + carry + count)
    if prefix is not None:
        assert rows_between(own, 0, carry + restored) == prefix
    if boundary:
        assert rows_between(whole.block, 0, 1) == route_rows(first, first + 1, shape)
    if done:
        rows = b"".join(block.data for block in blocks)
        assert own.data[: len(rows)] == rows
    assert own.data[-row_size(shape) :] == placeholder(shape)
    # The digests of a prefix, of what was routed since and of the boundary row are the whole's.
    tail = from_engine(data, call["dtype"])[(boundary + carry + restored if restored else boundary) * row_size(shape) :]
    since = joined(shape, (tail,))
    parts = [
        routes_digest(prefix, previous) if prefix is not None else "",
        routes_digest(since, start + restored if restored else previous),
    ]
    assert digests_added(parts) == routes_digest(own, previous)
