"""The lease of one Gym instance: a checkpoint that nobody attends to any more is given up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from protocol.messages import Control
from protocol.runtime import Runtime

INSTANT_S = 1e-6  # less than this is no time left: a shorter wait may not move the clock at all


class Lease:
    """Every control call sets it to the call's own deadline plus a grace. One task waits for its end while something is open."""

    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        self.until = 0.0
        self.ended = rt.signal()  # what was open is closed: nobody need wait

    def extend(self, request: Control) -> float:
        """Seconds from now."""
        lease_s = request.timeout_s + request.lease_grace_s
        self.until = self.rt.now() + lease_s
        return lease_s

    @property
    def over(self) -> bool:
        return self.until - self.rt.now() < INSTANT_S

    async def guard(self, holds: Callable[[], bool], expire: Callable[[], Awaitable[None]]) -> None:
        """Call ``expire`` once the lease is over; return when nothing ``holds`` it any more."""
        while holds():
            if self.over:
                await expire()
            else:
                await self.rt.first_of(self.ended.wait(), timeout_s=self.until - self.rt.now())
