"""Figures of rollout snapshots: ``timing/rollout_checkpoint`` and ``rollout/checkpoint_outcome`` of NeMo RL's telemetry."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from protocol.history import (
    CutTaken,
    DataPlaneSaveDone,
    DataPlaneSaveIssued,
    Event,
    ExclusiveEntered,
    ExclusiveLeft,
    GymPhaseEnded,
    Record,
    SnapshotBroke,
    SnapshotDropped,
    SnapshotPublished,
    SnapshotSkipped,
    SnapshotStarted,
    SnapshotStarved,
)
from reports.figures.definition import RING, Area, Handler, figure, seconds

DATA_PLANE_BARRIER = "data-plane"
COMPLETED, SKIPPED, FAILED = "completed", "skipped", "failed"
LOST_TO_STEP = "lost-to-step"


class RolloutCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One published rollout snapshot (NeMo RL: `timing/rollout_checkpoint`)."""

    snapshot_sequence: Annotated[int, figure("number", "the snapshot's number below its anchor")]
    anchor: Annotated[str, figure("folder", "the trainer checkpoint (or `bootstrap`) that it belongs to")]
    total_save: Annotated[
        float, figure("s", "from its start, under the checkpoint lock, to its publication; pruning comes after")
    ]
    tq_save: Annotated[float, figure("s", "the data plane's native save inside the exclusive section")]
    barrier_wait: Annotated[float, figure("s", "from asking for the data-plane barrier to having it alone")]
    exclusive_hold: Annotated[float, figure("s", "from having the data-plane barrier alone to giving it back")]
    replay_groups: Annotated[int, figure("groups", "in the replay sidecar: published, and those an open train step has claimed")]
    ledger_groups: Annotated[int, figure("groups", "in the recovery ledger")]
    rolled_back_train_groups: Annotated[int, figure("groups", "claimed by an open train step and written as if they were not")]
    gym_parked_seconds: Annotated[
        float, figure("s", "the Gym phase: from holding the deadlines to the end of the resume; 0: none")
    ]


class CheckpointOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One try at a rollout snapshot (NeMo RL: `rollout/checkpoint_outcome`)."""

    attempt: Annotated[int, figure("number", "which try of this life, from 1")]
    outcome: Annotated[str, figure("word", "`completed`, `skipped` or `failed`")]
    reason: Annotated[
        str,
        figure(
            "word",
            "completed: `periodic` or `forced`; skipped: `unchanged`, `commit-in-progress`, `no-durable-anchor`, or "
            "`lost-to-step` (a train step committed while it was taken); failed: the cause's name, such as `unavailable`",
        ),
    ]
    seconds_since_previous_success: Annotated[
        float | None, figure("s", "since the last publication of this life; none before the first")
    ]


class Snapshots(msgspec.Struct, frozen=True, kw_only=True):
    """All tries of one life."""

    outcomes: Annotated[dict[str, dict[str, int]], figure("tries", "by outcome, then by reason")]
    starved_warnings: Annotated[int, figure("warnings", "that snapshots keep losing to train steps")]
    rollout_checkpoint: Annotated[
        tuple[RolloutCheckpoint, ...], figure("RolloutCheckpoint", f"of the newest {RING:,} published snapshots")
    ]
    checkpoint_outcome: Annotated[tuple[CheckpointOutcome, ...], figure("CheckpointOutcome", f"of the newest {RING:,} tries")]


@dataclass(kw_only=True)
class _Open:
    """The snapshot under way."""

    started: float
    forced: bool
    tq_save: float = 0.0
    barrier_wait: float = 0.0
    exclusive_hold: float = 0.0
    gym_parked: float = 0.0
    cut: CutTaken | None = None


class SnapshotsArea(Area):
    def __init__(self) -> None:
        self._open: _Open | None = None
        self._section: tuple[float, float] | None = None  # when the barrier was entered alone, after which wait
        self._role = ""  # of the cut taken in that section
        self._save_issued = 0.0
        self._tries = 0
        self._starved = 0
        self._succeeded: float | None = None
        self._counts: dict[str, dict[str, int]] = {}
        self._published: deque[RolloutCheckpoint] = deque(maxlen=RING)
        self._outcomes: deque[CheckpointOutcome] = deque(maxlen=RING)

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {
            SnapshotStarted: self._started,
            ExclusiveEntered: self._entered,
            ExclusiveLeft: self._left,
            DataPlaneSaveIssued: self._save,
            DataPlaneSaveDone: self._saved,
            CutTaken: self._cut,
            GymPhaseEnded: self._parked,
            SnapshotPublished: self._publish,
            SnapshotSkipped: lambda record, event: self._over(record, SKIPPED, event.reason),
            SnapshotDropped: lambda record, event: self._over(record, SKIPPED, LOST_TO_STEP),
            SnapshotBroke: lambda record, event: self._over(record, FAILED, event.cause),
            SnapshotStarved: self._starve,
        }

    def _started(self, record: Record, event: SnapshotStarted) -> None:
        self._open = _Open(started=record.time, forced=event.forced)

    def _entered(self, record: Record, event: ExclusiveEntered) -> None:
        if event.barrier == DATA_PLANE_BARRIER:
            self._section, self._role = (record.time, event.waited_s), ""

    def _left(self, record: Record, event: ExclusiveLeft) -> None:
        """Also after a wait that was cancelled: then nothing was entered."""
        if event.barrier != DATA_PLANE_BARRIER or self._section is None:
            return
        if self._open is not None and self._role == "snapshot":
            entered, self._open.barrier_wait = self._section
            self._open.exclusive_hold = record.time - entered
        self._section = None

    def _save(self, record: Record, event: DataPlaneSaveIssued) -> None:
        self._save_issued = record.time

    def _saved(self, record: Record, event: DataPlaneSaveDone) -> None:
        if self._open is not None and event.role == "snapshot":
            self._open.tq_save = record.time - self._save_issued

    def _cut(self, record: Record, event: CutTaken) -> None:
        self._role = event.role
        if self._open is not None and event.role == "snapshot":
            self._open.cut = event

    def _parked(self, record: Record, event: GymPhaseEnded) -> None:
        if self._open is not None:
            self._open.gym_parked = event.parked_s

    def _publish(self, record: Record, event: SnapshotPublished) -> None:
        one = self._open
        if one is not None and one.cut is not None:
            self._published.append(
                RolloutCheckpoint(
                    snapshot_sequence=event.sequence,
                    anchor=event.anchor,
                    total_save=seconds(record.time - one.started),
                    tq_save=seconds(one.tq_save),
                    barrier_wait=seconds(one.barrier_wait),
                    exclusive_hold=seconds(one.exclusive_hold),
                    replay_groups=one.cut.replay.count,
                    ledger_groups=one.cut.open,
                    rolled_back_train_groups=one.cut.rolled_back,
                    gym_parked_seconds=seconds(one.gym_parked),
                )
            )
        self._over(record, COMPLETED, "forced" if one is not None and one.forced else "periodic")
        self._succeeded = record.time

    def _over(self, record: Record, outcome: str, reason: str) -> None:
        """A try came to its end; a skipped one never started."""
        self._open = None
        self._tries += 1
        counts = self._counts.setdefault(outcome, {})
        counts[reason] = counts.get(reason, 0) + 1
        since = None if self._succeeded is None else seconds(record.time - self._succeeded)
        self._outcomes.append(
            CheckpointOutcome(attempt=self._tries, outcome=outcome, reason=reason, seconds_since_previous_success=since)
        )

    def _starve(self, record: Record, event: SnapshotStarved) -> None:
        self._starved += 1

    def figures(self) -> Snapshots:
        return Snapshots(
            outcomes={outcome: dict(counts) for outcome, counts in self._counts.items()},
            starved_warnings=self._starved,
            rollout_checkpoint=tuple(self._published),
            checkpoint_outcome=tuple(self._outcomes),
        )
