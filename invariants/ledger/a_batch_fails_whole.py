"""BATCH-1: without an asynchronous engine nobody can wait for the rest of a batch, or replace one row of it."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.history import (
    AttemptReserved,
    BudgetSpent,
    CompletionArrived,
    FailureArrived,
    GroupDropped,
    Record,
    RefusalArrived,
    RowsSubmitted,
    StreamEnded,
)
from protocol.judging import Judge, Terms, Violation

WHOLE = ("infra", "data")  # budgets of a group attempt


class ABatchFailsWhole(Judge):
    """On the synchronous path a row that fails or does not come back stops its stream and costs its prompt a whole group
    attempt: nothing more is taken, no row is replaced alone, and none is sent again before that was charged.
    """

    invariant = "BATCH-1"
    needs = (FailureArrived,)
    sees = (AttemptReserved, BudgetSpent, CompletionArrived, GroupDropped, RefusalArrived, RowsSubmitted, StreamEnded)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.group: dict[str, str] = {}  # task of an open stream -> its group
        self.failed: dict[str, str] = {}  # task of a stream that read a failure -> key
        self.owed: dict[str, str] = {}  # group that was not charged yet -> what failed

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return not terms.job.async_engine

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is RowsSubmitted:
            self.group[record.task] = event.group
            failed = self.owed.pop(event.group, "")
            if failed:
                return (self.broken(f"{event.group} sent {event.keys[0]} before {failed} had cost it a group attempt.", record),)
        elif type(event) is CompletionArrived or type(event) is RefusalArrived or type(event) is FailureArrived:
            before = self.failed.get(record.task, "")
            if type(event) is FailureArrived:
                self.failed[record.task] = event.key
                self.owed[self.group.get(record.task, "")] = event.key
            if before:
                return (self.broken(f"{event.key} was taken from a stream on which {before} had failed.", record),)
        elif type(event) is StreamEnded:
            failed = self.failed.pop(record.task, "")
            self.group.pop(record.task, None)
            if event.missing:
                self.owed.setdefault(event.group, f"a stream with {event.missing} rows missing")
            if failed and event.outcome != "cancelled":
                return (self.broken(f"The stream of {failed}, which had failed, was read on to its end.", record),)
        elif type(event) is BudgetSpent:
            if event.budget in WHOLE:
                self.owed.pop(event.group, None)
            else:
                return (self.broken(f"{event.key} cost a {event.budget} attempt of its own.", record),)
        elif type(event) is GroupDropped:
            self.owed.pop(event.group, None)
        elif type(event) is AttemptReserved and event.why == "lost-row":
            return (self.broken(f"{event.key} replaced one row of a batch.", record),)
        return ()
