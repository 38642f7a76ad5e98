"""Copies of a reference: what lay on disk at an event of it, from which life 1 of a later run is taken (``run --copy``).

Below the folder of the run, ``copies/<address>/``: ``run/`` (the run's folder as it was), ``life.history`` and ``copy.json``. A
copy is whole and of the very reference that it lies beside, or it is refused by the name of what is wrong.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from protocol.history import Record
from rollproof.plausible import records_fit
from rollproof.saving import FORMAT, Packed, SavedLife, life_files, pack_files, pack_history, unpack_history
from rollproof.tokens import address_text
from scenarios.model import InputError
from sim.explore.points import PlanItem

FOLDER = "copies"
TREE = "run"
HISTORY_FILE = "life.history"
DESCRIPTION_FILE = "copy.json"
NAME = "life-1"
OF_A_PLACE = ("model", "gym_python", "rows", "services")  # options that say where something lies, not what it is


class SavedCopy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``copy.json``. ``files``: path in the copy's folder -> SHA-256 of a file, or of where a link leads; of a folder (its path
    ends with a slash) ''. ``made_by``: the parts that the processes had, and their options."""

    format: int = FORMAT
    kind: str = "copy"
    scenario_digest: str
    seed: int
    made_by: dict[str, Any]
    life: SavedLife
    files: dict[str, str]


class CopiedLife(msgspec.Struct, frozen=True, kw_only=True):
    """A copy that was read and found whole. ``tree``: the run's folder as the life left it."""

    life: SavedLife
    history: list[Record]
    tree: Path

    def packed(self, finish: Mapping[str, bytes]) -> Packed:
        """The files of life 1. A first life begins in an empty folder."""
        history, start, end = life_files(NAME)
        return {history: pack_history(self.history), start: pack_files({}), end: pack_files(finish)}


def place_of(folder: Path, item: PlanItem) -> Path:
    return folder / FOLDER / address_text(item.address)


def made_by(parts: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What must be alike in the life that begins with a copy, as it is read from JSON again."""
    kept = {name: value for name, value in sorted(options.items()) if name not in OF_A_PLACE}
    found: dict[str, Any] = json.loads(msgspec.json.encode({"parts": parts, **kept}))
    return found


def write_copy(
    place: Path, tree: Path, records: list[Record], life: SavedLife, *, scenario_digest: str, seed: int, made: dict[str, Any]
) -> None:
    """``tree`` is moved to ``place``, which is on the same disk."""
    place.mkdir(parents=True)
    tree.rename(place / TREE)
    (place / HISTORY_FILE).write_bytes(pack_history(records))
    saved = SavedCopy(scenario_digest=scenario_digest, seed=seed, made_by=made, life=life, files=digests(place))
    (place / DESCRIPTION_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(saved), indent=1))


def digests(place: Path) -> dict[str, str]:
    """Of everything in there but the description."""
    found: dict[str, str] = {}
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        if path.is_symlink():
            found[name] = hashlib.sha256(f"-> {os.readlink(path)}".encode()).hexdigest()
        elif path.is_dir():
            found[f"{name}/"] = ""
        elif name != DESCRIPTION_FILE:
            with path.open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def read_copy(
    folder: Path, item: PlanItem, *, scenario_digest: str, seed: int, made: dict[str, Any], reference: list[Record]
) -> CopiedLife | None:
    """The copy of the saved run in ``folder`` at the event of ``item``; None: it has none. Raises InputError, which names the
    file, if the copy is not whole, or not one of this scenario, seed and ``reference`` (records of the life it was made of)."""
    place = place_of(folder, item)
    if not place.is_dir():
        return None
    description = place / DESCRIPTION_FILE
    try:
        saved = msgspec.json.decode(description.read_bytes(), type=SavedCopy)
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{description}: cannot be read ({error}): the copy is not whole") from None
    wrong = description_faults(saved, item, scenario_digest, seed, made)
    if wrong:
        raise InputError.of(str(description), wrong)
    whole(place, saved.files)
    history = place / HISTORY_FILE
    records = unpack_history(history.read_bytes(), str(history))
    records_fit(records, saved.life.number, saved.life.events, str(history))
    if records != reference[: len(records)]:
        raise InputError(f"{history}: is not how the reference in {folder} began: the copy is of another run")
    if not holds(records, item):
        raise InputError(f"{history}: has no event {item.kind} number {item.n} of {item.process}")
    return CopiedLife(life=saved.life, history=records, tree=place / TREE)


def description_faults(saved: SavedCopy, item: PlanItem, scenario_digest: str, seed: int, made: dict[str, Any]) -> list[str]:
    wrong = []
    life = saved.life
    if (saved.format, saved.kind) != (FORMAT, "copy"):
        wrong.append(f"is {saved.kind!r} of format {saved.format}: it must be 'copy' of format {FORMAT}")
    if (saved.scenario_digest, saved.seed) != (scenario_digest, seed):
        wrong.append(
            f"is of scenario digest {saved.scenario_digest} and seed {saved.seed}, this run is of {scenario_digest} and {seed}"
        )
    if (life.name, life.number, life.status.outcome, life.fired, life.copied) != (NAME, 1, "crashed", True, True):
        wrong.append(f"life is {life.name!r}, number {life.number}, {life.status.outcome}: it must be a crashed life 1, copied")
    if life.address != item.address:
        wrong.append(f"life.address is {life.address}: the copy lies under {address_text(item.address)}")
    if saved.made_by != made:
        wrong.append(f"made_by is {saved.made_by}, and this run is given {made}: give it the same")
    return wrong


def whole(place: Path, said: Mapping[str, str]) -> None:
    """Raises InputError that names the first file which is not as ``said``."""
    try:
        found = digests(place)
    except OSError as error:
        raise InputError(f"{error.filename or place}: cannot be read ({error.strerror}): the copy is not whole") from None
    for name in sorted({*said, *found}):
        if name not in found:
            raise InputError(f"{place / name}: is missing: the copy is not whole")
        if name not in said:
            raise InputError(f"{place / name}: is no part of the copy: {DESCRIPTION_FILE} does not name it")
        if found[name] != said[name]:
            raise InputError(f"{place / name}: is not what was copied: its SHA-256 is another one")


def holds(records: list[Record], item: PlanItem) -> bool:
    """Whether the event of ``item`` is among them."""
    return sum((record.process, type(record.event).__name__) == (item.process, item.kind) for record in records) >= item.n
