"""I25."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from invariants.gym.cut import CutWatch
from protocol.config import Level
from protocol.history import (
    AttemptAbandoned,
    AttemptDispatched,
    AttemptRefused,
    AttemptReserved,
    AttemptSealed,
    CommitFlagSet,
    EpisodeInstalled,
    Event,
    GroupDropped,
    ProcessContinued,
    ProcessStalled,
    Record,
    Restored,
    RunEnded,
    SnapshotBroke,
    SnapshotDropped,
    SnapshotPublished,
    SnapshotSkipped,
    SnapshotStarted,
    SnapshotStarved,
    StepCommitted,
    TrainerCheckpointDurable,
    TrainerSaveAsked,
    WeightsSynced,
)
from protocol.judging import Durable, Judge, RunStatus, Terms, Violation

STARVED_AFTER = 3  # losses in a row before a warning is owed [I]
SLACK_S = 0.05  # what may stand before an attempt that is due: the cut of a trainer save
LEDGER: tuple[type[Event], ...] = (
    AttemptDispatched, AttemptReserved, EpisodeInstalled, AttemptRefused, AttemptSealed, AttemptAbandoned, GroupDropped,
)  # fmt: skip
CONTROLLER = "controller"


class EveryAnchorGetsItsSnapshot(Judge):
    """A snapshot is tried at every interval and none is skipped as unchanged while an episode is live or the newest trainer
    checkpoint has none of its own, a durable step_N gets one tried before or at the next interval unless a later step commits,
    and snapshots that keep losing to train steps are warned of.
    """

    invariant = "I25"
    needs = (SnapshotStarted,)
    sees = (
        ProcessContinued, ProcessStalled, WeightsSynced, CommitFlagSet, Restored, RunEnded, SnapshotBroke, SnapshotDropped,
        SnapshotPublished, SnapshotSkipped, SnapshotStarved, StepCommitted, TrainerCheckpointDurable, TrainerSaveAsked,
        *LEDGER,
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.interval_s = terms.job.rollout_checkpointing.interval_s or 0.0
        self.watch = CutWatch()  # of the ledger: which episodes are live
        self.started = False  # the pumps run, or wait for the first push of the weights
        self.synced = False  # it is over
        self.still_s = 0.0  # since when the controller stands still: intervals are of its own running time
        self.tried_s = 0.0  # when the last attempt was over (or skipped)
        self.open = False
        self.asked = self.durable = 0  # newest trainer saves: while one is on its way an attempt waits for it
        self.anchor = ""  # newest durable trainer checkpoint of this life
        self.due_s = -1.0  # since when it waits for its first snapshot, -1: it does not
        self.owed = False  # it has not had a snapshot started
        self.step = 0  # committed
        self.committing = False
        self.lost = 0  # attempts in a row that lost to train steps
        self.warned = False

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN and terms.job.snapshots_on

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, WeightsSynced):
            if not self.synced:  # only then do the pumps of this life start
                self.synced, self.tried_s = True, record.time
            return ()
        if isinstance(event, (ProcessStalled, ProcessContinued)):
            if event.process == CONTROLLER:
                self._stood_still(isinstance(event, ProcessStalled), record.time)
            return ()
        found = [self.broken(text, record) for text in self._late(record.time)]
        if type(event) in LEDGER:
            self.watch.follow(event)
        else:
            found += [self.broken(text, record) for text in self._snapshot(event, record.time)]
        return found

    def _stood_still(self, begins: bool, now_s: float) -> None:
        if begins:
            self.still_s = now_s
            return
        self.tried_s += now_s - self.still_s
        self.due_s += now_s - self.still_s if self.due_s >= 0 else 0.0

    def _late(self, now_s: float) -> Iterator[str]:
        if not self.started or self.open or self.asked > self.durable:
            return
        if self.due_s >= 0 and now_s > max(self.due_s, self.tried_s) + self.interval_s + SLACK_S + self.terms.slack_s:
            yield f"{self.anchor} is durable since {self.due_s:.3f} s and no snapshot of it was tried by {now_s:.3f} s"
            self.due_s = -1.0
        elif now_s > self.tried_s + 2 * self.interval_s + SLACK_S + self.terms.slack_s:
            yield f"no snapshot was tried between {self.tried_s:.3f} s and {now_s:.3f} s, the interval is {self.interval_s:g} s"
            self.tried_s = now_s

    def _snapshot(self, event: Event, now_s: float) -> Iterator[str]:
        if isinstance(event, Restored):
            self.started, self.tried_s = True, now_s
            self.step = self.durable = self.asked = event.step  # its anchor was durable before this life
        elif isinstance(event, TrainerCheckpointDurable):
            self.anchor, self.due_s, self.owed, self.durable = f"step_{event.step}", now_s, True, event.step
            self.tried_s = now_s
        elif isinstance(event, TrainerSaveAsked):
            self.asked = event.step
        elif isinstance(event, (CommitFlagSet, RunEnded)):
            self.due_s = -1.0  # a later step commits, or the run is over
            self.committing = True
        elif isinstance(event, StepCommitted):
            self.step, self.committing = event.step, False
        elif isinstance(event, SnapshotStarted):
            yield from self._warning_owed()
            self.open = True
            if event.anchor == self.anchor:
                self.due_s, self.owed = -1.0, False
        elif isinstance(event, SnapshotSkipped):
            yield from self._warning_owed()
            self.tried_s, self.due_s = now_s, -1.0
            if event.reason != "unchanged":
                self._loses()
                if not self.committing and self.durable == self.step:
                    where = f"step_{self.step} is durable" if self.step else "step 0 needs no trainer checkpoint"
                    yield f"a snapshot was skipped ({event.reason}): {where} and no commit in progress"
            elif self.owed:
                yield f"a snapshot was skipped as unchanged, and {self.anchor} has none of its own"
            elif self.watch.candidates:
                yield f"a snapshot was skipped as unchanged while {len(self.watch.candidates)} episodes may be live"
        elif isinstance(event, SnapshotStarved):
            self.warned = True
            if event.lost != self.lost:
                yield f"a warning says that {event.lost} snapshots in a row were lost to train steps, {self.lost} were"
        elif isinstance(event, (SnapshotPublished, SnapshotDropped, SnapshotBroke)):
            self.open, self.tried_s = False, now_s
            if isinstance(event, SnapshotDropped):
                self._loses()
            elif isinstance(event, SnapshotPublished):
                self.lost, self.warned = 0, False

    def _loses(self) -> None:
        self.lost, self.warned = self.lost + 1, False

    def _warning_owed(self) -> Iterator[str]:
        """A warning comes with each loss from the third on: it is there when the next attempt begins."""
        if self.lost >= STARVED_AFTER and not self.warned:
            yield f"{self.lost} snapshots in a row were lost to train steps and nobody was warned"
            self.warned = True

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        return [self.broken(text) for text in self._warning_owed()] if status.outcome == "ended" else ()
