"""The leases of an open checkpoint, kept while a phase outlasts them (PROTOCOL 5.1).

Every control call gives an instance a lease of its own deadline and the grace. A slow drain or a slow save of the data plane
may take longer than that: then the lease is renewed one control time-out before its end. A short phase sends no renew. What
cannot be renewed may have reopened: the checkpoint is given up as UNAVAILABLE.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from protocol.errors import Cause, ProtocolError, SnapshotFailed
from protocol.runtime import Runtime, Task
from protocol.tasks import cancel_all

if TYPE_CHECKING:
    from protocol.checkpoint.coordinator import GymCoordinator

T = TypeVar("T")


def decide_renew_in(until_s: float, now_s: float, ahead_s: float) -> float:
    """Seconds until a lease that lasts until ``until_s`` is asked to last longer; 0 or less: now."""
    return until_s - ahead_s - now_s


class LeaseKept:
    """``async with``: from a prepare's answers until the resume. A failure is told by ``check`` and ends ``guarded`` work."""

    def __init__(self, rt: Runtime, coordinator: GymCoordinator, checkpoint: str) -> None:
        self.rt = rt
        self.coordinator = coordinator
        self.checkpoint = checkpoint
        self.failure: ProtocolError | None = None
        self.lost = rt.signal()
        self.keeper: Task | None = None

    async def __aenter__(self) -> LeaseKept:
        self.keeper = self.rt.spawn(self._keep(), "lease")
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        assert self.keeper is not None, "entered"
        await cancel_all(self.rt, (self.keeper,))

    async def _keep(self) -> None:
        ahead_s = self.coordinator.job.token_capture.control_timeout_s
        while self.failure is None:
            left_s = decide_renew_in(min(self.coordinator.leases.values()), self.rt.now(), ahead_s)
            if left_s > 0:
                await self.rt.first_of(self.coordinator.leased.wait(), timeout_s=left_s)  # another call may set another end
                continue
            try:
                await self.coordinator.renew(self.checkpoint)
            except ProtocolError as error:
                self.failure = error
        self.lost.set()

    def check(self) -> None:
        """Raises SnapshotFailed if a lease could not be renewed, or was over before anybody saw it (this process may have
        stood still): its instance may run on by now."""
        if self.failure is not None:
            raise SnapshotFailed(f"a lease of {self.checkpoint} was not renewed: {self.failure}", Cause.UNAVAILABLE)
        late_s = self.rt.now() - min(self.coordinator.leases.values())
        if late_s >= 0:
            raise SnapshotFailed(f"a lease of {self.checkpoint} may be over since {late_s:g} s", Cause.UNAVAILABLE)

    async def guarded(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do ``work``, unless a lease is lost meanwhile: then it is cancelled and awaited."""
        task = self.rt.spawn(work(), "guarded")
        try:
            while self.failure is None and not task.done:
                await self.rt.first_of(task.join(), self.lost.wait())
            self.check()
            result: T = await task.join()
            return result
        finally:
            await cancel_all(self.rt, (task,))
