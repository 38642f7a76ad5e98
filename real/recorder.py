"""The history of a real life: one append-only file, one write a record, and the kill that a record may trigger.

The file outlives the job. It begins with a line that names the format; each further line is one ``Record`` as JSON. A
trigger belongs to one process and is tested by that process's own counters, after the record is in the file and before
``record`` returns (RULES 5).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Union

import msgspec

from protocol.history import EVENTS, FORMAT, Event, Record
from protocol.judging import RunStatus

HEADER = b'{"format":%d}\n' % FORMAT

_encode = msgspec.json.encode
_decode_event = msgspec.json.Decoder(Union[EVENTS]).decode  # noqa: UP007 - built from a tuple of kinds
_decode_line = msgspec.json.Decoder(tuple[int, float, str, int, str, msgspec.Raw]).decode


class Trigger(NamedTuple):
    """Kill the job when ``process`` records its ``n``-th event ``kind`` of this life."""

    process: str
    kind: str
    n: int


class Recorder:
    """Writes the history of one life. ``trigger`` kills this operating system process with SIGKILL."""

    def __init__(self, path: Path, life: int, trigger: Trigger | None = None) -> None:
        self.life = life
        self.trigger = trigger
        self.sequence = 0
        self.counts: dict[tuple[str, str], int] = {}
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if os.fstat(self._file).st_size == 0:
            os.write(self._file, HEADER)

    def record(self, time_s: float, process: str, task: str, event: Event) -> None:
        kind = type(event).__name__
        line = _encode((self.sequence, time_s, process, self.life, task, event)) + b"\n"
        written = os.write(self._file, line)
        assert written == len(line), "a record that is written in part is no record"
        self.sequence += 1
        place = (process, kind)
        count = self.counts[place] = self.counts.get(place, 0) + 1
        if self.trigger is not None and (process, kind, count) == self.trigger:
            os.kill(os.getpid(), signal.SIGKILL)

    def close(self) -> None:
        os.close(self._file)


def read_history(path: Path) -> list[Record]:
    """All records of one life's file. Raises ValueError for another format or a torn line."""
    return list(_records(path))


def _records(path: Path) -> Iterator[Record]:
    with path.open("rb") as lines:
        if lines.readline() != HEADER:
            raise ValueError(f"{path} does not begin with a history of format {FORMAT}")
        for line in lines:
            sequence, time_s, process, life, task, event = _decode_line(line)
            yield Record(sequence, time_s, process, life, task, _decode_event(event))


def save_status(path: Path, status: RunStatus) -> None:
    """How the life ended, beside its history; a killed life leaves none."""
    path.write_bytes(_encode(status))


def read_status(path: Path) -> RunStatus:
    """The status that the life left, or ``crashed`` if it left none."""
    if not path.exists():
        return RunStatus("crashed")
    return msgspec.json.decode(path.read_bytes(), type=RunStatus)
