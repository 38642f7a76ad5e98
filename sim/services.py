"""Services outside the job, in the simulator: what they hold outlives every life, and what is on its way to them may still land.

A request lands in one step: what the service holds changes and ``EffectLanded`` is recorded, then the answer leaves. One
that is on its way when the job crashes lands or does not: its sender is dead, its bytes may be in the service already. What
lands after the crash does so before the next life starts, in the order of sending.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from protocol.external import NOTHING, External, Service, held_from, payload_digest, view_of
from protocol.history import EffectDropped, EffectLanded
from protocol.messages import Effect, EffectAnswer
from protocol.runtime import Runtime
from sim.links import Landing, Link, Way
from sim.media import STORE, MediaStore


class ServiceProfile(msgspec.Struct, frozen=True, kw_only=True):
    """How long a request takes inside a service before it lands."""

    service_min_s: float = 0.005
    service_max_s: float = 0.04

    @classmethod
    def of(cls, knobs: Mapping[str, Any] | None) -> ServiceProfile:
        """From a scenario's profile, whose other knobs are for others. Raises ``msgspec.ValidationError``."""
        return msgspec.convert(dict(knobs or {}), cls)


class Services:
    """All services of one life, and the media that its prompts name. ``version`` moves when what would survive a crash does:
    what is held, on its way, or lies in the media store."""

    def __init__(self, services: Sequence[Service] = (), external: External | None = None) -> None:
        given = external or NOTHING
        of_media = tuple(value for value in given.values if value.service == STORE)
        self.media = MediaStore(of_media)
        self.held = held_from(services, External(given.landed, tuple(value for value in given.values if value not in of_media)))
        self.on_the_way: list[tuple[str, Effect]] = []  # in the order of sending
        self._moved = 0

    @property
    def version(self) -> int:
        return self._moved + self.media.version

    @property
    def hold_anything(self) -> bool:
        """Whether there is anything outside the job that a crash could leave otherwise than it found it."""
        return bool(self.held or self.media.values())

    def __contains__(self, process: str) -> bool:
        return process in self.held

    def leaves(self, service: str, effect: Effect) -> None:
        """A request is on its way from now on."""
        self.on_the_way.append((service, effect))
        self._moved += 1

    def gone(self, service: str, effect: Effect) -> None:
        """A request that was on its way is not any more."""
        self.on_the_way.remove((service, effect))
        self._moved += 1

    def external(self, landing: str = "") -> External:
        """What the services hold if, of the requests on their way, those land that have a 1 in ``landing`` (from the oldest
        one on; requests that it does not reach do not land)."""
        held = self.held
        if "1" in landing:
            held = {name: one.copy() for name, one in held.items()}
            for bit, (service, effect) in zip(landing, self.on_the_way, strict=False):
                if bit == "1":
                    held[service].land(effect.key, effect.payload)
        view = view_of(held)
        media = self.media.values()
        return External(view.landed, tuple(sorted((*view.values, *media)))) if media else view


class Door:
    """In the place of a link to a service: each request that is put on it is on its way, however often it was sent."""

    __slots__ = ("inner", "service", "services")

    def __init__(self, inner: Way, services: Services, service: str) -> None:
        self.inner = inner
        self.services = services
        self.service = service

    @property
    def link(self) -> Link:
        return self.inner.link

    def send(self, function: Landing, target: Any, payload: Any) -> None:
        message = getattr(target, "message", None)
        if isinstance(message, Effect):
            self.services.leaves(self.service, message)
        self.inner.send(function, target, payload)


class FakeService:
    """The process of one service: answers ``Effect`` after its latency."""

    def __init__(self, rt: Runtime, services: Services, profile: ServiceProfile) -> None:
        self.rt = rt
        self.services = services
        self.held = services.held[rt.me]
        self.profile = profile

    def serve(self) -> None:
        self.rt.serve({Effect: self.answer})

    async def answer(self, effect: Effect) -> EffectAnswer:
        profile, waiting = self.profile, True
        try:
            spread = profile.service_max_s - profile.service_min_s
            await self.rt.sleep(profile.service_min_s + spread * self.rt.random("service", effect.key).random())
            waiting = False
            return self.land(effect)
        finally:
            if waiting:  # the sender has given up, and nothing has happened
                self.services.gone(self.rt.me, effect)

    def land(self, effect: Effect) -> EffectAnswer:
        self.services.gone(self.rt.me, effect)
        done = self.held.land(effect.key, effect.payload)
        if done.dropped:
            self.rt.record(EffectDropped(effect.key))
        else:
            self.rt.record(EffectLanded(effect.key, payload_digest(effect.payload), done.times))
        return EffectAnswer(done.number, done.repeated)
