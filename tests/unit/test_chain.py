"""Verification of one sealed attempt's chain and the canonical row made of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from chain_samples import GROUP, ORDINAL, PROMPT, chain_rows, coordinate, receipt, sealed_again, staged

from protocol.data_plane.chain import linearise, masked, verify_chain
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
