"""Errors of the protocol.

    ProtocolError
    |- IllegalStep            a state machine was asked for a move its table does not have
    |- Lost                   no answer from a peer: the request may or may not have happened
    |- PeerFailed             a peer's handler raised something that is not a ProtocolError
    |- Refusal                a peer understood and said no (``cause``, ``reason``)
    |- MissingFile            a file or folder that was read is not there
    |- ConfigError            a configuration that is unsupported, contradictory or unknown
    |- RestoreRefused         what is on disk cannot be restored, and starting without it would lose work
    |- OwnershipError         an episode has no owner, two owners, or an owner nobody knows
    |- SnapshotFailed         one snapshot could not be taken; the previous one stands
    |- BudgetExhausted        a prompt spent its last attempt and the run may not skip it
    |- RolloutStall           no progress for longer than ``stall_timeout_s``
    |- OutcomeUnknown         a publish was sent and its outcome cannot be known: the run must stop

Every error has exactly one string argument, so that it survives pickling across a process boundary
(an exception with several arguments arrives as Ray's ``UnserializableException``). What a caller
decides on, beside the type, is ``cause``: it travels inside the message's pickled state.

``Cause`` is the one table of PROTOCOL 1.10.
"""

from __future__ import annotations

from enum import Enum


class Cause(Enum):
    """Why something failed, and therefore what may be done about it (PROTOCOL 1.10)."""

    INFRA = "infra"  # time-outs, connections, actor and node deaths, HTTP >= 500, 408, 429: try again
    DATA = "data"  # the same prompt would fail again: a small budget, then skip
    PARKED = "parked"  # 409 checkpoint_parked: costs nothing, the same identity is sent again
    UNAVAILABLE = "unavailable"  # Gym could not park, no answer, control plane error: next snapshot tries again
    BROKEN = "broken"  # ownership, topology or reply mismatch: stop, nothing can be trusted


class NoResult(Enum):
    """Gym's classes of a reply that holds no result: what went wrong where it was made, whatever its HTTP status says."""

    TIMED_OUT = "timed-out"
    DISCONNECTED = "disconnected"
    SERVER_DIED = "server-died"
    OVERLOADED = "overloaded"
    MALFORMED = "malformed"  # there is a reply, and it is no result
    REJECTED = "rejected"  # the task's own request is not one that a server can answer


CAUSE_OF_NO_RESULT: dict[NoResult, Cause] = {
    NoResult.TIMED_OUT: Cause.INFRA,
    NoResult.DISCONNECTED: Cause.INFRA,
    NoResult.SERVER_DIED: Cause.INFRA,
    NoResult.OVERLOADED: Cause.INFRA,
    NoResult.MALFORMED: Cause.DATA,
    NoResult.REJECTED: Cause.DATA,
}


def row_cause(cause: Cause) -> Cause:
    """The class of a row whose episode failed: DATA if the same task would fail again, else INFRA."""
    return Cause.DATA if cause in (Cause.DATA, Cause.BROKEN) else Cause.INFRA


class ProtocolError(Exception):
    """Root of the tree. ``cause`` says what may be done about it."""

    cause = Cause.BROKEN

    def __init__(self, message: str, cause: Cause | None = None) -> None:
        super().__init__(message)
        if cause is not None:
            self.cause = cause

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (str(self),), {"cause": self.cause})


class IllegalStep(ProtocolError):
    """A state machine was asked for a move its table does not have; nothing has changed."""


class Lost(ProtocolError):
    """No answer: the request may or may not have happened."""

    cause = Cause.INFRA


class PeerFailed(ProtocolError):
    """The peer's handler raised something that is not a ProtocolError (the text says what)."""

    cause = Cause.INFRA


class Refusal(ProtocolError):
    """The peer understood and said no. Nothing changed there."""

    cause = Cause.UNAVAILABLE


class MissingFile(ProtocolError):
    """A file or folder that was read is not there."""


class ConfigError(ProtocolError):
    """A configuration that is unsupported, contradictory or unknown; the text names each key."""


class RestoreRefused(ProtocolError):
    """What is on disk cannot be restored, and starting without it would lose work in silence."""


class OwnershipError(ProtocolError):
    """An episode has no owner, two owners, or is one that nobody knows (PROTOCOL 5.4)."""


class SnapshotFailed(ProtocolError):
    """One snapshot could not be taken; the previous one stands."""

    cause = Cause.UNAVAILABLE


class BudgetExhausted(ProtocolError):
    """A prompt spent its last attempt and the run may not skip it."""

    cause = Cause.DATA


class RolloutStall(ProtocolError):
    """No group was committed and no step trained for longer than ``stall_timeout_s``."""

    cause = Cause.INFRA


class OutcomeUnknown(ProtocolError):
    """A publish was sent and its outcome cannot be known: the run must stop, nothing may be saved."""
