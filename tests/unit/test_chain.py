"""Verification of one sealed attempt's chain and the canonical row made of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from chain_samples import GROUP, ORDINAL, PROMPT, chain_rows, coordinate, receipt, sealed_again, staged
from route_samples import LAYERS, SHAPE, TOP_K, route_row, route_rows, staged_routes

from protocol.data_plane.chain import linearise, masked, verify_chain
from protocol.data_plane.digests import StagedRow, encode_row, row_digest
from protocol.data_plane.extras import Extras, RouteBlock
from protocol.data_plane.routes import is_placeholder, joined, placeholder, routes_digest, row_count, rows_between, shaped
from protocol.data_plane.rows import canonical_digest, decode_canonical, encode_canonical, row_fault, tools_digest, trained_row
from protocol.identity import sample_id
from protocol.ledger.receipts import receipt_of
from protocol.messages import Receipt

SAMPLE = sample_id(GROUP, 0)


def changed(sealed: Receipt, **changes: Any) -> Receipt:
    """A receipt with ``changes``, under a digest that fits."""
    other = msgspec.structs.replace(sealed, **changes)
    return receipt_of(other.rollout_id, other.key, other.calls)


def reason(sealed: Receipt, rows: dict[str, bytes], generation: int = 0) -> str:
    return verify_chain(sealed, rows, ORDINAL, generation).reason


def test_a_sound_chain_is_verified_whole() -> None:
    rows = chain_rows()
    chain = verify_chain(receipt(rows), staged(rows), ORDINAL, 0)
    assert (chain.reason, chain.rows) == ("", tuple(rows))


def test_turns_captured_before_a_restore_belong_to_the_chain() -> None:
    rows = chain_rows(attempts=(0, 0, 1))
    assert reason(receipt(rows), staged(rows)) == ""


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"v": 1}, "v is 1"),
        ({"rollout_id": f"{SAMPLE}r1"}, "rollout_id is"),
        ({"key": "elsewhere"}, "key is 'elsewhere'"),
        ({"call": "c9"}, "key is"),
        ({"turn": 2}, "turn is 2"),
        ({"ordinal": 6}, "ordinal is 6"),
        ({"generation": 1}, "generation is 1"),
        ({"attempt": 1}, "attempt is 1, the sealed attempt is 0"),
        ({"attempt": -1}, "attempt is -1"),
        ({"mode": "text"}, "mode is 'text'"),
        ({"parent": ""}, "parent is ''"),
        ({"previous_length": 4}, "previous_length is 4, it must be 5"),
        ({"mask": (0, 0, 1, 1)}, "have 5, 4 and 5 items"),
        ({"tokens": (), "mask": (), "logprobs": ()}, "have 0, 0 and 0 items"),
        ({"mask": (0, 1, 0, 1, 1)}, "mask is not carry (0) followed by generated tokens (1)"),
        ({"mask": (0, 0, 1, 1, 2)}, "mask is not carry"),
        ({"mask": (0,) * 5, "logprobs": (0.0,) * 5}, "no token was generated"),
        ({"logprobs": (0.0, -1.0, -1.0, -1.0, -1.0)}, "a carried token has a logprob"),
    ],
)
def test_damage_that_fits_its_digests_is_found(changes: dict[str, Any], says: str) -> None:
    """Row 1 is the one that is damaged; the worker that did it also digested what it wrote."""
    rows = chain_rows()
    rows[1] = sealed_again(rows[1], rows[0].cumulative, **changes)
    stored = staged(rows)
    stored[chain_rows()[1].key] = stored.pop(rows[1].key)
    calls = list(receipt(rows).calls)
    calls[1] = msgspec.structs.replace(coordinate(rows[1]), key=chain_rows()[1].key)
    found = reason(changed(receipt(rows), calls=tuple(calls)), stored)
    assert found.startswith(chain_rows()[1].key) and says in found


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e39, -0.1])
def test_a_logprob_that_is_no_finite_32_bit_float_is_found(value: float) -> None:
    rows = chain_rows()
    broken = msgspec.structs.replace(rows[2], logprobs=(*rows[2].logprobs[:-1], value))
    assert "a logprob is not a finite 32-bit float" in reason(receipt(rows), staged([*rows[:2], broken]))


def test_a_token_outside_32_bits_is_found() -> None:
    rows = chain_rows()
    for token in (-1, 1 << 32):
        broken = msgspec.structs.replace(rows[0], tokens=(token, *rows[0].tokens[1:]))
        assert "a token id is not an unsigned 32-bit integer" in reason(receipt(rows), staged([broken, *rows[1:]]))


def test_a_missing_row_is_named() -> None:
    rows = chain_rows()
    stored = staged(rows)
    del stored[rows[1].key]
    chain = verify_chain(receipt(rows), stored, ORDINAL, 0)
    assert chain.reason == f"{rows[1].key}: missing from staging"
    assert chain.rows == (rows[0],)


def test_bytes_that_are_no_staged_row_are_found() -> None:
    rows = chain_rows()
    assert "not a staged row" in reason(receipt(rows), {**staged(rows), rows[0].key: b"\xc1"})


def test_a_row_under_another_rows_key_is_found() -> None:
    rows = chain_rows()
    stored = staged(rows)
    stored[rows[1].key] = stored[rows[0].key]
    assert "key is" in reason(receipt(rows), stored)


def test_a_changed_token_is_found_by_the_row_digest() -> None:
    rows = chain_rows()
    broken = msgspec.structs.replace(rows[1], tokens=(*rows[1].tokens[:-1], 999))
    assert "digest is" in reason(receipt(rows), staged([rows[0], broken, rows[2]]))


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("digest", "00", "digest is '00'"),
        ("cumulative", "00", "cumulative is '00'"),
        ("tokens", 9, "generated tokens is 3"),
        ("version", 9, "weight_version is 1"),
    ],
)
def test_a_coordinate_that_differs_from_its_row_is_found(field: str, value: Any, says: str) -> None:
    rows = chain_rows()
    calls = list(receipt(rows).calls)
    calls[1] = msgspec.structs.replace(calls[1], **{field: value})
    assert says in reason(changed(receipt(rows), calls=tuple(calls)), staged(rows))


def test_a_row_sealed_onto_another_parent_is_found_by_the_chain_digest() -> None:
    rows = chain_rows()
    rows[2] = sealed_again(rows[2], rows[0].cumulative)
    assert "cumulative is" in reason(receipt(rows), staged(rows))


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (1, 2), (0, 2)])
def test_calls_that_are_not_the_whole_chain_root_first_are_found(order: tuple[int, ...]) -> None:
    rows = chain_rows()
    calls = tuple(coordinate(rows[index]) for index in order)
    assert reason(changed(receipt(rows), calls=calls), staged(rows)) != ""


def test_a_receipt_without_calls_is_found() -> None:
    sealed = changed(receipt(chain_rows()), calls=())
    assert reason(sealed, {}) == f"{sealed.key}: the receipt names no call"


@pytest.mark.parametrize("field", ["calls", "key", "rollout_id", "digest"])
def test_a_receipt_that_differs_from_its_digest_is_found(field: str) -> None:
    """A chain cut short at its end is sound row by row: only the receipt's digest says that a call is missing."""
    sealed = receipt(chain_rows())
    value = sealed.calls[:-1] if field == "calls" else "other-a0"
    assert "differs from its digest" in reason(msgspec.structs.replace(sealed, **{field: value}), staged(chain_rows()))


