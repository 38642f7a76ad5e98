"""Rows stand against each other by what they are: never by where they lie, and never twice."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
from parity_samples import EXACT, Pair, clean_pair

from parity.measure import measure
from parity.pairing import pairing
from protocol.errors import ConfigError


def found(pair: Pair) -> dict[str, int]:
    return {str(name): int(count) for name, count in measure(*pair.runs(), EXACT).pairs["found"].value_counts().items()}


def duplicates(pair: Pair) -> list[tuple[Any, ...]]:
    return [tuple(line) for line in measure(*pair.runs(), EXACT).duplicates.itertuples(index=False)]


def test_every_row_of_a_clean_pair_has_its_counterpart_and_matches() -> None:
    pair = clean_pair()
    measured = measure(*pair.runs(), EXACT)
    assert set(measured.pairs["found"]) == {"both"} and set(measured.pairs["kind"]) == {"match"}
    assert (len(measured.pairs), len(measured.duplicates)) == (len(pair.reference.rows), 0)


def test_rows_of_one_side_only_are_named_and_have_no_class() -> None:
    pair = clean_pair()
    pair.restored.rows.remove(pair.restored.row(3, 0))
    pair.reference.rows.remove(pair.reference.row(1, 2))
    assert found(pair) == {"both": 22, "reference": 1, "restored": 1}
    alone = measure(*pair.runs(), EXACT).pairs.query("found != 'both'")
    assert list(alone["kind"]) == ["", ""]
    assert alone[["found", "step", "step_ref", "generation"]].values.tolist() == [["restored", 1, -1, 2], ["reference", -1, 3, 0]]
    assert (alone["tokens"].iloc[0] > 0, alone["tokens_ref"].iloc[0]) == (True, 0)


def test_in_order_rows_of_another_step_are_others() -> None:
    pair = clean_pair()
    pair.restored.row(3, 0)["step"] = 4
    assert found(pair) == {"both": 23, "reference": 1, "restored": 1}


def test_under_other_samplers_the_step_may_move() -> None:
    pair = clean_pair(in_order=False)
    pair.restored.row(3, 0)["step"] = 4
    assert found(pair) == {"both": 24}


def test_under_other_samplers_a_prompt_of_another_epoch_is_another_one() -> None:
    pair = clean_pair(in_order=False)
    pair.restored.row(3, 0)["epoch"] = 1
    assert found(pair) == {"both": 23, "reference": 1, "restored": 1}


@pytest.mark.parametrize("in_order", [True, False])
def test_a_row_twice_in_one_life_is_kept_as_a_duplicate_and_compared_once(in_order: bool) -> None:
    pair = clean_pair(in_order=in_order)
    pair.restored.rows.append(copy.deepcopy(pair.restored.row(3, 1)))
    assert duplicates(pair) == [("restored", 2, 3, 4, 1)]
    assert found(pair) == {"both": 24}


def test_a_later_life_supersedes_what_an_earlier_one_trained_of_the_same_steps() -> None:
    pair = clean_pair()
    discarded = copy.deepcopy(pair.restored.row(2, 0))
    discarded.update(life=1, tokens=discarded["tokens"][::-1])
    pair.restored.rows.insert(0, discarded)
    measured = measure(*pair.runs(), EXACT)
    assert (len(measured.duplicates), set(measured.pairs["kind"])) == (0, {"match"})


def test_a_discarded_row_that_nobody_trained_again_counts_no_more() -> None:
    pair = clean_pair()
    discarded = copy.deepcopy(pair.restored.row(3, 0, group=1))
    discarded.update(life=1, step=2)
    pair.restored.rows.append(discarded)
    assert found(pair) == {"both": 24}


def test_a_row_of_a_step_that_stands_may_not_be_trained_again_by_a_later_life() -> None:
    pair = clean_pair(in_order=False)
    again = copy.deepcopy(pair.restored.row(1, 0))
    again.update(life=2, step=3)
    pair.restored.rows.append(again)
    assert len(duplicates(pair)) == 1


def test_pairs_come_in_the_order_of_the_restored_runs_file() -> None:
    pair = clean_pair()
    pair.restored.rows.reverse()
    matched = pairing(*pair.runs())
    assert matched.restored.tolist() == list(range(24))
    assert matched.reference.tolist() == list(reversed(range(24)))


def test_rows_without_what_they_are_matched_by_are_refused_by_name() -> None:
    pair = clean_pair()
    pair.restored.rows[5]["ordinal"] = None
    with pytest.raises(ConfigError, match="row 5 of made up: ordinal is .*, it must be a whole number"):
        measure(*pair.runs(), EXACT)


def test_runs_that_draw_their_prompts_in_different_ways_are_refused() -> None:
    pair = clean_pair()
    pair.restored.facts = dataclasses.replace(pair.restored.facts, in_order=False)
    with pytest.raises(ConfigError, match="compare runs of one scenario"):
        measure(*pair.runs(), EXACT)
