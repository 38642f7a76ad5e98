"""What a model call asked for, and whether it may be cut: the rules of PROTOCOL 6.3 and 6.7, told once more for the judges."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.history import CallAsked, EngineFound


def effective_limit(asked: CallAsked, default: int | None) -> int:
    """Tokens that the whole call may generate; -1: nobody says."""
    if asked.limit >= 0:
        return asked.limit
    return -1 if default is None else default


def forbidden(asked: CallAsked, engine: EngineFound | None, default: int | None) -> Iterator[str]:
    """Why a call that asks for this may never be cut, whatever it has published."""
    if asked.stop:
        yield "stop strings"
    if asked.bad_words:
        yield "bad_words"
    if asked.presence_penalty or asked.frequency_penalty:
        yield "a penalty"
    if asked.grammar:
        yield "a grammar"
    keyed = engine is not None and engine.position_keyed_draws
    if asked.seed >= 0 and asked.temperature > 0 and not keyed:
        yield "draws of its own seed"
    if effective_limit(asked, default) < 0:
        yield "no output limit"
