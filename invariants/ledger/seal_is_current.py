"""I2: a late answer of a replaced attempt must never become the sibling's result."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.history import (
    AttemptAbandoned,
    AttemptDispatched,
    AttemptRefused,
    AttemptReserved,
    AttemptSealed,
    CompletionArrived,
    Record,
    StreamEnded,
)
from protocol.judging import Judge, Terms, Violation


class SealIsCurrent(Judge):
    """Every seal is of the sibling's current attempt, dispatched in this life, after its completion arrived, and a completion
    of the current attempt is sealed: it is never taken for another's.

    The current attempt is followed by the reservations; the event's own ``current`` is only the second witness.
    """

    invariant = "I2"
    needs = (AttemptSealed,)
    sees = (AttemptReserved, AttemptDispatched, AttemptRefused, AttemptAbandoned, CompletionArrived, StreamEnded)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.current: dict[str, str] = {}  # sample -> key ('' after an abandon)
        self.dispatched: dict[str, None] = {}
        self.arrived: dict[str, str] = {}  # key -> task that took its completion ('' once that was cancelled: it may be lost)
        self.sealed: dict[str, None] = {}

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is AttemptDispatched:
            self.dispatched[event.key] = None
            self.current.setdefault(event.sample, event.key)  # a restored attempt was reserved in an earlier life
        elif type(event) is CompletionArrived:
            self.arrived[event.key] = record.task
        elif type(event) is AttemptReserved:
            self.current[event.sample] = event.key
        elif type(event) is AttemptRefused:
            self.dispatched.pop(event.key, None)
        elif type(event) is AttemptAbandoned:
            sent = self.dispatched.pop(event.key, False) is None
            if sent and event.why == "lost-row" and self.arrived.get(event.key):
                self.current[event.sample] = ""
                return (self.broken(f"{event.key} counts as lost; its completion had arrived while it was current.", record),)
            if self.current.get(event.sample, event.key) == event.key:
                self.current[event.sample] = ""
        elif type(event) is StreamEnded:
            if event.outcome == "cancelled":  # perhaps between the completion and the mutation that seals it
                self.arrived.update({key: "" for key, task in self.arrived.items() if task == record.task})
        elif type(event) is AttemptSealed:
            return self._sealed(event, record)
        return ()

    def _sealed(self, event: AttemptSealed, record: Record) -> Iterable[Violation]:
        key = event.key
        if key in self.sealed:  # a repeat: I3 compares the receipts
            return ()
        self.sealed[key] = None
        known = self.current.get(event.sample, key)
        if event.current != key:
            return (self.broken(f"{key} was sealed while the ledger's current attempt was {event.current}.", record),)
        if known != key:
            return (self.broken(f"{key} was sealed while the last reserved attempt was {known or 'abandoned'}.", record),)
        if key not in self.dispatched:
            return (self.broken(f"{key} was sealed but is not dispatched in this life.", record),)
        if key not in self.arrived:
            return (self.broken(f"{key} was sealed but no completion of it had arrived.", record),)
        return ()
