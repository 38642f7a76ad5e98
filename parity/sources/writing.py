"""Rows as one Parquet file: what large runs are compared from."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from parity.sources.saved import PARQUET
from parity.tables import Run

GROUP = 2_000  # rows of a row group: some 4 million tokens of a large run


def write_parquet(run: Run, folder: Path) -> Path:
    """The run's rows, in their order, as ``<folder>/rows.parquet``; the file appears whole."""
    folder.mkdir(parents=True, exist_ok=True)
    target, temporary = folder / PARQUET, folder / f"{PARQUET}.tmp"
    columns, lines = run.rows.columns, range(len(run.rows.index))
    writer: pq.ParquetWriter | None = None
    try:
        for batch in run.rows.batches(lines, columns, GROUP):
            writer = writer or pq.ParquetWriter(temporary, batch.schema, compression="zstd")
            writer.write_table(batch, row_group_size=GROUP)
    finally:
        if writer is not None:
            writer.close()
    temporary.replace(target)
    return target
