"""I34: time in which somebody held the request deadlines is no rollout's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from protocol.config import Level
from protocol.history import (
    AttemptDispatched,
    AttemptSealed,
    BudgetSpent,
    ControlDone,
    ControlIssued,
    DeadlineHeld,
    DeadlineReleased,
    DeadlineSet,
    ExclusiveEntered,
    GroupDropped,
    GroupMoved,
    Record,
    RolloutTimedOut,
)
from protocol.identity import group_of_sample
from protocol.judging import Judge, Terms, Violation

CHECKPOINT = "checkpoint"  # the holder
DISPATCH_GATE = "dispatch"
SLACK_S = 5e-6  # rounding of summed times, and what a clock calls "no time left"
LATE_S = 0.05  # a wall clock's timer may fire a little late


class DeadlinesStandStill(Judge):
    """A rollout times out when its elapsed time less the time in which anybody held the deadlines reaches the limit and not
    before, a hold lasts until its own holder lets go, and a checkpoint holds from closing dispatch until Gym was asked to resume.
    """

    invariant = "I34"
    needs = (DeadlineHeld, DeadlineReleased)
    sees = (
        AttemptDispatched, AttemptSealed, BudgetSpent, ControlDone, ControlIssued, DeadlineSet, ExclusiveEntered, GroupDropped,
        GroupMoved, RolloutTimedOut,
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.holders: dict[str, None] = {}
        self.since = 0.0  # when the first of the present holders came
        self.held_s = 0.0  # of holds that are over
        self.began: dict[str, tuple[float, float, float]] = {}  # group -> own time at its start, limit, held time at its start
        self.parked: dict[str, None] = {}  # instances that were asked to prepare and not yet to resume

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN or terms.job.rollout_failure.nemo_gym.rollout_timeout_s is not None

    def on(self, record: Record) -> Iterable[Violation]:
        found: Iterable[Violation] = _HANDLERS[type(record.event)](self, record.event, record) or ()
        return found

    def _held_s(self, now: float) -> float:
        return self.held_s + (now - self.since if self.holders else 0.0)

    # --- the clock

    def _held(self, event: DeadlineHeld, record: Record) -> None:
        if not self.holders:
            self.since = record.time
        self.holders[event.holder] = None

    def _released(self, event: DeadlineReleased, record: Record) -> Iterable[Violation]:
        found = []
        before = self._held_s(record.time)
        self.holders.pop(event.holder, None)
        lost = [holder for holder in self.holders if holder not in event.left]
        if lost:
            found.append(self.broken(f"{event.holder} let go and {', '.join(lost)} held no longer.", record))
        if event.holder == CHECKPOINT and self.parked:
            found.append(self.broken(f"{CHECKPOINT} let go while {', '.join(self.parked)} was not asked to resume.", record))
            self.parked.clear()
        if not self.holders:
            self.held_s = before
        return found

    # --- rollouts

    def _set(self, event: DeadlineSet, record: Record) -> None:
        held_s = self._held_s(record.time)
        self.began[event.group] = (record.time - held_s, event.limit_s, held_s)

    def _timed_out(self, event: RolloutTimedOut, record: Record) -> Iterable[Violation]:
        if event.group not in self.began:
            return (self.broken(f"{event.group} timed out and had no deadline.", record),)
        began, limit_s, held_before = self.began.pop(event.group)
        held_s = self._held_s(record.time)
        own_s, slack_s = record.time - held_s - began, self.terms.slack_s
        text = f"{event.group} timed out after {own_s:.6f} s of its own and {held_s - held_before:.6f} s held"
        if own_s < limit_s - SLACK_S - slack_s or own_s > limit_s + LATE_S + slack_s:
            return (self.broken(f"{text}; its limit is {limit_s:g} s.", record),)
        if max(abs(event.held_s - (held_s - held_before)), abs(event.elapsed_s - event.held_s - own_s)) > SLACK_S + slack_s:
            said = f"{event.elapsed_s:.6f} s elapsed, {event.held_s:.6f} s held"
            return (self.broken(f"{text}; the deadline measured {said}.", record),)
        return ()

    def _went_on(self, event: AttemptDispatched | AttemptSealed, record: Record) -> Iterable[Violation]:
        group = group_of_sample(event.sample)
        if group not in self.began:
            return ()
        began, limit_s, _ = self.began[group]
        own_s = record.time - self._held_s(record.time) - began
        if own_s <= limit_s + LATE_S + self.terms.slack_s:
            return ()
        del self.began[group]
        what = f"{event.key} was {'sealed' if type(event) is AttemptSealed else 'dispatched'}"
        return (self.broken(f"{what} {own_s:.6f} s into a rollout that had to time out after {limit_s:g} s.", record),)

    def _group_over(self, event: BudgetSpent | GroupDropped | GroupMoved, record: Record) -> None:
        if type(event) is not BudgetSpent or not event.key:
            self.began.pop(event.group, None)

    # --- the checkpoint's hold

    def _closed(self, event: ExclusiveEntered, record: Record) -> Iterable[Violation]:
        if event.barrier == DISPATCH_GATE and CHECKPOINT not in self.holders:
            return (self.broken(f"Dispatch was closed; {CHECKPOINT} did not hold.", record),)
        return ()

    def _asked(self, event: ControlIssued, record: Record) -> Iterable[Violation]:
        if event.operation != "prepare":
            return ()
        self.parked[event.instance] = None
        if CHECKPOINT not in self.holders:
            return (self.broken(f"{event.instance} was asked to park; {CHECKPOINT} did not hold.", record),)
        return ()

    def _answered(self, event: ControlDone, record: Record) -> None:
        """A resume that fails is over too: the lease reopens that instance."""
        if event.operation == "resume":
            self.parked.pop(event.instance, None)


_HANDLERS: dict[type, Any] = {
    AttemptDispatched: DeadlinesStandStill._went_on,
    AttemptSealed: DeadlinesStandStill._went_on,
    BudgetSpent: DeadlinesStandStill._group_over,
    ControlDone: DeadlinesStandStill._answered,
    ControlIssued: DeadlinesStandStill._asked,
    DeadlineHeld: DeadlinesStandStill._held,
    DeadlineReleased: DeadlinesStandStill._released,
    DeadlineSet: DeadlinesStandStill._set,
    ExclusiveEntered: DeadlinesStandStill._closed,
    GroupDropped: DeadlinesStandStill._group_over,
    GroupMoved: DeadlinesStandStill._group_over,
    RolloutTimedOut: DeadlinesStandStill._timed_out,
}
