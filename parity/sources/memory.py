"""Rows that are already in memory, as one Arrow table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


class TableRows:
    """``Rows`` over a table whose columns are some of ``ROWS``, one line a row."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        short = [field.name for field in table.schema if not is_list(field.type)]
        self._index: pd.DataFrame = table.select(short).to_pandas()

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.table.column_names)

    @property
    def index(self) -> pd.DataFrame:
        return self._index

    def batches(self, lines: Sequence[int], columns: Sequence[str], size: int) -> Iterator[pa.Table]:
        """Tables of at most ``size`` rows."""
        own = self.table.select([name for name in columns if name in self.table.column_names])
        wanted = np.asarray(lines, np.int64)
        for start in range(0, len(wanted), size):
            yield own.take(pa.array(wanted[start : start + size]))
