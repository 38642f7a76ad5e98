"""I67."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from protocol.history import (
    GroupMoved,
    LifeStarted,
    ProcessContinued,
    ProcessStalled,
    Record,
    Restored,
    RunEnded,
    SnapshotPublished,
    StallReported,
    StepCommitted,
)
from protocol.identity import CONTROLLER
from protocol.judging import Durable, Judge, RunStatus, Terms, Violation

STUCK = {
    "idle": "nothing can move any more",
    "steps": "the step budget ran out",
    "time": "the virtual-time budget ran out",
}
SLACK_S = 1e-6  # rounding of summed times


class EveryRunProgressesOrEndsTyped(Judge):
    """Every run trains all its steps, or ends with a typed error that its contract allows, within its step and time budgets,
    and while steps remain it publishes a group or commits a step at least once in a stall timeout of its controller's running
    time.

    A job whose deadline is due before step 1 stops, once all it has is saved. Standing still is right only where the
    contract says so (``may_stall``), and then the watchdog must have said it.
    """

    invariant = "I67"
    needs = (LifeStarted,)
    sees = (GroupMoved, ProcessContinued, ProcessStalled, Restored, RunEnded, SnapshotPublished, StallReported, StepCommitted)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.steps = -1  # of RunEnded
        self.start = 0  # the step this life was restored at
        self.still_s = -1.0  # since when the controller stands still, -1: it does not
        self.progress = -1.0  # -1: no pump runs yet, or no step remains
        self.trained = False  # no step remains
        self.reported = False  # that there was none since
        self.published = -1.0  # when the last snapshot was

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is GroupMoved:
            return self._moved(record) if event.after == "FINALIZED" else ()
        if type(event) is StepCommitted:
            found = self._moved(record)
            if event.step >= self.terms.job.train_steps:
                self.progress, self.trained = -1.0, True
            return found
        if type(event) is RunEnded:
            self.steps = event.steps
            if self.steps != max(self.terms.job.train_steps, self.start) and not self._stopped_in_time(record.time):
                return (self.broken(f"the run ended after {self.steps} of {self.terms.job.train_steps} steps", record),)
        elif type(event) is SnapshotPublished:
            self.published = record.time
        elif type(event) is StallReported:
            self.reported = True
        elif type(event) is Restored:
            self.progress, self.start = record.time, event.step
        elif type(event) is ProcessStalled:
            if event.process == CONTROLLER:
                self.still_s = record.time
        elif type(event) is ProcessContinued:
            if event.process == CONTROLLER:
                self.progress += record.time - self.still_s if self.progress >= 0 else 0.0
                self.still_s = -1.0
        return ()

    def _stopped_in_time(self, now: float) -> bool:
        """The job's deadline was due before step 1, and what it had was saved after that."""
        limit_s, slack_s = self.terms.job.checkpointing.must_save_by_s, SLACK_S + self.terms.slack_s
        return limit_s is not None and self.steps == 0 and limit_s <= self.published + slack_s <= now + 2 * slack_s

    def _moved(self, record: Record) -> Iterable[Violation]:
        if self.trained:
            return ()
        since, self.progress, self.reported = self.progress, record.time, False
        idle_s = record.time - since
        bound_s = self.terms.job.watchdog.stall_timeout_s + SLACK_S + self.terms.slack_s
        if since < 0 or self.terms.contract.may_stall or idle_s <= bound_s:
            return ()
        return (self.broken(f"no group was published and no step committed for {idle_s:.3f} s", record),)

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        if status.outcome == "crashed":
            return ()  # what was still open is discharged by the crash
        if status.outcome == "ended":
            return () if self.steps >= 0 else (self.broken("the controller returned and recorded no RunEnded"),)
        if status.outcome == "failed":
            kind = status.error.partition(":")[0].strip()
            if self.terms.contract.allows(kind):
                return ()
            allowed = ", ".join(self.terms.contract.may_end) or "none"
            return (self.broken(f"the run failed with {status.error or 'an unnamed error'} (allowed: {allowed})"),)
        if (self.terms.contract.may_stall and self.reported) or self.still_s >= 0:
            return ()  # a controller that stands still for ever was made to
        what = STUCK.get(status.outcome, status.outcome)
        if self.terms.contract.may_stall:
            what = f"{what}, and no watchdog has said that nothing moves"
        text = f"{what}; error: {status.error or 'none'}; waiting: {status.waiting or 'nobody'}"
        return (self.broken(text),)
