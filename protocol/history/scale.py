"""Work over many live rollouts (controller)."""

from __future__ import annotations

from protocol.history.event import Event


class WalkSliced(Event, frozen=True):
    """A walk over ``rollouts`` live ones that took several ``slices``, each in a section of its own; ``longest`` of them."""

    rollouts: int
    slices: int
    longest: int


class SectionVisited(Event, frozen=True):
    """The running section has looked at so many live rollouts: more than one may (I42). Counted where they are kept."""

    rollouts: int
