"""I38: cohort verifiers keep failed group attempts, so a cohort that starts over must say that it does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from invariants.ledger.attempts import group_of, groups_of, is_another_point, restore_point
from protocol.history import (
    AttemptReserved,
    AttemptSealed,
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
    """When rows are replaced, their group attempt goes up by one if none of its cohort has sealed, and stays if one has; and
    Gym is told the group attempt that the ledger has reached, over all lives.

    A cohort is who comes under one group attempt of one life: the siblings that had not sealed when it began.
    """

    invariant = "I38"
    needs = (RowsSubmitted,)
    sees = (AttemptReserved, AttemptSealed, GroupAttemptRaised, GroupReserved, MutationLeft, RestoreChosen)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.attempt: dict[str, int] = {}  # group -> group attempt
        self.sealed: dict[str, dict[str, None]] = {}  # group -> samples that sealed under the group attempt under way
        self.replaced: dict[str, dict[str, None]] = {}  # task inside a mutation -> groups of which it replaced rows
        self.raised: dict[str, dict[str, None]] = {}  # likewise -> groups whose attempt went up
        self.point = RestorePoint("", 0, 0, "")

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        for group in groups_of(durable.ledger(self.point.source)):
            self.attempt[group["group_id"]] = group["group_attempt"]
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, MutationLeft):
            return self._left(record) if record.task in self.replaced else ()
        if isinstance(event, AttemptReserved):
            if event.why in REPLACED:
                self.replaced.setdefault(record.task, {})[group_of(event.sample)] = None
        elif isinstance(event, AttemptSealed):
            self.sealed.setdefault(group_of(event.sample), {})[event.sample] = None
        elif isinstance(event, GroupReserved):
            self.attempt[event.group] = 0
        elif isinstance(event, GroupAttemptRaised):
            return self._raised(event, record)
        elif isinstance(event, RowsSubmitted):
            known = self.attempt.get(event.group)
            if known is not None and event.group_attempt not in (-1, known):
                return (self.broken(f"{event.group} was sent as attempt {event.group_attempt}; it has reached {known}.", record),)
        elif isinstance(event, RestoreChosen) and is_another_point(event, self.point):
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
        found: list[Violation] = []
        raised = self.raised.pop(record.task, {})
        for group in self.replaced.pop(record.task):
            sealed = tuple(self.sealed.get(group, ()))
            if group in raised:
                self.sealed.pop(group, None)
            if group in raised and sealed:
                found.append(self.broken(f"{group} went to another attempt, {sealed[0]} had sealed under this one.", record))
            elif group not in raised and not sealed:
                found.append(self.broken(f"The whole cohort of {group} was lost, and its group attempt stayed.", record))
        return found
