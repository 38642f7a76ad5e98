"""The single controller: restores the run, then runs the pumps together; the first to fail ends it (PROTOCOL 1.2)."""

from __future__ import annotations

from protocol.checkpoint.anchor import Anchor
from protocol.checkpoint.restore import restore
from protocol.checkpoint.snapshot import RolloutSnapshots
from protocol.checkpoint.trainer import TrainerCheckpoints
from protocol.config import Job, Level
from protocol.controller.deadlines import WEIGHT_SYNC
from protocol.controller.finalization import clear_orphans
from protocol.controller.fleet import Fleet
from protocol.controller.flow import Flow
from protocol.controller.rollout_pump import RolloutPump
from protocol.controller.snapshot_pump import SnapshotPump
from protocol.controller.train_pump import TrainPump
from protocol.controller.watchdog import watch
from protocol.errors import IllegalStep, ProtocolError
from protocol.history import RunEnded, RunFailed, WeightsSynced
from protocol.messages import DiscardGroup, PromptTask
from protocol.run import Run
from protocol.runtime import Runtime, Task
from protocol.tasks import cancel_all


class Controller:
    def __init__(self, rt: Runtime, job: Job, tasks: tuple[PromptTask, ...], secret: str = "") -> None:
        self.rt = rt
        self.run = Run(rt, job, tasks, secret)
        self.flow = Flow(self.run)
        self.anchor = Anchor(rt)
        self.checkpoints = TrainerCheckpoints(self.run, self.anchor)
        self.snapshots = RolloutSnapshots(self.run, self.anchor, self.checkpoints)
        self.fleet = Fleet(self.run, self.flow, self.snapshots.coordinator)
        self.rollouts = RolloutPump(self.run, self.flow)
        self.training = TrainPump(self.run, self.flow, self._after_step)
        self.saving = SnapshotPump(self.run, self.anchor, self.snapshots)
        self.restored = False

    async def main(self) -> None:
        """The whole run. A typed error is recorded as RunFailed and raised again."""
        self.rt.serve({DiscardGroup: self._discard})
        try:
            await self._run()
        except ProtocolError as error:
            self.rt.record(RunFailed(error=type(error).__name__, cause=error.cause.value, message=str(error)))
            raise
        self.rt.record(RunEnded(steps=self.run.steps))

    async def _run(self) -> None:
        if self.run.job.level >= Level.TURN:
            await self.snapshots.coordinator.discover()
        await restore(self.run, self.anchor, self.snapshots.coordinator)
        self.flow.permits.take_now(len(self.run.ledger.groups))  # restored work first, before anything is reserved
        self.restored = True
        self.run.progressed()
        await self._sync_weights()
        recovery = self.rt.spawn(self.rollouts.recover(await self.rollouts.unfinished()), "recovery")
        rollouts = self.rt.spawn(self.rollouts.pump(), "rollout-pump")
        training = self.rt.spawn(self.training.pump(), "train-pump")
        watchdog = self.rt.spawn(watch(self.run, self.fleet), "watchdog")
        saving = self.rt.spawn(self.saving.pump(), "snapshot-pump")
        try:
            await self._first_failure_or_end([training, recovery, rollouts, watchdog, saving], training)
            if self.run.stopping:
                return
            await cancel_all(self.rt, (rollouts,))
            await self._first_failure_or_end([recovery, watchdog, saving], recovery)
            self.saving.request_stop()
            await saving.join()
            await self.checkpoints.flush()
            await clear_orphans(self.run)
        finally:
            for task in (training, recovery, rollouts, watchdog, saving):
                await cancel_all(self.rt, (task,))
            for task in list(self.rollouts.running.values()):
                await cancel_all(self.rt, (task,))
            # Also of a run that failed: what it has trained is worth keeping, if the save is not what failed it.
            await self.checkpoints.settle(timeout_s=self.run.job.rpc_timeout_s)

    async def _first_failure_or_end(self, tasks: list[Task], until: Task) -> None:
        """Wait until ``until`` has returned, or the job's deadline has stopped the run; raise as soon as any of the others, or
        any group, has failed."""
        running = list(tasks)
        while until in running and not self.run.stopping:
            over = await self.rt.first_of(self.flow.failed.wait(), *[task.join() for task in running])
            assert over is not None, "no time-out was asked for"
            if self.flow.failure is not None:
                raise self.flow.failure
            task = running.pop(over - 1)
            await task.join()

    async def _after_step(self) -> None:
        """After a committed step: end a Gym phase that lost to it, push the weights, save if it is time."""
        self.snapshots.step_committed()
        await self._sync_weights()
        self.flow.admission.set()
        if self.checkpoints.due():
            await self.checkpoints.save()

    async def _sync_weights(self) -> None:
        """Every worker that can be reached stamps the calls that begin from now on with this version; calls in flight go on,
        their deadlines wait."""
        self.flow.rollout_permitted = False
        self.run.deadlines.hold(WEIGHT_SYNC)
        try:
            missing = await self.fleet.push()
        finally:
            self.run.deadlines.release(WEIGHT_SYNC)
        self.flow.rollout_permitted = True
        self.rt.record(WeightsSynced(version=self.run.version, missing=missing))
        self.flow.weights_synced.set()

    async def _discard(self, message: DiscardGroup) -> str:
        """Drop one open group; '' if there is none, or it is owned by training or being published."""
        if not self.restored:  # a restore installs in slices: a group dropped among them would give back a permit never taken
            return ""
        name = self._discardable(message.ordinal)
        if name is None:
            return ""
        try:
            await self.rollouts.drop(name, "discarded")
        except IllegalStep:
            return ""
        except ProtocolError as error:  # half dropped: nothing may go on as if it were whole
            self.flow.fail(error)
        return name

    def _discardable(self, ordinal: int) -> str | None:
        ledger = self.run.ledger
        return ledger.group_of(ordinal) if ordinal >= 0 else ledger.oldest_in_gym()
