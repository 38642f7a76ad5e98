"""I4: while the dispatch gate is closed, the ledger's DISPATCHED attempts are those that may be in Gym."""

from __future__ import annotations

from collections.abc import Iterable

from invariants.ledger.attempts import group_of
from protocol.config import Level
from protocol.history import (
    AttemptAbandoned,
    AttemptDispatched,
    AttemptRefused,
    AttemptSealed,
    EpisodeAdmitted,
    EpisodeRefused,
    ExclusiveEntered,
    ExclusiveLeft,
    FaultInjected,
    GroupDropped,
    Record,
    RowsSubmitted,
)
from protocol.judging import Judge, Terms, Violation


class DispatchedIsSubmitted(Judge):
    """Whenever the dispatch gate is closed, every dispatched attempt was submitted and every submitted one is dispatched or
    has its outcome in the ledger, and a row comes to a Gym instance only under a key that was submitted to it.

    Mark and submission may come in either order inside one admission. An instance that restarts runs on what was submitted to
    its predecessor in this life.
    """

    invariant = "I4"
    needs = (ExclusiveEntered, RowsSubmitted)
    sees = (
        AttemptDispatched, AttemptRefused, AttemptSealed, AttemptAbandoned, EpisodeAdmitted, EpisodeRefused, ExclusiveLeft,
        FaultInjected, GroupDropped,
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.marked: dict[str, None] = {}  # DISPATCHED in the ledger, not submitted yet
        self.submitted: dict[str, None] = {}  # submitted, not marked
        self.sent: dict[str, str] = {}  # every key that was submitted -> the instance it was last sent to
        self.closed = False  # a checkpoint holds the gate
        self.strays: dict[str, None] = {}  # keys that a fault brought to an instance

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is AttemptDispatched:
            if event.key in self.submitted:
                del self.submitted[event.key]
            else:
                self.marked[event.key] = None
            if self.closed:
                return (self.broken(f"{event.key} was marked DISPATCHED while the gate was closed.", record),)
        elif type(event) is RowsSubmitted:
            for key in event.keys:
                self.sent[key] = event.instance
                if key in self.marked:
                    del self.marked[key]
                else:
                    self.submitted[key] = None
            if self.closed:
                return (self.broken(f"{', '.join(event.keys[:4])} submitted while the gate was closed.", record),)
        elif type(event) is EpisodeAdmitted or type(event) is EpisodeRefused:
            if self.sent.get(event.key) != record.process and event.key not in self.strays:
                where = f"it was submitted to {self.sent[event.key]}." if event.key in self.sent else "nobody submitted it."
                return (self.broken(f"{event.key} came to {record.process}: {where}", record),)
        elif type(event) is AttemptSealed or type(event) is AttemptRefused or type(event) is AttemptAbandoned:
            self.marked.pop(event.key, None)
            self.submitted.pop(event.key, None)
        elif type(event) is GroupDropped:
            for waiting in (self.marked, self.submitted):
                for key in [key for key in waiting if group_of(key) == event.group]:
                    del waiting[key]
        elif type(event) is FaultInjected:
            if event.fault == "stray":
                self.strays[event.detail.partition(" ")[0]] = None
        elif type(event) is ExclusiveLeft and event.barrier == "dispatch":
            self.closed = False
        elif type(event) is ExclusiveEntered and event.barrier == "dispatch":
            self.closed = True
            found = [self.broken(f"The gate closed while {key} was DISPATCHED but not submitted.", record) for key in self.marked]
            found += [
                self.broken(f"The gate closed while {key} was submitted but not DISPATCHED.", record) for key in self.submitted
            ]
            return found
        return ()
