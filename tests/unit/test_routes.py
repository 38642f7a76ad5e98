"""Route rows as bytes: their dtypes, the placeholder, ranges, wire encodings and digests."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from route_samples import LAYERS, SHAPE, TOP_K, route_row, route_rows

from protocol.data_plane.extras import RouteBlock
from protocol.data_plane.routes import (
    CODES,
    NO_ROUTES,
    SIZES,
    Misfit,
    all_real,
    block_fault,
    decoded,
    digests_added,
    encoded,
    from_engine,
    is_placeholder,
    joined,
    placeholder,
    routes_digest,
    row_count,
    rows_between,
    shaped,
    widened,
    widest,
    wire_dtype,
)


@pytest.mark.parametrize("dtype", SIZES)
def test_every_id_of_a_placeholder_reads_minus_one_in_every_dtype(dtype: str) -> None:
    shape = shaped(dtype, LAYERS, TOP_K)
    ids = struct.unpack(f"<{2 * LAYERS * TOP_K}{CODES[dtype]}", placeholder(shape, 2))
    assert set(ids) == {-1}


def test_an_engines_unsigned_ids_are_widened_before_one_can_read_like_the_sentinel() -> None:
    data = bytes(range(250, 256))
    wide = from_engine(data, "uint8")
    assert wire_dtype("uint8") == "int16"
    assert struct.unpack("<6h", wide) == (250, 251, 252, 253, 254, 255)
    assert all_real(RouteBlock("int16", 3, 2, wide))
    assert not all_real(RouteBlock("int8", 3, 2, data))


@pytest.mark.parametrize("dtype", SIZES)
def test_a_signed_dtype_of_the_engine_is_the_wires(dtype: str) -> None:
    data = route_rows(0, 4, shaped(dtype, LAYERS, TOP_K)).data
    assert wire_dtype(dtype) == dtype
    assert from_engine(data, dtype) == data


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "float32", "int64", ""])
def test_any_other_dtype_of_an_engine_is_read_by_nobody(dtype: str) -> None:
    assert wire_dtype(dtype) == ""


@pytest.mark.parametrize(
    ("block", "says"),
    [
        (RouteBlock("uint8", 3, 2, bytes(6)), "routes are 'uint8', they must be one of int8, int16, int32"),
        (RouteBlock("int16", 0, 2, b""), "0 layers of 2 experts"),
        (RouteBlock("int16", 3, 0, b""), "3 layers of 0 experts"),
        (RouteBlock("int16", 3, 2, bytes(13)), "13 bytes, which are no whole rows of 12"),
    ],
)
def test_a_block_that_is_no_array_of_rows_says_why(block: RouteBlock, says: str) -> None:
    assert says in block_fault(block)


def test_ranges_cut_and_joined_again_are_the_same_bytes() -> None:
    whole = route_rows(5, 25)
    parts = [rows_between(whole, start, end) for start, end in ((0, 7), (7, 8), (8, 20))]
    assert [row_count(part) for part in parts] == [7, 1, 12]
    assert joined(SHAPE, [part.data for part in parts]) == whole
    assert rows_between(whole, 3, 4).data == route_row(8)


def test_only_a_whole_row_of_sentinels_is_the_placeholder() -> None:
    partly = placeholder(SHAPE)[:-2] + b"\x00\x00"
    block = joined(SHAPE, [placeholder(SHAPE), partly, route_row(0)])
    assert [is_placeholder(block, row) for row in range(3)] == [True, False, False]
    assert [all_real(rows_between(block, row, row + 1)) for row in range(3)] == [False, False, True]


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("encoding", ["envelope", "list"])
def test_what_was_encoded_is_decoded_with_its_dtype(dtype: str, encoding: str) -> None:
    shape = shaped(dtype, LAYERS, TOP_K)
    block = joined(shape, [route_rows(0, 3, shape).data, placeholder(shape)])
    assert decoded(encoded(block, encoding), "" if encoding == "envelope" else dtype) == block


def test_no_routes_are_encoded_as_nothing() -> None:
    assert encoded(None, "envelope") is None
    assert encoded(route_rows(0, 1), "none") is None
    assert decoded(None) is None


def test_a_list_alone_has_no_dtype_and_is_held_in_the_widest() -> None:
    found = decoded(encoded(route_rows(0, 3), "list"))
    assert isinstance(found, RouteBlock)
    assert found.dtype == "int32"
    assert found == widened(route_rows(0, 3), "int32")


@pytest.mark.parametrize(
    "wire",
    [
        7,
        [],
        [[1, 2]],
        [[[1, 2], [3]]],
        [[[1, 2]], [[1, 2], [3, 4]]],
        [[["a", "b"]]],
        [[[1 << 40]]],
        {"dtype": "int16", "shape": [1, 3, 2]},
        {"dtype": "uint8", "shape": [1, 3, 2], "data": bytes(6)},
        {"dtype": "int16", "shape": [2, 3, 2], "data": bytes(12)},
        {"dtype": "int16", "shape": [1, 0, 2], "data": bytes(12)},
        {"dtype": "int16", "shape": [1, 3, 2], "data": bytes(12), "order": "F"},
    ],
)
def test_what_is_no_array_of_rows_is_a_misfit_and_raises_nothing(wire: Any) -> None:
    assert isinstance(decoded(wire), Misfit)


def test_ids_and_sentinels_are_the_same_in_a_wider_dtype() -> None:
    narrow = joined(shaped("int8", LAYERS, TOP_K), [route_rows(0, 2, shaped("int8", LAYERS, TOP_K)).data])
    mixed = joined(narrow, [narrow.data, placeholder(narrow)])
    wide = widened(mixed, widest(["int8", "int32", "int16"]))
    assert wide.dtype == "int32"
    assert is_placeholder(wide, 2)
    assert rows_between(wide, 0, 2) == route_rows(0, 2, shaped("int32", LAYERS, TOP_K))


# --- digests ---------------------------------------------------------------------------------------------------------------


def test_digests_of_ranges_add_up_to_the_wholes() -> None:
    whole = route_rows(5, 25)
    parts = [routes_digest(rows_between(whole, start, end), 5 + start) for start, end in ((0, 7), (7, 8), (8, 20))]
    assert digests_added([*parts, ""]) == routes_digest(whole, 5)


def test_the_placeholder_is_no_part_of_a_digest() -> None:
    block = joined(SHAPE, [placeholder(SHAPE), route_rows(1, 4).data, placeholder(SHAPE)])
    assert routes_digest(block, 0) == routes_digest(route_rows(1, 4), 1)
    assert routes_digest(joined(SHAPE, [placeholder(SHAPE, 3)]), 9) == NO_ROUTES


@pytest.mark.parametrize("dtype", SIZES)
def test_the_dtype_is_no_part_of_a_digest(dtype: str) -> None:
    shape = shaped(dtype, LAYERS, TOP_K)
    block = joined(shape, [route_rows(0, 4, shape).data, placeholder(shape)])
    assert routes_digest(block, 0) == routes_digest(route_rows(0, 4), 0)


def test_a_row_at_another_position_or_with_another_id_has_another_digest() -> None:
    digest = routes_digest(route_rows(0, 4), 0)
    swapped = joined(SHAPE, [route_row(position) for position in (1, 0, 2, 3)])
    changed = joined(SHAPE, [route_rows(0, 3).data, route_row(3, salt=1)])
    assert len({digest, routes_digest(route_rows(0, 4), 1), routes_digest(swapped, 0), routes_digest(changed, 0)}) == 4
