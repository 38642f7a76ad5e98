"""Parquet rows of other names, read and checked batch by batch; and some lines of any rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parity.sources.canonical import row_table, short_table
from parity.sources.mapping import Mapping
from parity.sources.parquet import ParquetRows
from parity.sources.renaming import finish, made, moved, reduce_advantages, wrong_length
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


def _known(value: Any) -> Any:
    """None for what pandas makes of a null."""
    return None if isinstance(value, float) and value != value else value


class MappedRows:
    """``Rows`` over Parquet of other names: short columns are mapped once, long ones as they are read, and checked then."""

    def __init__(self, rows: ParquetRows, mapping: Mapping, steps: Sequence[int | None]) -> None:
        """``steps``: what the name of each file says."""
        self.rows = rows
        self.source = str(rows.paths[0].parent if len(rows.paths) > 1 else rows.paths[0])
        if not sum(rows.counts):
            raise ConfigError(f"{self.source}: holds no rows: at least one was expected")
        self._ends = np.cumsum(rows.counts)
        theirs = {
            name: found.column for name in mapping.columns if (found := mapping.source(name)) and found.column in rows.columns
        }
        lists = {name for name in theirs if pa.types.is_list(ROWS.field(name).type)}
        self._long = {name: theirs[name] for name in ROWS.names if name in lists}
        held = rows.index
        short = {name: column for name, column in theirs.items() if name not in lists and column in held}
        plain: dict[str, Any] = {
            name: self._lists(column, len(held))  # NaN is no null
            if pa.types.is_floating(ROWS.field(name).type)
            else [_known(value) for value in held[column].tolist()]
            for name, column in short.items()
        }
        if "step" not in theirs and None not in steps:
            plain["step"] = np.repeat(steps, rows.counts).tolist()
        if "advantage" in theirs and "advantage" not in plain:
            plain["advantage"] = self._lists(theirs["advantage"], len(held))
            if "token_mask" in theirs:
                plain["token_mask"] = self._lists(theirs["token_mask"], len(held))
        for name, values in plain.items():
            found = mapping.source(name)
            if found is None or name not in theirs:
                continue
            plain[name] = [made(value, found, name, self.where, row) for row, value in enumerate(values)]
        for name, value in mapping.constants.items():
            plain.setdefault(name, [value] * len(held))
        for name, offset in mapping.offsets.items():
            if name in plain:
                plain[name] = [moved(value, offset, name, self.where, row) for row, value in enumerate(plain[name])]
        reduce_advantages(plain, mapping, self.where)
        plain.pop("token_mask", None)
        if any(plain.get("prefix_ids_sha256", ())) and {"tokens", "calls"} <= self._long.keys():
            plain |= {name: self._restored_ones(self._long[name], plain["prefix_ids_sha256"]) for name in ("tokens", "calls")}
        finish(plain, mapping)
        plain = {name: values for name, values in plain.items() if name not in lists}
        lacking = [name for name in ("step", "ordinal", "generation", "reward") if name not in plain]
        lacking += [name for name in ("tokens", "token_mask", "generation_logprobs") if name not in self._long]
        if lacking and (listed := [name for name in lacking if name in theirs and name not in lists]):
            raise ConfigError(f"{self.source}: column {theirs[listed[0]]} is a list: {listed[0]} must be one value a row")
        if lacking:
            raise ConfigError(
                f"{self.source}: has no column for {', '.join(lacking)}: the mapping {mapping.name} names none that is there"
            )
        self._short = short_table(plain, self.where)
        self.index = self._short.to_pandas()
        self._lines: Any = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for name in ROWS.names if name in self._long or name in self._short.column_names)

    def where(self, row: int) -> str:
        file = int(np.searchsorted(self._ends, row, side="right"))
        return f"{self.rows.paths[file]}, row {row - int(self._ends[file]) + self.rows.counts[file]}"

    def _where_in(self, part: Any, row: int) -> str:
        return self.where(int(part[row]))

    def _unpadded(self, tokens: Any, part: Any) -> None:
        if "input_length" not in self.index:
            return
        said, found = self.index["input_length"].to_numpy(float)[part], pc.list_value_length(tokens).to_numpy()
        wrong = np.flatnonzero(~np.isnan(said) & (said != found))
        if len(wrong):
            row = wrong[0]
            raise ConfigError(wrong_length(self.where(int(part[row])), int(said[row]), int(found[row])))

    def _lists(self, column: str, count: int) -> list[Any]:
        found: list[Any] = []
        for batch in self.rows.batches(range(count), (column,), 1000):
            found += batch.column(column).to_pylist()
        return found

    def _restored_ones(self, column: str, told: Sequence[Any]) -> list[Any]:
        """Lists of the rows that name a restored prefix, None of all others: those alone are looked at one by one."""
        lines = [row for row, digest in enumerate(told) if digest]
        found: list[Any] = [None] * len(told)
        for start in range(0, len(lines), 1000):
            part = lines[start : start + 1000]
            (batch,) = self.rows.batches(part, (column,), len(part))
            for row, value in zip(part, batch.column(column).to_pylist(), strict=True):
                found[row] = value
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
            self._unpadded(table.column("tokens"), part)
            yield table.select([name for name in columns if name in table.column_names])
