"""The figures of one life, and of a run of several: a streaming fold over recorded events, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from protocol.history import Event, FaultInjected, Record, StallReported
from protocol.work import Work, WorkLog, total
from reports.figures.barriers import Barrier, BarriersArea, Lock, LocksArea
from reports.figures.definition import RING, Area, Handler, figure, seconds
from reports.figures.gym import Gym, GymArea
from reports.figures.prefix import Prefix, PrefixArea
from reports.figures.processes import Processes, ProcessesArea
from reports.figures.recovery import RecoveryArea, RolloutRecovery, TrainingArea, TrainStep
from reports.figures.rows import Rows, RowsArea
from reports.figures.snapshots import Snapshots, SnapshotsArea


class LifeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one life's history says in numbers."""

    life: Annotated[int, figure("number", "from 1")]
    events: Annotated[int, figure("events", "of its history")]
    time_s: Annotated[float, figure("s", "of its last event, on the clock of the recording world")]
    faults: Annotated[dict[str, int], figure("faults", "injected, by verb")]
    stalls: Annotated[int, figure("reports", "of the watchdog")]
    snapshots: Annotated[Snapshots, figure("Snapshots", "rollout snapshots")]
    rollout_recovery: Annotated[RolloutRecovery, figure("RolloutRecovery", "the restart")]
    barriers: Annotated[dict[str, Barrier], figure("Barrier", "by lock: `data-plane`, `dispatch`")]
    locks: Annotated[dict[str, Lock], figure("Lock", "by lock: `checkpoint`")]
    processes: Annotated[Processes, figure("Processes", "partial crashes")]
    gym: Annotated[Gym, figure("Gym", "Gym's control plane")]
    rows: Annotated[Rows, figure("Rows", "dispatch")]
    prefix: Annotated[Prefix, figure("Prefix", "recovery inside model calls; all 0 below level prefix")]
    train_steps: Annotated[tuple[TrainStep, ...], figure("TrainStep", f"the newest {RING:,} applied train steps")]


class CrashLoss(msgspec.Struct, frozen=True, kw_only=True):
    """What the crash at the end of a life cost."""

    life: Annotated[int, figure("number", "the life that was crashed")]
    done: Annotated[Work, figure("work", "that it had done: tokens generated, turns completed, rollouts begun; see lost work")]
    lost: Annotated[Work, figure("work", "of this, what the next life does again")]


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run: of each life, and of the crashes between them."""

    lives: Annotated[tuple[LifeFigures, ...], figure("LifeFigures", "one a life")]
    lost_work: Annotated[tuple[CrashLoss, ...], figure("CrashLoss", "one for each crash that a life follows")]


class LifeFold:
    """Feed it the records of one life in order; ask for the figures whenever they are wanted."""

    def __init__(self) -> None:
        self._snapshots, self._recovery, self._barriers = SnapshotsArea(), RecoveryArea(), BarriersArea()
        self._gym, self._rows, self._training = GymArea(), RowsArea(), TrainingArea()
        self._locks, self._processes, self._prefix = LocksArea(), ProcessesArea(), PrefixArea()
        self._life = self._events = self._stalls = 0
        self._time = 0.0
        self._faults: Counter[str] = Counter()
        areas: tuple[Area, ...] = (
            self._snapshots, self._recovery, self._barriers, self._locks, self._processes, self._gym, self._rows, self._prefix,
            self._training,
        )  # fmt: skip
        self._handlers: dict[type[Event], list[Handler]] = {}
        for area in areas:
            for kind, handler in area.handlers().items():
                self._handlers.setdefault(kind, []).append(handler)

    def feed(self, record: Record) -> None:
        self._life, self._time = record.life, record.time
        self._events += 1
        event = record.event
        for handler in self._handlers.get(type(event), ()):
            handler(record, event)
        if isinstance(event, FaultInjected):
            if not event.detail.startswith("armed"):  # it is recorded once more when what it armed has happened
                self._faults[event.fault] += 1
        elif isinstance(event, StallReported):
            self._stalls += 1

    def figures(self) -> LifeFigures:
        return LifeFigures(
            life=self._life,
            events=self._events,
            time_s=seconds(self._time),
            faults=dict(self._faults),
            stalls=self._stalls,
            snapshots=self._snapshots.figures(),
            rollout_recovery=self._recovery.figures(),
            barriers=self._barriers.figures(),
            locks=self._locks.figures(),
            processes=self._processes.figures(),
            gym=self._gym.figures(),
            rows=self._rows.figures(),
            prefix=self._prefix.figures(),
            train_steps=self._training.figures(),
        )


def life_figures(records: Iterable[Record]) -> LifeFigures:
    fold = LifeFold()
    for record in records:
        fold.feed(record)
    return fold.figures()


def run_figures(histories: Sequence[Sequence[Record]]) -> RunFigures:
    """``histories`` of all lives, in order."""
    logs = [WorkLog(records) for records in histories]
    return RunFigures(
        lives=tuple(life_figures(records) for records in histories),
        lost_work=tuple(
            CrashLoss(life=number, done=before.total(), lost=total(before.repeated_by(after)))
            for number, (before, after) in enumerate(zip(logs, logs[1:], strict=False), start=1)
        ),
    )
