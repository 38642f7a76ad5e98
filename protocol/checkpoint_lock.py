"""The checkpoint lock: one snapshot or trainer save at a time (PROTOCOL 1.8).

It is the first of the lock order: nobody waits for it while holding the dispatch gate or the data-plane barrier.
"""

from __future__ import annotations

from protocol.history import LockHeld, LockReleased, LockWaits, WaitGivenUp
from protocol.runtime import Runtime

CHECKPOINT_LOCK = "checkpoint"


class CheckpointLock:
    """``async with lock``; first come, first served."""

    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        self.lock = rt.lock()

    @property
    def held(self) -> bool:
        return self.lock.held

    async def __aenter__(self) -> None:
        waiting = self.lock.held
        if waiting:
            self.rt.record(LockWaits(lock=CHECKPOINT_LOCK))
        try:
            await self.lock.__aenter__()
            waiting = False
        finally:
            if waiting:
                self.rt.record(WaitGivenUp(lock=CHECKPOINT_LOCK))
        self.rt.record(LockHeld(lock=CHECKPOINT_LOCK))

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self.rt.record(LockReleased(lock=CHECKPOINT_LOCK))
        await self.lock.__aexit__(kind, error, trace)
