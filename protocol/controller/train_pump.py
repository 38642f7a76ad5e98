"""The train pump: evict, select and claim, train, commit (PROTOCOL 1.6).

No mutation is entered unless something is going to change: an idle poll that moved the mutation version would make
every periodic snapshot look needed (latent fault a).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.controller.finalization import orphaned_keys
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
from protocol.messages import CANONICAL, STAGING, ClearSamples, FinishTrainStep, TrainGroup

if TYPE_CHECKING:
    from protocol.controller.controller import Controller


class TrainPump:
    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.rt = controller.rt
        self.claimed: dict[str, Slot] = {}  # of the open step, in order of claim

    async def run(self) -> None:
        """Returns when all steps are trained."""
        while self.controller.steps < self.controller.job.train_steps:
            await self._train_step()
            await self.controller.after_step()

    async def _train_step(self) -> None:
        controller = self.controller
        rows = 0
        while len(self.claimed) < controller.job.num_prompts_per_step:
            await self._evict()
            names = self._selectable()
            if not names:
                await controller.replay_changed.wait()
                continue
            for slot in await self._claim():
                request = TrainGroup(
                    step=controller.steps + 1,
                    group=slot.group_id,
                    ordinal=slot.ordinal,
                    rows=tuple(row.sample for row in slot.rows),
                )
                rows += await self.rt.call(TRAINER, request)
        self.rt.record(TrainStepDone(step=controller.steps + 1, rows=rows))
        await self._commit(rows)

    def _selectable(self) -> tuple[str, ...]:
        controller = self.controller
        need = controller.job.num_prompts_per_step - len(self.claimed)
        unready = [
            group.start_weight_version
            for group in controller.ledger.groups.values()
            if group.status in (GroupStatus.GENERATING, GroupStatus.READY_TO_FINALIZE, GroupStatus.FINALIZING)
        ]
        return decide_select(
            controller.job.sampler, controller.version, controller.replay.slots, unready, need, controller.job.streaming_groups
        )

    async def _evict(self) -> None:
        controller = self.controller
        if not decide_evict(controller.job.sampler, controller.version, controller.replay.slots):
            return
        async with controller.barrier.mutation("group_removals"):
            names = decide_evict(controller.job.sampler, controller.version, controller.replay.slots)
            rows: list[str] = []
            for name in names:
                slot = controller.replay.take(name)
                rows.extend(row.sample for row in slot.rows)
                self.rt.record(
                    GroupEvicted(
                        group=name,
                        ordinal=slot.ordinal,
                        start_version=slot.start_weight_version,
                        trainer_version=controller.version,
                    )
                )
                controller.ledger.drop(name, "evicted")
            await self.rt.call(DATA_PLANE, ClearSamples(partition=CANONICAL, keys=tuple(rows)))
        controller.permits.release(len(names))
        controller.admission.set()

    async def _claim(self) -> tuple[Slot, ...]:
        """Select and claim in one mutation: a snapshot between the two would lose the groups."""
        controller, step = self.controller, self.controller.steps + 1
        async with controller.barrier.mutation("group_removals"):
            names = self._selectable()
            slots = controller.replay.select(names)
            for slot in slots:
                controller.ledger.move(slot.group_id, Claim(train_step=step))
                self.claimed[slot.group_id] = slot
            controller.ledger.open_step = OpenStep(
                train_step=step, trainer_version=controller.version, expected_group_count=controller.job.num_prompts_per_step,
                group_ids=tuple(self.claimed), status="OPEN",
            )  # fmt: skip
            if names:
                self.rt.record(GroupsClaimed(step=step, groups=names, expected=controller.job.num_prompts_per_step))
        if names:
            self.rt.record(TrainStepIssued(step=step, groups=names))
        return slots

    async def _commit(self, rows: int) -> None:
        controller, ledger, step = self.controller, self.controller.ledger, self.controller.steps + 1
        async with controller.barrier.mutation("other"):  # so that the flag never rises while a cut is being taken
            controller.optimizer_commit_in_progress = True
            self.rt.record(CommitFlagSet(step=step))
        try:
            self.rt.record(OptimizerIssued(step=step))
            weights = await self.rt.call(TRAINER, FinishTrainStep(step=step))
            async with controller.barrier.mutation("sample_clears"):
                slots = list(self.claimed.values())
                for slot in slots:
                    ledger.move(slot.group_id, Apply())
                samples = tuple(row.sample for slot in slots for row in slot.rows)
                self.rt.record(CanonicalClearIssued(step=step, count=len(samples)))
                await self.rt.call(DATA_PLANE, ClearSamples(partition=CANONICAL, keys=samples))
                self.rt.record(CanonicalClearDone(step=step))
                for slot in slots:
                    ledger.release(slot.group_id)
                ledger.open_step = None
                self.claimed.clear()
                orphans = orphaned_keys(ledger, controller.job.max_turns)
                if orphans:
                    await self.rt.call(DATA_PLANE, ClearSamples(partition=STAGING, keys=orphans))
            controller.permits.release(len(slots))
            controller.version += 1
            controller.steps += 1
            self.rt.record(
                StepCommitted(
                    step=step,
                    version=controller.version,
                    ordinals=tuple(sorted(slot.ordinal for slot in slots)),
                    rows=rows,
                    weights=weights,
                )
            )
        finally:
            controller.optimizer_commit_in_progress = False
            self.rt.record(CommitFlagCleared(step=step))
