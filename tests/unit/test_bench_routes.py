"""``bench routes``: grouped reads wait far less for the engines' loops, hold them hardly longer, and read the same bytes."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from rollproof.bench import bench_table
from rollproof.bench.routes import IN_FLIGHT, MODES, STEP_S, WORKERS, Load, routes_bench

SNAPSHOT = Load(calls=IN_FLIGHT, carry=64, first=24, second=40)
BOUND = Load(calls=128, carry=6_000, first=24, second=32)  # ten calls fill the token budget
MANY = Load(calls=1_200, carry=16, first=8, second=12)


@cache
def report() -> dict[str, Any]:
    return routes_bench((SNAPSHOT, BOUND, MANY))


def row_of(calls: int, mode: str) -> dict[str, Any]:
    (row,) = [row for row in report()["rows"] if (row["calls"], row["mode"]) == (calls, mode)]
    return row


def test_one_snapshot_of_the_pull_requests_size_is_a_handoff_a_worker() -> None:
    grouped, alone = row_of(IN_FLIGHT, "grouped"), row_of(IN_FLIGHT, "per_call")
    assert (grouped["handoffs"], alone["handoffs"]) == (WORKERS, IN_FLIGHT)
    assert report()["ratios"]["wait"] == round(alone["wait_s"] / grouped["wait_s"], 1)
    assert report()["ratios"]["wait"] > 25


def test_where_the_token_budget_binds_the_packing_bound_is_reached_exactly() -> None:
    row = row_of(128, "grouped")
    assert row["largest_group"] == 65_536 // BOUND.positions == 10
    assert row["handoffs"] == row["bound"] == WORKERS * 2


def test_a_group_is_of_64_calls_at_most() -> None:
    row = row_of(1_200, "grouped")
    assert (row["largest_group"], row["handoffs"], row["bound"]) == (64, 3 * WORKERS, 3 * WORKERS)


@pytest.mark.parametrize("calls", [IN_FLIGHT, 128, 1_200])
def test_no_loop_is_held_longer_than_its_group_and_no_decode_step_put_off_by_more_than_one(calls: int) -> None:
    one_copy_s = row_of(calls, "per_call")["mean_hold_s"]
    for mode in ("grouped", "new_chunks"):
        row = row_of(calls, mode)
        assert row["longest_hold_s"] <= 2 * one_copy_s * row["largest_group"]
        assert 0 < row["decode_delay_p95_s"] <= STEP_S


@pytest.mark.parametrize("calls", [IN_FLIGHT, 128, 1_200])
def test_every_mode_reads_the_same_bytes_and_none_of_them_on_the_loop(calls: int) -> None:
    assert len({row_of(calls, mode)["routes"] for mode in MODES}) == 1
    assert {row_of(calls, mode)["rows_on_loop"] for mode in MODES} == {0}
    assert len({row_of(calls, mode)["rows_materialised"] for mode in MODES}) == 1


def test_a_read_of_what_is_new_holds_the_loop_no_longer() -> None:
    for calls in (IN_FLIGHT, 128, 1_200):
        assert row_of(calls, "new_chunks")["positions"] < row_of(calls, "grouped")["positions"]
        assert row_of(calls, "new_chunks")["handoffs"] <= row_of(calls, "grouped")["handoffs"]
    assert row_of(IN_FLIGHT, "new_chunks")["longest_hold_s"] < row_of(IN_FLIGHT, "grouped")["longest_hold_s"]


def test_people_get_the_same_figures_as_a_table() -> None:
    assert len(bench_table(report()).split("\n")) == 1 + len(report()["rows"]) + len(report()["ratios"])
