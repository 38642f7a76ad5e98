"""Rows in JSON lines: one object a line, each file as many as it likes."""

from __future__ import annotations

import bisect
import codecs
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from parity.sources.canonical import FLAT, UNUSED, row_table
from parity.tables import ROWS
from protocol.errors import ConfigError

_decode = msgspec.json.Decoder().decode


def _read(line: bytes) -> Any:
    """Python writes NaN and Infinity, which are no JSON: they are numbers here, and a fault of the run for those who compare."""
    try:
        return _decode(line)
    except msgspec.DecodeError:
        if b"NaN" in line or b"Infinity" in line:
            return json.loads(line)
        raise


class Lines:
    """Objects, and where each one stood."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._files: list[str] = []
        self._starts: list[int] = []
        self._numbers: list[int] = []  # line of each row, from 1

    def read(self, path: Path) -> list[dict[str, Any]]:
        """Append what is in a file. Raises ConfigError for a line that is no JSON object, and for a last one that is cut off."""
        try:
            content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror}): a file of JSON lines was expected") from None
        first = len(self.rows)
        self.begin(str(path))
        for number, line in enumerate(content.split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                row = _read(line)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                raise ConfigError(f"{path}, line {number}: is no JSON ({error}): was the file written to its end?") from None
            if not isinstance(row, dict):
                raise ConfigError(f"{path}, line {number}: is {type(row).__name__}: one JSON object a line was expected")
            self.add(row, number)
        return self.rows[first:]

    def begin(self, name: str) -> str:
        """What is added from now on stands in ``name``."""
        self._files.append(name)
        self._starts.append(len(self.rows))
        return name

    def add(self, row: dict[str, Any], number: int) -> None:
        self.rows.append(row)
        self._numbers.append(number)

    def numbered(self) -> Iterator[tuple[int, dict[str, Any]]]:
        return zip(self._numbers, self.rows, strict=True)

    def where(self, row: int) -> str:
        return f"{self._files[bisect.bisect_right(self._starts, row) - 1]}, line {self._numbers[row]}"


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Every column that any row has; null where a row lacks it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def flat(value: Any) -> Any:
    """A list of tuples as one list; anything else as it is."""
    if isinstance(value, list | tuple) and value and all(isinstance(item, list | tuple) for item in value):
        return [number for item in value for number in item]
    return value


def own_table(lines: Lines, source: str) -> pa.Table:
    """Of rows that rollproof's trainers wrote (``protocol.data_plane.training_rows``). Raises ConfigError."""
    columns = {name: values for name, values in columns_of(lines.rows).items() if name not in UNUSED}
    for name in FLAT:
        if name in columns:
            columns[name] = [flat(value) for value in columns[name]]
    for name in [name for name, values in columns.items() if name in ROWS.names and all(value is None for value in values)]:
        del columns[name]  # nobody could say
    return row_table(columns, lines.where, source)
