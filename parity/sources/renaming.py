"""Somebody else's columns under our names, as a mapping says (``parity.sources.mapping``)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from parity.sources.canonical import OF_A_TOKEN, Where, row_table
from parity.sources.jsonl import flat
from parity.sources.mapping import Mapping, Source
from parity.tables import NEEDED, ROWS
from protocol.errors import ConfigError

_LONG = ("tokens", *OF_A_TOKEN)


def table_of(
    rows: Sequence[dict[str, Any]], mapping: Mapping, where: Where, steps: Sequence[int | None], source: str
) -> pa.Table:
    """The rows under our names, checked. ``steps`` of the files they stand in. Raises ConfigError."""
    columns: dict[str, list[Any]] = {}
    for name in ROWS.names:
        found = mapping.source(name)
        if found is None:
            continue
        values = [_value(row, found.column, mapping.unwrap) for row in rows]
        if all(value is None for value in values):
            continue  # they do not have it
        columns[name] = [made(value, found, name, where, row) for row, value in enumerate(values)]
    if "step" not in columns and all(step is not None for step in steps):
        columns["step"] = list(steps)
    _shape(columns, mapping, where)
    for name, value in mapping.constants.items():
        columns.setdefault(name, [value] * len(rows))
    for name, offset in mapping.offsets.items():
        if name in columns:
            columns[name] = [moved(value, offset, name, where, row) for row, value in enumerate(columns[name])]
    missing = [name for name in mapping.columns if name not in columns and name in NEEDED]
    if missing:
        theirs = mapping.source(missing[0])
        assert theirs is not None, "it is one of the mapping's columns"
        raise ConfigError(f"{source}: no row has {theirs.column!r}, which the mapping {mapping.name} reads {missing[0]} from")
    reduce_advantages(columns, mapping, where)
    finish(columns, mapping)
    table = row_table(columns, where, source)
    unpadded(columns, where)
    return table


def moved(value: Any, offset: int, name: str, where: Where, row: int) -> Any:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where(row)}: {name} is {value!r}: offsets.{name} can be added to a number alone")
    return value + offset


def unpadded(columns: dict[str, list[Any]], where: Where) -> None:
    """Raises ConfigError for a row whose tokens go on after its input length: what is compared then is padding."""
    for row, (length, tokens) in enumerate(zip(columns.get("input_length", ()), columns.get("tokens", ()), strict=False)):
        if isinstance(length, int | float) and isinstance(tokens, list) and len(tokens) != length:
            raise ConfigError(wrong_length(where(row), length, len(tokens)))


def wrong_length(place: str, length: Any, tokens: int) -> str:
    said = f"{place}: input_length is {length}, its tokens are {tokens}"
    return f"{said}: cut the padding off (JSON lines and torch: padded = true in the mapping)"


def _value(row: Any, path: str, unwrap: bool) -> Any:
    """What stands at a dotted path, lists of one item opened on the way; null where there is nothing."""
    value = row.get(path, row) if path in row else row
    if value is row:
        for part in path.split("."):
            value = _opened(value) if unwrap else value
            value = value.get(part) if isinstance(value, dict) else None
    return _opened(value) if unwrap else value


def _opened(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def made(value: Any, source: Source, name: str, where: Where, row: int) -> Any:
    if value is None:
        return None
    if source.pattern:
        match = re.search(source.pattern, str(value))
        if match is None:
            raise ConfigError(f"{where(row)}: {source.column} is {value!r}: {name} is read from it by {source.pattern}")
        value = match[1]
    if source.pattern or source.divide or source.modulo:
        kind = ROWS.field(name).type
        try:
            value = int(value) if pa.types.is_integer(kind) else value
        except (TypeError, ValueError, OverflowError):
            raise ConfigError(
                f"{where(row)}: {source.column} gives {value!r:.60} for {name}: a whole number was expected"
            ) from None
        if (source.divide or source.modulo) and not isinstance(value, int | float):
            raise ConfigError(f"{where(row)}: {source.column} is no number: {name} is counted from it")
        value = value // source.divide if source.divide else value
        value = value % source.modulo if source.modulo else value
    if isinstance(value, float) and value.is_integer() and pa.types.is_integer(ROWS.field(name).type):
        return int(value)
    return flat(value) if name in ("spans", "calls") else value


def _shape(columns: dict[str, list[Any]], mapping: Mapping, where: Where) -> None:
    """Cut padding off, and make lists of what ``unwrap`` has opened although it was the list of one token."""
    lengths = columns.get("input_length")
    for name in (*_LONG, "advantage"):
        values = columns.get(name)
        if values is None:
            continue
        for row, value in enumerate(values):
            if mapping.unwrap and name != "advantage" and value is not None and not isinstance(value, list):
                value = values[row] = [value]
            if mapping.padded and isinstance(value, list) and lengths is not None and isinstance(lengths[row], int):
                if len(value) < lengths[row]:
                    raise ConfigError(f"{where(row)}: {name} has {len(value)} items, its input length is {lengths[row]}")
                values[row] = value[: lengths[row]]
            if name == "token_mask" and isinstance(values[row], list):
                values[row] = [int(item) if item in (0, 1) else item for item in values[row]]


def reduce_advantages(columns: dict[str, list[Any]], mapping: Mapping, where: Where) -> None:
    """Advantages of each token become the row's one."""
    source = mapping.source("advantage")
    values, masks = columns.get("advantage"), columns.get("token_mask")
    if source is None or values is None:
        return
    for row, value in enumerate(values):
        if not isinstance(value, list):
            continue
        odd = next((item for item in value if item is not None and not isinstance(item, int | float)), None)
        if odd is not None:
            raise ConfigError(f"{where(row)}: {source.column} holds {odd!r:.60}: it must be a list of numbers, one a token")
        mask = masks[row] if masks is not None else None
        if not isinstance(mask, list) or not mask or not value:
            values[row] = None  # that there is no mask, or no token, is said later
            continue
        if len(value) not in (1, len(mask)):
            raise ConfigError(
                f"{where(row)}: {source.column} has {len(value)} items: it must have {len(mask)}, as many as tokens"
            )
        trained = [item for item, flag in zip(value, mask if len(value) > 1 else [1], strict=True) if flag == 1]
        if None in trained:
            values[row] = None  # nobody could say
            continue
        if (source.reduce or "only") == "only" and len(set(trained)) > 1:
            raise ConfigError(
                f"{where(row)}: {source.column} has {len(set(trained))} values on trained tokens: a row has one advantage;"
                ' say reduce = "mean" or "first" in the mapping'
            )
        try:
            values[row] = 0.0 if not trained else sum(trained) / len(trained) if source.reduce == "mean" else trained[0]
        except OverflowError:
            raise ConfigError(f"{where(row)}: {source.column} holds a number that is too large: advantages are floats") from None


