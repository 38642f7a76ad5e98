"""Statistics of logprobs: counted on their bits, nothing dropped in silence, and what the trainer made of each segment."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from parity_samples import EXACT, LOOSE, Pair, clean_pair

from parity.logprobs import EDGES, Histogram, Sample, row_hash
from parity.measure import measure
from parity.tables import Measured


def row_line(measured: Measured, step: int, generation: int) -> Any:
    """Of the step's first prompt."""
    return next(measured.pairs.query("step == @step and generation == @generation").itertuples())


def count(measured: Measured, edge: float) -> int:
    return int(measured.histogram.set_index("edge")["count"][edge])


def test_equal_logprobs_are_bit_identical_and_all_of_them_are_counted() -> None:
    pair = clean_pair()
    measured = measure(*pair.runs(), EXACT)
    trained = sum(sum(row["token_mask"]) for row in pair.restored.rows)
    assert measured.pairs["compared"].sum() == measured.pairs["bit_identical"].sum() == trained
    assert count(measured, 0.0) == measured.histogram["count"].sum() == len(measured.sample) == trained
    assert measured.pairs["max_diff"].max() == 0.0


def test_one_logprob_that_is_off_is_seen_in_its_row_and_its_decade() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 1)
    row["generation_logprobs"][-1] -= 0.6
    measured = measure(*pair.runs(), LOOSE)
    line = row_line(measured, 3, 1)
    assert line.kind == "match" and line.compared - line.bit_identical == 1
    assert (line.max_diff, line.over) == (pytest.approx(0.6, abs=1e-6), 1)
    assert count(measured, 0.1) == 1 and count(measured, 0.0) == len(measured.sample) - 1


def test_a_difference_of_one_bit_is_no_identity() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 1)
    row["generation_logprobs"][-1] = float(np.nextafter(np.float32(row["generation_logprobs"][-1]), np.float32(0)))
    line = row_line(measure(*pair.runs(), EXACT), 3, 1)
    assert line.compared - line.bit_identical == 1 and 0 < line.max_diff < 1e-6


def test_zero_and_minus_zero_are_equal_and_not_identical() -> None:
    pair = clean_pair()
    pair.reference.row(3, 1)["generation_logprobs"][-1] = 0.0
    pair.restored.row(3, 1)["generation_logprobs"][-1] = -0.0
    line = row_line(measure(*pair.runs(), EXACT), 3, 1)
    assert (line.compared - line.bit_identical, line.max_diff) == (1, 0.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("both", [True, False])
def test_what_is_not_finite_is_counted_and_has_no_difference(value: float, both: bool) -> None:
    pair = clean_pair()
    pair.restored.row(3, 1)["generation_logprobs"][-1] = value
    if both:
        pair.reference.row(3, 1)["generation_logprobs"][-1] = value
    measured = measure(*pair.runs(), EXACT)
    line = row_line(measured, 3, 1)
    assert (line.not_finite, line.max_diff, line.over) == (1, 0.0, 0)
    assert len(measured.sample) == measured.histogram["count"].sum() == measured.pairs["compared"].sum() - 1
    assert np.isfinite(measured.sample.to_numpy()).all()


def test_what_is_not_finite_is_counted_in_rows_that_are_not_compared_too() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 1)
    row["generation_logprobs"][-1] = math.nan
    row["tokens"][-2] += 1
    alone = pair.restored.row(3, 2)
    alone["generation_logprobs"][-1] = math.nan
    pair.reference.rows.remove(pair.reference.row(3, 2))
    measured = measure(*pair.runs(), EXACT)
    assert [row_line(measured, 3, generation).not_finite for generation in (0, 1, 2)] == [0, 1, 1]


def test_a_masked_sample_trains_nothing_and_nothing_of_it_is_compared() -> None:
    pair = clean_pair()
    for side in (pair.reference, pair.restored):
        side.row(3, 1).update(sample_mask=0, generation_logprobs=[math.nan] * len(side.row(3, 1)["tokens"]))
    line = row_line(measure(*pair.runs(), EXACT), 3, 1)
    assert (line.kind, line.compared, line.not_finite) == ("match", 0, 0)


def test_logprobs_of_untrained_tokens_are_not_compared() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 0)
    row["generation_logprobs"][row["token_mask"].index(0)] = -9.0
    assert row_line(measure(*pair.runs(), EXACT), 3, 0).max_diff == 0.0


def test_the_trainers_excess_is_beyond_the_relative_tolerance() -> None:
    pair = clean_pair()
    row, reference = pair.restored.row(3, 1), pair.reference.row(3, 1)
    row["trainer_logprobs"][-1], reference["trainer_logprobs"][-1] = -2.5, -2.0
    assert row_line(measure(*pair.runs(), EXACT), 3, 1).trainer_excess == pytest.approx(0.5)
    assert row_line(measure(*pair.runs(), LOOSE), 3, 1).trainer_excess == pytest.approx(0.5 - 2e-4)
    row["trainer_logprobs"][-1] = math.nan
    assert row_line(measure(*pair.runs(), LOOSE), 3, 1).trainer_excess == math.inf


def test_the_trainer_is_not_compared_where_it_held_other_weights() -> None:
    pair = clean_pair(in_order=False)
    pair.restored.row(3, 1)["step"] = 4
    other = clean_pair()
    other.restored.steps[1]["weights"] = other.restored.steps[2]["before"] = "another"
    for side in (other.reference, other.restored):
        for generation, group in ((0, 0), (3, 1)):
            row = side.row(3, generation, group)
            row["spans"][2] = row["spans"][5] = 1  # generated by weights that were the same, scored by others
    for spoilt, steps in ((pair, (4,)), (other, (3,))):
        pairs = measure(*spoilt.runs(), LOOSE).pairs
        assert set(pairs.loc[pairs["step"].isin(steps), "kind"]) <= {"match", "other_weights"}
        assert (pairs.loc[pairs["kind"] == "match", "compared"] > 0).all()
        assert set(pairs.loc[pairs["step"].isin(steps), "trainer_compared"]) == {0}
        assert (pairs.loc[~pairs["step"].isin(steps), "trainer_compared"] > 0).all()


