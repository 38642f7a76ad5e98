"""I36: a row that met a closed Gym must not be left behind."""

from __future__ import annotations

from collections.abc import Iterable

from invariants.ledger.attempts import group_of
from protocol.config import Level
from protocol.history import AttemptAbandoned, GroupDropped, Record, RefusalArrived, RowsSubmitted, StreamEnded
from protocol.judging import Judge, Terms, Violation

PARKED = "checkpoint_parked"


class RefusedRowsAreSentAgain(Judge):
    """A row that Gym refused as parked is sent again before the stream that brought the refusal ends, unless that stream
    broke or its group was given up.
    """

    invariant = "I36"
    needs = (RefusalArrived,)
    sees = (AttemptAbandoned, GroupDropped, RowsSubmitted, StreamEnded)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.owed: dict[str, str] = {}  # key -> task of the stream that brought its refusal

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is RefusalArrived:
            if event.reason == PARKED:
                self.owed[event.key] = record.task
        elif not self.owed:
            return ()
        elif type(event) is RowsSubmitted:
            for key in event.keys:
                self.owed.pop(key, None)
        elif type(event) is AttemptAbandoned:
            self.owed.pop(event.key, None)
        elif type(event) is GroupDropped:
            for key in [key for key in self.owed if group_of(key) == event.group]:
                del self.owed[key]
        elif type(event) is StreamEnded:
            late = [key for key, task in self.owed.items() if task == record.task]
            for key in late:
                del self.owed[key]
            if event.outcome == "clean":
                return [self.broken(f"{key} was refused, and its stream ended before it was sent again.", record) for key in late]
        return ()