def finish(columns: dict[str, list[Any]], mapping: Mapping) -> None:
    """What follows from other columns; what is wrong with those is said when they are checked."""
    run = mapping.run
    if run.restored_from_step and "life" not in columns and "step" in columns:
        first = run.restored_from_step
        columns["life"] = [1 if isinstance(step, int | float) and step <= first else 2 for step in columns["step"]]
    if run.calls_from_mask and "calls" not in columns and "token_mask" in columns:
        columns["calls"] = [calls_of(mask) if isinstance(mask, list) else [] for mask in columns["token_mask"]]
    told = columns.get("prefix_ids_sha256")
    if told is not None and run.prefix_digest == "ids-sha256-text":
        for row, (tokens, calls) in enumerate(zip(columns.get("tokens", ()), columns.get("calls", ()), strict=False)):
            if told[row] and _whole_numbers(tokens) and _whole_numbers(calls) and calls:
                told[row] = as_integers(told[row], tokens, calls)


def _whole_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, int) for value in values)


def calls_of(mask: Sequence[int]) -> list[int]:
    """(carried, generated) of each stretch of trained tokens, flat; what stands behind the last one is no call's."""
    found: list[int] = []
    for place, flag in enumerate(mask):
        before = mask[place - 1] if place else 0
        if not place or (before and not flag):
            found += [0, 0]
        found[-1 if flag else -2] += 1
    return found if not found or found[-1] else found[:-2]


def as_integers(digest: str, tokens: Sequence[int], calls: Sequence[int]) -> str:
    """SHA-256 of a prefix's ids as decimal text, as that of the same ids as 32-bit integers: looked for at the start of the last
    call. One that is not there stays as it is, and is found nowhere."""
    start = len(tokens) - calls[-1]
    running = hashlib.sha256()
    for count, token in enumerate(tokens[start:], start=1):
        running.update((f",{token}" if count > 1 else str(token)).encode())
        if running.hexdigest() == digest:
            return hashlib.sha256(np.asarray(tokens[start : start + count], "<i4").tobytes()).hexdigest()
    return digest