def test_rows_without_trainer_logprobs_are_measured_all_the_same() -> None:
    pair = clean_pair()
    pair.restored.row(3, 1)["trainer_logprobs"] = None
    measured = measure(*pair.runs(), EXACT)
    assert row_line(measured, 3, 1).trainer_compared == 0 and row_line(measured, 3, 0).trainer_compared > 0
    assert measured.segments.query("run == 'restored' and step == 3 and generation == 1")["scored"].to_list()[0] == 0


# --- segments -----------------------------------------------------------------------------------------------------------------


def segments(pair: Pair, step: int, generation: int, run: str = "restored") -> dict[str, Any]:
    """Of the step's first prompt, by segment."""
    table = measure(*pair.runs(), EXACT).segments.query("run == @run and step == @step and generation == @generation")
    return {line.segment: line for line in table.query("ordinal == ordinal.min()").itertuples()}


def test_a_restored_row_has_a_prefix_a_tail_and_the_rest() -> None:
    pair = clean_pair()
    for generation, call in ((0, 1), (1, 0)):
        row = pair.restored.row(2, generation)
        found = segments(pair, 2, generation)
        own, other = row["calls"][2 * call + 1], row["calls"][3 - 2 * call]
        assert {name: line.tokens for name, line in found.items()} == {"prefix": 5, "tail": own - 5, "other": other}
    assert set(segments(pair, 2, 2)) == set(segments(pair, 2, 0, "reference")) == {"other"}


def test_sums_of_a_segment_are_those_of_its_scored_tokens() -> None:
    pair = clean_pair()
    row = pair.restored.row(2, 0)
    start = len(row["tokens"]) - row["calls"][3]
    row["trainer_logprobs"][start] = row["generation_logprobs"][start] + 0.25
    row["trainer_logprobs"][start + 6] = row["generation_logprobs"][start + 6] - 0.5
    found = segments(pair, 2, 0)
    assert found["prefix"].kl_sum == pytest.approx(math.exp(0.25) - 1.25, rel=1e-5)
    assert found["prefix"].mult_sum == pytest.approx(math.exp(0.25) + found["prefix"].scored - 1, rel=1e-6)
    assert found["tail"].kl_sum == pytest.approx(math.exp(-0.5) - 0.5, rel=1e-5)
    assert found["tail"].mult_sum == pytest.approx(math.exp(0.5) + found["tail"].scored - 1, rel=1e-6)
    assert found["other"].kl_sum == 0.0


def test_masked_tokens_are_counted_and_not_scored() -> None:
    found = segments(clean_pair(), 2, 0)["prefix"]
    assert (found.tokens, found.masked, found.scored) == (5, 1, 4)


def test_all_of_a_masked_sample_is_masked() -> None:
    pair = clean_pair()
    pair.restored.row(3, 1)["sample_mask"] = 0
    found = segments(pair, 3, 1)["other"]
    assert (found.masked, found.scored) == (found.tokens, 0)


def test_only_tokens_of_the_weights_that_the_trainer_held_are_scored() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 1)
    row["spans"][2] = 1  # the trainer held version 2
    found = segments(pair, 3, 1)["other"]
    assert (found.tokens, found.scored) == (row["calls"][1] + row["calls"][3], row["calls"][3])


def test_what_is_not_finite_stays_in_the_sums() -> None:
    pair = clean_pair()
    pair.restored.row(3, 1)["trainer_logprobs"][-1] = math.nan
    assert math.isnan(segments(pair, 3, 1)["other"].kl_sum)


# --- the sample and the histogram ---------------------------------------------------------------------------------------------


def sampled(most: int, order: Any, size: int) -> pd.DataFrame:
    """50 rows of 100 tokens, handed in in ``order``, ``size`` at a time."""
    values = -np.random.default_rng(1).random((50, 100), np.float32)
    sample = Sample(most=most)
    for start in range(0, 50, size):
        rows = order[start : start + size]
        one = values[rows].reshape(-1)
        sample.add(one, one + np.float32(1), row_hash(rows), np.full(len(rows), 100))
    return sample.table()


def test_the_sample_depends_neither_on_the_order_nor_on_the_batches() -> None:
    first = sampled(300, np.arange(50), 7)
    assert len(first) == 300 and first["reference"].nunique() > 250
    assert first.equals(sampled(300, np.arange(50)[::-1], 50)) and first.equals(sampled(300, np.arange(50), 1))


def test_a_sample_has_everything_there_is_where_that_is_little() -> None:
    assert len(sampled(6000, np.arange(50), 7)) == 5000
    assert len(Sample().table()) == 0


def test_the_histogram_counts_by_decade_and_exactly_zero_apart() -> None:
    histogram = Histogram()
    histogram.add(np.array([0.0, 1e-15, 1e-12, 0.05, 0.1, 0.99, 3.0, 500.0, np.nan]), 9)
    histogram.add(None, 4)
    counted = dict(zip(EDGES.tolist(), histogram.counts.tolist(), strict=True))
    assert {edge: number for edge, number in counted.items() if number} == {0.0: 5, 1e-12: 2, 0.01: 1, 0.1: 2, 1.0: 1, 10.0: 1}
