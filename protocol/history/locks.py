"""Checkpoint lock, gate and barrier (controller)."""

from __future__ import annotations

from protocol.history.event import Event


class MutationWaits(Event, frozen=True):
    """A mutation finds a checkpoint active or waiting, and begins to wait for it."""

    barrier: str
    kind: str


class MutationEntered(Event, frozen=True, omit_defaults=True):
    """Outermost entry. ``barrier``: data-plane | dispatch. ``waited_s``: how long it was kept out."""

    barrier: str
    kind: str
    waited_s: float = 0.0


class MutationLeft(Event, frozen=True):
    """Outermost exit; ``version`` is the barrier's mutation version after it; ``failed``: the body raised."""

    barrier: str
    kind: str
    version: int
    failed: bool


class ExclusiveQueued(Event, frozen=True):
    """A checkpoint finds another one active or waiting, and begins to wait for its turn to ask."""

    barrier: str


class ExclusiveWaited(Event, frozen=True):
    """A checkpoint asks for the exclusive side (new mutations wait from here on)."""

    barrier: str


class ExclusiveEntered(Event, frozen=True):
    """``waited_s``: since it was asked for, the turn of an earlier checkpoint included."""

    barrier: str
    waited_s: float = 0.0


class ExclusiveLeft(Event, frozen=True):
    """Also after a cancelled wait: the flag is clear."""

    barrier: str


class LockWaits(Event, frozen=True):
    """A task finds a lock held and begins to wait for it. ``lock``: checkpoint."""

    lock: str


class LockHeld(Event, frozen=True):
    lock: str


class LockReleased(Event, frozen=True):
    lock: str


class WaitGivenUp(Event, frozen=True):
    """A task that waited for ``lock`` (checkpoint | dispatch | data-plane) was cancelled: it waits no more, and has nothing."""

    lock: str
