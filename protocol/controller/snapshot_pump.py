"""The snapshot pump: when a snapshot is tried, and what a failed one costs (PROTOCOL 4.2, 4.3)."""

from __future__ import annotations

from protocol.checkpoint.anchor import Anchor
from protocol.checkpoint.snapshot import UNCHANGED, LostToStep, RolloutSnapshots
from protocol.errors import Cause, ProtocolError, SnapshotFailed
from protocol.history import SnapshotBroke, SnapshotDropped, SnapshotStarved
from protocol.run import Run

INSTANT_S = 1e-6  # less than this is no time left
STARVED_AFTER = 3  # snapshots lost to train steps in a row before a warning [I]


def decide_last(left_s: float | None) -> bool:
    """Whether the job's deadline is due (None: it has none, or no longer needs one)."""
    return left_s is not None and left_s < INSTANT_S


def decide_stop(steps: int, committing: bool) -> bool:
    """Whether the run stops once its last snapshot is published: only if no step came first."""
    return steps == 0 and not committing


def decide_fatal(cause: Cause, consecutive: int, limit: int) -> bool:
    """Whether a failed snapshot ends the run: a contradiction at once, an outage after ``limit`` in a row."""
    return cause is Cause.BROKEN or consecutive > limit


class SnapshotPump:
    """Every ``interval_s``, and as soon as a trainer checkpoint is durable. Without an interval it only waits to stop."""

    def __init__(self, run: Run, anchor: Anchor, snapshots: RolloutSnapshots) -> None:
        self.rt = run.rt
        self.rules = run.job.rollout_checkpointing
        self.anchor = anchor
        self.snapshots = snapshots
        self._failures = 0
        self._lost = 0
        self._stopping = False
        self._stop = run.rt.signal()
        self.run = run

    async def pump(self) -> None:
        """Returns after ``request_stop``, or with the run ``stopping`` when the job's deadline is due before step 1. Raises
        SnapshotFailed when the failure budget is spent, or the last snapshot before that deadline cannot be taken."""
        while not self._stopping:
            left_s = self._left_s()
            if self.rules.interval_s is None or not (self.anchor.due or decide_last(left_s)):
                timeout_s = self.rules.interval_s if left_s is None else min(left_s, self.rules.interval_s or left_s)
                await self.rt.first_of(self._stop.wait(), self.anchor.moved.wait(), timeout_s=timeout_s)
            if self.rules.interval_s is None or self._stopping:
                continue
            if decide_last(self._left_s()):
                await self._save_last()
                if self.run.stopping:
                    return
                continue
            forced, self.anchor.due = self.anchor.due, False
            await self._try(forced)

    def _left_s(self) -> float | None:
        """Seconds before the job's deadline, while it matters: a job that has trained a step has a trainer checkpoint."""
        limit_s = self.run.job.checkpointing.must_save_by_s
        return None if limit_s is None or self.run.steps else max(limit_s - self.rt.now(), 0.0)

    async def _save_last(self) -> None:
        """The snapshot that must succeed (PROTOCOL 4.3). One that loses to a train step is not needed any more."""
        try:
            skipped = await self.snapshots.take(forced=True)
        except LostToStep as lost:
            await self._lost_to(lost)
        except ProtocolError as error:
            await self._broke(error)
            raise SnapshotFailed(f"the last snapshot before the job's deadline: {error}", error.cause) from None
        else:
            if skipped is None:
                # Publication was a window: a step that has committed, or is committing, needs no deadline any more.
                self.run.stopping = decide_stop(self.run.steps, self.run.optimizer_commit_in_progress)
            else:
                self._count_lost()
                await self.rt.first_of(self._stop.wait(), self.anchor.moved.wait(), timeout_s=self.rules.interval_s)

    def _count_lost(self) -> None:
        """A snapshot that was due and lost to train steps: neither a failure nor a success, but no state is saved."""
        self._lost += 1
        if self._lost >= STARVED_AFTER:
            self.rt.record(SnapshotStarved(lost=self._lost))

    def request_stop(self) -> None:
        self._stopping = True
        self._stop.set()

    async def _try(self, forced: bool) -> None:
        """One snapshot under the failure budget; success resets it."""
        try:
            skipped = await self.snapshots.take(forced)
            if skipped is None:
                self._failures = self._lost = 0
            elif skipped != UNCHANGED:
                self._count_lost()
        except LostToStep as lost:
            await self._lost_to(lost)
        except ProtocolError as error:
            await self._broke(error)
            if decide_fatal(error.cause, self._failures, self.rules.max_consecutive_failures):
                raise SnapshotFailed(f"{self._failures} snapshots failed in a row: {error}", error.cause) from None

    async def _lost_to(self, lost: LostToStep) -> None:
        """Remove what the attempt that lost to a train step has written, and count it."""
        await self.snapshots.give_up()
        self.rt.record(SnapshotDropped(sequence=self.snapshots.attempt[1], reason=str(lost)))
        self._count_lost()

    async def _broke(self, error: ProtocolError) -> None:
        """Remove what the failed attempt has written, and count it."""
        await self.snapshots.give_up()
        self._failures += 1
        self.rt.record(
            SnapshotBroke(
                sequence=self.snapshots.attempt[1],
                cause=error.cause.value,
                error=type(error).__name__,
                message=str(error),
                consecutive=self._failures,
            )
        )
