"""Rows in the one shape that comparators read (``parity.tables.ROWS``), checked: whatever is wrong is said by place and cure.

A place is what ``where(row)`` says of a row: a file and a line, or a file and a row. A row that stands twice is a fault of the
run, not of its input, and passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parity.tables import NEEDED, ROWS
from protocol.errors import ConfigError

Where = Callable[[int], str]
OF_A_TOKEN = ("token_mask", "generation_logprobs", "trainer_logprobs", "top_first", "top_second", "top_margin")
FLAT = ("spans", "calls")  # lists of tuples in JSON, flat here
UNUSED = ("digest",)  # what rollproof's own rows hold beside ROWS
NOT_NEGATIVE = ("step", "ordinal", "generation", "life", "input_length", "prompt_length")
SHOWN = 60  # characters of a wrong value
UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)  # what pyarrow makes of a value that is of another kind


def row_table(columns: Mapping[str, Sequence[Any] | pa.Array | pa.ChunkedArray], where: Where, source: str) -> pa.Table:
    """A table of those columns of ROWS that are there. Raises ConfigError, naming place, column and what would be right."""
    unknown = [name for name in columns if name not in ROWS.names and name not in UNUSED]
    if unknown:
        raise ConfigError(f"{source}: unknown column {unknown[0]!r}: columns are {', '.join(ROWS.names)}")
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise ConfigError(f"{source}: has no column {', '.join(missing)}: rows need {', '.join(NEEDED)}")
    table = pa.table({name: _no_gaps(_column(name, columns[name], where)) for name in ROWS.names if name in columns})
    if not table.num_rows:
        raise ConfigError(f"{source}: holds no rows: at least one was expected")
    _check(table, where)
    return table


def short_table(columns: Mapping[str, Sequence[Any]], where: Where) -> pa.Table:
    """Of columns with one value a row, of which lists are checked when they are read. Raises ConfigError as ``row_table``."""
    table = pa.table({name: _column(name, values, where) for name, values in columns.items()})
    _check_short(table, where)
    return table


def _column(name: str, values: Any, where: Where) -> Any:
    kind = ROWS.field(name).type
    arrow = isinstance(values, pa.Array | pa.ChunkedArray)
    try:
        return _converted(values, kind)
    except UNFIT:
        for row in range(len(values)):
            value = values[row].as_py() if arrow else values[row]
            try:
                # A list that is a slice is cast with all that lies beside it.
                _converted(pa.array([value], values.type) if arrow else [value], kind)
            except UNFIT as error:
                raise _wrong(where(row), name, _culprit(value, kind), f"it must be {_words(kind)}") from error
        raise _mixed(name, values.to_pylist() if arrow else values, where) from None


def _converted(values: Any, kind: pa.DataType) -> Any:
    """Without losing anything: 3.0 is a whole number, 3.5 and a text are none."""
    found = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    if found.type == kind:
        return found
    inner, wanted = (part.value_type if pa.types.is_list(part) else part for part in (found.type, kind))
    if pa.types.is_string(inner) and not pa.types.is_string(wanted):
        raise TypeError(f"{inner} is no {wanted}")
    return found.cast(kind)


def _mixed(name: str, values: Sequence[Any], where: Where) -> ConfigError:
    """Of a column whose values are right one by one, and of different kinds: the first that does not go with the first one."""
    known = [row for row, value in enumerate(values) if value is not None]
    for row in known:
        try:
            pa.array([values[known[0]], values[row]])
        except UNFIT:
            first = f"{_short(values[known[0]])} at {where(known[0])}"
            return _wrong(where(row), name, _short(values[row]), f"it must be of the same kind as {first}")
    return _wrong(where(0), name, "of several kinds", "all rows must have the same kind of value")


def _no_gaps(column: Any) -> Any:
    """A float that nobody could write (null) is NaN: a fault of the run, for those who compare."""
    if not (pa.types.is_list(column.type) and pa.types.is_floating(column.type.value_type)):
        return column
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values = whole.flatten()
    if not values.null_count:
        return whole
    mask = whole.is_null() if whole.null_count else None
    return pa.ListArray.from_arrays(pa.array(_offsets(whole), pa.int32()), pc.fill_null(values, float("nan")), mask=mask)


def _culprit(value: Any, kind: pa.DataType) -> str:
    """The value; of a list the first item that is wrong, with its place."""
    if pa.types.is_list(kind) and isinstance(value, list | tuple):
        for place, item in enumerate(value):
            try:
                _converted([item], kind.value_type)
            except UNFIT:
                return f"{_short(item)} at place {place}"
    return _short(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _words(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"a list of {_words(kind.value_type).removeprefix('a ')}s"
    if pa.types.is_integer(kind):
        return "a whole number"
    return "a number" if pa.types.is_floating(kind) else "a text"


def _wrong(place: str, column: str, found: str, right: str) -> ConfigError:
    return ConfigError(f"{place}: {column} is {found}: {right}")


def _check(table: pa.Table, where: Where) -> None:
    _check_short(table, where)
    _check_lists(table, where)


def _check_short(table: pa.Table, where: Where) -> None:
    for name in NEEDED:
        if name in table.column_names:
            _no_nulls(table.column(name).combine_chunks(), name, where)
    for name in NOT_NEGATIVE:
        if name in table.column_names:
            values = table.column(name).fill_null(0).to_numpy()
            _refuse(values < 0, where, name, values, "it must be 0 or more")
    reward = table.column("reward").to_numpy()
    _refuse(~np.isfinite(reward), where, "reward", reward, "it must be a finite number")
    if "advantage" in table.column_names:
        advantage = table.column("advantage").fill_null(0.0).to_numpy()
        _refuse(~np.isfinite(advantage), where, "advantage", advantage, "it must be a finite number, or null if nobody knows it")
    if "sample_mask" in table.column_names:
        mask = table.column("sample_mask").fill_null(1).to_numpy()
        _refuse((mask != 0) & (mask != 1), where, "sample_mask", mask, "it must be 0 or 1")


def _no_nulls(column: Any, name: str, where: Where) -> None:
    if column.null_count:
        raise _wrong(where(int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])), name, "null", "it is needed")
    if pa.types.is_list(column.type) and name != "generation_logprobs" and column.flatten().null_count:
        place = int(np.flatnonzero(column.flatten().is_null().to_numpy(zero_copy_only=False))[0])
        row = int(np.searchsorted(_offsets(column), place, side="right")) - 1
        raise _wrong(where(row), name, f"null at place {place - int(_offsets(column)[row])}", "each token needs one")


def _refuse(wrong: Any, where: Where, name: str, values: Any, right: str) -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        raise _wrong(where(int(rows[0])), name, _short(values[rows[0]].item()), right)


def _offsets(column: Any) -> Any:
    """int64 [rows + 1], from 0."""
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def _check_lists(table: pa.Table, where: Where) -> None:
    tokens = table.column("tokens").combine_chunks()
    offsets = _offsets(tokens)
    lengths = np.diff(offsets)
    empty = np.flatnonzero(lengths == 0)
    if len(empty):
        raise _wrong(where(int(empty[0])), "tokens", "[]", "a row has at least one token")
    for name in OF_A_TOKEN:
        if name not in table.column_names:
            continue
        column = table.column(name).combine_chunks()
        own = column.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero((own != lengths) & (own >= 0))
        if len(wrong):
            row = int(wrong[0])
            raise ConfigError(f"{where(row)}: {name} has {own[row]} items: it must have {lengths[row]}, as many as tokens")
    _in_range(tokens, offsets, "tokens", 0, None, where)
    _in_range(table.column("token_mask").combine_chunks(), offsets, "token_mask", 0, 1, where)


def _in_range(column: Any, offsets: Any, name: str, low: int, high: int | None, where: Where) -> None:
    values = column.flatten().to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero((values < low) | ((values > high) if high is not None else False))
    if len(wrong):
        row = int(np.searchsorted(offsets, wrong[0], side="right")) - 1
        right = "each must be 0 or more" if high is None else f"each must be {low} or {high}"
        raise _wrong(where(row), name, f"{values[wrong[0]].item()} at place {int(wrong[0] - offsets[row])}", right)
