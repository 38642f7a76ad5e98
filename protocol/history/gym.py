"""Gym's own side (gym-<i>)."""

from __future__ import annotations

from protocol.history.event import Event


class AdmissionClosed(Event, frozen=True):
    checkpoint: str


class AdmissionOpened(Event, frozen=True):
    """``why``: resume | lease | failed-prepare."""

    checkpoint: str
    why: str


class PhaseMoved(Event, frozen=True):
    """A participant's phase (PROTOCOL 5.7)."""

    participant: str
    before: str
    after: str
    checkpoint: str


class ControlReceived(Event, frozen=True):
    """A control call began here; it extends the lease to ``lease_s`` from now. ``token`` names the token it carried."""

    operation: str
    checkpoint: str
    lease_s: float
    token: str = ""  # '': not said


class ControlDecided(Event, frozen=True):
    """How a control call goes on. ``course``: begin | join (the same one runs) | replay (it is done: the same answer again) |
    refused. ``number`` of a retire or forget."""

    operation: str
    checkpoint: str
    course: str
    number: int = 0


class ControlRefused(Event, frozen=True):
    """A control call was turned away at the door, of a Gym instance or of a worker's model server: it carried the token of
    another run, or none ('')."""

    operation: str
    checkpoint: str
    token: str


class EpisodeAdmitted(Event, frozen=True):
    """``continued``: it claims a session that a restore installed."""

    key: str
    ordinal: int
    generation: int
    continued: bool
    turn: int


class EpisodeRefused(Event, frozen=True):
    """``reason``: checkpoint_parked | stale-attempt | unknown-continuation | failed-cohort."""

    key: str
    reason: str


class EpisodeCut(Event, frozen=True):
    """An episode inside a model call is settled: the open checkpoint saves its last boundary, and of the ``call`` in flight
    ``count`` durable tokens. ``kind``: durable_prefix | durable_failure | unanswered (nothing of the call is saved)."""

    key: str
    turn: int
    call: str
    kind: str
    count: int


class EpisodeParked(Event, frozen=True):
    key: str
    turn: int


class SiblingHeld(Event, frozen=True):
    """A finished sibling waits at the verifier of its cohort, at its last boundary."""

    key: str
    group_attempt: int


class CohortJudged(Event, frozen=True):
    """``rewarded`` were rewarded together, each relative to all ``members`` (keys by generation). ``expected``: generations
    that had not sealed when this cohort was sent."""

    group: str
    group_attempt: int
    members: tuple[str, ...]
    rewarded: tuple[str, ...]
    expected: tuple[int, ...]


class CohortFailed(Event, frozen=True):
    """Everyone who waits in it fails, and every later row of this group attempt."""

    group: str
    group_attempt: int
    why: str


class ChildEnded(Event, frozen=True):
    """An agent's own /run has finished one child episode of ``key`` and is at ``following`` ('': that was the last)."""

    key: str
    child: str
    following: str


class TurnCompleted(Event, frozen=True):
    """A tool ran at the end of a turn; ``state`` digests the episode's tool state after it."""

    key: str
    turn: int
    tool: str
    state: str


class EffectIssued(Event, frozen=True):
    """The tool call of turn ``call`` goes to an outside service under the key ``effect``, for the ``sent``-th time."""

    call: str
    service: str
    effect: str
    payload: str  # digest of what is asked for
    sent: int = 1


class EffectDone(Event, frozen=True):
    """The service has answered. ``repeated``: it had seen this key before, so this was work done again."""

    call: str
    service: str
    effect: str
    repeated: bool


class EpisodeExported(Event, frozen=True):
    """Written by a commit. ``kind``: environment | session | run-id."""

    key: str
    participant: str
    kind: str
    turn: int


class CutSaved(Event, frozen=True):
    """Written by a commit beside an episode's boundary: what is durable of the model call that comes after it."""

    key: str
    call: str
    keys: tuple[str, ...]
    count: int
    digest: str
    limit: int


class EpisodeCannotSave(Event, frozen=True):
    """Reported in ``restarts`` of a prepare, or in ``lost`` of a commit: it starts over."""

    key: str
    participant: str


class EpisodeInstalled(Event, frozen=True):
    """A restore installed ``saved`` as ``key`` (the next attempt); ``state`` digests its tool state."""

    key: str
    saved: str
    turn: int
    state: str


class EpisodeEnded(Event, frozen=True):
    """``outcome``: replied | retired | failed | cancelled."""

    key: str
    outcome: str


class ReplySent(Event, frozen=True):
    """A finished row was put on its stream: its reward, and how many model calls it names."""

    key: str
    reward: float = 0.0
    calls: int = -1  # -1: not said


class RetireMarked(Event, frozen=True):
    participant: str
    rollout: str
    attempt: int


class MarkForgotten(Event, frozen=True):
    participant: str
    rollout: str
