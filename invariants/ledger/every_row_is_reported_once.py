"""I65: the figures of a run rest on one report for each row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from protocol.history import (
    CompletionArrived,
    FailureArrived,
    Record,
    RefusalArrived,
    RowReported,
    RowsSubmitted,
    StreamEnded,
)
from protocol.judging import Judge, Terms, Violation

SLACK_S = 1e-6  # rounding of summed times
LOST = "lost"


class EveryRowIsReportedOnce(Judge):
    """Every row handed to Gym is reported exactly once before its stream ends, refused and lost ones included, with what came of
    it and a /run time that fits between its sending and its report.
    """

    invariant = "I65"
    needs = (RowsSubmitted, RowReported)
    sees = (CompletionArrived, FailureArrived, RefusalArrived, StreamEnded)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.owed: dict[str, float] = {}  # key handed out and not reported -> when it was sent
        self.arrived: dict[str, str] = {}  # key -> what came of it, not reported yet
        self.streams: dict[
            str, list[tuple[str, ...]]
        ] = {}  # task -> keys of its open streams: a re-send may have its parent's name

    def on(self, record: Record) -> Iterable[Violation]:
        found: Iterable[Violation] = _HANDLERS[type(record.event)](self, record.event, record) or ()
        return found

    def _submitted(self, event: RowsSubmitted, record: Record) -> Iterable[Violation]:
        self.streams.setdefault(record.task, []).append(event.keys)
        again = [key for key in event.keys if key in self.owed]
        self.owed.update(dict.fromkeys(event.keys, record.time))
        return [self.broken(f"{key} was sent again; its first sending was not reported.", record) for key in again]

    def _completed(self, event: CompletionArrived, record: Record) -> None:
        self.arrived[event.key] = "completed"

    def _refused(self, event: RefusalArrived, record: Record) -> None:
        self.arrived[event.key] = "refused"

    def _failed(self, event: FailureArrived, record: Record) -> None:
        self.arrived[event.key] = "failed"

    def _reported(self, event: RowReported, record: Record) -> Iterable[Violation]:
        came = self.arrived.pop(event.key, LOST)
        sent = self.owed.pop(event.key, None)
        if sent is None:
            return (
                self.broken(
                    f"{event.key} was reported ({event.outcome}) and was not handed out, or was reported before.", record
                ),
            )
        if event.outcome != came:
            return (self.broken(f"{event.key} was reported as {event.outcome}; it was {came}.", record),)
        took_s = record.time - sent
        if not 0 <= event.run_s <= took_s + SLACK_S + self.terms.slack_s:
            return (self.broken(f"The /run of {event.key} took {event.run_s:.6f} s; it was out for {took_s:.6f} s.", record),)
        return ()

    def _ended(self, event: StreamEnded, record: Record) -> Iterable[Violation]:
        streams = self.streams.get(record.task)
        if not streams:
            return ()
        keys = streams.pop()
        if not streams:
            del self.streams[record.task]
        left = [key for key in keys if self.owed.pop(key, None) is not None]
        return [self.broken(f"The stream of {key} ended ({event.outcome}) and the row was not reported.", record) for key in left]


_HANDLERS: dict[type, Any] = {
    CompletionArrived: EveryRowIsReportedOnce._completed,
    FailureArrived: EveryRowIsReportedOnce._failed,
    RefusalArrived: EveryRowIsReportedOnce._refused,
    RowReported: EveryRowIsReportedOnce._reported,
    RowsSubmitted: EveryRowIsReportedOnce._submitted,
    StreamEnded: EveryRowIsReportedOnce._ended,
}
