"""The history of a real life: one append-only file, one write a record, and what a record may trigger.

The file outlives the job. It begins with a line that names the format; each further line is one ``Record`` as JSON. All
processes of a life append to the same file: the kernel puts one write behind the other, so the order of the lines is the order
in which the records were made, whoever made them, and a message is never sent before what was recorded ahead of it. A trigger
belongs to one process and is tested by that process's own counters, after the record is in the file (or, of the edge
``before``, ahead of it) and before ``record`` returns (RULES 5).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Union

import msgspec

from protocol.history import EVENTS, FORMAT, Event, ProcessStarted, Record
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


class Act(NamedTuple):
    """What happens inside ``record``: before the record is written, or after. ``run`` may never return."""

    before: bool
    run: Callable[[], None]


def die() -> None:
    """Kill this operating system process with SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


class Recorder:
    """Writes what one operating system process records of one life. ``trigger`` kills it; ``acts`` are further triggers.
    ``counts``: what its processes have recorded before, of one that starts again."""

    def __init__(
        self,
        path: Path,
        life: int,
        trigger: Trigger | None = None,
        acts: Mapping[Trigger, Sequence[Act]] | None = None,
        counts: Mapping[tuple[str, str], int] | None = None,
    ) -> None:
        self.life = life
        self.acts: dict[Trigger, Sequence[Act]] = dict(acts or {})
        if trigger is not None:
            self.acts[trigger] = (*self.acts.get(trigger, ()), Act(False, die))
        self.counts = dict(counts or {})
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if os.fstat(self._file).st_size == 0:
            os.write(self._file, HEADER)

    def record(self, time_s: float, process: str, task: str, event: Event) -> None:
        kind = type(event).__name__
        place = (process, kind)
        count = self.counts[place] = self.counts.get(place, 0) + 1
        acts = self.acts.get(Trigger(process, kind, count), ()) if self.acts else ()
        for act in acts:
            if act.before:
                act.run()
        line = _encode((0, time_s, process, self.life, task, event)) + b"\n"
        written = os.write(self._file, line)
        assert written == len(line), "a record that is written in part is no record"
        for act in acts:
            if not act.before:
                act.run()

    def close(self) -> None:
        os.close(self._file)


def counts_of(path: Path, process: str) -> dict[tuple[str, str], int]:
    """How often ``process`` has recorded each kind of event in the life of this file."""
    counts: dict[tuple[str, str], int] = {}
    for record in _records(path):
        if record.process == process:
            place = (process, type(record.event).__name__)
            counts[place] = counts.get(place, 0) + 1
    return counts


def read_history(path: Path) -> list[Record]:
    """All records of one life's file, numbered in the order of the file; no time lies before the one ahead of it, though the
    clocks of two processes are read a little before their lines are written. Raises ValueError for another format or a torn
    line."""
    return list(_records(path))


def _records(path: Path) -> Iterator[Record]:
    with path.open("rb") as lines:
        if lines.readline() != HEADER:
            raise ValueError(f"{path} does not begin with a history of format {FORMAT}")
        latest, started = 0.0, False
        for sequence, line in enumerate(lines):
            _, time_s, process, life, task, raw = _decode_line(line)
            event = _decode_event(raw)
            if not started and isinstance(event, ProcessStarted):
                started, latest = True, 0.0  # the clock starts again when the clean-up is over
            latest = max(latest, time_s)
            yield Record(sequence, latest, process, life, task, event)


def save_status(path: Path, status: RunStatus) -> None:
    """How the life ended, beside its history; a killed life leaves none."""
    path.write_bytes(_encode(status))


def read_status(path: Path) -> RunStatus:
    """The status that the life left, or ``crashed`` if it left none."""
    if not path.exists():
        return RunStatus("crashed")
    return msgspec.json.decode(path.read_bytes(), type=RunStatus)
