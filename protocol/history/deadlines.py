"""Request deadlines (controller)."""

from __future__ import annotations

from protocol.history.event import Event


class DeadlineSet(Event, frozen=True):
    """A group attempt's rollout began and has ``limit_s`` seconds in which nobody holds the deadlines."""

    group: str
    limit_s: float


class DeadlineHeld(Event, frozen=True):
    """Request deadlines stand still for this holder: checkpoint | weight-sync."""

    holder: str


class DeadlineReleased(Event, frozen=True):
    """This holder let go; those in ``left`` still hold."""

    holder: str
    left: tuple[str, ...]


class RolloutTimedOut(Event, frozen=True):
    """A group attempt's rollout ran into its deadline; its time so far, and the part in which the deadline was held."""

    group: str
    elapsed_s: float
    held_s: float
