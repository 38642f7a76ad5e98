"""A comparison as files: what was measured, so that it can be judged again. It is written before it is judged.

    parity.json                       of what it is, the profile, and what is known of both runs
    evidence/<table>.parquet          what was measured (``parity.tables.Measured``)
    evidence/<run>-<table>.parquet    of each run: the small tables beside its rows, and the index of its rows

``parity-report.json``, figures and the page (``reports.parity.written``) are made of these, each time it is judged.
"""

from __future__ import annotations

import dataclasses
import io
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from parity.gate import Comparison
from parity.profile import Profile
from parity.tables import Facts, Measured, Run
from rollproof.saving import PARITY_FILE, Packed, read_packed
from rollproof.tokens import code_digest
from scenarios.model import InputError

FORMAT = 1
EVIDENCE = "evidence"
SIDES = ("reference", "restored")
RUN_TABLES = ("restored", "recovered", "steps", "groups", "passed", "leaks", "crashes")
OF_MEASURED = tuple(field.name for field in dataclasses.fields(Measured))
MAYBE = {field.name for field in dataclasses.fields(Measured) if field.default is None}  # tables that nobody may have asked for
AS_JSON = b"rollproof_json"  # columns whose values no single Parquet type holds: JSON texts
AS_OBJECTS = b"rollproof_objects"  # columns that were Python objects, and become them again


class Kind(StrEnum):
    """What a ``parity.json`` is of."""

    ONE = "parity"
    POINTS = "parity-sweep"  # rollproof.parity_points


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a comparison is of. ``unknown``: why nothing is known whatever the gates say (a crash that did not fire)."""

    scenario: str
    command: str
    expects_restore: bool = True
    token: str = ""
    words: tuple[str, ...] = ()  # of the crash plan
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class SavedComparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``parity.json``. ``facts``, ``columns`` and ``histories`` of the reference and of the restored run."""

    format: int = FORMAT
    kind: str = Kind.ONE
    about: About
    profile: Profile
    versions: dict[str, str]
    facts: tuple[dict[str, Any], dict[str, Any]]
    columns: tuple[tuple[str, ...], tuple[str, ...]]
    histories: tuple[bool, bool]


class SavedRows:
    """The rows of a run of which the index alone was kept: what is asked of tokens was measured before."""

    def __init__(self, index: pd.DataFrame, columns: tuple[str, ...]) -> None:
        self.index = index
        self.columns = columns

    def batches(self, lines: Sequence[int], columns: Sequence[str], size: int) -> Iterator[pa.Table]:
        raise RuntimeError("the tokens of the rows are not kept with a comparison: compare the runs again")


def pack_comparison(comparison: Comparison, about: About, compression: str = "zstd") -> Packed:
    """File name -> content. ``compression`` of the tables: none where all of it is compressed together."""
    runs = (comparison.reference, comparison.restored)
    saved = SavedComparison(
        about=about,
        profile=comparison.profile,
        versions=versions(),
        facts=(dataclasses.asdict(runs[0].facts), dataclasses.asdict(runs[1].facts)),
        columns=(tuple(runs[0].rows.columns), tuple(runs[1].rows.columns)),
        histories=(runs[0].has_history, runs[1].has_history),
    )
    packed = {PARITY_FILE: msgspec.json.format(msgspec.json.encode(saved), indent=1)}
    for name in OF_MEASURED:
        table = getattr(comparison.measured, name)
        if table is not None:
            packed[_file(name)] = pack_table(table, compression)
    for side, run in zip(SIDES, runs, strict=True):
        packed[_file(f"{side}-rows")] = pack_table(run.rows.index, compression)
        for name in RUN_TABLES:
            packed[_file(f"{side}-{name}")] = pack_table(getattr(run, name), compression)
    return packed


def unpack_comparison(packed: Packed, where: str) -> tuple[Comparison, SavedComparison]:
    """The comparison that was packed, ready to be judged. Raises InputError that names the file, below ``where``."""
    saved = _saved(packed[PARITY_FILE], f"{where}{PARITY_FILE}")
    tables = {name: unpack_table(packed[name], f"{where}{name}") for name in packed if name != PARITY_FILE}
    missing = [name for name in evidence_files() if name not in tables and Path(name).stem not in MAYBE]
    if missing:
        raise InputError(f"{where}{missing[0]}: is not there: the comparison is incomplete")
    runs = []
    for side, facts, columns, history in zip(SIDES, saved.facts, saved.columns, saved.histories, strict=True):
        known = {field.name for field in dataclasses.fields(Facts)}
        if set(facts) != known:
            wrong = ", ".join(sorted(known ^ set(facts)))
            raise InputError(
                f"{where}{PARITY_FILE}: facts of the {side} run: {wrong} is missing or unknown: compare the runs again"
            )
        beside = {name: tables[_file(f"{side}-{name}")] for name in RUN_TABLES}
        rows = SavedRows(tables[_file(f"{side}-rows")], columns)
        runs.append(Run(facts=Facts(**facts), rows=rows, has_history=history, **beside))
    measured = Measured(**{name: tables[_file(name)] for name in OF_MEASURED if _file(name) in tables})
    return Comparison(reference=runs[0], restored=runs[1], measured=measured, profile=saved.profile), saved


