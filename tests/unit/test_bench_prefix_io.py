"""``bench prefix-io``: requests of a cut and of a restore, by batch size, with and without a bad row in each batch."""

from __future__ import annotations

from functools import cache
from typing import Any

from rollproof.bench import bench_table
from rollproof.bench.prefix_io import CALLS, CHUNKS, prefix_io_bench


@cache
def report() -> dict[str, Any]:
    return prefix_io_bench((1, 64))


def asked(what: str, bad: int, batch_size: int) -> tuple[int, int, int]:
    """Puts, gets, failed ones."""
    (row,) = [row for row in report()["rows"] if (row["what"], row["bad"], row["batch_size"]) == (what, bad, batch_size)]
    return row["puts"], row["gets"], row["failed"]


def test_a_cut_costs_one_put_a_batch_and_one_more_for_each_row_of_a_batch_with_a_bad_one() -> None:
    batches = CALLS // 64
    assert asked("cut", 0, 1) == (CALLS, 0, 0)
    assert asked("cut", 0, 64) == (batches, 0, 0)
    assert asked("cut", 1, 1) == (2 * CALLS, 0, CALLS)
    assert asked("cut", 1, 64) == (batches + CALLS, 0, batches)


def test_a_restore_costs_one_get_a_batch_and_one_more_for_each_key_of_a_batch_with_a_bad_one() -> None:
    keys = CALLS * CHUNKS
    batches = keys // 64
    assert asked("restore", 0, 1) == (0, keys, 0)
    assert asked("restore", 0, 64) == (0, batches, 0)
    assert asked("restore", 1, 1) == (0, 2 * keys, keys)
    assert asked("restore", 1, 64) == (0, batches + keys, batches)


def test_the_ratios_are_requests_of_small_batches_over_those_of_large_ones() -> None:
    assert report()["name"] == "prefix-io"
    assert report()["ratios"] == {"cut": 64.0, "cut_with_bad_rows": 1.97, "restore": 64.0, "restore_with_bad_rows": 1.97}
    assert len(bench_table(report()).split("\n")) == 1 + len(report()["rows"]) + len(report()["ratios"])
