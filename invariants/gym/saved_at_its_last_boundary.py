"""TURN-1: what a snapshot keeps of an episode is all that it had done."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from invariants.gym.manifest_is_the_unfinished import key_of
from invariants.ledger.attempts import is_another_point, restore_point
from protocol.config import Level
from protocol.history import (
    EpisodeAdmitted,
    EpisodeEnded,
    EpisodeExported,
    EpisodeInstalled,
    Record,
    RestoreChosen,
    TurnCompleted,
)
from protocol.judging import Durable, Judge, RestorePoint, Terms, Violation

_encode = msgspec.json.Encoder(order="sorted").encode


class SavedAtItsLastBoundary(Judge):
    """A commit writes each episode as it stands after its last completed turn, and a restore installs it at exactly that turn
    with exactly that tool state, as the attempt after the saved one.

    The turns are counted from Gym's events, what was saved is read from the participants' files.
    """

    invariant = "TURN-1"
    needs = (EpisodeExported,)
    sees = (EpisodeAdmitted, EpisodeEnded, EpisodeInstalled, RestoreChosen, TurnCompleted)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.point = RestorePoint("", 0, 0, "")
        self.done: dict[str, int] = {}  # key -> turns completed
        self.saved: dict[str, tuple[int, str]] = {}  # saved key -> turn and digest of the tool state ('': not in the files)
        self.elsewhere = False

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        if self.point.sequence:
            gym = durable.gym_checkpoint(self.point.source)
            instances = gym["instances"] if isinstance(gym, dict) else {}
            for name, part in instances.items():
                turns, states = _records(durable, f"{self.point.source}/gym/{name}", part["participants"])
                for key in (key_of(episode) for episode in part["episodes"]):
                    if key in turns:
                        self.saved[key] = (turns[key], states.get(key, ""))
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, TurnCompleted):
            self.done[event.key] = event.turn + 1
        elif isinstance(event, EpisodeAdmitted):
            self.done[event.key] = event.turn
        elif isinstance(event, EpisodeEnded):
            self.done.pop(event.key, None)
        elif isinstance(event, RestoreChosen):
            self.elsewhere = is_another_point(event, self.point)
        elif isinstance(event, EpisodeExported):
            turns = self.done.get(event.key)
            if turns is not None and turns != event.turn:
                return (self.broken(f"{event.key} was written at turn {event.turn}, it has completed {turns}.", record),)
        elif isinstance(event, EpisodeInstalled):
            self.done[event.key] = event.turn
            return [self.broken(text, record) for text in self._installed(event)]
        return ()

    def _installed(self, event: EpisodeInstalled) -> Iterator[str]:
        rollout, _, attempt = event.saved.rpartition("-a")
        if attempt.isdigit() and event.key != f"{rollout}-a{int(attempt) + 1}":
            yield f"{event.saved} was installed as {event.key}, not as attempt {int(attempt) + 1}."
        if self.elsewhere or event.saved not in self.saved:
            return
        turn, state = self.saved[event.saved]
        if event.turn != turn:
            yield f"{event.key} was installed at turn {event.turn}, its record says {turn}."
        if state and event.state != state:
            yield f"{event.key} was installed with another tool state than {event.saved} was saved with."


def _records(durable: Durable, folder: str, participants: Iterable[str]) -> tuple[dict[str, int], dict[str, str]]:
    """Turn of each episode's session record, and digest of its state, from the participants' files.

    A state is {participant: its part}; an agent whose own /run drives the episode writes its part beside its session.
    """
    turns: dict[str, int] = {}
    states: dict[str, dict[str, Any]] = {}
    for participant in participants:
        content = durable.msgpack(f"{folder}/{participant}/episodes.msgpack")
        for key, record in (content if isinstance(content, dict) else {}).items():
            parts = states.setdefault(key, {})
            if "calls" in record:
                turns[key] = record["turn"]
                if record["own"] is not None:
                    parts[participant] = record["own"]
            else:
                parts[participant] = record["state"]
    digests = {key: hashlib.blake2b(_encode(parts), digest_size=16).hexdigest() for key, parts in states.items()}
    return turns, digests