def kind_of(folder: Path) -> Kind:
    """What was compared in a saved folder. Raises InputError."""
    path = folder / PARITY_FILE
    if not path.is_file():
        what = f"holds no {PARITY_FILE}" if folder.is_dir() else "is no folder"
        raise InputError(f"{folder}: {what}: a folder that parity compare --out or parity run --out wrote was expected")
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Format)
        if found.format != FORMAT:
            raise InputError(f"{path}: has format {found.format}: this version reads format {FORMAT}")
        return Kind(found.kind)
    except (ValueError, OSError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None


def read_comparison(folder: Path) -> Packed:
    """The files of a saved comparison. Raises InputError."""
    wanted = [name for name in evidence_files() if Path(name).stem not in MAYBE or (folder / name).is_file()]
    return read_packed(folder, [PARITY_FILE, *wanted])


def evidence_files() -> list[str]:
    return [_file(name) for name in (*OF_MEASURED, *(f"{side}-{name}" for side in SIDES for name in ("rows", *RUN_TABLES)))]


def versions() -> dict[str, str]:
    """What a comparison was made with."""
    names = ("rollproof", "numpy", "pandas", "pyarrow", "scipy")
    return {"python": platform.python_version(), "code": code_digest(), **{name: metadata.version(name) for name in names}}


def _file(name: str) -> str:
    return f"{EVIDENCE}/{name}.parquet"


def _saved(content: bytes, where: str) -> SavedComparison:
    try:
        number = msgspec.json.decode(content, type=_Format).format
        if number != FORMAT:
            raise InputError(f"{where}: has format {number}: this version reads format {FORMAT}")
        return msgspec.json.decode(content, type=SavedComparison)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: cannot be read ({error})") from None


class _Format(msgspec.Struct):
    format: int
    kind: str = Kind.ONE


# --- tables ----------------------------------------------------------------------------------------------------------


def pack_table(frame: pd.DataFrame, compression: str = "zstd") -> bytes:
    """Parquet. Columns of Python objects come back as objects: None stays None, a list a list (and a tuple becomes one)."""
    arrays, texts, objects = [], [], []
    for name in frame.columns:
        values = frame[name]
        if values.dtype != object:
            arrays.append(pa.Array.from_pandas(values))
            continue
        objects.append(str(name))
        plain = [_plain(value) for value in values]
        try:
            arrays.append(pa.array(plain, from_pandas=False))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            texts.append(str(name))
            arrays.append(pa.array([json.dumps(value) for value in plain]))
    table = pa.table(arrays, names=[str(name) for name in frame.columns])
    kinds = {str(name): str(frame[name].dtype) for name in frame.columns}
    notes = {AS_JSON: json.dumps(texts), AS_OBJECTS: json.dumps(objects), b"rollproof_kinds": json.dumps(kinds)}
    written = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(notes), written, compression=compression)
    return written.getvalue()


def unpack_table(content: bytes, where: str) -> pd.DataFrame:
    """Raises InputError that names the file."""
    try:
        table = pq.read_table(io.BytesIO(content))
        notes = table.schema.metadata or {}
        texts, objects = json.loads(notes[AS_JSON]), json.loads(notes[AS_OBJECTS])
        kinds = json.loads(notes[b"rollproof_kinds"])
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise InputError(f"{where}: is no table of a saved comparison ({type(error).__name__}: {error})") from None
    lacking = [name for name in kinds if name not in table.column_names]
    if lacking:
        raise InputError(f"{where}: lacks column {lacking[0]}, which it was written with: it was changed since")
    columns: dict[str, pd.Series] = {}
    for name, array in zip(table.column_names, table.columns, strict=True):
        if name in texts:
            columns[name] = pd.Series([json.loads(value) for value in array.to_pylist()], dtype=object)
        elif name in objects:
            columns[name] = pd.Series(array.to_pylist(), dtype=object)
        else:
            columns[name] = _as_written(array, kinds.get(name), f"{where}: column {name}")
    return pd.DataFrame(columns, columns=table.column_names, index=pd.RangeIndex(table.num_rows))


def _as_written(array: pa.ChunkedArray, kind: Any, where: str) -> pd.Series:
    try:
        if pa.types.is_nested(array.type) or kind is None:
            raise TypeError("it holds no single values")
        return array.to_pandas().astype(kind)
    except (TypeError, ValueError):
        wanted = "it was written with no such column" if kind is None else f"it was written as {kind}"
        raise InputError(f"{where} holds {array.type} or nothing in places, {wanted}: the file was changed since") from None


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if hasattr(value, "tolist"):  # a number or an array of numpy's
        return value.tolist()
    return value