def test_a_receipt_of_another_rollout_is_found() -> None:
    rows = chain_rows()
    assert "rollout_id of the receipt's key" in reason(changed(receipt(rows), key="other-a0"), staged(rows))


def test_another_siblings_chain_is_found() -> None:
    rows = chain_rows(generation=1)
    assert "generation is 1" in reason(receipt(rows), staged(rows), generation=0)


def test_an_attempt_that_goes_back_along_the_chain_is_found() -> None:
    rows = chain_rows(attempts=(0, 1, 0))
    sealed = changed(receipt(rows), key=f"{rows[0].rollout_id}-a1")
    assert "attempt is 0, its parent's is 1" in reason(sealed, staged(rows))


def test_the_canonical_row_is_the_chain_end_to_end() -> None:
    row = linearise(SAMPLE, GROUP, chain_rows(), 0.75)
    assert row.tokens == (11, 12, 13, 200, 201, 101, 102, 200, 201, 202, 102, 103, 200, 201, 202, 203)
    assert row.mask == (0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1)
    assert len(row.logprobs) == len(row.tokens)
    assert row.prompt_length == len(PROMPT)
    assert row.spans == ((0, 2), (1, 3), (2, 4))
    assert row.tools == tools_digest([(101, 102), (102, 103)])
    assert row.keys == tuple(staged_row.key for staged_row in chain_rows())
    assert (row.sample, row.group, row.ordinal, row.generation) == (SAMPLE, GROUP, ORDINAL, 0)
    assert (row.reward, row.sample_mask) == (0.75, 1)


def test_where_one_tool_reply_ends_is_part_of_its_digest() -> None:
    assert tools_digest([(1, 2), (3,)]) != tools_digest([(1,), (2, 3)])


def test_a_masked_row_teaches_nothing() -> None:
    row = masked(SAMPLE, GROUP, ORDINAL, 0, PROMPT)
    assert (row.tokens, row.mask, row.spans, row.sample_mask) == (PROMPT, (0, 0, 0), (), 0)


