"""Rows in Parquet files, of which no more than a few row groups are ever in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from parity.sources.memory import is_list
from protocol.errors import ConfigError

HELD_BYTES = 128 << 20  # of row groups that are kept, beside the one that is read last


class ParquetRows:
    """``Rows`` over files that follow each other, all with the columns of the first. Rows in the files' order are read once; rows
    that jump between row groups read these again, as far as they are not held. Raises ConfigError for files that cannot be read,
    or whose columns differ."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self.paths = tuple(Path(path) for path in paths)
        self._files = [_opened(path) for path in self.paths]
        if not self._files:
            raise ConfigError("no Parquet file of rows was named")
        schema = self._files[0].schema_arrow
        for path, file in zip(self.paths, self._files, strict=True):
            kinds = file.schema_arrow
            twice = next((name for name in kinds.names if kinds.names.count(name) > 1), "")
            if twice:
                raise ConfigError(f"{path}: has {kinds.names.count(twice)} columns {twice}: write each column once")
            for name in [name for name in schema.names if name in kinds.names] if path != self.paths[0] else ():
                if not _joinable(schema.field(name), kinds.field(name)):
                    raise ConfigError(
                        f"{path}: column {name} is {kinds.field(name).type}, in {self.paths[0]} {schema.field(name).type}: "
                        "write all files with the same types"
                    )
            if file.schema_arrow.names != schema.names:
                odd = sorted(set(file.schema_arrow.names) ^ set(schema.names)) or schema.names
                raise ConfigError(f"{path} and {self.paths[0]} differ in columns: {', '.join(odd)}")
        self._columns = tuple(schema.names)
        groups = [(file, group) for file in range(len(self._files)) for group in range(self._files[file].num_row_groups)]
        self._groups = groups
        sizes = [self._files[file].metadata.row_group(group).num_rows for file, group in groups]
        self.counts = [file.metadata.num_rows for file in self._files]  # rows of each file
        self._starts: Any = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        short = [field.name for field in schema if not is_list(field.type)]
        self._index = self._short(short)
        self._held: OrderedDict[tuple[int, tuple[str, ...]], pa.Table] = OrderedDict()

    @property
    def columns(self) -> tuple[str, ...]:
        return self._columns

    @property
    def index(self) -> pd.DataFrame:
        return self._index

    def batches(self, lines: Sequence[int], columns: Sequence[str], size: int) -> Iterator[pa.Table]:
        """Tables of at most ``size`` rows."""
        names = tuple(name for name in columns if name in self._columns)
        wanted = np.asarray(lines, np.int64)
        for start in range(0, len(wanted), size):
            yield self._rows(wanted[start : start + size], names)

    def _rows(self, lines: Any, names: tuple[str, ...]) -> pa.Table:
        groups: Any = np.searchsorted(self._starts, lines, side="right") - 1
        order: Any = np.argsort(groups, kind="stable")
        parts = []
        for group in np.unique(groups).tolist():
            own: Any = lines[order[groups[order] == group]] - int(self._starts[group])
            table = self._group(group, names)
            run = len(own) and own[-1] - own[0] == len(own) - 1 and (np.diff(own) == 1).all()
            parts.append(table.slice(own[0], len(own)) if run else table.take(pa.array(own)))
        whole = parts[0] if len(parts) == 1 else pa.concat_tables(parts, promote_options="permissive")
        if (np.diff(order) == 1).all():
            return whole
        back: Any = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return whole.take(pa.array(back))

    def _group(self, group: int, names: tuple[str, ...]) -> pa.Table:
        key = group, names
        found = self._held.pop(key, None)
        if found is None:
            file, number = self._groups[group]
            try:
                found = self._files[file].read_row_group(number, columns=list(names))
            except (pa.ArrowException, OSError) as error:
                raise ConfigError(
                    f"{self.paths[file]}: row group {number} cannot be read ({error}): write the file again"
                ) from None
            while self._held and sum(table.nbytes for table in self._held.values()) + found.nbytes > HELD_BYTES:
                self._held.popitem(last=False)
        self._held[key] = found
        return found

    def _short(self, names: list[str]) -> pd.DataFrame:
        tables = []
        for path, file in zip(self.paths, self._files, strict=True):
            try:
                tables.append(file.read(columns=names))
            except (pa.ArrowException, OSError) as error:
                raise ConfigError(f"{path}: the columns {', '.join(names)} cannot be read ({error}): write it again") from None
        return pa.concat_tables(tables, promote_options="permissive").to_pandas()


def _joinable(one: pa.Field, other: pa.Field) -> bool:
    """Whether columns of these kinds may stand in files that follow each other."""
    if is_list(one.type) or is_list(other.type):
        return bool(one.type == other.type)
    try:
        pa.unify_schemas([pa.schema([one]), pa.schema([other])], promote_options="permissive")
    except pa.ArrowException:
        return False
    return True


def _opened(path: Path) -> Any:
    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise ConfigError(f"{path} is not there: name a Parquet file of rows") from None
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"{path} is no whole Parquet file ({error}): write it again") from None
