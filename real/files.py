"""Files of a run on a real file system, with the order and durability that the seam asks for.

Operations run on the loop's thread, each in a later turn than it was issued in, as a landing does in the simulator:
they are short, and nothing comes between an effect and the record that it happened.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from protocol.errors import MissingFile, ProtocolError
from protocol.history import Event, FileDone, FileIssued, FileRead
from real.waits import Fence, State, Wait

REMOVED = ".removed"  # a removed tree goes here first: its name vanishes at once, as the seam's ``remove`` promises


class Operation(Wait):
    """One operation. Once it was issued it lands, even if its task is cancelled meanwhile."""

    def __init__(self, files: RealFiles, act: Callable[[], Any], path: str, issued: Event | None, done: Event | None) -> None:
        super().__init__(files.fence)
        self._files = files
        self._act = act
        self._path = path
        self._issued = issued
        self._done = done

    def begin(self) -> None:
        if self._issued is not None:
            self._files.record(self._issued)
        asyncio.get_running_loop().call_soon(self._land)

    def _land(self) -> None:
        value: Any = None
        error: Exception | None = None
        if self.fence.up:
            return
        try:
            value = self._act()
        except ProtocolError as raised:
            error = raised
        except FileNotFoundError:
            error = MissingFile(f"{self._path!r} is not there")
        except OSError as raised:
            error = ProtocolError(f"{self._path!r}: {raised.strerror}")
        if error is None and self._done is not None:
            self._files.record(self._done)
        if self.state is State.PENDING:
            self.settle(value, error)


class RealFiles:
    """``protocol.runtime.Files`` under ``root``. ``record`` writes an event of the process that owns it."""

    def __init__(self, root: Path, record: Callable[[Event], None], fence: Fence) -> None:
        self.root = root
        self.record = record
        self.fence = fence

    def write(self, path: str, data: bytes) -> Operation:
        def act() -> None:
            target = self._place(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)

        return self._effect("write", path, act)

    def read(self, path: str) -> Operation:
        return Operation(self, lambda: self._place(path).read_bytes(), path, None, FileRead(path))

    def fsync(self, path: str) -> Operation:
        return self._effect("fsync", path, lambda: _sync(self._place(path)))

    def rename(self, old: str, new: str) -> Operation:
        return self._effect("rename", old, lambda: os.replace(self._place(old), self._place(new)), new)

    def fsync_dir(self, path: str) -> Operation:
        return self._effect("fsync_dir", path, lambda: _sync(self._place(path)))

    def list(self, path: str) -> Operation:
        def act() -> tuple[str, ...]:
            folder = self._place(path)
            if not folder.exists():
                return ()
            return tuple(sorted(entry.name for entry in folder.iterdir() if entry.name != REMOVED))

        return Operation(self, act, path, None, None)

    def remove(self, path: str) -> Operation:
        def act() -> None:
            target = self._place(path)
            if not target.is_dir():
                target.unlink()
                return
            aside = self.root / REMOVED
            aside.mkdir(exist_ok=True)
            gone = Path(tempfile.mkdtemp(dir=aside))
            os.replace(target, gone)
            shutil.rmtree(gone)

        return self._effect("remove", path, act)

    def _effect(self, operation: str, path: str, act: Callable[[], None], to: str = "") -> Operation:
        return Operation(self, act, path, FileIssued(operation, path, to), FileDone(operation, path, to))

    def _place(self, path: str) -> Path:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts:
            raise ProtocolError(f"{path!r} is no path of the run's folder: it must be relative, with plain names")
        return self.root / pure


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def clear_removed(root: Path) -> None:
    """Finish removals that a kill interrupted; nothing in there has a name in the run."""
    shutil.rmtree(root / REMOVED, ignore_errors=True)


def files_below(root: Path) -> dict[str, bytes]:
    """Path -> content of everything in the run's folder, scratch of lives left out: what judges are shown."""
    found: dict[str, bytes] = {}
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        scratch = len(parts) > 1 and parts[0].startswith("life-") and parts[1] == "scratch"
        if path.is_file() and not scratch and parts[0] != REMOVED:
            found["/".join(parts)] = path.read_bytes()
    return found
