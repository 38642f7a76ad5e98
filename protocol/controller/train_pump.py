"""The train pump: evict, select and claim, train, commit (PROTOCOL 1.6).

No mutation is entered unless something is going to change: an idle poll that moved the mutation version would make
every periodic snapshot look needed (latent fault a).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from protocol.controller.finalization import clear_orphans
from protocol.controller.flow import Flow
from protocol.controller.samplers import decide_evict, decide_select
from protocol.data_plane.replay import Slot
from protocol.history import (
    CanonicalClearDone,
    CanonicalClearIssued,
    CommitFlagCleared,
    CommitFlagSet,
    GroupEvicted,
    GroupsClaimed,
    OptimizerIssued,
    StepCommitted,
    TrainStepDone,
    TrainStepIssued,
)
from protocol.identity import DATA_PLANE, TRAINER
from protocol.ledger.records import GroupStatus, OpenStep
from protocol.ledger.transitions import Apply, Claim
from protocol.messages import CANONICAL, ClearSamples, FinishTrainStep, TrainGroup
from protocol.run import Run


class TrainPump:
    """``after_step`` is what else a committed step sets off: weights, admission, a trainer checkpoint."""

    def __init__(self, run: Run, flow: Flow, after_step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.run = run
        self.flow = flow
        self.rt = run.rt
        self.after_step = after_step

    async def pump(self) -> None:
        """Returns when all steps are trained."""
        while self.run.steps < self.run.job.train_steps:
            await self._train_step()
            await self.after_step()

    async def _train_step(self) -> None:
        run = self.run
        rows = 0
        while len(run.claimed) < run.job.num_prompts_per_step:
            await self._evict()
            names = self._selectable()
            if not names:
                await self.flow.replay_changed.wait()
                continue
            for slot in await self._claim():
                request = TrainGroup(
                    step=run.steps + 1,
                    group=slot.group_id,
                    ordinal=slot.ordinal,
                    rows=tuple(row.sample for row in slot.rows),
                )
                rows += await self.rt.call(TRAINER, request)
        self.rt.record(TrainStepDone(step=run.steps + 1, rows=rows))
        await self._commit(rows)

    def _selectable(self) -> tuple[str, ...]:
        run = self.run
        need = run.job.num_prompts_per_step - len(run.claimed)
        unready = [
            group.start_weight_version
            for group in run.ledger.groups.values()
            if group.status in (GroupStatus.GENERATING, GroupStatus.READY_TO_FINALIZE, GroupStatus.FINALIZING)
        ]
        return decide_select(run.job.sampler, run.version, run.replay.slots, unready, need, run.job.streaming_groups)

    async def _evict(self) -> None:
        run = self.run
        if not decide_evict(run.job.sampler, run.version, run.replay.slots):
            return
        async with run.barrier.mutation("group_removals"):
            names = decide_evict(run.job.sampler, run.version, run.replay.slots)
            rows: list[str] = []
            for name in names:
                slot = run.replay.take(name)
                rows.extend(row.sample for row in slot.rows)
                self.rt.record(
                    GroupEvicted(
                        group=name,
                        ordinal=slot.ordinal,
                        start_version=slot.start_weight_version,
                        trainer_version=run.version,
                    )
                )
                run.ledger.drop(name, "evicted")
            await run.ask(DATA_PLANE, ClearSamples(partition=CANONICAL, keys=tuple(rows)))
        self.flow.permits.release(len(names))
        self.flow.admission.set()

    async def _claim(self) -> tuple[Slot, ...]:
        """Select and claim in one mutation: a snapshot between the two would lose the groups."""
        run, step = self.run, self.run.steps + 1
        async with run.barrier.mutation("group_removals"):
            names = self._selectable()
            slots = run.replay.select(names)
            for slot in slots:
                run.ledger.move(slot.group_id, Claim(train_step=step))
                run.claimed[slot.group_id] = slot
            run.ledger.open_step = OpenStep(
                train_step=step, trainer_version=run.version, expected_group_count=run.job.num_prompts_per_step,
                group_ids=tuple(run.claimed), status="OPEN",
            )  # fmt: skip
            if names:
                self.rt.record(GroupsClaimed(step=step, groups=names, expected=run.job.num_prompts_per_step))
        if names:
            self.rt.record(TrainStepIssued(step=step, groups=names))
        return slots

    async def _commit(self, rows: int) -> None:
        run, ledger, step = self.run, self.run.ledger, self.run.steps + 1
        async with run.barrier.mutation("other"):  # so that the flag never rises while a cut is being taken
            run.optimizer_commit_in_progress = True
            self.rt.record(CommitFlagSet(step=step))
        try:
            self.rt.record(OptimizerIssued(step=step))
            weights = await self.rt.call(TRAINER, FinishTrainStep(step=step))
            async with run.barrier.mutation("sample_clears"):
                await clear_orphans(run)
                slots = list(run.claimed.values())
                for slot in slots:
                    ledger.move(slot.group_id, Apply())
                samples = tuple(row.sample for slot in slots for row in slot.rows)
                self.rt.record(CanonicalClearIssued(step=step, count=len(samples)))
                await run.ask(DATA_PLANE, ClearSamples(partition=CANONICAL, keys=samples))
                self.rt.record(CanonicalClearDone(step=step))
                for slot in slots:
                    ledger.release(slot.group_id)
                ledger.open_step = None
                run.claimed.clear()
            self.flow.permits.release(len(slots))
            run.version += 1
            run.steps += 1
            self.rt.record(
                StepCommitted(
                    step=step,
                    version=run.version,
                    ordinals=tuple(sorted(slot.ordinal for slot in slots)),
                    rows=rows,
                    weights=weights,
                )
            )
        finally:
            run.optimizer_commit_in_progress = False
            self.rt.record(CommitFlagCleared(step=step))
