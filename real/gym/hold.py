"""The test agent's patience: after its first change an episode waits for a checkpoint, so that each finds some in the middle.

A scenario turns it on with the profile's ``hold_first_boundary_s``, the longest that an episode waits. The wait is inside the
tool call, after it was made and before the boundary: a checkpoint that begins waits for the call, which ends as soon as
model calls are no more admitted, and so the boundary parks the episode. Without a checkpoint it goes on when its time is up.
"""

from __future__ import annotations

from typing import Any

from protocol.gym.participant import Kind, kind_of
from protocol.gym.phases import Phase
from protocol.history import AdmissionOpened, Event, PhaseMoved
from protocol.runtime import Runtime


class BoundaryHold:
    def __init__(self, rt: Runtime, limit_s: float) -> None:
        self.rt = rt
        self.limit_s = limit_s
        self.closed = False
        self._closes = rt.signal()
        self._held: dict[str, None] = {}  # sessions that have waited, or do
        if limit_s > 0:
            watch(rt, self.saw)

    def saw(self, event: Event) -> None:
        """What this process records says how its own checkpoint stands."""
        if type(event) is PhaseMoved and kind_of(event.participant) is Kind.POLICY_MODEL:
            self.closed = event.after != Phase.IDLE.value
            if self.closed:
                self._closes.set()
        elif type(event) is AdmissionOpened:
            self.closed = False

    async def stay(self, session: str) -> None:
        """Until a checkpoint has closed model-call admission; at most once a session, and ``limit_s``."""
        if self.limit_s <= 0 or session in self._held:
            return
        self._held[session] = None
        until = self.rt.now() + self.limit_s
        while not self.closed and (left := until - self.rt.now()) > 0:
            await self.rt.first_of(self._closes.wait(), timeout_s=left)


def watch(rt: Runtime, saw: Any) -> None:
    """``saw`` every event that this process records from now on, after it was recorded."""
    record = rt.record

    def watched(event: Event) -> None:
        record(event)
        saw(event)

    vars(rt)["record"] = watched
