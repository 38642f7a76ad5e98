"""The single controller: owns cursor, ledger, replay index, barrier, gate and counters, and runs the pumps (PROTOCOL 1).

Restore comes first (``checkpoint.restore``), then the pumps start together; the first to fail ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from protocol.checkpoint.restore import restore
from protocol.checkpoint.snapshot import RolloutSnapshots
from protocol.checkpoint.trainer import TrainerCheckpoints
from protocol.config import Job, fingerprint
from protocol.controller.budgets import Permits
from protocol.controller.rollout_pump import RolloutPump
from protocol.controller.train_pump import TrainPump
from protocol.controller.watchdog import watch
from protocol.data_plane.replay import ReplayIndex
from protocol.errors import IllegalStep, ProtocolError
from protocol.history import RunEnded, RunFailed, WeightsSynced
from protocol.identity import worker_name
from protocol.ledger.ledger import Ledger
from protocol.messages import DiscardGroup, PromptTask, SetWeightVersion
from protocol.readers_writer import DATA_PLANE_BARRIER, DISPATCH_GATE, ReadersWriter
from protocol.runtime import Runtime, Task


class Controller:
    def __init__(self, rt: Runtime, job: Job, tasks: tuple[PromptTask, ...]) -> None:
        self.rt = rt
        self.job = job
        self.tasks = tasks
        self.fingerprint = fingerprint(job, "/".join(task.task_id for task in tasks))
        # counters, moved only in the step commit and the reservation
        self.version = 0
        self.steps = 0
        self.cursor = 0  # prompts taken from the loader, over all epochs
        self.epoch = 0
        self.dispatch_index = -1
        self.groups_committed = 0
        self.optimizer_commit_in_progress = False
        self.rollout_permitted = True
        # state, changed only inside a mutation of the barrier
        self.barrier = ReadersWriter(rt, DATA_PLANE_BARRIER)
        self.gate = ReadersWriter(rt, DISPATCH_GATE)
        self.ledger = Ledger(rt)
        self.replay = ReplayIndex()
        # bounds
        self.permits = Permits(rt, job.max_buffered_rollouts)
        self.slots = Permits(rt, job.inflight_prompts)
        self._refusals: dict[str, int] = {}  # capture key -> refusals of this life
        # what the pumps wait on
        self.admission = rt.signal()
        self.replay_changed = rt.signal()
        self.weights_synced = rt.signal()
        self._failed = rt.signal()
        self._failure: ProtocolError | None = None
        # parts
        self.lock = rt.lock()  # the checkpoint lock
        self.rollouts = RolloutPump(self)
        self.training = TrainPump(self)
        self.snapshots = RolloutSnapshots(self)
        self.checkpoints = TrainerCheckpoints(self)

    async def main(self) -> None:
        """The whole run. A typed error is recorded as RunFailed and raised again."""
        self.rt.serve({DiscardGroup: self._discard})
        try:
            await self._run()
        except ProtocolError as error:
            self.rt.record(RunFailed(error=type(error).__name__, cause=error.cause.value, message=str(error)))
            raise
        self.rt.record(RunEnded(steps=self.steps))

    async def _run(self) -> None:
        await restore(self)
        await self._sync_weights()
        recovery = self.rt.spawn(self.rollouts.recover(self.rollouts.unfinished()), "recovery")
        rollouts = self.rt.spawn(self.rollouts.run(), "rollout-pump")
        training = self.rt.spawn(self.training.run(), "train-pump")
        watchdog = self.rt.spawn(watch(self), "watchdog")
        snapshots = self.rt.spawn(self.snapshots.pump(), "snapshot-pump")
        try:
            await self._first_failure_or_end([training, recovery, rollouts, watchdog, snapshots], training)
            await self._stop(rollouts)
            await recovery.join()
            self.snapshots.request_stop()
            await snapshots.join()
            await self.checkpoints.flush()
        finally:
            for task in (training, recovery, rollouts, watchdog, snapshots, *self.rollouts.running.values()):
                await self._stop(task)

    async def _first_failure_or_end(self, tasks: list[Task], until: Task) -> None:
        """Wait until ``until`` has returned; raise as soon as any of the others, or any group, has failed."""
        running = list(tasks)
        while until in running:
            over = await self.rt.first_of(self._failed.wait(), *[task.join() for task in running])
            assert over is not None, "no time-out was asked for"
            if self._failure is not None:
                raise self._failure
            task = running.pop(over - 1)
            await task.join()

    async def _stop(self, task: Task) -> None:
        if not task.done:
            task.cancel()
            await self.rt.first_of(task.join())

    async def supervised(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A task whose failure nobody waits for: a typed one ends the run."""
        try:
            await work()
        except ProtocolError as error:
            if self._failure is None:
                self._failure = error
            self._failed.set()

    # --- what the pumps share

    def task_of(self, ordinal: int) -> PromptTask:
        """The prompt of an ordinal, read again from the data set (it is never persisted)."""
        return self.tasks[ordinal % len(self.tasks)]

    def stamped(self) -> dict[int, int]:
        """Groups of each target step that are still to be trained."""
        counts: dict[int, int] = {}
        for group in self.ledger.groups.values():
            counts[group.target_step] = counts.get(group.target_step, 0) + 1
        return counts

    def count_refusal(self, key: str) -> int:
        self._refusals[key] = self._refusals.get(key, 0) + 1
        return self._refusals[key]

    def skipped_prompts(self) -> int:
        """Prompts that spent their data budget; it survives a restart with the ledger (latent fault c)."""
        return self.ledger.skips

    async def after_step(self) -> None:
        """After a committed step: end a Gym phase that lost to it, push the weights, save if it is time."""
        self.snapshots.step_committed()
        await self._sync_weights()
        self.admission.set()
        if self.checkpoints.due():
            await self.checkpoints.save()

    async def _sync_weights(self) -> None:
        self.rollout_permitted = False
        calls = [
            self.rt.call(worker_name(index), SetWeightVersion(version=self.version))
            for index in range(self.job.generation_workers)
        ]
        for call in calls:
            await call
        self.rollout_permitted = True
        self.rt.record(WeightsSynced(version=self.version))
        self.weights_synced.set()

    async def _discard(self, message: DiscardGroup) -> str:
        """Drop one open group; '' if there is none, or it is owned by training or being published."""
        name = self._discardable(message.ordinal)
        if name is None:
            return ""
        try:
            await self.rollouts.drop(name, "discarded")
        except IllegalStep:
            return ""
        return name

    def _discardable(self, ordinal: int) -> str | None:
        for name, group in self.ledger.groups.items():
            dispatched = any(sibling.current.key in self.ledger.pending for sibling in group.siblings)
            if group.ordinal == ordinal or (ordinal < 0 and dispatched):
                return name
        return None
