"""I67."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from protocol.history import LifeStarted, Record, RunEnded
from protocol.judging import Durable, Judge, RunStatus, Terms, Violation

STUCK = {
    "idle": "nothing can move any more",
    "steps": "the step budget ran out",
    "time": "the virtual-time budget ran out",
}


class EveryRunProgressesOrEndsTyped(Judge):
    """Every run trains all its steps, or ends with a typed error that its contract allows, within its step and time budgets."""

    invariant = "I67"
    needs = (LifeStarted,)
    sees = (RunEnded,)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.steps = -1  # of RunEnded

    def on(self, record: Record) -> Iterable[Violation]:
        if isinstance(record.event, RunEnded):
            self.steps = record.event.steps
            if self.steps != self.terms.job.train_steps:
                return (self.broken(f"the run ended after {self.steps} of {self.terms.job.train_steps} steps", record),)
        return ()

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
        what = STUCK.get(status.outcome, status.outcome)
        text = f"{what}; error: {status.error or 'none'}; waiting: {status.waiting or 'nobody'}"
        return (self.broken(text),)
