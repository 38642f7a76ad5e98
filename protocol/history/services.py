"""Services outside the job (each by its own name)."""

from __future__ import annotations

from protocol.history.event import Event


class EffectLanded(Event, frozen=True):
    """It has happened, and stays so whatever becomes of the job; ``times`` so far under this key."""

    effect: str
    payload: str
    times: int


class EffectDropped(Event, frozen=True):
    """An idempotent service has seen this key before: nothing happens, and it answers as it did then."""

    effect: str
