"""``bench parity-rows``: what is planted in two large runs is found, in bounded memory."""

from __future__ import annotations

import pytest

from rollproof.bench import BENCHES, bench_table
from rollproof.bench.parity import CUT, PARTED, lengths, measured_size, parity_rows_bench


def holds(found: dict[str, int], rows: int, tokens: int) -> bool:
    prompt, first, reply, second = lengths(tokens)
    assert prompt + first + reply + second == tokens
    parted = len(range(PARTED // 3, rows, PARTED))
    assert (found["matched"], found["parted"]) == (rows - parted, parted)
    assert found["prefixes"] == len(range(CUT // 2, rows, CUT))
    assert found["compared"] == rows * (first + second) - parted * (second // 2)  # up to the first token that differs
    assert found["scored"] == 2 * rows * (first + second)
    assert (found["over"], found["sampled"]) == (0, min(200_000, found["compared"]))
    return True


def test_a_small_bench_finds_what_was_planted() -> None:
    report = parity_rows_bench(((600, 40), (1_200, 40)))
    assert [holds(row, row["rows"], 40) for row in report["rows"]] == [True, True]
    assert report["ratios"]["seconds_a_row"] > 0 and BENCHES["parity-rows"] is parity_rows_bench
    assert bench_table(report).split("\n")[0].split()[:3] == ["rows", "tokens", "wall_s"]


@pytest.mark.nightly
def test_two_runs_of_100_000_rows_of_2_000_tokens_are_measured_in_4_gib() -> None:
    """How long it took is no claim of a test, whose machine may do other things: it is printed, and at most 90 s of an idle one
    with two cores is promised."""
    found = measured_size(100_000, 2_000)
    print(f"wall {found['wall_s']} s, cpu {found['cpu_s']} s, {found['ns_a_token']} ns a token, {found['peak_mib']} MiB")
    assert holds(found, 100_000, 2_000)
    assert found["peak_mib"] <= 4 * 1024
