"""The snapshot gate of one worker: deletes and terminal writes of calls never interleave with a snapshot (PROTOCOL 3.5).

It is closed from before the first freeze of an inventory until the data plane's save is done, so no row that a receipt names
is deleted in between. Each Gym instance may hold it, for one epoch at a time; epochs of a holder only grow. An opened epoch
is over for good: a close that arrives after its driver has given up changes nothing.
"""

from __future__ import annotations

import msgspec

from protocol.history import GateClosed, GateCloseIgnored, GateOpened, GatePassed
from protocol.runtime import Runtime, Task

TERMINAL, CLEANUP = "terminal", "cleanup"  # what passes


class Holding(msgspec.Struct, frozen=True, gc=False):
    """``since``: when the gate closed for this holder."""

    epoch: int
    since: float
    guard: Task


def decide_close(held: int | None, over: int, epoch: int) -> bool:
    """Whether a close under ``epoch`` takes effect. ``held``: the epoch that this holder holds now; ``over``: its newest that
    is over."""
    return epoch > over and (held is None or epoch >= held)


class SnapshotGate:
    def __init__(self, rt: Runtime, lease_s: float) -> None:
        self.rt = rt
        self.lease_s = lease_s  # longer than any checkpoint may keep it
        self.holders: dict[str, Holding] = {}
        self.over: dict[str, int] = {}  # holder -> newest epoch that is over
        self.passing: dict[Task, None] = {}
        self.changed = rt.signal()
        self.changed.what = "the snapshot gate"

    @property
    def closed(self) -> bool:
        return bool(self.holders)

    def holds(self, holder: str, epoch: int) -> bool:
        held = self.holders.get(holder)
        return held is not None and held.epoch == epoch

    def close(self, holder: str, epoch: int, checkpoint: str) -> bool:
        """Let nothing more through; what is on its way is awaited by ``settle``. False: this epoch is over already."""
        held = self.holders.get(holder)
        if not decide_close(held.epoch if held is not None else None, self.over.get(holder, -1), epoch):
            self.rt.record(GateCloseIgnored(holder, epoch))
            return False
        if held is not None and held.epoch == epoch:
            return True
        if held is not None:
            held.guard.cancel()
        guard = self.rt.spawn(self.expire(holder, epoch), f"gate-{holder}-{epoch}")
        self.holders[holder] = Holding(epoch, self.rt.now() if held is None else held.since, guard)
        self.rt.record(GateClosed(holder, epoch, checkpoint))
        return True

    async def settle(self, timeout_s: float) -> bool:
        """Until everything that had passed is over. False: it took longer."""
        limit = self.rt.now() + timeout_s
        while self.passing:
            left = limit - self.rt.now()
            if left <= 0 or await self.rt.first_of(self.changed.wait(), timeout_s=left) is None:
                return not self.passing
        return True

    def open(self, holder: str, epoch: int, why: str = "asked") -> None:
        """Every epoch of this holder up to this one is over."""
        self.over[holder] = max(epoch, self.over.get(holder, -1))
        held = self.holders.get(holder)
        if held is None or held.epoch > epoch:
            return
        del self.holders[holder]
        if why == "asked":
            held.guard.cancel()
        self.rt.record(GateOpened(holder, held.epoch, why, self.rt.now() - held.since))
        self.changed.set()

    async def expire(self, holder: str, epoch: int) -> None:
        """Nobody will open it any more: its holder is gone."""
        await self.rt.sleep(self.lease_s)
        if self.holds(holder, epoch):
            self.open(holder, epoch, "lease")

    def passage(self, call: str, what: str) -> Passage:
        """Around a delete or a terminal write of ``call``: waits while the gate is closed."""
        return Passage(self, call, what)


class Passage:
    __slots__ = ("call", "gate", "task", "what")

    def __init__(self, gate: SnapshotGate, call: str, what: str) -> None:
        self.gate = gate
        self.call = call
        self.what = what

    async def __aenter__(self) -> None:
        gate = self.gate
        while gate.closed:
            await gate.changed.wait()
        self.task = gate.rt.task()
        gate.passing[self.task] = None
        if self.what != TERMINAL:  # that one says so itself: RowStagedIssued
            gate.rt.record(GatePassed(self.call, self.what))

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        self.gate.passing.pop(self.task, None)
        self.gate.changed.set()
