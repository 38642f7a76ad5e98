"""I12: the ledger, the replay index and the trainer agree on what a step holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from invariants.ledger.attempts import group_of, groups_of, restore_point
from protocol.history import (
    GroupDropped,
    GroupMoved,
    GroupsClaimed,
    OptimizerApplied,
    OptimizerIssued,
    Record,
    StepCommitted,
    TrainStepIssued,
)
from protocol.judging import Durable, Judge, Terms, Violation

CLAIMED = "CLAIMED_FOR_TRAINING"
APPLIED = "APPLIED_UNCHECKPOINTED"


class OneOpenStep(Judge):
    """At most one train step is open, it trains exactly the finalized groups claimed for it, and it is applied only when its
    claim is complete.
    """

    invariant = "I12"
    needs = (GroupsClaimed, OptimizerIssued)
    sees = (GroupDropped, GroupMoved, OptimizerApplied, StepCommitted, TrainStepIssued)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.expected = terms.job.num_prompts_per_step
        self.step = -1  # the open one, -1: none
        self.claimed: dict[str, None] = {}
        self.moved: dict[str, None] = {}  # groups whose own state says claimed
        self.status: dict[str, str] = {}  # groups whose state moved in this life
        self.applied = False

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        ledger = durable.ledger(restore_point(durable, self.terms).source)
        owned = sorted(group["group_id"] for group in groups_of(ledger) if group["status"] in (CLAIMED, APPLIED))
        opened = ledger["open_train_step"] if ledger else None
        named = sorted(opened["group_ids"]) if opened else []
        if owned != named:
            return (self.broken(f"On disk {len(owned)} groups are owned by training, the open step names {len(named)}."),)
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        kind = type(event)
        if kind is GroupMoved:
            return self._moved(event, record)  # type: ignore[arg-type]
        handle = _HANDLERS.get(kind)
        return handle(self, event, record) if handle is not None else ()

    def _moved(self, event: GroupMoved, record: Record) -> Iterable[Violation]:
        self.status[event.group] = event.after
        if event.after == CLAIMED:
            self.moved[event.group] = None
        elif event.before == CLAIMED and event.after != APPLIED:
            self.moved.pop(event.group, None)
        elif event.after == APPLIED:
            self.moved.pop(event.group, None)
            if event.group not in self.claimed or not self.applied:
                return (self.broken(f"{event.group} became applied, but no optimizer step of its claim was.", record),)
        return ()

    def _claimed(self, event: GroupsClaimed, record: Record) -> Iterable[Violation]:
        found: list[Violation] = []
        if self.step not in (-1, event.step):
            found.append(self.broken(f"Step {event.step} claimed groups while step {self.step} was open.", record))
        self.step = event.step
        for group in event.groups:
            if group in self.claimed:
                found.append(self.broken(f"{group} was claimed twice for step {event.step}.", record))
            status = self.status.get(group, "FINALIZED")
            if status not in ("FINALIZED", CLAIMED):
                found.append(self.broken(f"{group} was claimed for step {event.step} while it was {status}.", record))
            self.claimed[group] = None
        if event.expected != self.expected or len(self.claimed) > self.expected:
            found.append(
                self.broken(
                    f"Step {event.step} claims {len(self.claimed)} of {event.expected} groups; a step takes {self.expected}.",
                    record,
                )
            )
        return found

    def _trains(self, event: TrainStepIssued, record: Record) -> Iterable[Violation]:
        foreign = [group for group in event.groups if group not in self.claimed]
        if foreign:
            return (self.broken(f"Step {event.step} trains {foreign[:3]}, which it has not claimed.", record),)
        return ()

    def _optimizer(self, event: OptimizerIssued, record: Record) -> Iterable[Violation]:
        found: list[Violation] = []
        if event.step != self.step or len(self.claimed) != self.expected:
            found.append(
                self.broken(
                    f"Step {event.step} was applied with {len(self.claimed)} of {self.expected} groups claimed "
                    f"(open step {self.step}).",
                    record,
                )
            )
        if self.moved and sorted(self.moved) != sorted(self.claimed):
            found.append(
                self.broken(
                    f"Step {event.step} claimed {len(self.claimed)} groups, but {len(self.moved)} are claimed in the ledger.",
                    record,
                )
            )
        return found

    def _applied(self, event: OptimizerApplied, record: Record) -> Iterable[Violation]:
        self.applied = True
        read = dict.fromkeys(group_of(row.sample) for row in event.rows)
        missing = [group for group in self.claimed if group not in read]
        foreign = [group for group in read if group not in self.claimed]
        if missing or foreign:
            return (
                self.broken(f"Step {event.step}: the trainer read {foreign[:3]} unclaimed and left out {missing[:3]}.", record),
            )
        return ()

    def _committed(self, event: StepCommitted, record: Record) -> Iterable[Violation]:
        found: list[Violation] = []
        if event.step != self.step or not self.applied:
            found.append(self.broken(f"Step {event.step} was committed (open: {self.step}, applied: {self.applied}).", record))
        for group in self.claimed:
            self.status.pop(group, None)
        self.step, self.applied = -1, False
        self.claimed, self.moved = {}, {}
        return found

    def _dropped(self, event: GroupDropped, record: Record) -> Iterable[Violation]:
        self.status.pop(event.group, None)
        if event.group in self.claimed:
            return (self.broken(f"{event.group} was dropped ({event.why}) while step {self.step} owned it.", record),)
        return ()


_HANDLERS: dict[type, Any] = {
    GroupsClaimed: OneOpenStep._claimed,
    TrainStepIssued: OneOpenStep._trains,
    OptimizerIssued: OneOpenStep._optimizer,
    OptimizerApplied: OneOpenStep._applied,
    StepCommitted: OneOpenStep._committed,
    GroupDropped: OneOpenStep._dropped,
}
