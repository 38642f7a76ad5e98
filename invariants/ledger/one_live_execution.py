"""I1: two executions under one key would mix their captured calls."""

from __future__ import annotations

from collections.abc import Iterable

from invariants.ledger.attempts import rollout_of
from protocol.history import EpisodeAdmitted, EpisodeEnded, ProcessStarted, Record
from protocol.judging import Judge, Terms, Violation


class OneLiveExecution(Judge):
    """A key runs in Gym at most once in a life, and no rollout has two executions alive at one time.

    A refused row was never admitted, so sending its key again is no second run.
    """

    invariant = "I1"
    needs = (EpisodeAdmitted,)
    sees = (EpisodeEnded, ProcessStarted)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.admitted: dict[str, str] = {}  # key -> instance
        self.live: dict[str, str] = {}  # rollout -> key
        self.place: dict[str, str] = {}  # live key -> instance

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is EpisodeAdmitted:
            key = event.key
            rollout = rollout_of(key)
            found: list[Violation] = []
            if rollout in self.live:
                other = self.live[rollout]
                found.append(
                    self.broken(f"{key} was admitted on {record.process} while {other} ran on {self.place[other]}.", record)
                )
            elif key in self.admitted:
                found.append(self.broken(f"{key} was admitted on {record.process}, but had run on {self.admitted[key]}.", record))
            self.admitted[key] = record.process
            self.live[rollout] = key
            self.place[key] = record.process
            return found
        if type(event) is EpisodeEnded:
            if self.place.pop(event.key, None) is not None:
                rollout = rollout_of(event.key)
                if self.live.get(rollout) == event.key:
                    del self.live[rollout]
        elif type(event) is ProcessStarted and self.admitted:
            self._restarted(record.process)
        return ()

    def _restarted(self, instance: str) -> None:
        """Its sessions died with it; it may run on, under their keys, what it finds in its own scratch."""
        for key in [key for key, place in self.admitted.items() if place == instance]:
            del self.admitted[key]
            self.place.pop(key, None)
            if self.live.get(rollout_of(key)) == key:
                del self.live[rollout_of(key)]
