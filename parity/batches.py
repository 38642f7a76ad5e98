"""Lists of a batch of rows as flat arrays, and reductions of them a row: shapes [tokens of all rows], offsets [rows + 1]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parity.tables import NEEDED, OPTIONAL, ROWS, Run
from protocol.errors import ConfigError

PER_TOKEN = ("tokens", "token_mask", "generation_logprobs", "trainer_logprobs", "top_first", "top_second", "top_margin")


@dataclass(frozen=True)
class Flat:
    """``values`` of all rows one after the other; those of row i are values[offsets[i] : offsets[i + 1]]."""

    values: Any
    offsets: Any

    @property
    def lengths(self) -> Any:
        return np.diff(self.offsets)

    def row(self, number: int) -> Any:
        return self.values[self.offsets[number] : self.offsets[number + 1]]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of one run. A column that the run does not have, or that is null in a row, is empty there. ``lines``: of the index."""

    table: pa.Table
    lines: Any
    source: str
    _lists: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.lines)

    def has(self, name: str) -> bool:
        return name in self.table.column_names

    def flat(self, name: str) -> Flat:
        """A column of numbers. Raises ConfigError for a list of a token's columns that is not as long as the tokens."""
        column = self._list(name)
        values = column.flatten()
        if values.null_count:
            line = self._place(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0], _offsets(column))
            raise ConfigError(f"row {line} of {self.source}: column {name} holds a null, it must hold numbers")
        return Flat(values.to_numpy(zero_copy_only=False), _offsets(column))

    def tokens(self, name: str) -> Flat:
        """A column that is as long as the tokens, or holds nothing. Raises ConfigError for another length."""
        flat, tokens = self.flat(name), self._list("tokens")
        if name in NEEDED and (column := self._list(name)).null_count:
            line = self.lines[np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]]
            raise ConfigError(f"row {line} of {self.source} has no {name}: nothing can be said of it")
        own, right = flat.lengths, np.diff(_offsets(tokens))
        wrong = np.flatnonzero((own != right) & ((own != 0) | (name not in OPTIONAL)))
        if len(wrong):
            line = self.lines[wrong[0]]
            raise ConfigError(
                f"row {line} of {self.source}: column {name} has {own[wrong[0]]} values, its tokens are {right[wrong[0]]}"
            )
        return flat

    def texts(self, name: str) -> Any:
        """A list<string> column, as Arrow has it."""
        return self._list(name)

    def short(self, name: str, number: int) -> list[Any]:
        """One row's list, as Python has it; [] where there is none."""
        return list(self.table.column(name)[number].as_py() or ()) if self.has(name) else []

    def taken(self, rows: Any) -> Batch:
        """Only these rows, by their numbers in the batch."""
        return Batch(table=self.table.take(pa.array(rows)), lines=np.asarray(self.lines)[rows], source=self.source)

    def _list(self, name: str) -> Any:
        if name not in self._lists:
            self._lists[name] = self._read(name)
        return self._lists[name]

    def _read(self, name: str) -> Any:
        kind = ROWS.field(name).type
        if not self.has(name):
            return pa.array([None] * len(self), kind)
        column = self.table.column(name)
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # no chunk at all
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
        if array.type == kind:
            return array
        try:
            return array.cast(kind)
        except pa.ArrowInvalid as error:
            lines = f"rows {self.lines[0]} to {self.lines[-1]}" if len(self) else "rows"
            raise ConfigError(
                f"{lines} of {self.source}: column {name} is {array.type}, and is no {kind} ({error}): write it as {kind}"
            ) from None
        except pa.ArrowNotImplementedError:
            raise ConfigError(f"{self.source}: column {name} is {array.type}: it must be {kind}") from None

    def _place(self, value: int, offsets: Any) -> int:
        return int(self.lines[np.searchsorted(offsets, value, side="right") - 1])


def _offsets(column: Any) -> Any:
    """From 0, whatever part of a longer array the column is. Null lists are empty ones."""
    if not column.null_count:
        offsets = column.offsets.to_numpy()
        return offsets.astype(np.int64) - offsets[0]
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def batches(run: Run, lines: Sequence[int], columns: Sequence[str], size: int) -> Iterator[Batch]:
    """The given rows in that order, ``size`` at a time, with those of ``columns`` that there are."""
    start = 0
    wanted = [name for name in columns if name in run.rows.columns]
    for table in run.rows.batches(lines, wanted, size):
        yield Batch(table=table, lines=np.asarray(lines[start : start + table.num_rows]), source=run.facts.source)
        start += table.num_rows


def per_row(function: Any, values: Any, counts: Any, empty: float, kind: Any = np.float64) -> Any:
    """``function`` (a ufunc: np.add, np.maximum ...) over the ``counts[i]`` values of each row, which follow each other;
    ``empty`` for a row of none. ``kind``: dtype of the answer."""
    out: Any = np.full(len(counts), empty, kind)
    some = counts > 0
    if some.any():
        starts = np.concatenate(([0], np.cumsum(counts)[:-1]))[some]
        out[some] = function.reduceat(values, starts, dtype=kind)
    return out


def counts_of(flags: Any, offsets: Any) -> Any:
    """How many of each row's flags are set, int64."""
    return per_row(np.add, flags.view(np.uint8), np.diff(offsets), 0, np.int64)


def equal_lists(one: Any, other: Any) -> Any:
    """int8 [rows]: whether two list columns (of Arrow) hold the same in each row; -1 where both hold nothing."""
    left, right = _offsets(one), _offsets(other)
    ours, theirs = np.diff(left), np.diff(right)
    out = (ours == theirs).astype(np.int8)
    out[(ours == 0) & (theirs == 0)] = -1
    rows = np.flatnonzero(out == 1)
    if not len(rows):
        return out
    if len(rows) < len(out):
        one, other = one.take(pa.array(rows)), other.take(pa.array(rows))
    same = pc.fill_null(pc.equal(one.flatten(), other.flatten()), False).to_numpy(zero_copy_only=False)
    out[rows] = np.minimum.reduceat(same, _offsets(one)[:-1])
    return out
