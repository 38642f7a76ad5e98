"""``bench routes``: grouped reads wait far less for the engines' loops, hold them hardly longer, and read the same bytes."""

from __future__ import annotations

import pytest

from rollproof.bench import bench_table
from rollproof.bench.routes import IN_FLIGHT, MODES, STEP_S, WORKERS, Load, routes_bench

SNAPSHOT = Load(calls=IN_FLIGHT, carry=64, first=24, second=40)
BOUND = Load(calls=128, carry=6_000, first=24, second=32)  # ten calls fill the token budget
MANY = Load(calls=1_200, carry=16, first=8, second=12)
REPORT = routes_bench((SNAPSHOT, BOUND, MANY))
ROWS = {(row["calls"], row["mode"]): row for row in REPORT["rows"]}


def test_one_snapshot_of_the_pull_requests_size_is_a_handoff_a_worker() -> None:
    grouped, alone = ROWS[IN_FLIGHT, "grouped"], ROWS[IN_FLIGHT, "per_call"]
    assert (grouped["handoffs"], alone["handoffs"]) == (WORKERS, IN_FLIGHT)
    assert REPORT["ratios"]["wait"] == round(alone["wait_s"] / grouped["wait_s"], 1)
    assert REPORT["ratios"]["wait"] > 25


def test_where_the_token_budget_binds_the_packing_bound_is_reached_exactly() -> None:
    row = ROWS[128, "grouped"]
    assert row["largest_group"] == 65_536 // BOUND.positions == 10
    assert row["handoffs"] == row["bound"] == WORKERS * 2


def test_a_group_is_of_64_calls_at_most() -> None:
    row = ROWS[1_200, "grouped"]
    assert (row["largest_group"], row["handoffs"], row["bound"]) == (64, 3 * WORKERS, 3 * WORKERS)


@pytest.mark.parametrize("calls", [IN_FLIGHT, 128, 1_200])
def test_no_loop_is_held_longer_than_its_group_and_no_decode_step_put_off_by_more_than_one(calls: int) -> None:
    one_copy_s = ROWS[calls, "per_call"]["mean_hold_s"]
    for mode in ("grouped", "new_chunks"):
        row = ROWS[calls, mode]
        assert row["longest_hold_s"] <= 2 * one_copy_s * row["largest_group"]
        assert 0 < row["decode_delay_p95_s"] <= STEP_S


@pytest.mark.parametrize("calls", [IN_FLIGHT, 128, 1_200])
def test_every_mode_reads_the_same_bytes_and_none_of_them_on_the_loop(calls: int) -> None:
    assert len({ROWS[calls, mode]["routes"] for mode in MODES}) == 1
    assert {ROWS[calls, mode]["rows_on_loop"] for mode in MODES} == {0}
    assert len({ROWS[calls, mode]["rows_materialised"] for mode in MODES}) == 1


def test_a_read_of_what_is_new_holds_the_loop_no_longer() -> None:
    for calls in (IN_FLIGHT, 128, 1_200):
        assert ROWS[calls, "new_chunks"]["positions"] < ROWS[calls, "grouped"]["positions"]
        assert ROWS[calls, "new_chunks"]["handoffs"] <= ROWS[calls, "grouped"]["handoffs"]
    assert ROWS[IN_FLIGHT, "new_chunks"]["longest_hold_s"] < ROWS[IN_FLIGHT, "grouped"]["longest_hold_s"]


def test_people_get_the_same_figures_as_a_table() -> None:
    assert len(bench_table(REPORT).split("\n")) == 1 + len(REPORT["rows"]) + len(REPORT["ratios"])
