"""A run as rollproof saved it: its rows beside the histories of its lives, joined to what comparators read.

<rows>/life-<k>/step_<n>.jsonl           rows, in the order of training (``protocol.data_plane.training_rows``)
<rows>/life-<k>/step_<n>.metrics.json    figures of the step, where its trainer had any
<rows>/rows.parquet                      or all rows that count, in one file (``parity.sources.writing``)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from parity.sources.history import Tables, tables
from parity.sources.jsonl import Lines, own_table
from parity.sources.lineage import LifeTold
from parity.sources.memory import TableRows
from parity.tables import LEAKS, NEEDED, ROWS, Facts, Rows, Run
from protocol.errors import ConfigError

PARQUET = "rows.parquet"
_LIFE = re.compile(r"life-(\d+)")
_ROWS = re.compile(r"step_(\d+)\.jsonl")
_METRICS = re.compile(r"step_(\d+)\.metrics\.json")


@dataclass(frozen=True)
class RowFiles:
    """What lies in a rows folder, by (life, step)."""

    rows: dict[tuple[int, int], Path]
    metrics: dict[tuple[int, int], Path]


def row_files(folder: Path) -> RowFiles:
    """Raises ConfigError if the folder is not there."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: is no folder: the rows that a run trained on were expected, life-<k>/step_<n>.jsonl")
    return RowFiles(dict(_files(folder, _ROWS)), dict(_files(folder, _METRICS)))


def _files(folder: Path, name: re.Pattern[str]) -> Iterator[tuple[tuple[int, int], Path]]:
    for life in sorted(folder.iterdir()):
        number = _LIFE.fullmatch(life.name)
        for path in sorted(life.iterdir()) if number else ():
            found = name.fullmatch(path.name)
            if number and found:
                yield (int(number[1]), int(found[1])), path


def saved_run(facts: Facts, lives: Sequence[LifeTold], folder: Path) -> Run:
    """``folder``: the rows of this run's lives. Raises ConfigError that names file, line and column; also for rows that the
    history tells of and no file holds."""
    files = row_files(folder) if folder.is_dir() or len(lives) == 1 else RowFiles({}, {})
    told = tables(lives, {place: _metrics(path) for place, path in files.metrics.items()})
    if (folder / PARQUET).is_file():
        from parity.sources.parquet import ParquetRows

        return run_of(facts, told, ParquetRows([folder / PARQUET]))
    lines = Lines()
    for step, life in told.counted.items():
        path = files.rows.get((life, step))
        if path is None:
            raise ConfigError(f"{folder / f'life-{life}' / f'step_{step}.jsonl'}: is missing: life {life} trained step {step}")
        _all_there(path, len(lines.read(path)), len(told.trained.get(step, ())))
    table = _table(lines, str(folder), lives)
    return run_of(facts, told, TableRows(_of_lives(table, told)))


def run_of_rows(facts: Facts, lives: Sequence[LifeTold], rows: Mapping[tuple[int, int], Sequence[Any]]) -> Run:
    """Of rows in memory (``TrainingRow``), by (life, step)."""
    told = tables(lives)
    lines = Lines()
    for step, life in told.counted.items():
        found = rows.get((life, step), ())
        _all_there(lines.begin(f"{facts.source}, life {life}, step {step}"), len(found), len(told.trained.get(step, ())))
        for number, row in enumerate(found, start=1):
            lines.add(msgspec.to_builtins(row), number)
    return run_of(facts, told, TableRows(_table(lines, facts.source, lives)))


def _table(lines: Lines, source: str, lives: Sequence[LifeTold]) -> pa.Table:
    """None at all is a finding about a restored run, and no reference."""
    if lines.rows:
        return own_table(lines, source)
    if len(lives) == 1:
        raise ConfigError(f"{source}: holds no rows of a step that counts: the run committed none")
    return pa.schema([ROWS.field(name) for name in ROWS.names if name in (*NEEDED, "life")]).empty_table()


def _all_there(path: Path | str, found: int, wanted: int) -> None:
    if found != wanted:
        raise ConfigError(f"{path}: has {found} rows, its step was trained on {wanted}: was the file written to its end?")


def _metrics(path: Path) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}): figures of a step were expected, as JSON") from None
    return found


def _of_lives(table: pa.Table, told: Tables) -> pa.Table:
    """With the life in each row, which files of older versions say by their folder alone."""
    if "life" in table.column_names:
        return table
    lives = [told.counted[step] for step in table.column("step").to_pylist()]
    return table.append_column("life", pa.array(lives, pa.int32()))


def run_of(facts: Facts, told: Tables, rows: Rows) -> Run:
    """``rows`` are those that count."""
    return Run(
        facts=facts,
        rows=rows,
        restored=told.restored,
        recovered=told.recovered,
        steps=told.steps,
        groups=told.groups,
        passed=told.passed,
        leaks=_leaks(told, rows),
        crashes=told.crashes,
        told=told.told,
        has_history=True,
    )


def _leaks(told: Tables, rows: Rows) -> pd.DataFrame:
    """Those of manifests, and rows of restored prefixes that lay in staging when their step was trained."""
    lines = list(told.leaks.itertuples(index=False, name=None))
    index = rows.index
    samples = set(told.prefix_keys.values())
    if samples and {"staging_alive"} <= set(rows.columns) and "sample" in index:
        places = np.flatnonzero(index["sample"].isin(samples).to_numpy())
        for batch in rows.batches(places.tolist(), ("life", "step", "staging_alive"), 1000):
            for line in batch.to_pylist():
                lines += [
                    (line["life"], key, "trained", line["step"]) for key in line["staging_alive"] or () if key in told.prefix_keys
                ]
    return pd.DataFrame(lines, columns=list(LEAKS)) if lines else told.leaks