def test_a_canonical_row_survives_its_encoding() -> None:
    row = linearise(SAMPLE, GROUP, chain_rows(), 0.75)
    assert decode_canonical(encode_canonical(row)) == row
    assert row_fault(row) == "" and canonical_digest(row) == row.digest


@pytest.mark.parametrize("field", ["reward", "sample_mask", "prompt_length", "ordinal"])
def test_a_canonical_row_that_was_changed_differs_from_its_digest(field: str) -> None:
    row = linearise(SAMPLE, GROUP, chain_rows(), 0.75)
    assert "differs from its digest" in row_fault(msgspec.structs.replace(row, **{field: 2}))


def test_a_canonical_row_with_a_missing_or_unknown_field_is_not_decoded() -> None:
    whole = msgspec.msgpack.decode(encode_canonical(linearise(SAMPLE, GROUP, chain_rows(), 0.75)))
    for wrong in ({**whole, "extra": 1}, {name: value for name, value in whole.items() if name != "tools"}):
        with pytest.raises(msgspec.ValidationError):
            decode_canonical(msgspec.msgpack.encode(wrong))


def test_a_trained_row_names_content_not_ids() -> None:
    rows = chain_rows()
    one = trained_row(linearise(SAMPLE, GROUP, rows, 0.75))
    other = trained_row(linearise("elsewhere", "other", rows, 0.75))
    assert msgspec.structs.replace(one, sample="") == msgspec.structs.replace(other, sample="")
    assert one.valid and one.spans == ((0, 2), (1, 3), (2, 4))


# --- routes ------------------------------------------------------------------------------------------------------------------


def routed_rows(shapes: tuple[RouteBlock | None, ...] = (SHAPE, SHAPE, SHAPE)) -> list[StagedRow]:
    """A chain whose calls were staged with routes of these shapes (None: without)."""
    rows: list[StagedRow] = []
    for row, shape in zip(chain_rows(), shapes, strict=True):
        extras = None if shape is None else staged_routes(row, shape)
        rows.append(sealed_again(row, rows[-1].cumulative if rows else "", extras=extras))
    return rows


def test_a_chain_with_routes_is_verified_whole_and_survives_its_codec() -> None:
    rows = routed_rows()
    assert verify_chain(receipt(rows), staged(rows), ORDINAL, 0).rows == tuple(rows)


def test_rows_without_routes_have_the_bytes_they_always_had() -> None:
    row = chain_rows()[1]
    assert "extras" not in msgspec.msgpack.decode(encode_row(row))
    assert "routes" not in msgspec.msgpack.decode(encode_canonical(linearise(SAMPLE, GROUP, chain_rows(), 1.0)))


def test_routes_are_covered_by_the_digest_of_the_row() -> None:
    rows = routed_rows()
    assert row_digest(rows[1]) != row_digest(chain_rows()[1])
    other = msgspec.structs.replace(rows[1], extras=staged_routes(rows[1], shaped("int32", LAYERS, TOP_K)))
    assert row_digest(other) != row_digest(rows[1])


def test_a_canonical_row_has_one_route_row_a_token_and_ends_in_the_only_placeholder() -> None:
    """Each call's boundary row stands where its parent had put the placeholder."""
    row = linearise(SAMPLE, GROUP, routed_rows(), 1.0)
    assert row.routes == joined(SHAPE, [route_rows(0, len(row.tokens) - 1).data, placeholder(SHAPE)])
    assert row_fault(row) == ""
    assert decode_canonical(encode_canonical(row)) == row


def test_routes_are_covered_by_the_digest_of_the_canonical_row() -> None:
    row = linearise(SAMPLE, GROUP, routed_rows(), 1.0)
    plain = linearise(SAMPLE, GROUP, chain_rows(), 1.0)
    assert canonical_digest(row) != canonical_digest(plain)
    assert "differs from its digest" in row_fault(msgspec.structs.replace(row, routes=None))


@pytest.mark.parametrize("without", [0, 1, 2])
def test_a_call_staged_without_routes_is_a_span_of_placeholders_and_no_masked_row(without: int) -> None:
    shapes = tuple(None if turn == without else SHAPE for turn in range(3))
    rows = routed_rows(shapes)
    assert reason(receipt(rows), staged(rows)) == ""
    row = linearise(SAMPLE, GROUP, rows, 1.0)
    assert row.routes is not None
    last = len(row.tokens) - 1
    start = rows[without].previous_length
    end = start + len(rows[without].tokens)
    # Its own last token is known all the same where a call with routes comes after it: that one was fed it.
    covered = {end - 1} if end <= last else set()
    missing = (set(range(start, end)) | {last} | ({start - 1} if start else set())) - covered
    assert {row_ for row_ in range(last + 1) if is_placeholder(row.routes, row_)} == missing


