"""I35: one refused or failed row must not cost its siblings what they have done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from protocol.history import (
    BudgetSpent,
    FailureArrived,
    GroupDropped,
    Record,
    RowsSubmitted,
    StreamEnded,
    StreamOver,
)
from protocol.judging import Judge, Terms, Violation


class RowsShareNoFate(Judge):
    """A row stream is read to its end whatever becomes of one of its rows, unless a row of its prompt failed as data or the
    group was dropped; a data failure ends it at once.

    The end is what the network said. A stream is known by the task that submitted its rows.
    """

    invariant = "I35"
    needs = (StreamEnded, RowsSubmitted)
    sees = (BudgetSpent, FailureArrived, GroupDropped, StreamOver)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.streams: dict[str, tuple[str, dict[str, None]]] = {}  # task -> group, keys
        self.over: dict[str, str] = {}  # task -> how
        self.failed: dict[str, str] = {}  # group -> a row that failed as data, until its attempt is charged
        self.dropped: dict[str, None] = {}
        self.place: dict[str, str] = {}  # key -> task of the stream that carries it

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        handle = _HANDLERS.get(type(event))
        return (handle(self, event, record) or ()) if handle is not None else ()

    def _submitted(self, event: RowsSubmitted, record: Record) -> Iterable[Violation]:
        self.streams[record.task] = (event.group, dict.fromkeys(event.keys))
        self.over.pop(record.task, None)
        self.place.update(dict.fromkeys(event.keys, record.task))
        return ()

    def _over(self, event: StreamOver, record: Record) -> Iterable[Violation]:
        self.over[record.task] = event.how
        return ()

    def _failed(self, event: FailureArrived, record: Record) -> Iterable[Violation]:
        group = self.streams.get(record.task, ("", {}))[0]
        if event.cause == "data":
            self.failed.setdefault(group, event.key)
        return ()

    def _dropped(self, event: GroupDropped, record: Record) -> Iterable[Violation]:
        self.dropped[event.group] = None
        return ()

    def _charged(self, event: BudgetSpent, record: Record) -> Iterable[Violation]:
        if event.budget == "data":
            self.failed.pop(event.group, None)
        return ()

    def _ended(self, event: StreamEnded, record: Record) -> Iterable[Violation]:
        _, keys = self.streams.pop(record.task, (event.group, {}))
        for key in keys:
            if self.place.get(key) == record.task:
                del self.place[key]
        how = self.over.pop(record.task, "")
        failed = self.failed.get(event.group)
        if failed is not None:
            if event.outcome == "cancelled" or event.group in self.dropped or how:
                return ()
        elif how or event.group in self.dropped:
            return ()
        return (
            self.broken(
                f"The stream of {', '.join(list(keys)[:3])} was given up ({event.outcome}, {event.missing} rows missing) "
                f"before the network had ended it.",
                record,
            ),
        )

    def end(self, durable: Any, external: Any, status: Any, reference: Any) -> Iterable[Violation]:
        return ()


_HANDLERS: dict[type, Any] = {
    RowsSubmitted: RowsShareNoFate._submitted,
    StreamOver: RowsShareNoFate._over,
    FailureArrived: RowsShareNoFate._failed,
    GroupDropped: RowsShareNoFate._dropped,
    BudgetSpent: RowsShareNoFate._charged,
    StreamEnded: RowsShareNoFate._ended,
}
