"""Request deadlines that stand still while a *named* holder holds them (PROTOCOL 1.8).

A checkpoint parks Gym, a weight push keeps the engine: the time of neither is the rollout's. Each holds the clock under
its own name, so that one that lets go leaves the other's hold in force.
"""

from __future__ import annotations

from protocol.history import DeadlineHeld, DeadlineReleased
from protocol.runtime import Runtime

CHECKPOINT = "checkpoint"  # holds from closing dispatch admission until Gym resumes
WEIGHT_SYNC = "weight-sync"  # holds while weights are pushed to the engines
INSTANT_S = 1e-6  # less than this is no time left: a shorter wait may not move the clock at all


def decide_left(limit_s: float, elapsed_s: float, held_s: float) -> float:
    """Seconds of the clock's own time before a deadline; held time is none of it."""
    return limit_s - (elapsed_s - held_s)


class DeadlineClock:
    """One clock for all rollouts of a life."""

    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        self.holders: dict[str, None] = {}
        self.released = rt.signal()  # nobody holds it any more
        self._since = 0.0  # when the first of the present holders came
        self._held_s = 0.0  # of holds that are over

    def hold(self, name: str) -> None:
        """Twice under one name is one hold."""
        if name in self.holders:
            return
        if not self.holders:
            self._since = self.rt.now()
        self.holders[name] = None
        self.rt.record(DeadlineHeld(holder=name))

    def release(self, name: str) -> None:
        """The clock goes on once nobody holds it; a name that does not hold it changes nothing."""
        if name not in self.holders:
            return
        del self.holders[name]
        self.rt.record(DeadlineReleased(holder=name, left=tuple(self.holders)))
        if not self.holders:
            self._held_s += self.rt.now() - self._since
            self.released.set()

    def held_s(self) -> float:
        """Seconds of this life in which anybody held it."""
        return self._held_s + (self.rt.now() - self._since if self.holders else 0.0)

    async def expired(self, limit_s: float) -> None:
        """Returns once ``limit_s`` seconds have passed in which nobody held the clock.

        A hold wakes nobody: a wait that runs out under one is measured again, and goes on, when the last holder lets go.
        """
        began, held_before = self.rt.now(), self.held_s()
        while True:
            while self.holders:
                await self.released.wait()
            left_s = decide_left(limit_s, self.rt.now() - began, self.held_s() - held_before)
            if left_s < INSTANT_S:
                return
            await self.rt.sleep(left_s)
