"""Trainer checkpoints ``step_N`` (PROTOCOL 4.1): the cut under the lock, everything else in the background.

The train loop waits for nothing but the exclusive section of the cut, and for an earlier save before the next one.
Gym is never asked anything. Durable = the rename and the fsync of the folder above it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from protocol.calls import answer_within
from protocol.checkpoint import folders
from protocol.checkpoint.anchor import Anchor
from protocol.checkpoint.payload import Cut, take_cut
from protocol.checkpoint.publish import publish_step, write_files
from protocol.errors import IllegalStep, ProtocolError
from protocol.history import PruneIssued, TrainerCheckpointDurable, TrainerSaveAsked, TrainerSaveIssued, TrainerSaveStarted
from protocol.identity import TRAINER
from protocol.ledger.persistence import refuse_full_step
from protocol.ledger.records import Group
from protocol.messages import SaveWeights
from protocol.run import Run
from protocol.runtime import Call, Task

INFO_SCHEMA = 1


class TrainerCheckpoints:
    def __init__(self, run: Run, anchor: Anchor) -> None:
        self.run = run
        self.rt = run.rt
        self.anchor = anchor
        self._pending: Task | None = None
        self._failure: ProtocolError | None = None

    def due(self) -> bool:
        """After the step that was just committed: every ``save_period`` steps, and after the last one."""
        rules, steps = self.run.job.checkpointing, self.run.steps
        return rules.enabled and (steps % rules.save_period == 0 or steps == self.run.job.train_steps)

    async def save(self) -> None:
        """Take the cut of this step and start its background part. Raises an earlier save's failure, or IllegalStep."""
        run, step = self.run, self.run.steps
        self.rt.record(TrainerSaveAsked(step=step))
        await self.flush()
        async with run.lock:
            self.rt.record(TrainerSaveStarted(step=step))
            temporary = folders.temporary_step(step)
            if temporary in await self.rt.files.list(""):  # an earlier save of this step failed
                await self.rt.files.remove(temporary)
            async with run.barrier.exclusive():
                self._check_saveable(())
                await run.slices.groups(run.ledger.groups.values(), self._check_saveable)
                cut = await take_cut(run, "trainer", temporary, step, {})
            # The trainer captures its weights when this call arrives: before any later call of ours.
            weights = self.rt.call(TRAINER, SaveWeights(folder=folders.weights_folder(temporary)))
            self._pending = self.rt.spawn(self._finish(step, cut, weights), f"save-step-{step}")
            self.rt.record(TrainerSaveIssued(step=step))

    def _check_saveable(self, groups: Sequence[Group]) -> None:
        refused = refuse_full_step(groups, self.run.ledger.open_step)
        if refused is not None:
            raise IllegalStep(f"step {self.run.steps} cannot be saved: {refused}")

    async def settle(self, timeout_s: float | None = None) -> None:
        """Wait until no save is in the background, whatever became of it, or until the time-out."""
        if self._pending is not None and not self._pending.done:
            await self.rt.first_of(self._pending.join(), timeout_s=timeout_s)

    async def flush(self) -> None:
        """Wait as above, then raise the failure of a background save: a failed save ends the run at the next one."""
        await self.settle()
        if self._failure is not None:
            raise self._failure

    async def _finish(self, step: int, cut: Cut, weights: Call) -> None:
        """Background: weights, sidecars, fsync, rename, fsync; then snapshots belong to this step."""
        try:
            await answer_within(self.rt, weights, f"{TRAINER} to SaveWeights", self.run.job.trainer_timeout_s)
            temporary = folders.temporary_step(step)
            info = {
                "schema": INFO_SCHEMA, "step": step, "trainer_version": cut.version, "epoch": cut.epoch,
                "fingerprint": self.run.fingerprint,
            }  # fmt: skip
            await write_files(self.rt, temporary, {**cut.files, folders.TRAINING_INFO: msgspec.json.encode(info)})
            await publish_step(self.rt, step)
        except ProtocolError as error:
            self._failure = error
            return
        self.rt.record(TrainerCheckpointDurable(step=step))
        self.anchor.move_to(step)
        await self._prune(step)

    async def _prune(self, newest: int) -> None:
        """Keep the newest ``keep_top_k`` trainer checkpoints."""
        keep = self.run.job.checkpointing.keep_top_k
        steps = sorted(step for name in await self.rt.files.list("") if (step := folders.step_of(name)) is not None)
        kept = (folders.step_folder(newest), self.anchor.in_use)
        old = [step for step in steps[:-keep] if folders.step_folder(step) not in kept]
        for step in old:
            self.rt.record(PruneIssued(path=folders.step_folder(step)))
            await self.rt.files.remove(folders.step_folder(step))
        if old:
            await self.rt.files.fsync_dir("")