def test_a_chain_without_any_routes_has_none() -> None:
    assert linearise(SAMPLE, GROUP, chain_rows(), 1.0).routes is None


def test_calls_of_two_dtypes_are_put_together_in_the_wider_one() -> None:
    narrow = shaped("int8", LAYERS, TOP_K)
    rows = routed_rows((narrow, SHAPE, narrow))
    assert reason(receipt(rows), staged(rows)) == ""
    assert linearise(SAMPLE, GROUP, rows, 1.0).routes == linearise(SAMPLE, GROUP, routed_rows(), 1.0).routes


def test_a_trained_row_names_the_routes_of_each_call() -> None:
    row = linearise(SAMPLE, GROUP, routed_rows(), 1.0)
    ends = [sum(len(call.tokens) for call in chain_rows()[: turn + 1]) for turn in range(3)]
    expected = [routes_digest(route_rows(start, end), start) for start, end in ((0, ends[0]), (ends[0], ends[1]))]
    # Of the last call's last token there is no row.
    expected.append(routes_digest(route_rows(ends[1], ends[2] - 1), ends[1]))
    assert trained_row(row).routes == tuple(expected)
    assert trained_row(linearise(SAMPLE, GROUP, chain_rows(), 1.0)).routes == ()


def test_a_boundary_row_that_no_engine_made_leaves_the_parents_placeholder() -> None:
    """A call that was answered from a finished prefix was fed nothing."""
    rows = routed_rows()
    block = rows[1].extras.routes if rows[1].extras else SHAPE
    unfed = Extras(routes=joined(SHAPE, [placeholder(SHAPE), rows_between(block, 1, row_count(block)).data]))
    rows[1] = sealed_again(rows[1], rows[0].cumulative, extras=unfed)
    rows[2] = sealed_again(rows[2], rows[1].cumulative)
    assert reason(receipt(rows), staged(rows)) == ""
    routes = linearise(SAMPLE, GROUP, rows, 1.0).routes
    assert routes is not None
    assert [row for row in range(row_count(routes)) if is_placeholder(routes, row)] == [4, row_count(routes) - 1]


def damaged(turn: int, start: int, end: int, *parts: bytes, shape: RouteBlock = SHAPE) -> str:
    """Why a chain is not whole whose call ``turn`` has ``parts`` between its first ``start`` and last ``end`` route rows."""
    rows = routed_rows()
    extras = rows[turn].extras
    assert extras is not None
    assert extras.routes is not None
    head = rows_between(extras.routes, 0, start).data
    tail = rows_between(extras.routes, row_count(extras.routes) - end, row_count(extras.routes)).data
    rows[turn] = sealed_again(
        rows[turn], rows[turn - 1].cumulative if turn else "", extras=Extras(routes=joined(shape, [head, *parts, tail]))
    )
    return reason(receipt(rows), staged(rows))


def test_routes_of_another_length_are_found() -> None:
    count = len(chain_rows()[1].tokens)
    assert f"there are {count} route rows, they must be {count + 1}" in damaged(1, count - 1, 1)
    assert f"there are {count + 2} route rows, they must be {count + 1}" in damaged(1, count, 1, route_row(3))
    root = len(chain_rows()[0].tokens)
    assert f"there are {root + 1} route rows, they must be {root}" in damaged(0, root - 1, 1, route_row(3))


def test_a_last_row_that_is_not_the_placeholder_is_found() -> None:
    count = len(chain_rows()[1].tokens)
    assert "the last route row is not the placeholder" in damaged(1, count, 0, route_row(3))
    assert "the last route row is not the placeholder" in damaged(1, count, 0, bytes(len(placeholder(SHAPE))))


def test_a_placeholder_in_the_middle_is_found() -> None:
    count = len(chain_rows()[1].tokens)
    assert "a token that was fed has no route row" in damaged(1, 2, count - 2, placeholder(SHAPE))


def test_a_boundary_row_that_is_half_a_placeholder_is_found() -> None:
    count = len(chain_rows()[1].tokens)
    half = placeholder(SHAPE)[:-2] + b"\x01\x00"
    assert "the boundary row is neither" in damaged(1, 0, count, half)


def test_routes_of_another_shape_than_their_parents_are_found() -> None:
    rows = routed_rows((SHAPE, shaped("int16", LAYERS + 1, TOP_K), None))
    assert f"route rows are of {(LAYERS + 1, TOP_K)}, those before are of {(LAYERS, TOP_K)}" in reason(
        receipt(rows), staged(rows)
    )
