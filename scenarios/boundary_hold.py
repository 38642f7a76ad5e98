"""The test agent's patience: after its first change an episode waits for a checkpoint, so that each finds some in the middle.

A scenario turns it on with the profile's ``hold_first_boundary``. The wait is inside the tool call, after it was made and before
the boundary: a checkpoint that begins waits for the call, which ends as soon as model calls are no more admitted, and so the
boundary parks the episode. Without a checkpoint it goes on after ``hold_most_s``. An attempt that a restore brought over was
parked by a checkpoint already: it is not held again.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.gym.lease import INSTANT_S
from protocol.gym.participant import Kind, kind_of
from protocol.gym.phases import Phase
from protocol.history import AdmissionOpened, Event, PhaseMoved
from protocol.identity import GymCheckpointEpisode
from protocol.runtime import Runtime

HOLD_MOST_S = 30.0  # of the core's seconds


class BoundaryHold:
    """Of one Gym process. ``on`` False: nobody waits, and nothing of the runtime is touched."""

    def __init__(self, rt: Runtime, on: bool, most_s: float = HOLD_MOST_S) -> None:
        self.rt = rt
        self.on = on
        self.most_s = most_s
        self.closed = False
        self._held: dict[str, None] = {}  # capture keys of episodes that have waited, or do
        if on:
            self._closes = rt.signal()
            watch(rt, self.saw)

    def saw(self, event: Event) -> None:
        """What this process records says how its own checkpoint stands."""
        if type(event) is PhaseMoved and kind_of(event.participant) is Kind.POLICY_MODEL:
            self.closed = event.after != Phase.IDLE.value
            if self.closed:
                self._closes.set()
        elif type(event) is AdmissionOpened:
            self.closed = False

    async def stay(self, capture_key: str) -> None:
        """Until a checkpoint has closed model-call admission; at most once an episode, and ``most_s``."""
        if not self.on or capture_key in self._held or GymCheckpointEpisode.of(capture_key).attempt > 0:
            return
        self._held[capture_key] = None
        until = self.rt.now() + self.most_s
        while not self.closed and (left := until - self.rt.now()) > INSTANT_S:
            await self.rt.first_of(self._closes.wait(), timeout_s=left)


def watch(rt: Runtime, saw: Callable[[Event], None]) -> None:
    """``saw`` every event that this process records from now on, after it was recorded."""
    record = rt.record

    def watched(event: Event) -> None:
        record(event)
        saw(event)

    vars(rt)["record"] = watched
