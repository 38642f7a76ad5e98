"""Services outside the job, and what they hold.

A tool call that reached one cannot be taken back: no crash of the job resets a service, so what it holds is part of
what a life starts from (RULES 3). A service knows a call by its *effect key* (``identity.effect_key``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

DIGEST_BYTES = 16


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One that a scenario declares. ``tools``: how the names of the tools begin that it answers, every call of them.

    ``idempotent``: it drops the repeat of a key that it has seen, and answers as it did the first time.
    """

    service: str
    tools: tuple[str, ...]
    idempotent: bool = False


class LandedEffect(msgspec.Struct, frozen=True, order=True):
    """``times`` an effect has landed under this key with this payload (its digest)."""

    service: str
    key: str
    payload: str
    times: int


class ServiceValue(msgspec.Struct, frozen=True, order=True):
    """Something that a service's replies depend on."""

    service: str
    name: str
    value: int


class External(msgspec.Struct, frozen=True):
    """What all services hold at one moment: landed effects as a multiset, and values; both sorted."""

    landed: tuple[LandedEffect, ...] = ()
    values: tuple[ServiceValue, ...] = ()

    def times(self, service: str, key: str) -> int:
        """How often an effect has landed under ``key``, whatever its payload."""
        return sum(effect.times for effect in self.landed if (effect.service, effect.key) == (service, key))

    @property
    def digest(self) -> bytes:
        """For the class key: 16 bytes, none where no service holds anything."""
        if not self.landed and not self.values:
            return b""
        return hashlib.blake2b(_encode(self), digest_size=DIGEST_BYTES).digest()


_encode = msgspec.msgpack.Encoder().encode
NOTHING = External()


def service_of(services: Sequence[Service], tool: str) -> Service | None:
    """The service that answers ``tool``, None for a tool that runs inside Gym."""
    return next((service for service in services if tool.startswith(service.tools)), None)


def payload_digest(payload: str) -> str:
    """BLAKE2b-128 hex of what a call asks for."""
    return hashlib.blake2b(payload.encode(), digest_size=DIGEST_BYTES).hexdigest()


SENT = "sent"  # the value that numbers the effects of a service
ANSWERED = "answer/"  # a value for each key that an idempotent service has answered: the number it answered with


class Landing(msgspec.Struct, frozen=True):
    """What became of one request: it has landed ``times`` under its key so far, or was ``dropped`` as a repeat."""

    number: int
    repeated: bool
    times: int
    dropped: bool


class Held:
    """What one service holds, and what it does: ``landed`` key -> payload digest -> times, and its values by name."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.landed: dict[str, dict[str, int]] = {}
        self.values: dict[str, int] = {}

    def copy(self) -> Held:
        other = Held(self.service)
        other.landed = {key: dict(payloads) for key, payloads in self.landed.items()}
        other.values = dict(self.values)
        return other

    def times(self, key: str) -> int:
        return sum(self.landed.get(key, {}).values())

    def land(self, key: str, payload: str) -> Landing:
        """It happens, or is dropped as a repeat and answered as the first time."""
        before = self.times(key)
        if before and self.service.idempotent:
            return Landing(self.values[ANSWERED + key], True, before, True)
        number = self.values[SENT] = self.values.get(SENT, 0) + 1
        if self.service.idempotent:
            self.values[ANSWERED + key] = number
        payloads, digest = self.landed.setdefault(key, {}), payload_digest(payload)
        payloads[digest] = payloads.get(digest, 0) + 1
        return Landing(number, before > 0, before + 1, False)


def held_from(services: Sequence[Service], external: External) -> dict[str, Held]:
    """Each service by its name, with what it holds."""
    held = {service.service: Held(service) for service in services}
    for effect in external.landed:
        held[effect.service].landed.setdefault(effect.key, {})[effect.payload] = effect.times
    for value in external.values:
        held[value.service].values[value.name] = value.value
    return held


def view_of(held: Mapping[str, Held]) -> External:
    """What all of them hold, as a value."""
    landed = [
        LandedEffect(name, key, payload, times)
        for name, one in held.items()
        for key, payloads in one.landed.items()
        for payload, times in payloads.items()
    ]
    values = [ServiceValue(name, value, number) for name, one in held.items() for value, number in one.values.items()]
    return External(tuple(sorted(landed)), tuple(sorted(values)))
