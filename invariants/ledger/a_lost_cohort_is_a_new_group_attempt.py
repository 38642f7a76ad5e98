"""I38: cohort verifiers keep failed group attempts, so a cohort that starts over must say that it does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from invariants.ledger.attempts import group_of, groups_of, is_another_point, restore_point
from protocol.history import (
    AttemptReserved,
    GroupAttemptRaised,
    GroupReserved,
    MutationLeft,
    Record,
    RestoreChosen,
    RowsSubmitted,
)
from protocol.judging import Durable, Judge, RestorePoint, Terms, Violation

REPLACED = ("lost-row", "retry")


class ALostCohortIsANewGroupAttempt(Judge):
    """When every row of a cohort is replaced at once its group attempt goes up by one, and Gym is told the group attempt that
    the ledger has reached, over all lives.
    """

    invariant = "I38"
    needs = (RowsSubmitted,)
    sees = (AttemptReserved, GroupAttemptRaised, GroupReserved, MutationLeft, RestoreChosen)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.size = terms.job.num_generations_per_prompt
        self.attempt: dict[str, int] = {}  # group -> group attempt
        self.replaced: dict[str, dict[str, dict[str, None]]] = {}  # task inside a mutation -> group -> replaced samples
        self.raised: dict[str, dict[str, None]] = {}  # likewise -> groups whose attempt went up
        self.point = RestorePoint("", 0, 0, "")

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        for group in groups_of(durable.ledger(self.point.source)):
            self.attempt[group["group_id"]] = group["group_attempt"]
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        kind = type(event)
        if kind is MutationLeft:
            return self._left(record) if record.task in self.replaced else ()
        if type(event) is AttemptReserved:
            if event.why in REPLACED:
                groups = self.replaced.setdefault(record.task, {})
                groups.setdefault(group_of(event.sample), {})[event.sample] = None
        elif type(event) is GroupReserved:
            self.attempt[event.group] = 0
        elif type(event) is GroupAttemptRaised:
            return self._raised(event, record)
        elif type(event) is RowsSubmitted:
            known = self.attempt.get(event.group)
            if known is not None and event.group_attempt not in (-1, known):
                return (self.broken(f"{event.group} was sent as attempt {event.group_attempt}; it has reached {known}.", record),)
        elif type(event) is RestoreChosen and is_another_point(event, self.point):
            self.attempt.clear()
        return ()

    def _raised(self, event: GroupAttemptRaised, record: Record) -> Iterable[Violation]:
        before = self.attempt.get(event.group, event.group_attempt - 1)
        self.attempt[event.group] = event.group_attempt
        self.raised.setdefault(record.task, {})[event.group] = None
        if event.group_attempt != before + 1:
            return (self.broken(f"{event.group} went from attempt {before} to {event.group_attempt}.", record),)
        return ()

    def _left(self, record: Record) -> Iterable[Violation]:
        """Both barriers are left one after the other; the replacements lie inside the inner one."""
        groups = self.replaced.pop(record.task)
        raised = self.raised.pop(record.task, {})
        return [
            self.broken(f"All {self.size} rows of {group} were replaced, and its group attempt stayed.", record)
            for group, samples in groups.items()
            if len(samples) == self.size and group not in raised
        ]
