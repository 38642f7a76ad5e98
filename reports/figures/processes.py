"""Figures of partial crashes: which processes died or stood still inside a life, and for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated

import msgspec

from protocol.history import Event, ProcessContinued, ProcessKilled, ProcessStalled, ProcessStarted, Record
from reports.figures.definition import Area, Durations, Handler, Stopwatch, figure


class Processes(msgspec.Struct, frozen=True, kw_only=True):
    """Processes that died or stood still alone, while the job went on."""

    killed: Annotated[dict[str, int], figure("deaths", "by process")]
    down_s: Annotated[Durations, figure("Durations", "from a death to the start of the next incarnation; without one: none")]
    stalled: Annotated[dict[str, int], figure("stalls", "by process")]
    stalled_s: Annotated[Durations, figure("Durations", "from standing still to going on; a process that never went on: none")]


class ProcessesArea(Area):
    def __init__(self) -> None:
        self._killed: Counter[str] = Counter()
        self._stalled: Counter[str] = Counter()
        self._died_at: dict[str, float] = {}
        self._stood_at: dict[str, float] = {}
        self._down, self._still = Stopwatch(), Stopwatch()

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {
            ProcessKilled: self._kill,
            ProcessStarted: self._start,
            ProcessStalled: self._stall,
            ProcessContinued: self._continue,
        }

    def _kill(self, record: Record, event: ProcessKilled) -> None:
        self._killed[event.process] += 1
        self._died_at[event.process] = record.time
        self._stood_at.pop(event.process, None)

    def _start(self, record: Record, event: ProcessStarted) -> None:
        died_at = self._died_at.pop(record.process, None)
        if died_at is not None:
            self._down.add(record.time - died_at)

    def _stall(self, record: Record, event: ProcessStalled) -> None:
        self._stalled[event.process] += 1
        self._stood_at.setdefault(event.process, record.time)

    def _continue(self, record: Record, event: ProcessContinued) -> None:
        stood_at = self._stood_at.pop(event.process, None)
        if stood_at is not None:
            self._still.add(record.time - stood_at)

    def figures(self) -> Processes:
        return Processes(
            killed=dict(self._killed),
            down_s=self._down.figures(),
            stalled=dict(self._stalled),
            stalled_s=self._still.figures(),
        )
