"""What a job has on disk at an event, copied while all of it stands still: what a kill at that event would have left.

A crash takes volatile state only, and SIGKILL loses no page cache; so the copy is exact in the process that asked, and of the
others it holds what they had written by the moment at which they were stopped, as a kill does. Their clocks go on meanwhile.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

TREE = "run"  # in the folder of a copy: the run's folder
LINES = "life.jsonl"  # and the history


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """One copy that was asked for. ``stood_s``: how long the job stood still, in real seconds. ``effects``: as in the outcome of
    a life, at that moment. ``wrong``: why there is no copy ('': there is one)."""

    stood_s: float
    effects: dict[int, str]
    wrong: str = ""


class Copier(msgspec.Struct, frozen=True, kw_only=True):
    """Copies the run's folder ``root`` and the file ``history`` to a folder of each copy's number below ``into``."""

    root: Path
    history: Path
    into: Path

    def copy(self, number: int) -> None:
        """Raises OSError. Whoever writes there must stand still."""
        folder = self.into / str(number)
        folder.mkdir(parents=True)
        copy_tree(self.root, folder / TREE)
        shutil.copy2(self.history, folder / LINES)


def copy_tree(source: Path, target: Path) -> None:
    """Files, folders and links. Sockets and pipes are left out: nobody answers there any more. Raises OSError."""
    target.mkdir()
    for entry in os.scandir(source):
        if entry.is_symlink():
            (target / entry.name).symlink_to(os.readlink(entry.path))
        elif entry.is_dir():
            copy_tree(Path(entry.path), target / entry.name)
        elif entry.is_file():
            shutil.copy2(entry.path, target / entry.name)
