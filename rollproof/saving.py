"""Saved runs and sweeps: what lies in their folders, and how a folder appears whole or not at all (RULES 8).

A run: ``run.json`` and, for each life ``k`` (and the reference, where a crash was asked for), ``<life>.history``
(``[format, [record, ...]]``), ``<life>.start.msgpack`` and ``<life>.end.msgpack`` (durable files, path -> bytes). What was
trained on lies in ``rows/crashed/life-<k>`` and ``rows/reference/life-1`` (``protocol.data_plane.training_rows``).
A sweep: ``sweep.json``, and for each seed ``seed-<n>/classes.jsonl``, ``lost_work.jsonl`` (one line a judged point: its
address, and the tokens, turns and rollouts that its restored run does again) and life 1 in the form above.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Union

import msgspec

from protocol import history
from protocol.external import NOTHING, External
from protocol.history import Record
from protocol.judging import RunStatus
from reports.failure import Evidence
from rollproof.command import Command
from rollproof.tokens import code_digest
from scenarios.model import InputError, Scenario
from sim.explore.lives import Life

FORMAT = 1  # of run.json and sweep.json
RUN_FILE = "run.json"
SWEEP_FILE = "sweep.json"
REPORT_FILE = "report.html"
CLASSES_FILE = "classes.jsonl"
LOST_WORK_FILE = "lost_work.jsonl"
PARITY_FILE = "parity.json"  # of a saved comparison (``rollproof.parity_saving``)

_AnyEvent: Any = Union[tuple(history.EVENTS)]  # noqa: UP007 - built from the vocabulary
_Row: Any = tuple[int, float, str, int, str, _AnyEvent]
_encode = msgspec.msgpack.Encoder().encode
_rows: msgspec.msgpack.Decoder[list[tuple[int, float, str, int, str, history.Event]]] = msgspec.msgpack.Decoder(list[_Row])
_whole = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])
_files = msgspec.msgpack.Decoder(dict[str, bytes])

Packed = dict[str, bytes]  # file name below the run's folder -> content


class SavedLife(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One life of a saved run. ``name`` is the stem of its files; ``fired`` is None where no crash was asked for.

    ``effects``: of each fault of this life, by its place in the scenario, '' if it took effect, else why not. ``external``:
    what outside services held at its start, and at its end. ``copied``: it was not killed, but stopped and copied at ``address``
    while the reference, whose beginning it is, went on.
    """

    name: str
    number: int
    status: RunStatus
    fired: bool | None = None
    address: tuple[str, str, int, int] | None = None
    events: int
    steps: int
    time_s: float
    effects: dict[int, str] = {}
    external: tuple[External, External] = (NOTHING, NOTHING)
    copied: bool = False


class SavedRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``run.json``. ``command`` runs it again; ``token`` is '' where no crash was asked for. ``fail``: the partial crashes of
    life 1, which are the last faults of ``scenario`` (the reference ran without them). ``world``: sim | real; of a real run,
    ``scenario`` has its real sizes, and ``scenario_digest`` is that of its file."""

    format: int = FORMAT
    kind: str = "run"
    scenario: Scenario
    scenario_digest: str
    code_digest: str
    seed: int
    schedule: str
    level: str
    plan: tuple[tuple[str, str, int, int, str], ...]
    token: str
    command: str
    versions: dict[str, str]
    lives: tuple[SavedLife, ...]
    reference: SavedLife | None = None
    fail: tuple[str, ...] = ()
    world: str = "sim"
    setup: dict[str, str] = {}  # what a real run ran on and with


class SavedSweep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``sweep.json``. ``result`` is what ``sweep --json`` printed; ``evidence`` what ``reports`` shows of failures;
    ``options`` what lay over the scenario, so that what a later judge finds can be replayed too."""

    format: int = FORMAT
    kind: str = "sweep"
    scenario: Scenario
    scenario_digest: str
    code_digest: str
    command: str
    versions: dict[str, str]
    seeds: tuple[int, int]  # the last one not included
    points: int | None
    outcomes: tuple[str, ...]
    result: dict[str, Any]
    evidence: list[Evidence]
    options: Command | None = None


