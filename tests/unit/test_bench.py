"""``bench ledger``: what a drain check looks at does not grow with the ledger; what it stands in for does."""

from __future__ import annotations

from rollproof.bench import bench_table
from rollproof.bench.ledger import PENDING, SIBLINGS, finish, full_scan, ledger_bench, ledger_run

SMALL = (1_000, 4_000)


def test_a_drain_check_costs_the_same_operations_at_every_size() -> None:
    report = ledger_bench(SMALL)
    assert report["name"] == "ledger"
    assert [(row["live"], row["pending"], row["operations"]) for row in report["rows"]] == [
        (live, PENDING, PENDING) for live in SMALL
    ]
    assert all(row["wall_us"] > 0 for row in report["rows"])


def test_the_full_scan_beside_it_visits_every_live_rollout_and_is_the_ratio() -> None:
    report = ledger_bench(SMALL)
    assert [row["scan_operations"] for row in report["rows"]] == [-(-live // SIBLINGS) * SIBLINGS for live in SMALL]
    last = report["rows"][-1]
    assert report["ratios"] == {"drain": round(last["scan_wall_us"] / last["wall_us"], 1)}
    assert report["ratios"]["drain"] > 10  # a hundred at the supported size


def test_a_report_is_a_line_a_row_for_people_and_the_same_fields_in_json() -> None:
    lines = bench_table(ledger_bench((1_000,))).split("\n")
    assert lines[0].split() == ["live", "pending", "operations", "wall_us", "scan_operations", "scan_wall_us"]
    assert lines[1].split()[:3] == ["1,000", "100", "100"]
    assert lines[2].startswith("drain: ") and lines[2].endswith(" times")


def test_pending_episodes_are_spread_over_the_whole_ledger() -> None:
    run = ledger_run(4_000)
    ordinals = [run.ledger.must_find(key)[0].ordinal for key in run.ledger.pending]
    assert (len(ordinals), ordinals[0], ordinals[-1]) == (PENDING, 0, 247)
    finish(full_scan(run, tuple(run.ledger.pending)))
