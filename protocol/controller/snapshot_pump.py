"""The snapshot pump: when a snapshot is tried, and what a failed one costs (PROTOCOL 4.2, 4.3)."""

from __future__ import annotations

from protocol.checkpoint.anchor import Anchor
from protocol.checkpoint.snapshot import UNCHANGED, LostToStep, RolloutSnapshots
from protocol.errors import Cause, ProtocolError, SnapshotFailed
from protocol.history import SnapshotBroke, SnapshotDropped, SnapshotStarved
from protocol.run import Run

STARVED_AFTER = 3  # snapshots lost to train steps in a row before a warning [I]


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

    async def pump(self) -> None:
        """Returns after ``request_stop``; raises SnapshotFailed when the failure budget is spent."""
        while not self._stopping:
            if not self.anchor.due or self.rules.interval_s is None:
                await self.rt.first_of(self._stop.wait(), self.anchor.moved.wait(), timeout_s=self.rules.interval_s)
            if self.rules.interval_s is None or self._stopping:
                continue
            forced, self.anchor.due = self.anchor.due, False
            await self._try(forced)

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
            await self.snapshots.give_up()
            self.rt.record(SnapshotDropped(sequence=self.snapshots.attempt[1], reason=str(lost)))
            self._count_lost()
        except ProtocolError as error:
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
            if decide_fatal(error.cause, self._failures, self.rules.max_consecutive_failures):
                raise SnapshotFailed(f"{self._failures} snapshots failed in a row: {error}", error.cause) from None
