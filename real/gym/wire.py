"""What the core's messages to a Gym instance look like as HTTP: routes, bodies, lines of a stream, errors.

A body is a message as JSON; a control call's token travels in ``Authorization: Bearer``, never in the body. A stream is one
JSON object a line, the last one of kind ``end`` or ``error``: without it, the answer is lost. An error is
``{"error": <class>, "cause": <cause>, "message": <text>}``: whoever reads it decides on that alone, the status is for people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from protocol.errors import (
    BudgetExhausted,
    Cause,
    ConfigError,
    IllegalStep,
    Lost,
    MissingFile,
    OutcomeUnknown,
    OwnershipError,
    PeerFailed,
    ProtocolError,
    Refusal,
    RestoreRefused,
    RolloutStall,
    SnapshotFailed,
)
from protocol.messages import (
    Commit,
    Committed,
    Control,
    Discover,
    Forget,
    Health,
    Prepare,
    Prepared,
    Probe,
    Renew,
    Restore,
    Resume,
    Retire,
    RowCompleted,
    RowFailed,
    RowRefused,
    RunRows,
    Topology,
)
from real.remote import Sender

PREFIX = "/ng-control/v1/checkpoint"
CONTROL: dict[type[Control], str] = {
    Discover: "status",
    Prepare: "prepare",
    Renew: "renew",
    Commit: "commit",
    Resume: "resume",
    Restore: "restore",
    Retire: "retire",
    Forget: "forget",
}
REPLIES: dict[type, Any] = {
    Discover: Topology,
    Prepare: Prepared,
    Renew: None,
    Commit: Committed,
    Resume: None,
    Restore: tuple[str, ...],
    Retire: None,
    Forget: None,
    Probe: Health,
}
RUN, HEALTH = "/run", "/healthz"
ITEMS: dict[str, type] = {kind.__name__: kind for kind in (RowCompleted, RowRefused, RowFailed)}
BODY_MAX = 32 << 20  # bytes of one body, or of one line of a stream
PROCESS_HEADER, LIFE_HEADER, INCARNATION_HEADER = "x-rollproof-process", "x-rollproof-life", "x-rollproof-incarnation"

_encode = msgspec.json.Encoder().encode


class BadBody(Exception):
    """A body that is not the message its route takes; the text names the field."""


# --- messages


def route_of(message: Any) -> str:
    """Path of the route that takes this message. Raises ConfigError for one that no Gym instance takes."""
    return route_of_kind(type(message))


def route_of_kind(kind: type) -> str:
    if kind in CONTROL:
        return f"{PREFIX}/{CONTROL[kind]}"
    if kind is RunRows:
        return RUN
    if kind is Probe:
        return HEALTH
    raise ConfigError(f"a Gym instance takes no {kind.__name__}")


def encode_message(message: Any) -> bytes:
    if not isinstance(message, Control):
        return _encode(message)
    body = msgspec.to_builtins(message)
    del body["token"]
    return _encode(body)


def decode_message(kind: type, body: bytes, **given: str) -> Any:
    """The message of a body; ``given`` fields come from elsewhere, and may not stand in it. Raises BadBody."""
    try:
        raw = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadBody(f"{kind.__name__}: the body is no JSON: {error}") from None
    if not isinstance(raw, dict):
        raise BadBody(f"{kind.__name__}: the body is no JSON object")
    try:
        message: Any = msgspec.convert({**raw, **given}, kind)
    except msgspec.ValidationError as error:
        raise BadBody(f"{kind.__name__}: {error}") from None
    unknown = next(
        _unknown(raw, {name: value for name, value in msgspec.to_builtins(message).items() if name not in given}, "$"), ""
    )
    if unknown:
        raise BadBody(f"{kind.__name__}: there is no field `{unknown}`")
    return message


def _unknown(raw: Any, known: Any, place: str) -> Iterator[str]:
    """Where ``raw`` has a key that the message made of it has not."""
    if isinstance(raw, dict) and isinstance(known, dict):
        for name, value in raw.items():
            if name not in known:
                yield f"{place}.{name}"
            else:
                yield from _unknown(value, known[name], f"{place}.{name}")
    elif isinstance(raw, list):
        for index, (value, other) in enumerate(zip(raw, known, strict=True)):
            if isinstance(value, dict):
                yield from _unknown(value, other, f"{place}[{index}]")


def decode_reply(kind: type, body: bytes) -> Any:
    """What a message of this kind was answered with. Raises PeerFailed for an answer that is none."""
    try:
        return msgspec.json.decode(body, type=REPLIES[kind])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PeerFailed(f"the answer to {kind.__name__} is none: {error}") from None


# --- who asks


def headers_of(sender: Sender) -> dict[str, str]:
    return {
        PROCESS_HEADER: sender.process,
        LIFE_HEADER: str(sender.life),
        INCARNATION_HEADER: str(sender.incarnation),
    }


def sender_of(headers: Mapping[str, str]) -> Sender:
    """Raises BadBody that names the header that is missing or no number."""
    process, numbers = headers.get(PROCESS_HEADER, ""), []
    if not process:
        raise BadBody(f"the header {PROCESS_HEADER} is missing: it says which process asks")
    for name in (LIFE_HEADER, INCARNATION_HEADER):
        text = headers.get(name, "")
        if not (text.isascii() and text.isdigit() and len(text) <= 12):
            raise BadBody(f"the header {name} is {text[:20]!r}: a count was expected")
        numbers.append(int(text))
    return Sender(process, *numbers)


# --- errors


class Fault(msgspec.Struct, frozen=True):
    """A ``ProtocolError`` as a body."""

    error: str
    cause: str
    message: str


ERRORS: dict[str, type[ProtocolError]] = {
    kind.__name__: kind
    for kind in (
        ProtocolError, IllegalStep, Lost, PeerFailed, Refusal, MissingFile, ConfigError, RestoreRefused, OwnershipError,
        SnapshotFailed, BudgetExhausted, RolloutStall, OutcomeUnknown,
    )
}  # fmt: skip


def fault_of(error: Exception) -> Fault:
    """Anything that is no ``ProtocolError`` leaves as ``PeerFailed``."""
    if not isinstance(error, ProtocolError):
        error = PeerFailed(f"{type(error).__name__}: {error}")
    text = str(error).encode("utf-8", "replace").decode()  # half a surrogate pair cannot travel
    return Fault(type(error).__name__, error.cause.value, text)


def error_of(fault: Fault) -> ProtocolError:
    kind = ERRORS.get(fault.error)
    if kind is None:
        return PeerFailed(f"{fault.error}: {fault.message}")
    try:
        return kind(fault.message, Cause(fault.cause))
    except ValueError:
        return kind(fault.message)


def status_of(fault: Fault) -> int:
    if fault.error == PeerFailed.__name__:
        return 500
    return 503 if fault.cause in (Cause.UNAVAILABLE.value, Cause.INFRA.value) else 409


def read_fault(body: bytes) -> Fault | None:
    """None: no typed error stands there."""
    try:
        return msgspec.json.decode(body, type=Fault)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


# --- lines of a stream


class Line(msgspec.Struct, frozen=True):
    """``kind``: a row's message by its class name, ``end``, or ``error`` with a Fault as its value."""

    kind: str
    value: msgspec.Raw = msgspec.Raw(b"null")


END_LINE = _encode(Line("end")) + b"\n"


def item_line(item: Any) -> bytes:
    return _encode(Line(type(item).__name__, msgspec.Raw(_encode(item)))) + b"\n"


def error_line(error: Exception) -> bytes:
    return _encode(Line("error", msgspec.Raw(_encode(fault_of(error))))) + b"\n"


def read_line(line: bytes) -> Any:
    """An item, None for the end. Raises the error that the stream ended with, or PeerFailed for a line that is none."""
    try:
        read = msgspec.json.decode(line, type=Line)
        if read.kind == "end":
            return None
        if read.kind != "error":
            return msgspec.json.decode(read.value, type=ITEMS[read.kind])
        fault = msgspec.json.decode(read.value, type=Fault)
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
        raise PeerFailed(f"a line of the stream cannot be read: {type(error).__name__}: {error}") from None
    raise error_of(fault)
