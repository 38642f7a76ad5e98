"""PHASE-1: what a checkpoint may rely on between prepare and resume, told by Gym's own events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protocol.config import Level
from protocol.history import (
    EpisodeAdmitted,
    EpisodeCannotSave,
    EpisodeExported,
    EpisodeParked,
    MarkForgotten,
    PhaseMoved,
    ProcessStarted,
    Record,
    RetireMarked,
    TurnCompleted,
)
from protocol.judging import Judge, Terms, Violation

AGENT = "agent"
DOOR = "environment"
MODEL = "policy-model"


class Instance:
    """One Gym instance. ``phases``: participant -> phase, only those that are not idle."""

    def __init__(self) -> None:
        self.phases: dict[str, str] = {}
        self.turns: dict[str, int] = {}  # key -> turns completed since model calls were closed
        self.late: dict[str, None] = {}  # keys that completed a turn after the agent was ready
        self.unsavable: dict[str, None] = {}  # keys of this checkpoint's report
        self.parked: dict[str, None] = {}  # keys at a boundary
        self.marks: dict[tuple[str, str], int] = {}  # (participant, rollout) -> highest attempt that may not run

    def closed(self, kind: str) -> bool:
        return self.phase_of(kind) != "idle"

    def phase_of(self, kind: str) -> str:
        return next((phase for name, phase in self.phases.items() if name == kind or name.startswith(f"{kind}-")), "idle")


class APreparedInstanceStandsStill(Judge):
    """From the start of a prepare to the resume a Gym instance admits no episode, each of its episodes ends at most the turn it
    was in, and before the agent is ready unless it cannot be saved, nothing is written of one that is not at a boundary, and no
    attempt at or below a retire mark is ever admitted.
    """

    invariant = "PHASE-1"
    needs = (PhaseMoved,)
    sees = (
        EpisodeAdmitted, EpisodeCannotSave, EpisodeExported, EpisodeParked, MarkForgotten, ProcessStarted, RetireMarked,
        TurnCompleted,
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.instances: dict[str, Instance] = {}

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def on(self, record: Record) -> Iterable[Violation]:
        if isinstance(record.event, ProcessStarted):
            self.instances.pop(record.process, None)
            return ()
        instance = self.instances.get(record.process)
        if instance is None:
            instance = self.instances[record.process] = Instance()
        return [self.broken(f"{record.process}: {text}.", record) for text in self._seen(instance, record)]

    def _seen(self, instance: Instance, record: Record) -> Iterator[str]:
        event = record.event
        if isinstance(event, PhaseMoved):
            yield from self._moved(instance, event)
        elif isinstance(event, EpisodeAdmitted):
            instance.parked.pop(event.key, None)
            if instance.closed(DOOR):
                yield f"{event.key} was admitted while {DOOR} was {instance.phase_of(DOOR)}"
            rollout, _, attempt = event.key.rpartition("-a")
            mark = max((found for (_, marked), found in instance.marks.items() if marked == rollout), default=-1)
            if attempt.isdigit() and int(attempt) <= mark:
                yield f"{event.key} was admitted, attempts up to {mark} of {rollout} are retired"
        elif isinstance(event, EpisodeCannotSave):
            instance.unsavable[event.key] = None
        elif isinstance(event, EpisodeParked):
            instance.parked[event.key] = None
        elif isinstance(event, TurnCompleted):
            instance.parked.pop(event.key, None)
            if instance.closed(MODEL):
                if instance.phase_of(AGENT) in ("prepared", "committed"):
                    instance.late[event.key] = None
                turns = instance.turns[event.key] = instance.turns.get(event.key, 0) + 1
                if turns > 1:
                    yield f"{event.key} completed {turns} turns after {MODEL} had closed its model calls"
        elif isinstance(event, EpisodeExported):
            if event.turn and event.key in instance.turns and event.key not in instance.parked:
                yield f"{event.key} was written while it was not at a boundary"
        elif isinstance(event, RetireMarked):
            place = (event.participant, event.rollout)
            if event.attempt < instance.marks.get(place, -1):
                yield f"{event.participant} lowered its mark of {event.rollout} from {instance.marks[place]} to {event.attempt}"
            instance.marks[place] = event.attempt
        elif isinstance(event, MarkForgotten):
            instance.marks.pop((event.participant, event.rollout), None)

    def _moved(self, instance: Instance, event: PhaseMoved) -> Iterator[str]:
        if event.after == "committed":  # by now the report has said what cannot be saved
            for key in [key for key in instance.late if key not in instance.unsavable]:
                yield f"{key} completed a turn after the {AGENT} was ready, and can be saved"
            instance.late = {}
        if event.after == "idle":
            instance.phases.pop(event.participant, None)
        else:
            instance.phases[event.participant] = event.after
        if not instance.phases:
            instance.turns, instance.late, instance.unsavable = {}, {}, {}
