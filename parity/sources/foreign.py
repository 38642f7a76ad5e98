"""Rows that somebody else's trainer wrote: JSON lines, Parquet or torch files, named by a mapping (``parity.sources.mapping``).

A folder is read whole, in the order of its steps; of a log folder with ``exp_<n>`` below it, the newest one. Torch files are
read with ``weights_only=True``: what they hold beside tensors, numbers, texts, lists and dicts is refused, and said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parity.sources.jsonl import Lines
from parity.sources.mapped_parquet import Chosen, MappedRows
from parity.sources.mapping import Mapping
from parity.sources.memory import TableRows
from parity.sources.renaming import table_of
from parity.sources.torch_files import torch_rows
from parity.tables import Facts, Rows, Run
from protocol.errors import ConfigError

SUFFIXES = (".jsonl", ".parquet", ".pt", ".pth")
EXPERIMENT = re.compile(r"exp_(\d+)")
_NUMBERS = re.compile(r"\d+")


def foreign_pair(reference: str | Path, restored: str | Path, ours: Mapping, theirs: Mapping | None = None) -> tuple[Run, Run]:
    """(reference, restored run) of two dumps; ``ours`` maps the restored one, and the reference unless ``theirs`` does. Raises
    ConfigError that names file, row and column, and what would be right."""
    run = foreign_run(restored, ours, "restored")
    other = foreign_run(reference, theirs or ours, "reference")
    last = ours.run.restored_from_step
    if last and not (run.rows.index["step"] <= last).any():
        other = continued(other, last)
    return other, run


def continued(run: Run, after: int) -> Run:
    """Its rows of later steps: what a run that went on from step ``after`` is compared with."""
    lines = np.flatnonzero(run.rows.index["step"].to_numpy() > after)
    if not len(lines):
        raise ConfigError(f"{run.facts.source}: has no step after {after}, which the other run was restored from")
    return Run(facts=run.facts, rows=Chosen(run.rows, lines))


def foreign_run(path: str | Path, mapping: Mapping, name: str) -> Run:
    files = foreign_files(Path(path), mapping)
    rows = _parquet(files, mapping) if files[0].suffix == ".parquet" else _in_memory(files, mapping)
    run, crashed = mapping.run, name == "restored"
    facts = Facts(
        name=name,
        source=str(files[0].parent if len(files) > 1 else files[0]),
        in_order=run.sampler == "in_order",
        siblings=run.siblings,
        train_steps=run.train_steps,
        max_staleness=run.max_staleness,
        router_replay=run.router_replay,
        media=run.media,
        recovers=run.recovers if crashed else "",
        draws=run.draws,
        setup={"mapping": mapping.name},
    )
    return Run(facts=facts, rows=rows)


def foreign_files(path: Path, mapping: Mapping) -> list[Path]:
    """In the order of their steps: by the numbers in their names. Raises ConfigError if there are none, or of several kinds."""
    if path.is_file():
        if path.suffix not in SUFFIXES:
            raise ConfigError(f"{path}: is no file of rows that can be read: they end with {', '.join(SUFFIXES)}")
        return [path]
    if not path.is_dir():
        raise ConfigError(f"{path}: is not there: name a file of rows, or a folder of them")
    folder = newest_experiment(path)
    wanted = re.compile(re.escape(mapping.files).replace(r"\{step\}", r"\d+")) if mapping.files else None
    found = [
        file
        for file in folder.iterdir()
        if file.is_file() and (wanted.fullmatch(file.name) if wanted else file.suffix in SUFFIXES)
    ]
    if not found:
        what = mapping.files or "rows (" + ", ".join(f"*{suffix}" for suffix in SUFFIXES) + ")"
        raise ConfigError(f"{folder}: holds no {what}: name the folder that the trainer wrote its rows to")
    kinds = sorted({file.suffix for file in found})
    if len(kinds) > 1:
        raise ConfigError(f"{folder}: holds rows of several kinds ({', '.join(kinds)}): say which in the mapping's files")
    return sorted(found, key=lambda file: ([int(number) for number in _NUMBERS.findall(file.name)], file.name))


def newest_experiment(path: Path) -> Path:
    """Of a log folder, the newest ``exp_<n>``; a folder without any is itself."""
    found = {int(match[1]): part for part in path.iterdir() if part.is_dir() and (match := EXPERIMENT.fullmatch(part.name))}
    return found[max(found)] if found else path


def _in_memory(files: Sequence[Path], mapping: Mapping) -> TableRows:
    lines = Lines()
    steps: list[int | None] = []  # of the file that each row stands in
    refused: list[str] = []
    for path in files:
        if path.suffix == ".jsonl":
            objects = _opened_lines(path)
        else:
            try:
                objects = torch_rows(path)
            except ConfigError as error:
                refused.append(str(error))
                continue
        lines.begin(str(path))
        for number, held in objects:
            for row in _inner(held, mapping.rows, f"{path}, line {number}"):
                lines.add(row, number)
                steps.append(_step_of(path, mapping))
    if refused:
        raise ConfigError("; ".join(refused))
    source = str(files[0].parent if len(files) > 1 else files[0])
    if not lines.rows:
        raise ConfigError(f"{source}: holds no rows: at least one was expected")
    return TableRows(table_of(lines.rows, mapping, lines.where, steps, source))


def _opened_lines(path: Path) -> list[tuple[int, dict[str, Any]]]:
    one = Lines()
    one.read(path)
    return list(one.numbered())


def _inner(held: dict[str, Any], key: str, where: str) -> Iterator[dict[str, Any]]:
    if not key:
        yield held
        return
    rows = held.get(key)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"{where}: {key} is no list of rows, which the mapping says it is")
    beside = {name: value for name, value in held.items() if name != key}
    yield from ({**beside, **row} for row in rows)


def _step_of(path: Path, mapping: Mapping) -> int | None:
    """What ``{step}`` stands for in the file's name."""
    if "{step}" not in mapping.files:
        return None
    match = re.fullmatch(re.escape(mapping.files).replace(r"\{step\}", r"(\d+)"), path.name)
    return int(match[1]) if match else None


def _parquet(files: Sequence[Path], mapping: Mapping) -> Rows:
    from parity.sources.parquet import ParquetRows

    unfit = [name for name in mapping.columns if (found := mapping.source(name)) and "." in found.column]
    counted = mapping.run.calls_from_mask and "calls" not in mapping.provided
    if unfit or mapping.rows or mapping.unwrap or mapping.padded or counted:
        what = f"columns.{unfit[0]}" if unfit else "run.calls_from_mask" if counted else "rows, unwrap or padded"
        raise ConfigError(f"{files[0]}: mapping {mapping.name} has {what}, which Parquet is not read with: write plain columns")
    return MappedRows(ParquetRows(files), mapping, [_step_of(file, mapping) for file in files])