class _Format(msgspec.Struct):
    format: int


_KINDS: dict[str, Any] = {RUN_FILE: SavedRun, SWEEP_FILE: SavedSweep}


def versions() -> dict[str, str]:
    """What a saved run was made with."""
    names = ("rollproof", "simpy", "msgspec", "pydantic")
    return {"python": platform.python_version(), "code": code_digest(), **{name: metadata.version(name) for name in names}}


# --- lives -----------------------------------------------------------------------------------------------------------


def pack_life(name: str, life: Life) -> Packed:
    content = (pack_history(life.history), pack_files(life.start), pack_files(life.files))
    return dict(zip(life_files(name), content, strict=True))


def pack_history(records: Iterable[Record]) -> bytes:
    rows = [(record.sequence, record.time, record.process, record.life, record.task, record.event) for record in records]
    return _encode((history.FORMAT, rows))


def pack_files(files: Mapping[str, bytes]) -> bytes:
    return _encode(dict(sorted(files.items())))


def saved_life(name: str, life: Life) -> SavedLife:
    return SavedLife(
        name=name,
        number=life.number,
        status=life.status,
        fired=life.fired,
        address=None if life.address is None else (*life.address[:3], life.address[3]),
        events=life.events,
        steps=life.steps,
        time_s=life.now,
        effects=dict(life.effects),
        external=life.external,
    )


def unpack_history(content: bytes, where: str) -> list[Record]:
    """Records of a ``.history`` file. Raises InputError that names the file."""
    try:
        number, rest = _whole.decode(content)
    except msgspec.DecodeError as error:
        raise InputError(f"{where}: is no saved history ({error}): [format, records] was expected") from None
    if number != history.FORMAT:
        raise InputError(f"{where}: has history format {number}: this version reads format {history.FORMAT}")
    try:
        rows = _rows.decode(_with_new_names(rest))
    except msgspec.DecodeError as error:
        raise InputError(f"{where}: holds a record that is none ({error})") from None
    return [Record(*row) for row in rows]


def _with_new_names(rows: msgspec.Raw) -> bytes:
    """Old event names become new ones before the records are read."""
    if not history.RENAMED:
        return bytes(rows)
    decoded = msgspec.msgpack.decode(rows)
    for row in decoded:
        row[5]["type"] = history.RENAMED.get(row[5]["type"], row[5]["type"])
    return _encode(decoded)


def unpack_files(content: bytes, where: str) -> dict[str, bytes]:
    try:
        return _files.decode(content)
    except msgspec.DecodeError as error:
        raise InputError(f"{where}: is no saved folder ({error}): a map of path to bytes was expected") from None


# --- folders ---------------------------------------------------------------------------------------------------------


def read_packed(folder: Path, names: Iterable[str]) -> Packed:
    """The files of one life or more. Raises InputError that names what is missing."""
    packed: Packed = {}
    for name in names:
        try:
            packed[name] = (folder / name).read_bytes()
        except OSError as error:
            raise InputError(f"{folder / name}: cannot be read ({error.strerror}): the folder is incomplete") from None
    return packed


def life_files(name: str) -> tuple[str, str, str]:
    return f"{name}.history", f"{name}.start.msgpack", f"{name}.end.msgpack"


def read_folder(folder: Path) -> SavedRun | SavedSweep:
    """``run.json`` or ``sweep.json`` of a history folder. Raises InputError."""
    for name, kind in _KINDS.items():
        path = folder / name
        if path.is_file():
            try:
                content = path.read_bytes()
                number = msgspec.json.decode(content, type=_Format).format
                if number != FORMAT:  # asked first: another format has other fields
                    raise InputError(f"{path}: has format {number}: this version reads format {FORMAT}")
                found: SavedRun | SavedSweep = msgspec.json.decode(content, type=kind)
            except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
                raise InputError(f"{path}: cannot be read ({error})") from None
            return found
    what = "is no folder" if not folder.is_dir() else f"holds neither {RUN_FILE} nor {SWEEP_FILE}"
    raise InputError(f"{folder}: {what}: a folder that run --out or sweep --out wrote was expected")


