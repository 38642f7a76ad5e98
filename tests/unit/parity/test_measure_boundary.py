"""The place of a restored prefix is counted from the row's end, and a token too many or too few moves it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from parity_samples import EXACT, Pair, clean_pair, drop_token, repeat_token

from parity.boundary import Place, RowCalls, located, of_itself
from parity.compare import compare
from parity.measure import measure
from protocol.judging import Verdict


def row_of(pair: Pair, generation: int) -> tuple[dict[str, Any], dict[str, Any]]:
    row = pair.restored.row(2, generation)
    return row, pair.restored.call(row)


def place_of(row: dict[str, Any], line: dict[str, Any]) -> Place:
    return located(said(row), line)


def said(row: dict[str, Any]) -> RowCalls:
    return RowCalls(
        tokens=np.array(row["tokens"], np.int32), mask=np.array(row["token_mask"], np.int8), calls=row["calls"],
        logprobs=np.array(row["generation_logprobs"], np.float32), keys=row["keys"], attempt=row["attempt"],
        admitted=row["sample_mask"] != 0,
    )  # fmt: skip


def test_a_restored_call_that_closes_its_row_is_counted_from_the_end() -> None:
    row, line = row_of(clean_pair(), 0)
    place = place_of(row, line)
    assert (place.start, place.end, place.number) == (len(row["tokens"]) - row["calls"][3], len(row["tokens"]), 1)
    assert (place.prefix, place.proven, place.fault) == (5, True, "")


def test_later_calls_are_counted_back_first() -> None:
    row, line = row_of(clean_pair(), 1)
    place = place_of(row, line)
    assert (place.start, place.end, place.number) == (row["prompt_length"], row["prompt_length"] + row["calls"][1], 0)
    assert place.proven


def test_tokens_that_are_masked_inside_the_call_do_not_move_it() -> None:
    row, line = row_of(clean_pair(), 0)
    start = place_of(row, line).start
    row["token_mask"][start : start + 4] = [0, 0, 1, 0]
    assert place_of(row, line).start == start and place_of(row, line).proven


def test_without_counts_of_its_calls_the_row_ends_with_the_restored_call() -> None:
    row, line = row_of(clean_pair(), 0)
    row["calls"] = []
    assert place_of(row, line).proven
    del line["generated"]
    place = place_of(row, line)
    assert (place.fault, place.proven) == ("", False) and "column calls would settle it" in place.unsettled


def test_a_restored_call_that_is_not_the_last_cannot_be_found_in_a_row_that_counts_no_calls() -> None:
    row, line = row_of(clean_pair(), 1)
    none: list[str] = []
    for keys in (row["keys"], none):
        place = place_of(row | {"calls": [], "keys": keys}, line)
        assert (place.fault, place.start) == ("", -1) and "column calls would settle it" in place.unsettled
    row["tokens"][row["prompt_length"]] += 1
    assert "hash to" in place_of(row, line).fault, "where calls are counted, another prefix is a fault"


@pytest.mark.parametrize("named", [True, False])
def test_in_a_row_that_counts_no_calls_a_prefix_of_the_last_one_is_still_judged(named: bool) -> None:
    row, line = row_of(clean_pair(), 0)
    row["calls"] = []
    if not named:
        row["keys"] = []
    assert place_of(row, line).proven
    row["tokens"][place_of(row, line).start] += 1
    place = place_of(row, line)
    assert ("hash to" in place.fault, place.unsettled == "") == (named, named)


def test_a_row_that_was_generated_in_one_go_has_one_call() -> None:
    row, line = row_of(clean_pair(), 0)
    row.update(calls=[], keys=[])
    start = place_of(row, line).start
    row["token_mask"] = [0] * start + [1] * (len(row["tokens"]) - start)
    row["tokens"][start] += 1
    assert "hash to" in place_of(row, line).fault


@pytest.mark.parametrize("calls_too", [True, False])
def test_a_prefix_that_cannot_be_found_makes_the_result_unknown_and_says_what_would_settle_it(calls_too: bool) -> None:
    pair = clean_pair()
    for side in (pair.reference, pair.restored):
        for row in side.rows:
            row["calls"] = row["calls"] if calls_too else []
    result = compare(*pair.runs(), EXACT)
    unknown = [reason for reason in result.as_json()["unknown_because"] if "column calls would settle it" in reason]
    assert (result.verdict, bool(unknown)) == ((Verdict.HELD, False) if calls_too else (Verdict.UNKNOWN, True))
    assert not [gate.findings for gate in result.gates if gate.verdict is Verdict.BROKEN]


@pytest.mark.parametrize(("version", "fault"), [(1, False), (0, True), (None, False)])
def test_a_prefix_is_of_the_weights_that_it_was_restored_with(version: int | None, fault: bool) -> None:
    pair = clean_pair()
    line = pair.restored.call(pair.restored.row(2, 0))
    line["version"] = version
    calls = measure(*pair.runs(), EXACT).calls
    assert ("is of weight version 1 in the row" in calls["fault"].iloc[0]) is fault


@pytest.mark.parametrize("spoil", [drop_token, repeat_token])
@pytest.mark.parametrize("generation", [0, 1])
@pytest.mark.parametrize("counted", [True, False], ids=["calls-of-the-row", "counts-made-anew"])
def test_a_dropped_or_repeated_token_is_found_wherever_it_lies(
    spoil: Callable[[dict[str, Any], int], None], generation: int, counted: bool
) -> None:
    """Whether the counts beside the tokens still say what they said, or were made from the spoilt row."""
    size = len(clean_pair().restored.row(2, generation)["tokens"])
    for place in range(size):
        pair = clean_pair()
        row, line = row_of(pair, generation)
        clean = list(row["tokens"])
        spoil(row, place)
        if row["tokens"] == clean:
            continue
        start = place_of(clean_pair().restored.row(2, generation), line).start
        if not counted:
            owner = 0
            while place >= sum(row["calls"][: owner + 1]):
                owner += 1
            row["calls"][owner] += len(row["tokens"]) - len(clean)
        fault = place_of(row, line).fault
        within = start <= place < start + line["generated"]
        assert bool(fault) == (counted or within), (place, fault)  # elsewhere the reference's tokens tell
        if place % 6:
            continue
        kinds = measure(*pair.runs(), EXACT).pairs.query("step == 2 and ordinal == 2")["kind"].to_list()
        assert kinds[generation] in ("prefix_mismatch", "pre_generation", "pre_cut", "post_cut")
        assert kinds[generation] == "prefix_mismatch" or not within or place < row["prompt_length"]


def test_the_token_before_the_call_must_be_untrained() -> None:
    row, line = row_of(clean_pair(), 0)
    start = place_of(row, line).start
    row["token_mask"][start - 1] = 1
    assert place_of(row, line).fault == f"token {start - 1}, before its restored call, is trained"


def test_a_call_that_carried_nothing_may_follow_a_trained_token() -> None:
    row, line = row_of(clean_pair(), 0)
    row["calls"][1] += row["calls"][2]
    row["calls"][2] = 0
    row["token_mask"] = [1] * len(row["token_mask"])
    assert place_of(row, line).proven


def test_a_prefix_of_another_sibling_is_not_the_restored_one() -> None:
    pair = clean_pair()
    line = pair.restored.call(pair.restored.row(2, 0))
    line["digest"] = pair.restored.call(pair.restored.row(2, 0, group=1))["digest"]
    measured = measure(*pair.runs(), EXACT)
    (row,) = measured.pairs.query("kind != 'match'").itertuples()
    assert (row.kind, row.ordinal, row.generation, row.first) == ("prefix_mismatch", 2, 0, -1)
    assert "hash to" in row.fault and line["digest"][:8] in row.fault
    assert measured.calls["located"].to_list() == [False, True, True, True]


def test_logprobs_of_the_prefix_are_part_of_what_was_restored() -> None:
    row, line = row_of(clean_pair(), 0)
    place = place_of(row, line)
    row["generation_logprobs"][place.start] -= 0.5
    assert "hash to" in place_of(row, line).fault


@pytest.mark.parametrize(("kind", "dtype"), [("ids-sha256-i32", "<i4"), ("ids-sha256-i64", "<i8")])
def test_a_prefix_may_be_known_by_its_ids_alone(kind: str, dtype: str) -> None:
    row, line = row_of(clean_pair(), 0)
    place = place_of(row, line)
    ids = np.array(row["tokens"][place.start : place.start + 5], dtype)
    line.update(digest=hashlib.sha256(ids.tobytes()).hexdigest(), digest_kind=kind)
    row["generation_logprobs"][place.start] -= 0.5
    assert place_of(row, line).proven
    row["tokens"][place.start] += 1
    assert "hash to" in place_of(row, line).fault


def test_a_digest_of_an_unknown_kind_proves_nothing() -> None:
    row, line = row_of(clean_pair(), 0)
    line["digest_kind"] = "crc"
    assert place_of(row, line).fault == "digest kind 'crc' is none of generated, ids-sha256-i32, ids-sha256-i64"


def test_without_a_digest_the_place_is_known_and_nothing_is_proven() -> None:
    row, line = row_of(clean_pair(), 0)
    line["digest"] = ""
    place = place_of(row, line)
    assert (place.fault, place.proven, place.prefix) == ("", False, 5)


def test_a_row_of_a_later_attempt_holds_no_prefix_of_the_earlier_one() -> None:
    row, line = row_of(clean_pair(), 0)
    row["keys"] = [key.replace("-a0/", "-a1/") for key in row["keys"]]
    assert place_of(row, line).absent is False  # both say attempt 0: its call is missing
    row["attempt"] = 1
    assert place_of(row, line).absent


def test_a_masked_row_that_holds_no_call_holds_no_prefix() -> None:
    row, line = row_of(clean_pair(), 0)
    row.update(sample_mask=0, calls=[], keys=[])
    assert place_of(row, line).absent


def test_what_generated_more_than_the_row_has_is_said() -> None:
    row, line = row_of(clean_pair(), 0)
    line["generated"] += 1
    assert "it ended with" in place_of(row, line).fault
    row["calls"] = []
    line["generated"] = len(row["tokens"]) + 1
    assert "does not fit" in place_of(row, line).fault


def test_a_foreign_row_finds_its_prefix_by_the_hash_of_its_ids() -> None:
    row, _ = row_of(clean_pair(), 0)
    start = len(row["tokens"]) - row["calls"][3]
    for dtype in ("<i4", "<i8"):
        right = hashlib.sha256(np.array(row["tokens"][start : start + 3], dtype).tobytes()).hexdigest()
        place = of_itself(said(row), right)
        assert (place.start, place.prefix, place.proven) == (start, 3, True)
    assert "no first part" in of_itself(said(row), "0" * 64).fault
    assert "column calls would settle it" in of_itself(said(row | {"calls": []}), "0" * 64).unsettled


def test_a_call_whose_row_was_never_trained_is_said_to_be_nowhere() -> None:
    pair = clean_pair()
    row = pair.restored.row(2, 0)
    pair.restored.rows.remove(row)
    calls = measure(*pair.runs(), EXACT).calls
    assert calls[["located", "fault"]].iloc[0].to_list() == [False, "no row of it was trained"]
    assert calls["located"].sum() == 3


def test_the_calls_say_which_media_were_trained() -> None:
    pair = clean_pair(media=True)
    row = pair.restored.row(2, 0)
    row["media"][1] = "other"
    calls = measure(*pair.runs(), EXACT).calls
    assert calls["trained_media"].to_list() == ["other", *calls["media"].to_list()[1:]] and all(calls["media"])


def test_the_calls_say_which_routes_were_trained() -> None:
    pair = clean_pair()
    calls = measure(*pair.runs(), EXACT).calls
    rows = [pair.restored.row(2, generation, group) for group in (0, 1) for generation in (0, 1)]
    assert calls["trained_routes"].to_list() == [row["routes"][1 - row["generation"]] for row in rows]
