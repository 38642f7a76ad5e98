"""The control plane of one participant: its phase, its retire marks and the checkpoints it has already resumed."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from protocol.errors import ConfigError
from protocol.gym.phases import Move, Phase, Standing, advance
from protocol.history import MarkForgotten, PhaseMoved, RetireMarked
from protocol.identity import GymCheckpointEpisode
from protocol.runtime import Runtime

RESUMED_KEPT = 64  # resumed checkpoint ids that a participant remembers (PROTOCOL 5.7)


class Kind(Enum):
    """Kinds of participants, in the order in which prepare goes through them (resume: the reverse)."""

    ENVIRONMENT = "environment"
    POLICY_MODEL = "policy-model"
    AGENT = "agent"
    RESOURCES = "resources"


PREPARE_ORDER = tuple(Kind)
RESUME_ORDER = tuple(reversed(PREPARE_ORDER))
RETIRE_ORDER = (Kind.ENVIRONMENT, Kind.AGENT, Kind.POLICY_MODEL, Kind.RESOURCES)


def kind_of(name: str) -> Kind:
    """A participant's kind from its name: ``<kind>`` or ``<kind>-<anything>``. Raises ConfigError naming it."""
    for kind in Kind:
        if name == kind.value or name.startswith(f"{kind.value}-"):
            return kind
    raise ConfigError(f"participant {name!r} is of no known kind: a name begins with one of {[kind.value for kind in Kind]}")


class Participant:
    def __init__(self, rt: Runtime, name: str) -> None:
        self.rt = rt
        self.name = name
        self.kind = kind_of(name)
        self.standing = Standing()
        self.marks: dict[str, int] = {}  # rollout id -> highest attempt that may not run
        self.resumed: dict[str, None] = {}  # the last RESUMED_KEPT ids, oldest first

    @property
    def phase(self) -> Phase:
        return self.standing.phase

    def move(self, move: Move, checkpoint: str) -> None:
        before = self.standing
        self.standing = advance(before, move, checkpoint)
        self.rt.record(PhaseMoved(self.name, before.phase.value, self.standing.phase.value, checkpoint))

    def resume(self, checkpoint: str) -> None:
        """Back to idle, if this checkpoint is open here; its id is remembered in any case."""
        if self.standing.checkpoint == checkpoint:
            self.move(Move.RESUME, checkpoint)
        self.resumed.pop(checkpoint, None)
        self.resumed[checkpoint] = None
        if len(self.resumed) > RESUMED_KEPT:
            del self.resumed[next(iter(self.resumed))]

    def raise_mark(self, episode: GymCheckpointEpisode) -> None:
        """Attempts of this rollout up to this one may not run any more."""
        mark = decide_mark(self.marks.get(episode.rollout_id), episode.attempt)
        if mark is not None:
            self.marks[episode.rollout_id] = mark
            self.rt.record(RetireMarked(self.name, episode.rollout_id, mark))

    def forget(self, rollout: str) -> None:
        if self.marks.pop(rollout, None) is not None:
            self.rt.record(MarkForgotten(self.name, rollout))


def decide_mark(current: int | None, attempt: int) -> int | None:
    """The new mark, or None if the current one stands: a mark is never lowered."""
    return attempt if current is None or attempt > current else None


def in_order(participants: Iterable[Participant], order: tuple[Kind, ...]) -> list[Participant]:
    """Participants by kind in ``order``, within a kind as they were given."""
    return sorted(participants, key=lambda participant: order.index(participant.kind))
