"""Gym control as the controller sees it."""

from __future__ import annotations

from protocol.history.event import Event, KeySet


class GymPhaseStarted(Event, frozen=True):
    checkpoint: str


class GymPhaseEnded(Event, frozen=True):
    """``outcome``: cut | dropped | failed."""

    checkpoint: str
    outcome: str
    parked_s: float


class ControlIssued(Event, frozen=True):
    """One control call to one instance; it must be over ``deadline_s + grace_s`` later. ``token`` names its control token."""

    operation: str
    instance: str
    checkpoint: str
    deadline_s: float
    grace_s: float
    token: str = ""  # '': not said


class ControlDone(Event, frozen=True):
    """``outcome``: ok | refused | failed | lost; ``error`` is the error's type name; ``cause`` the core's class of it."""

    operation: str
    instance: str
    checkpoint: str
    outcome: str
    error: str
    cause: str


class ControlCancelled(Event, frozen=True):
    """The unanswered call was cancelled at its bound."""

    operation: str
    instance: str
    checkpoint: str


class ParticipantsFound(Event, frozen=True):
    """Reply of discover: participant names of one instance."""

    instance: str
    participants: tuple[str, ...]


class ScopeBuilt(Event, frozen=True):
    """Candidates were read from the ledger in one synchronous step, after the retire."""

    checkpoint: str
    candidates: KeySet


class DrainEnded(Event, frozen=True):
    """``waited`` episodes whose reply was on the wire; ``left`` not accounted for (0 when it succeeded)."""

    checkpoint: str
    waited: int
    left: int


class ManifestBuilt(Event, frozen=True):
    """gym_checkpoint.json of a cut: saved episodes, restarts, and what the ledger's payload asks for."""

    checkpoint: str
    sequence: int
    episodes: KeySet
    restarts: KeySet
    unsealed: KeySet
