"""What one row shows by itself: its calls, spans, masks, logprobs and keys agree, or the fault is named with its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from parity_samples import Pair, clean_pair, drop_token

from parity.evidence import faults_of


def found(pair: Pair) -> list[tuple[str, int, int, str, str]]:
    """(run, ordinal, generation, what, fault) of each."""
    columns = ["run", "ordinal", "generation", "what", "fault"]
    return list(faults_of(*pair.runs())[columns].itertuples(index=False, name=None))


def moved(row: dict[str, Any]) -> None:
    row["generation_logprobs"] = [row["generation_logprobs"][-1], *row["generation_logprobs"][:-1]]


def emptied(row: dict[str, Any], *names: str) -> None:
    for name in names:
        row[name] = []


TOO_WIDE = "a weight version is given to tokens that no call generated"


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda row: drop_token(row, 12), "its calls do not add up to its tokens"),
        (lambda row: row["calls"].pop(), "its calls are no pairs (carried, generated)"),
        (lambda row: row["spans"].pop(), "its spans are no triples (first token, last + 1, weight version)"),
        (lambda row: row["spans"].__setitem__(3, row["spans"][1] - 1), "its spans overlap, or lie outside its tokens"),
        (lambda row: row["spans"].__setitem__(4, len(row["tokens"]) + 1), "its spans overlap, or lie outside its tokens"),
        (lambda row: row["spans"].__setitem__(4, row["spans"][4] - 1), "a trained token has no weight version"),
        (lambda row: row["spans"].__setitem__(0, row["spans"][0] - 1), TOO_WIDE),
        (lambda row: row["token_mask"].__setitem__(0, 1), "a trained token has no weight version"),
        (moved, "a logprob lies on a token that no call generated"),
        (lambda row: row["keys"].pop(), "it does not have one of keys for each of its calls"),
        (lambda row: row["routes"].append("r"), "it does not have one of routes for each of its calls"),
        (lambda row: row["routes_sorted"].pop(), "it does not have one of routes_sorted for each of its calls"),
        (lambda row: row["media"].append("m"), "it does not have one of media for each of its calls"),
        (lambda row: row["keys"].__setitem__(1, row["keys"][0]), "another call has its key e0p4i1_g4r1-a0/c0"),
        (lambda row: emptied(row, "calls", "spans"), "it is trained on, but no call generated it"),
    ],
)  # fmt: skip
def test_a_row_whose_parts_disagree_is_named(spoil: Callable[[dict[str, Any]], None], fault: str) -> None:
    pair = clean_pair(media=True)
    spoil(pair.restored.row(3, 1))
    assert ("restored", 4, 1, "provenance", fault) in found(pair)
    assert {line[:3] for line in found(pair)} == {("restored", 4, 1)}
    assert {line[3] for line in found(pair)} <= {"provenance", "row"}


def test_clean_rows_have_no_fault_masked_inside_a_call_or_not() -> None:
    assert found(clean_pair(media=True)) == []
    pair = clean_pair()
    row = pair.restored.row(2, 0)
    (place,) = [at for at in range(row["spans"][3], row["spans"][4]) if not row["token_mask"][at]]
    row["spans"][4:5] = [place, 1, place + 1, row["spans"][4]]  # a writer may give no version to what is not trained
    assert found(pair) == []


def test_a_key_that_two_rows_have_is_a_fault_but_one_of_a_discarded_step_is_not() -> None:
    pair = clean_pair()
    pair.restored.row(3, 0)["keys"] = list(pair.restored.row(3, 1)["keys"])
    assert len(found(pair)) == 2
    again = clean_pair()
    again.restored.rows.insert(0, again.restored.row(2, 0) | {"life": 1})
    assert found(again) == []


def test_a_masked_placeholder_without_calls_is_no_fault() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 0)
    emptied(row, "calls", "spans", "keys", "routes", "routes_sorted")
    row["token_mask"] = [0] * len(row["tokens"])
    row["generation_logprobs"] = [0.0] * len(row["tokens"])
    assert found(pair) == []


def test_a_fault_of_the_reference_is_the_references() -> None:
    pair = clean_pair()
    drop_token(pair.reference.row(3, 1), 12)
    assert {line[0] for line in found(pair)} == {"reference"}


def test_what_lay_in_staging_beside_its_calls_is_told_where_no_history_says_it() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 0)
    row["staging_alive"] = [row["keys"][0]]
    (reference, restored) = pair.runs()
    assert faults_of(reference, replace(restored, has_history=False)).empty, "deferred routes stay until the step"
    row["staging_alive"] = ["chunk-1"]
    reference, restored = pair.runs()
    assert faults_of(reference, restored).empty
    (fault,) = faults_of(reference, replace(restored, has_history=False)).itertuples(index=False)
    assert (fault.what, fault.fault) == ("staging", "1 rows beside its calls were alive when it was trained: chunk-1")
