"""I64: what an earlier start of the job, or another job, has left on its way to Gym must not move this run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from protocol.config import Level
from protocol.history import (
    AdmissionClosed,
    ControlIssued,
    ControlReceived,
    ControlRefused,
    EpisodeExported,
    EpisodeInstalled,
    MarkForgotten,
    ProcessStarted,
    Record,
    RetireMarked,
)
from protocol.judging import Durable, Judge, RunStatus, Terms, Violation

# What changes at an instance -> the control calls that may change it.
CHANGED_BY: dict[type, tuple[str, ...]] = {
    AdmissionClosed: ("prepare", "restore"),
    EpisodeExported: ("commit",),
    EpisodeInstalled: ("restore",),
    MarkForgotten: ("forget",),
    RetireMarked: ("retire", "restore"),
}


class ControlCallsAreThisRuns(Judge):
    """A control call begins at a Gym instance only with this run's token, one with another run's is refused and changes nothing
    there, and the tokens of two runs differ.

    A token is known by its name in the history; '' says nothing.
    """

    invariant = "I64"
    needs = (ControlIssued, ControlReceived)
    sees = (ControlRefused, ProcessStarted, *CHANGED_BY)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.life = 0
        self.tokens: dict[str, None] = {}  # of this run's controller
        self.begun: dict[tuple[str, str], tuple[str, ...]] = {}  # (instance, operation) -> checkpoints

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is ControlIssued:
            self.life = record.life
            if event.token:
                self.tokens[event.token] = None
        elif type(event) is ControlReceived:
            return self._received(event, record)
        elif type(event) is ControlRefused:
            if event.token in self.tokens:
                return (self.broken(f"{record.process} refused {event.operation} with this run's own token.", record),)
        elif type(event) is ProcessStarted:
            for place in [place for place in self.begun if place[0] == record.process]:
                del self.begun[place]
        else:
            return self._changed(event, record)
        return ()

    def _received(self, event: ControlReceived, record: Record) -> Iterable[Violation]:
        place = (record.process, event.operation)
        known = self.begun.get(place, ())
        if event.checkpoint not in known:
            self.begun[place] = (*known, event.checkpoint)
        if event.token and event.token not in self.tokens:
            text = f"{event.operation} of checkpoint {event.checkpoint!r} began at {record.process}"
            return (self.broken(f"{text} with token {event.token}, which this run never sent.", record),)
        return ()

    def _changed(self, event: Any, record: Record) -> Iterable[Violation]:
        kind = type(event)
        begun = [self.begun[place] for operation in CHANGED_BY[kind] if (place := (record.process, operation)) in self.begun]
        if kind is AdmissionClosed:
            begun = [checkpoints for checkpoints in begun if event.checkpoint in checkpoints]
        if begun:
            return ()
        return (self.broken(f"{record.process} recorded {kind.__name__}; no call that may do so had begun there.", record),)

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        if self.life <= 1:
            return ()
        shared = [token for token in self.tokens if token in (reference or ())]
        return [self.broken(f"Life {self.life} sent token {token}, as life 1 did.") for token in shared]

    def summary(self) -> tuple[str, ...]:
        return tuple(self.tokens)
