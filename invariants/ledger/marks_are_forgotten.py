"""I9: a mark that stays would pile up, and refuse a later execution."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from invariants.ledger.attempts import gym_attempt_of, rollout_of
from protocol.config import Level
from protocol.history import (
    AttemptAbandoned,
    AttemptSealed,
    ControlDone,
    ControlIssued,
    ForgetAccepted,
    ForgetQueued,
    GymPhaseEnded,
    GymPhaseStarted,
    MarkForgotten,
    ProcessStarted,
    Record,
    RetireAccepted,
    RetireMarked,
)
from protocol.judging import Judge, Terms, Violation


class MarksAreForgotten(Judge):
    """Once the retire of a rollout was accepted, or its restored continuation has sealed or was given up, the next checkpoint
    that is cut leaves no mark of it on any participant, unless a deployment refused to forget: then the retire is asked once
    more, and the forget after it, and what is refused again stays queued.
    """

    invariant = "I9"
    needs = (RetireMarked, GymPhaseEnded)
    sees = (
        AttemptAbandoned, AttemptSealed, ControlDone, ControlIssued, ForgetAccepted, ForgetQueued, GymPhaseStarted,
        MarkForgotten, ProcessStarted, RetireAccepted,
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.marks: dict[str, dict[tuple[str, str], None]] = {}  # rollout -> (instance, participant) that hold one
        self.over: dict[str, None] = {}  # rollouts whose marks have served
        self.due: dict[str, None] = {}  # those of them that were over when the open Gym phase began
        self.queued: dict[str, None] = {}  # for a forget
        self.refused: dict[str, None] = {}  # instances that refused a forget in this phase
        self.owed: dict[str, str] = {}  # instance that refused a forget once -> what it must be asked next: retire | forget
        self.asked_again: dict[str, None] = {}  # instances that were asked to forget a second time in this phase

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        handle = _HANDLERS[type(event)]
        return handle(self, event, record) or ()

    def _marked(self, event: RetireMarked, record: Record) -> None:
        self.marks.setdefault(event.rollout, {})[record.process, event.participant] = None

    def _forgotten(self, event: MarkForgotten, record: Record) -> None:
        self.marks.get(event.rollout, {}).pop((record.process, event.participant), None)

    def _ended(self, event: AttemptSealed | AttemptAbandoned, record: Record) -> None:
        if gym_attempt_of(event.key) > 0:
            self.over[rollout_of(event.key)] = None

    def _accepted(self, event: RetireAccepted, record: Record) -> None:
        self.over[rollout_of(event.key)] = None

    def _queued(self, event: ForgetQueued, record: Record) -> None:
        self.queued[event.rollout] = None

    def _no_longer_queued(self, event: ForgetAccepted, record: Record) -> Iterable[Violation]:
        self.queued.pop(event.rollout, None)
        left = self.marks.get(event.rollout)
        if left:
            return (self.broken(f"The forget of {event.rollout} counts as accepted; {sorted(left)[0]} keeps its mark.", record),)
        return ()

    def _asked(self, event: ControlDone, record: Record) -> None:
        if event.operation == "forget" and event.outcome != "ok":
            self.refused[event.instance] = None
            if event.instance not in self.asked_again:
                self.owed[event.instance] = "retire"

    def _issued(self, event: ControlIssued, record: Record) -> Iterable[Violation]:
        """A refused forget is followed by a retire, then by the forget once more, before Gym is parked."""
        owed = self.owed.get(event.instance, "")
        if event.operation == "retire" and owed:
            self.owed[event.instance] = "forget"
        elif event.operation == "forget" and owed:
            del self.owed[event.instance]
            self.asked_again[event.instance] = None
            if owed == "retire":
                text = f"{event.instance} refused to forget and was asked again without another retire before it."
                return (self.broken(text, record),)
        elif event.operation == "prepare" and owed:
            del self.owed[event.instance]
            return (self.broken(f"{event.instance} refused to forget and was parked before it was asked once more.", record),)
        return ()

    def _phase(self, event: GymPhaseStarted, record: Record) -> None:
        self.due, self.refused, self.owed, self.asked_again = dict(self.over), {}, {}, {}

    def _cut(self, event: GymPhaseEnded, record: Record) -> Iterable[Violation]:
        if event.outcome != "cut":
            return ()
        found = []
        for rollout in self.due:
            left = [place for place in self.marks.get(rollout, {}) if place[0] not in self.refused or rollout not in self.queued]
            if left:
                found.append(self.broken(f"{left[0][0]}: {left[0][1]} still holds a mark of {rollout}.", record))
            elif not self.marks.get(rollout):
                self.over.pop(rollout, None)
        self.due = {}
        return found

    def _restarted(self, event: ProcessStarted, record: Record) -> None:
        """Marks are memory: they went with the process."""
        for places in self.marks.values():
            for place in [place for place in places if place[0] == record.process]:
                del places[place]


_HANDLERS: dict[type, Any] = {
    AttemptAbandoned: MarksAreForgotten._ended,
    AttemptSealed: MarksAreForgotten._ended,
    ControlDone: MarksAreForgotten._asked,
    ControlIssued: MarksAreForgotten._issued,
    ForgetAccepted: MarksAreForgotten._no_longer_queued,
    ForgetQueued: MarksAreForgotten._queued,
    GymPhaseEnded: MarksAreForgotten._cut,
    GymPhaseStarted: MarksAreForgotten._phase,
    MarkForgotten: MarksAreForgotten._forgotten,
    ProcessStarted: MarksAreForgotten._restarted,
    RetireAccepted: MarksAreForgotten._accepted,
    RetireMarked: MarksAreForgotten._marked,
}