def write_packed(folder: Path, packed: Mapping[str, bytes]) -> None:
    for name, content in packed.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@contextlib.contextmanager
def out_folder(path: str | None) -> Iterator[Path | None]:
    """A temporary sibling that becomes ``path`` when the block ends well; on an error nothing is left behind.

    Raises InputError before anything runs if ``path`` cannot be written or holds what is not ours.
    """
    if path is None:
        yield None
        return
    target = _real(path, f"--out {path}", "a folder")
    if target.exists() and not (target.is_dir() and _is_ours(target)):
        raise InputError(f"--out {path}: is there already and not one of rollproof's: name a new or an empty folder")
    made = _make_parents(target.parent, f"--out {path}")
    temporary: Path | None = None
    try:
        try:
            temporary = Path(tempfile.mkdtemp(prefix=_aside(target), dir=target.parent))
        except OSError as error:
            raise InputError(f"--out {path}: cannot be written ({error.strerror}): name a folder that can") from None
        yield temporary
        temporary.chmod(0o755)
        if target.exists() and any(target.iterdir()):
            print(f"rollproof: --out {path}: what was there is replaced", file=sys.stderr)
        _take_the_place_of(target, temporary)
    except BaseException:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _take_the_place_of(target: Path, folder: Path) -> None:
    """Rename ``folder`` to ``target``; what was there is removed after that, so one of the two is always there."""
    if not target.exists():
        folder.rename(target)
        return
    aside = Path(tempfile.mkdtemp(prefix=_aside(target), dir=target.parent))
    target.rename(aside / target.name)
    try:
        folder.rename(target)
    except BaseException:
        (aside / target.name).rename(target)
        aside.rmdir()
        raise
    shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def out_file(path: str | None, option: str) -> Iterator[Path | None]:
    """As ``out_folder``, for one file; an existing file is replaced."""
    if path is None:
        yield None
        return
    target = _real(path, f"{option} {path}", "a file")
    if target.is_dir():
        raise InputError(f"{option} {path}: is a folder: name a file")
    try:
        handle, name = tempfile.mkstemp(prefix=_aside(target), dir=target.parent)
    except OSError as error:
        raise InputError(f"{option} {path}: cannot be written ({error.strerror}): name a file in a folder that can") from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _real(path: str, where: str, what: str) -> Path:
    """Where ``path`` leads. Raises InputError if it is a name that cannot be, or a link that leads nowhere."""
    target = Path(path).absolute()
    try:
        if target.is_symlink() and not target.exists():
            raise InputError(f"{where}: is a link that leads nowhere: name {what}")
        target.exists()
    except OSError as error:
        raise InputError(f"{where}: cannot be written ({error.strerror}): name {what} that can") from None
    return target.resolve() if target.is_symlink() else target


def _aside(target: Path) -> str:
    """How the names of temporary neighbours begin: never longer than a name may be, whatever ``target`` is called."""
    return f".{target.name[:40]}."


def _is_ours(folder: Path) -> bool:
    return not any(folder.iterdir()) or any((folder / name).is_file() for name in (RUN_FILE, SWEEP_FILE, PARITY_FILE))


def _make_parents(folder: Path, where: str) -> list[Path]:
    """Make ``folder`` and say which ones were new, outermost first."""
    missing: list[Path] = []
    here = folder
    while not here.exists():
        missing.insert(0, here)
        here = here.parent
    made: list[Path] = []
    try:
        for new in missing:
            new.mkdir()
            made.append(new)
    except OSError as error:
        for new in reversed(made):
            new.rmdir()
        raise InputError(f"{where}: cannot be written ({error.strerror}): name a folder that can") from None
    return made
