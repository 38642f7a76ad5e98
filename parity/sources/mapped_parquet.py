"""Parquet rows of other names, read and checked batch by batch; and some lines of any rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parity.sources.canonical import row_table
from parity.sources.mapping import Mapping
from parity.sources.renaming import finish, made, reduce_advantages
from parity.tables import ROWS, Rows
from protocol.errors import ConfigError


class Chosen:
    """``Rows``: some lines of others."""

    def __init__(self, rows: Rows, lines: Any) -> None:
        self.rows = rows
        self.lines = np.asarray(lines, np.int64)
        self.index = rows.index.iloc[self.lines].reset_index(drop=True)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.rows.columns

    def batches(self, lines: Sequence[int], columns: Sequence[str], size: int) -> Iterator[pa.Table]:
        return self.rows.batches(self.lines[np.asarray(lines, np.int64)].tolist(), columns, size)


class MappedRows:
    """``Rows`` over Parquet of other names: short columns are mapped once, long ones as they are read, and checked then."""

    def __init__(self, rows: Rows, mapping: Mapping, source: str) -> None:
        self.rows = rows
        self.source = source
        theirs = {
            name: found.column for name in mapping.columns if (found := mapping.source(name)) and found.column in rows.columns
        }
        lists = {name for name in theirs if pa.types.is_list(ROWS.field(name).type)}
        self._long = {name: theirs[name] for name in ROWS.names if name in lists}
        held = rows.index
        short = {name: column for name, column in theirs.items() if name not in lists and column in held}
        plain: dict[str, Any] = {name: held[column].tolist() for name, column in short.items()}
        if "advantage" in theirs and "advantage" not in plain:
            plain["advantage"] = self._lists(theirs["advantage"], len(held))
            if "token_mask" in theirs:
                plain["token_mask"] = self._lists(theirs["token_mask"], len(held))
        for name, values in plain.items():
            found = mapping.source(name)
            assert found is not None, "theirs are the mapping's columns"
            plain[name] = [made(value, found, name, self.where, row) for row, value in enumerate(values)]
        for name, value in mapping.constants.items():
            plain.setdefault(name, [value] * len(held))
        for name, offset in mapping.offsets.items():
            plain[name] = [value + offset for value in plain.get(name, ())]
        reduce_advantages(plain, mapping, self.where)
        plain.pop("token_mask", None)
        finish(plain, mapping, len(held))
        lacking = [name for name in ("step", "ordinal", "generation", "reward") if name not in plain]
        lacking += [name for name in ("tokens", "token_mask", "generation_logprobs") if name not in self._long]
        if lacking:
            raise ConfigError(
                f"{source}: has no column for {', '.join(lacking)}: the mapping {mapping.name} names none that is there"
            )
        self._short = pa.table({name: pa.array(values, ROWS.field(name).type) for name, values in plain.items()})
        self.index = self._short.to_pandas()
        self._lines: Any = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name in ROWS.names if name in self._long or name in self._short.column_names)

    def where(self, row: int) -> str:
        return f"{self.source}, row {row}"

    def _where_in(self, part: Any, row: int) -> str:
        return self.where(int(part[row]))

    def _lists(self, column: str, count: int) -> list[Any]:
        found: list[Any] = []
        for batch in self.rows.batches(range(count), (column,), 1000):
            found += batch.column(column).to_pylist()
        return found

    def batches(self, lines: Sequence[int], columns: Sequence[str], size: int) -> Iterator[pa.Table]:
        wanted = np.asarray(lines, np.int64)
        long = {name: self._long[name] for name in self._long if name in columns or name in ("tokens", "token_mask")}
        always = {"step", "ordinal", "generation", "reward"}
        for start in range(0, len(wanted), size):
            part = wanted[start : start + size]
            (batch,) = self.rows.batches(part.tolist(), tuple({*long.values(), self._long["generation_logprobs"]}), len(part))
            held: dict[str, Any] = {name: batch.column(column) for name, column in long.items()}
            held.setdefault("generation_logprobs", batch.column(self._long["generation_logprobs"]))
            for name in self._short.column_names:
                if name in columns or name in always:
                    held[name] = pc.take(self._short.column(name), pa.array(part))
            table = row_table(held, partial(self._where_in, part), self.source)
            yield table.select([name for name in columns if name in table.column_names])
