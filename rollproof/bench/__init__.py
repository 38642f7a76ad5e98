"""Measurements that nobody judges, a file each. Each gives JSON ``{name, rows [...], ratios {name: value}}``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rollproof.bench.ledger import ledger_bench
from rollproof.bench.parity import parity_rows_bench
from rollproof.bench.prefix_io import prefix_io_bench
from rollproof.bench.real_routes import real_routes_bench
from rollproof.bench.routes import routes_bench

BENCHES: dict[str, Callable[[], dict[str, Any]]] = {
    "ledger": ledger_bench,
    "parity-rows": parity_rows_bench,
    "prefix-io": prefix_io_bench,
    "routes": routes_bench,
    "real-routes": real_routes_bench,
}


def bench_table(report: dict[str, Any]) -> str:
    """A report as people read it: a line a row, then the ratios."""
    columns = list(report["rows"][0])
    lines = [columns, *([_cell(row[name]) for name in columns] for row in report["rows"])]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    table = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join([*table, *(f"{name}: {value:,} times" for name, value in report["ratios"].items())])


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)
