"""I8: a mark that goes too early lets a dropped execution come back."""

from __future__ import annotations

from collections.abc import Iterable

from invariants.ledger.attempts import gym_attempt_of, rollout_of
from protocol.config import Level
from protocol.history import AttemptSealed, ForgetIssued, MarkForgotten, Record, RetireAccepted, RetireQueued
from protocol.judging import Judge, Terms, Violation


class ForgottenWasRetired(Judge):
    """A rollout is forgotten only after its retire was accepted or its restored continuation sealed, and never while a
    retire of it is still queued.

    Both sides are judged: what the controller asks to forget, and the marks that Gym clears.
    """

    invariant = "I8"
    needs = (ForgetIssued,)
    sees = (AttemptSealed, MarkForgotten, RetireAccepted, RetireQueued)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.may_go: dict[str, None] = {}
        self.queued: dict[str, str] = {}  # rollout -> key whose retire is not accepted
        self.asked: dict[str, None] = {}

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is AttemptSealed:
            if gym_attempt_of(event.key) > 0:
                self.may_go[rollout_of(event.key)] = None
        elif type(event) is RetireAccepted:
            rollout = rollout_of(event.key)
            self.may_go[rollout] = None
            self.queued.pop(rollout, None)
        elif type(event) is RetireQueued:
            self.queued[rollout_of(event.key)] = event.key
        elif type(event) is ForgetIssued:
            self.asked[event.rollout] = None
            if event.rollout in self.queued:
                return (
                    self.broken(
                        f"{event.rollout} is to be forgotten while the retire of {self.queued[event.rollout]} is queued.", record
                    ),
                )
            if event.rollout not in self.may_go:
                return (
                    self.broken(f"{event.rollout} is to be forgotten, but was neither retired nor continued and sealed.", record),
                )
        elif type(event) is MarkForgotten and event.rollout not in self.asked:
            return (
                self.broken(f"{event.participant} cleared the mark of {event.rollout}, which nobody asked to forget.", record),
            )
        return ()
