"""What the finalizer makes of a group: exactly N rows, in order, whatever is wrong with the chains."""

from __future__ import annotations

import msgspec
import pytest
from chain_samples import GROUP, PROMPT, chain_rows, group_request, sealed_again, staged

from protocol.data_plane.digests import StagedRow, carry_digest, generated_digest
from protocol.data_plane.finalizer import build_rows, request_fault
from protocol.data_plane.rows import calls_of, row_fault
from protocol.identity import sample_id
from protocol.ledger.receipts import receipt_of
from protocol.messages import FinalizeGroup

SIBLINGS = 4
SAMPLES = [sample_id(GROUP, generation) for generation in range(SIBLINGS)]


def chains() -> list[list[StagedRow]]:
    return [chain_rows(generation, turns=1 + generation % 3) for generation in range(SIBLINGS)]


def stored(rows: list[list[StagedRow]]) -> dict[str, bytes]:
    return {key: data for chain in rows for key, data in staged(chain).items()}


def without(*lost: tuple[int, int]) -> tuple[FinalizeGroup, dict[str, bytes]]:
    """A group of which the rows (generation, turn) are missing from staging."""
    rows = chains()
    gone = [rows[generation][turn].key for generation, turn in lost]
    return group_request(rows), {key: data for key, data in stored(rows).items() if key not in gone}


def test_a_sound_group_gives_one_valid_row_a_sibling_in_order_of_generation() -> None:
    rows, metas = build_rows(group_request(chains()), stored(chains()))
    assert [row.sample for row in rows] == [meta.sample for meta in metas] == SAMPLES
    assert all(row.sample_mask == 1 and row_fault(row) == "" for row in rows)
    assert [meta.digest for meta in metas] == [row.digest for row in rows]
    assert [(meta.min_version, meta.max_version) for meta in metas] == [(0, 0), (0, 1), (0, 2), (0, 0)]
    assert all(meta.valid and meta.reason == "" for meta in metas)


def test_a_lost_staged_row_masks_its_own_sibling_only() -> None:
    rows, metas = build_rows(*without((1, 1)))
    assert [row.sample for row in rows] == SAMPLES
    assert [row.sample_mask for row in rows] == [1, 0, 1, 1]
    assert metas[1].reason.endswith("missing from staging") and not metas[1].valid
    assert rows[1].tokens == PROMPT and rows[1].keys == ()
    assert row_fault(rows[1]) == ""


def test_a_masked_row_has_its_siblings_prompt_when_its_own_root_is_lost() -> None:
    rows, _ = build_rows(*without((0, 0)))
    assert (rows[0].sample_mask, rows[0].tokens, rows[0].prompt_length) == (0, PROMPT, len(PROMPT))


def test_a_group_without_one_verified_root_still_gets_its_rows() -> None:
    rows, metas = build_rows(group_request(chains()), {})
    assert [row.sample for row in rows] == SAMPLES
    assert all(row.sample_mask == 0 and row.tokens == () for row in rows)
    assert not any(meta.valid for meta in metas)


def test_a_masked_row_keeps_the_age_of_its_calls() -> None:
    """Masking must not make a group look fresher, or older, than what was generated."""
    _, metas = build_rows(*without((2, 0)))
    assert (metas[2].min_version, metas[2].max_version) == (0, 2)


def test_a_sibling_without_calls_is_as_old_as_its_group() -> None:
    rows = [[sealed_again(chain[0], "", weight_version=7)] for chain in (chain_rows(generation, 1) for generation in range(4))]
    request = group_request(rows)
    empty = receipt_of(request.siblings[0].receipt.rollout_id, request.siblings[0].receipt.key, ())
    first = msgspec.structs.replace(request.siblings[0], receipt=empty)
    request = msgspec.structs.replace(request, siblings=(first, *request.siblings[1:]))
    _, metas = build_rows(request, stored(rows))
    assert (metas[0].valid, metas[0].min_version, metas[0].max_version) == (False, 7, 7)


def test_a_sibling_never_gets_another_siblings_chain() -> None:
    rows = chains()
    request = group_request(rows)
    swapped = msgspec.structs.replace(request.siblings[0], receipt=request.siblings[1].receipt)
    built, metas = build_rows(msgspec.structs.replace(request, siblings=(swapped, *request.siblings[1:])), stored(rows))
    assert built[0].sample_mask == 0 and "generation is 1" in metas[0].reason


def test_a_request_for_a_whole_group_is_accepted() -> None:
    assert request_fault(group_request(chains()), SIBLINGS) == ""


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2, 3), (0, 1, 2, 2), (0, 1, 2, 3, 3), ()])
def test_a_request_that_is_not_every_sibling_once_in_order_is_refused(order: tuple[int, ...]) -> None:
    request = group_request(chains())
    partial = msgspec.structs.replace(request, siblings=tuple(request.siblings[index] for index in order))
    assert "in order" in request_fault(partial, SIBLINGS)


def test_a_trained_row_names_the_digest_of_each_call_of_its_chain() -> None:
    request, stored_rows = without()
    rows, _ = build_rows(request, stored_rows)
    for row, chain in zip(rows, chains(), strict=True):
        assert [call for call, _, _ in calls_of(row)] == [one.key for one in chain]
        for (_, carry, made), one in zip(calls_of(row), chain, strict=True):
            first = len(one.tokens) - one.generated
            assert carry == carry_digest(one.tokens[:first])
            assert made == generated_digest(one.tokens[first:], one.logprobs[first:])


def test_tokens_that_no_call_accounts_for_stand_last_without_a_key() -> None:
    request, stored_rows = without()
    row = build_rows(request, stored_rows)[0][0]
    longer = msgspec.structs.replace(row, tokens=(*row.tokens, 5), mask=(*row.mask, 1), logprobs=(*row.logprobs, -1.0))
    assert calls_of(longer)[:-1] == calls_of(row)
    assert calls_of(longer)[-1][0] == ""
