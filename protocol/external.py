"""Services outside the job, and what they hold.

A tool call that reached one cannot be taken back: no crash of the job resets a service, so what it holds is part of
what a life starts from (RULES 3). A service knows a call by its *effect key* (``identity.effect_key``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

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
