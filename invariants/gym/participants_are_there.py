"""I40: state that nobody can take is refused aloud."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from invariants.ledger.attempts import is_another_point, restore_point
from protocol.config import Level
from protocol.history import ParticipantsFound, Record, RestoreChosen, Restored, RunFailed
from protocol.judging import Durable, Judge, RestorePoint, Terms, Violation


class ParticipantsAreThere(Judge):
    """A restore goes on only if every participant that saved state is live on its own instance; else it is refused, naming
    the instance and the missing ones, and a live participant that saved nothing is no reason to refuse.

    Who saved state is read from the manifest and, independently, from the folders under gym/.
    """

    invariant = "I40"
    needs = (ParticipantsFound, Restored)
    sees = (RestoreChosen, RunFailed)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.point = RestorePoint("", 0, 0, "")
        self.saved: dict[str, list[str]] = {}  # instance -> participants
        self.needed = False  # some instance has a saved episode: Gym must be restored
        self.found: dict[str, list[str]] = {}
        self.restored = False

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        if self.point.sequence == 0:
            return ()
        source = self.point.source
        gym = durable.gym_checkpoint(source) or {"instances": {}}
        for name in durable.below(f"{source}/gym"):
            self.saved[name] = durable.below(f"{source}/gym/{name}")
        for name, instance in gym["instances"].items():
            named = dict.fromkeys((*self.saved.get(name, ()), *instance["participants"]))
            self.saved[name] = sorted(named)
            self.needed = self.needed or bool(instance["episodes"])
        return ()

    def _missing(self) -> dict[str, list[str]]:
        missing = {
            name: [participant for participant in participants if participant not in self.found.get(name, ())]
            for name, participants in self.saved.items()
        }
        return {name: gone for name, gone in missing.items() if gone}

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is ParticipantsFound:
            self.found[event.instance] = list(event.participants)
        elif type(event) is RestoreChosen and is_another_point(event, self.point):
            self.saved, self.needed = {}, False
        elif type(event) is Restored:
            self.restored = True
            if self.needed or self.found:
                return [
                    self.broken(
                        f"Restored though {name} lacks {', '.join(gone)} (live: {self.found.get(name, 'never asked')}).", record
                    )
                    for name, gone in self._missing().items()
                ]
        elif type(event) is RunFailed and event.error == "RestoreRefused" and not self.restored:
            return self._refused(event, record)
        return ()

    def _refused(self, event: RunFailed, record: Record) -> Iterable[Violation]:
        if not self.found:
            return ()  # refused before anybody was asked: for another reason
        missing = self._missing()
        unnamed = [
            f"{name}: {', '.join(gone)}"
            for name, gone in missing.items()
            if name not in event.message or (name in self.found and any(participant not in event.message for participant in gone))
        ]
        if unnamed:
            return (self.broken(f"The refusal does not name what is missing ({'; '.join(unnamed)}): {event.message}", record),)
        extra = [name for name, live in self.found.items() if any(p not in self.saved.get(name, live) for p in live)]
        if not missing and extra and "RestoreRefused" not in self.terms.contract.may_end:
            return (
                self.broken(f"The restore was refused though only {extra} have additional participants: {event.message}", record),
            )
        return ()
