"""I35: one refused or failed row must not cost its siblings what they have done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from protocol.history import (
    BudgetSpent,
    CompletionArrived,
    FailureArrived,
    GroupDropped,
    Record,
    RefusalArrived,
    RolloutTimedOut,
    RowsSubmitted,
    StreamEnded,
    StreamOver,
)
from protocol.judging import Judge, Terms, Violation


class RowsShareNoFate(Judge):
    """A row stream is read until the network ends it, whatever becomes of one of its rows; only a data failure of a row ends
    its prompt's streams, and then no further item is taken.

    A dropped group, an expired deadline, and a stream that was lost and takes its re-sends along, end streams too; so does the
    end of a run, so that a stream which was given up counts when its group goes on. A stream is known by the task that sent
    its rows.
    """

    invariant = "I35"
    needs = (RowsSubmitted, StreamEnded)
    sees = (BudgetSpent, CompletionArrived, FailureArrived, GroupDropped, RefusalArrived, RolloutTimedOut, StreamOver)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.open: dict[str, int] = {}  # task -> its open streams: a re-send that is refused and sent again has its parent's name
        self.keys: dict[str, tuple[str, ...]] = {}  # task of an open stream -> its keys
        self.group: dict[str, str] = {}  # likewise -> its group
        self.over: dict[str, str] = {}  # likewise, if the network ended it -> end | lost
        self.failed: dict[str, str] = {}  # group -> task that read a data failure, until the group was charged for it
        self.dropped: dict[str, None] = {}
        self.expired: dict[str, None] = {}  # groups that timed out, until they were charged for it
        self.given_up: dict[str, Violation] = {}  # group -> a stream that was given up without a reason

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.async_engine  # without it a batch is taken whole

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        handle = _HANDLERS[type(event)]
        found: Violation | None = handle(self, event, record)
        return (found,) if found is not None else ()

    def _submitted(self, event: RowsSubmitted, record: Record) -> Violation | None:
        self.open[record.task] = self.open.get(record.task, 0) + 1
        self.keys[record.task] = event.keys
        self.group[record.task] = event.group
        return self.given_up.pop(event.group, None)

    def _over(self, event: StreamOver, record: Record) -> Violation | None:
        self.over[record.task] = event.how
        return None

    def _arrived(self, event: CompletionArrived | RefusalArrived | FailureArrived, record: Record) -> Violation | None:
        group = self.group.get(record.task, "")
        if self.failed.get(group) == record.task:
            return self.broken(f"{event.key} was taken from a stream that a data failure had ended.", record)
        if type(event) is FailureArrived and event.cause == "data":
            self.failed.setdefault(group, record.task)
        return None

    def _charged(self, event: BudgetSpent, record: Record) -> Violation | None:
        if event.budget == "data":
            self.failed.pop(event.group, None)
        elif event.budget == "infra":
            self.expired.pop(event.group, None)
        return None

    def _dropped(self, event: GroupDropped, record: Record) -> Violation | None:
        self.dropped[event.group] = None
        self.given_up.pop(event.group, None)
        return None

    def _expired(self, event: RolloutTimedOut, record: Record) -> Violation | None:
        self.expired[event.group] = None
        return None

    def _ended(self, event: StreamEnded, record: Record) -> Violation | None:
        keys, over = self.keys.get(record.task, ()), self.over.get(record.task, "")
        left = self.open.pop(record.task, 1) - 1
        if left:
            self.open[record.task] = left
        else:
            for known in (self.keys, self.group, self.over):
                known.pop(record.task, None)
        excused = event.group in self.failed or event.group in self.dropped or event.group in self.expired
        if over or excused or self._went_along(keys):
            return None
        text = f"The stream of {', '.join(keys[:3])} was given up ({event.outcome}, {event.missing} rows missing)"
        found = self.broken(f"{text}, the network had not ended it.", record)
        if event.outcome != "cancelled":
            return found
        self.given_up.setdefault(event.group, found)
        return None

    def _went_along(self, keys: tuple[str, ...]) -> bool:
        """It was a re-send of a row of a stream that is lost."""
        return any(how == "lost" and any(key in self.keys.get(task, ()) for key in keys) for task, how in self.over.items())


_HANDLERS: dict[type, Any] = {
    BudgetSpent: RowsShareNoFate._charged,
    CompletionArrived: RowsShareNoFate._arrived,
    FailureArrived: RowsShareNoFate._arrived,
    GroupDropped: RowsShareNoFate._dropped,
    RefusalArrived: RowsShareNoFate._arrived,
    RolloutTimedOut: RowsShareNoFate._expired,
    RowsSubmitted: RowsShareNoFate._submitted,
    StreamEnded: RowsShareNoFate._ended,
    StreamOver: RowsShareNoFate._over,
}
