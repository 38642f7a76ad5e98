"""I41: a restored episode goes on where it was saved, once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from invariants.gym.manifest_is_the_unfinished import key_of
from invariants.ledger.attempts import group_of, gym_attempt_of, is_another_point, restore_point
from protocol.config import Level
from protocol.history import (
    AttemptAbandoned,
    AttemptDispatched,
    AttemptSealed,
    EpisodeAdmitted,
    EpisodeInstalled,
    GroupDropped,
    ProcessStarted,
    Record,
    RestoreChosen,
)
from protocol.identity import GymCheckpointEpisode
from protocol.judging import Durable, Judge, RestorePoint, RunStatus, Terms, Violation


class ContinuedOnce(Judge):
    """A saved episode is installed as its next attempt on the instance that saved it, goes on there from its saved turn at
    most once, and no continuation is dispatched that was not installed in this life.
    """

    invariant = "I41"
    needs = (EpisodeInstalled,)
    sees = (AttemptAbandoned, AttemptDispatched, AttemptSealed, EpisodeAdmitted, GroupDropped, ProcessStarted, RestoreChosen)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.point = RestorePoint("", 0, 0, "")
        self.saved: dict[str, str] = {}  # saved key -> instance, by the manifest
        self.installed: dict[str, tuple[str, int]] = {}  # continuation -> (instance, turn)
        self.by_sample: dict[str, str] = {}  # sample -> its waiting continuation
        self.admitted: dict[str, None] = {}
        self.wiped: dict[str, None] = {}  # instances that restarted after the install
        self.elsewhere = False

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        if self.point.sequence:
            gym = durable.gym_checkpoint(self.point.source) or {"instances": {}}
            for name, instance in gym["instances"].items():
                self.saved.update((key_of(episode), name) for episode in instance["episodes"])
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is AttemptDispatched:
            return self._dispatched(event, record) if gym_attempt_of(event.key) > 0 else ()
        if type(event) is EpisodeAdmitted:
            return self._admitted(event, record) if event.continued else ()
        if type(event) is AttemptSealed:
            return self._sealed(event, record) if self.by_sample else ()
        if type(event) is EpisodeInstalled:
            return self._installed(event, record)
        if type(event) is AttemptAbandoned:
            if self.by_sample.get(event.sample) == event.key:
                del self.by_sample[event.sample]
        elif type(event) is GroupDropped:
            for sample in [sample for sample in self.by_sample if group_of(sample) == event.group]:
                del self.by_sample[sample]
            for key in [key for key in self.saved if group_of(key) == event.group]:
                del self.saved[key]
        elif type(event) is ProcessStarted:
            self.wiped[record.process] = None
        elif type(event) is RestoreChosen and is_another_point(event, self.point):
            self.elsewhere = True
            self.saved = {}
        return ()

    def _installed(self, event: EpisodeInstalled, record: Record) -> Iterable[Violation]:
        found: list[str] = []
        follows = GymCheckpointEpisode.of(event.saved).next().capture_key
        if event.key != follows:
            found.append(f"{event.saved} was installed as {event.key}, not as {follows}")
        if event.key in self.installed:
            found.append(f"{event.key} was installed twice, on {self.installed[event.key][0]} and {record.process}")
        if not self.elsewhere:
            where = self.saved.pop(event.saved, None)
            if where is None:
                found.append(f"{event.saved} was installed on {record.process}, but the manifest does not save it")
            elif where != record.process:
                found.append(f"{event.saved} was saved by {where} and installed on {record.process}")
        self.installed[event.key] = (record.process, event.turn)
        self.by_sample[event.key.rpartition("r")[0]] = event.key
        self.wiped.pop(record.process, None)
        return [self.broken(f"{text}.", record) for text in found]

    def _dispatched(self, event: AttemptDispatched, record: Record) -> Iterable[Violation]:
        place = self.installed.get(event.key)
        if place is None:
            return (
                self.broken(f"{event.key} was dispatched as a continuation, but no restore of this life installed it.", record),
            )
        if place[0] != event.instance:
            return (self.broken(f"{event.key} was dispatched to {event.instance}; it is installed on {place[0]}.", record),)
        return ()

    def _admitted(self, event: EpisodeAdmitted, record: Record) -> Iterable[Violation]:
        place = self.installed.get(event.key)
        found: list[str] = []
        if place is None or place[0] != record.process:
            found.append(
                f"{event.key} was continued on {record.process}; it is installed {'on ' + place[0] if place else 'nowhere'}"
            )
        elif record.process in self.wiped:
            found.append(f"{event.key} was continued on {record.process}, which has restarted since the install")
        elif event.turn != place[1]:
            found.append(f"{event.key} was continued at turn {event.turn}; it was saved at turn {place[1]}")
        if event.key in self.admitted:
            found.append(f"{event.key} was continued twice")
        self.admitted[event.key] = None
        return [self.broken(f"{text}.", record) for text in found]

    def _sealed(self, event: AttemptSealed, record: Record) -> Iterable[Violation]:
        waiting = self.by_sample.pop(event.sample, None)
        if waiting is not None and waiting != event.key and waiting not in self.admitted:
            return (self.broken(f"{event.key} was sealed while {waiting} waited with restored state.", record),)
        return ()

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        if status.outcome != "ended":
            return ()
        return [
            self.broken(f"{key} was saved on {name}, and was neither restored nor dropped.") for key, name in self.saved.items()
        ]
