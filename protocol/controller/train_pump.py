"""The train pump: evict, select and claim, train, commit (PROTOCOL 1.6).

No mutation is entered unless something is going to change: an idle poll that moved the mutation version would make
every periodic snapshot look needed (latent fault a).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from protocol.controller.finalization import clear_orphans
from protocol.controller.flow import Flow
from protocol.controller.samplers import decide_enough, decide_evict, decide_select, shelf_of
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
from protocol.identity import DATA_PLANE
from protocol.ledger.records import OpenStep
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
            if not self._enough(self.run.job.streaming_groups):
                await self.flow.replay_changed.wait()
                continue
            for slot in await self._claim():
                request = TrainGroup(
                    step=run.steps + 1,
                    group=slot.group_id,
                    ordinal=slot.ordinal,
                    rows=tuple(row.sample for row in slot.rows),
                )
                rows += await run.ask_trainer(request)
        self.rt.record(TrainStepDone(step=run.steps + 1, rows=rows))
        await self._commit(rows)

    def _enough(self, at_least: int) -> bool:
        run, sampler = self.run, self.run.job.sampler
        need = run.job.num_prompts_per_step - len(run.claimed)
        unready, ready = run.ledger.counts.unready, shelf_of(sampler, run.replay)
        return need > 0 and decide_enough(sampler, run.version, ready, unready, need, at_least)

    def _selectable(self, at_least: int) -> tuple[str, ...]:
        """What the open step may take now, of it one slice; nothing if fewer than ``at_least`` are ready."""
        run, sampler = self.run, self.run.job.sampler
        need = run.job.num_prompts_per_step - len(run.claimed)
        unready, ready = run.ledger.counts.unready, shelf_of(sampler, run.replay)
        return decide_select(sampler, run.version, ready, unready, need, at_least, run.slices.groups_a_slice)

    def _evictable(self) -> tuple[str, ...]:
        run, sampler = self.run, self.run.job.sampler
        return decide_evict(sampler, run.version, shelf_of(sampler, run.replay), run.slices.groups_a_slice)

    async def _evict(self) -> None:
        while self._evictable():
            await self._evict_a_slice()

    async def _evict_a_slice(self) -> None:
        run = self.run
        async with run.barrier.mutation("group_removals"):
            names = self._evictable()
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
        claimed: dict[str, Slot] = {}
        async with run.barrier.mutation("group_removals"):
            names = self._selectable(run.job.streaming_groups)
            claimed.update(self._claim_now(step, names))
            while names and self._enough(1):  # more than one slice is ready
                await self.rt.sleep(0)
                names = self._selectable(1)  # the yield was a window
                claimed.update(self._claim_now(step, names))
        if claimed:
            self.rt.record(TrainStepIssued(step=step, groups=tuple(claimed)))
        return tuple(claimed.values())

    def _claim_now(self, step: int, names: tuple[str, ...]) -> dict[str, Slot]:
        run = self.run
        slots = dict(zip(names, run.replay.select(names), strict=True))
        for name in names:
            run.ledger.move(name, Claim(train_step=step))
        run.claimed.update(slots)
        run.ledger.open_step = OpenStep(
            train_step=step, trainer_version=run.version, expected_group_count=run.job.num_prompts_per_step,
            group_ids=tuple(run.claimed), status="OPEN",
        )  # fmt: skip
        if names:
            self.rt.record(GroupsClaimed(step=step, groups=names, expected=run.job.num_prompts_per_step))
        return slots

    async def _commit(self, rows: int) -> None:
        run, ledger, step = self.run, self.run.ledger, self.run.steps + 1
        async with run.barrier.mutation("other"):  # so that the flag never rises while a cut is being taken
            while run.stopping:  # the job's deadline came first: whoever stops the run cancels this task
                await self.rt.signal().wait()
            run.optimizer_commit_in_progress = True
            self.rt.record(CommitFlagSet(step=step))
        try:
            self.rt.record(OptimizerIssued(step=step))
            weights = await run.ask_trainer(FinishTrainStep(step=step))
            async with run.barrier.mutation("sample_clears"):
                await clear_orphans(run)
                samples: list[str] = []
                ordinals: list[int] = []

                def apply(slots: Sequence[Slot]) -> None:
                    for slot in slots:
                        ledger.move(slot.group_id, Apply())
                        samples.extend(row.sample for row in slot.rows)
                        ordinals.append(slot.ordinal)

                await run.slices.groups(run.claimed.values(), apply)
                self.rt.record(CanonicalClearIssued(step=step, count=len(samples)))
                await run.ask(DATA_PLANE, ClearSamples(partition=CANONICAL, keys=tuple(samples)))
                self.rt.record(CanonicalClearDone(step=step))
                await run.slices.groups(run.claimed, ledger.release_all)
                ledger.open_step = None
                run.claimed.clear()
            self.flow.permits.release(len(ordinals))
            run.version += 1
            run.weights = weights
            run.steps += 1
            run.progressed()
            self.rt.record(
                StepCommitted(
                    step=step,
                    version=run.version,
                    ordinals=tuple(sorted(ordinals)),
                    rows=rows,
                    weights=weights,
                )
            )
        finally:
            run.optimizer_commit_in_progress = False
            self.rt.record(CommitFlagCleared(step=step))
