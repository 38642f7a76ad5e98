"""The phases of one Gym participant (PROTOCOL 5.7): the table is the machine.

idle -prepare-> preparing -ready-> prepared -commit-> committed
idle -restore-> restored
preparing | prepared | committed | restored -resume-> idle
"""

from __future__ import annotations

from enum import Enum

import msgspec

from protocol.errors import IllegalStep


class Phase(Enum):
    IDLE = "idle"
    PREPARING = "preparing"
    PREPARED = "prepared"
    COMMITTED = "committed"
    RESTORED = "restored"


class Move(Enum):
    PREPARE = "prepare"
    READY = "ready"
    COMMIT = "commit"
    RESTORE = "restore"
    RESUME = "resume"


LEGAL: dict[tuple[Phase, Move], Phase] = {
    (Phase.IDLE, Move.PREPARE): Phase.PREPARING,
    (Phase.PREPARING, Move.READY): Phase.PREPARED,
    (Phase.PREPARED, Move.COMMIT): Phase.COMMITTED,
    (Phase.IDLE, Move.RESTORE): Phase.RESTORED,
    (Phase.PREPARING, Move.RESUME): Phase.IDLE,
    (Phase.PREPARED, Move.RESUME): Phase.IDLE,
    (Phase.COMMITTED, Move.RESUME): Phase.IDLE,
    (Phase.RESTORED, Move.RESUME): Phase.IDLE,
}


class Standing(msgspec.Struct, frozen=True):
    """Where a participant stands: ``checkpoint`` is the open one's id, None while idle."""

    phase: Phase = Phase.IDLE
    checkpoint: str | None = None


def advance(standing: Standing, move: Move, checkpoint: str) -> Standing:
    """The standing after a move of ``checkpoint``. Raises IllegalStep, and nothing has changed.

    A move out of any phase but idle must be of the checkpoint that is open.
    """
    target = LEGAL.get((standing.phase, move))
    if target is None:
        raise IllegalStep(f"a participant that is {standing.phase.value} cannot {move.value} (checkpoint {checkpoint!r})")
    if standing.checkpoint is not None and standing.checkpoint != checkpoint:
        raise IllegalStep(f"cannot {move.value} for checkpoint {checkpoint!r}: {standing.checkpoint!r} is open")
    return Standing(target, None if target is Phase.IDLE else checkpoint)
