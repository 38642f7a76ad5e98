"""The rollout pump: reserves batches of prompts and runs one task per group (PROTOCOL 1.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.controller.budgets import AfterFailure, backoff_s, decide_failure
from protocol.controller.dispatch import GroupDispatch, PromptFailed, RowsFailed
from protocol.controller.finalization import clear_staging, finalize
from protocol.controller.samplers import decide_admission, decide_batch, decide_stale, short_target
from protocol.errors import BudgetExhausted, Cause, ProtocolError
from protocol.history import CursorMoved
from protocol.identity import DATA_PLANE
from protocol.ledger.records import AttemptStatus, Group, GroupStatus
from protocol.ledger.transitions import Complete
from protocol.messages import CANONICAL, ClearSamples
from protocol.runtime import Task

if TYPE_CHECKING:
    from protocol.controller.controller import Controller


class RolloutPump:
    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.rt = controller.rt
        self.running: dict[str, Task] = {}  # group -> its task

    async def run(self) -> None:
        """Never returns: it is cancelled when the train pump has finished."""
        controller, batch = self.controller, self.controller.job.num_prompts_per_step
        while True:
            while not self._admissible():
                await controller.admission.wait()
            await controller.permits.acquire(batch)
            if not self._admissible():  # the wait was a window: a step may have moved, or another top-up
                controller.permits.release(batch)
                continue
            names = await self._reserve(batch)
            controller.permits.release(batch - len(names))
            for name in names:
                await self._start(name)

    def unfinished(self) -> tuple[Group, ...]:
        """Groups of the ledger that are still to be generated or published, oldest prompt first."""
        waiting = (GroupStatus.GENERATING, GroupStatus.READY_TO_FINALIZE)
        groups = (group for group in self.controller.ledger.groups.values() if group.status in waiting)
        return tuple(sorted(groups, key=lambda group: group.ordinal))

    async def recover(self, restored: tuple[Group, ...]) -> None:
        """Run what a restore left unfinished (listed before the pump reserved anything new); its permits were reclaimed."""
        for group in restored:
            if group.group_id in self.controller.ledger.groups:
                if decide_stale(self.controller.job.sampler, self.controller.version, group):
                    await self.drop(group.group_id, "stale")
                else:
                    await self._start(group.group_id)

    def _short(self) -> int | None:
        controller = self.controller
        return short_target(
            controller.job.sampler,
            controller.version,
            controller.dispatch_index,
            controller.stamped(),
            controller.job.num_prompts_per_step,
        )

    def _admissible(self) -> bool:
        controller = self.controller
        return decide_admission(controller.job.sampler, controller.version, controller.dispatch_index, self._short())

    async def _reserve(self, batch: int) -> list[str]:
        """One mutation: cursor, epoch, dispatch index and reservations are always in the same cut."""
        controller, ledger, job = self.controller, self.controller.ledger, self.controller.job
        async with controller.barrier.mutation("prompt_reservations"):
            plan = decide_batch(
                job.sampler,
                controller.cursor,
                batch,
                len(controller.tasks),
                controller.dispatch_index,
                self._short(),
                controller.stamped(),
            )
            controller.cursor, controller.epoch, controller.dispatch_index = plan.to, plan.epoch, plan.dispatch_index
            self.rt.record(CursorMoved(first=plan.first, to=plan.to, epoch=plan.epoch, target=plan.target))
            groups = [
                ledger.reserve(
                    controller.task_of(ordinal),
                    ordinal,
                    ordinal // len(controller.tasks),
                    plan.target,
                    controller.version,
                    job.num_generations_per_prompt,
                    job.target_level,
                )  # fmt: skip
                for ordinal in plan.reserve
            ]
            for ordinal in plan.passed_over:
                ledger.pass_over(ordinal, "topped-up")
        return [group.group_id for group in groups]

    async def _start(self, name: str) -> None:
        """Start a group's task, and go on when its first rows have passed the dispatch gate (or it is over)."""
        dispatch = GroupDispatch(self.controller, name)
        work = self.controller.supervised(lambda: self._group(name, dispatch))
        task = self.running[name] = self.rt.spawn(work, f"group-{name}")
        await self.rt.first_of(dispatch.on_admitted.wait(), task.join())

    async def _group(self, name: str, dispatch: GroupDispatch) -> None:
        """Generate, then finalize. The slot is given back when generation ends, before finalization."""
        controller = self.controller
        try:
            await controller.slots.acquire()
            try:
                complete = await self._generate(name, dispatch)
            finally:
                controller.slots.release()
            if complete:
                await finalize(controller, name)
        finally:
            self.running.pop(name, None)

    async def _generate(self, name: str, dispatch: GroupDispatch) -> bool:
        """True when every sibling is sealed; False if the group was dropped meanwhile."""
        controller, ledger = self.controller, self.controller.ledger
        while name in ledger.groups:
            if ledger.groups[name].status is GroupStatus.READY_TO_FINALIZE:
                return True
            while not controller.rollout_permitted:
                await controller.weights_synced.wait()
            try:
                await dispatch.run()
            except (RowsFailed, PromptFailed) as failure:
                if not await self._after_failure(name, dispatch, failure):
                    return False
                continue
            async with controller.barrier.mutation("sibling_seals"):
                if name not in ledger.groups:
                    return False
                ledger.move(name, Complete())
        return False

    async def _after_failure(self, name: str, dispatch: GroupDispatch, failure: ProtocolError) -> bool:
        """A whole group attempt failed: spend its budget, then retry with new rollouts, skip the prompt, or end the run."""
        controller, ledger, rules = self.controller, self.controller.ledger, self.controller.job.rollout_failure
        async with controller.barrier.mutation("recovery_retries"):
            if name not in ledger.groups:
                return False
            data = failure.cause is Cause.DATA
            group = ledger.groups[name]
            infra_spent, data_spent = group.infra_spent + (not data), group.data_spent + data
            limit = rules.max_data_attempts_per_prompt if data else rules.max_infra_attempts_per_prompt
            ledger.spend(name, "data" if data else "infra", "", data_spent if data else infra_spent, limit)
            after = decide_failure(rules, failure.cause, infra_spent, data_spent, controller.skipped_prompts())
            if after is AfterFailure.STOP:
                raise BudgetExhausted(f"{name} (prompt {group.ordinal}): {failure}", failure.cause)
            if after is AfterFailure.RETRY:
                self._renew(name, dispatch)
        if after is AfterFailure.SKIP:
            await self.drop(name, "skipped", cancel=False)
            return False
        if not data:
            await self.rt.sleep(backoff_s(rules, infra_spent))
        return True

    def _renew(self, name: str, dispatch: GroupDispatch) -> None:
        """Sealed siblings stay; every other one starts a new chain of row attempts."""
        ledger = self.controller.ledger
        lost = dispatch.unsealed()
        for sibling in lost:
            attempt = sibling.current
            if attempt.status is not AttemptStatus.ABANDONED:
                ledger.abandon(attempt.key, "group-failed", held_by_gym=attempt.key not in dispatch.failed)
            ledger.mint(name, sibling.generation_index, "retry", 1)
        if len(lost) == len(ledger.groups[name].siblings):
            ledger.raise_group_attempt(name)

    async def drop(self, name: str, why: str, *, cancel: bool = True) -> Group | None:
        """Drop a group that is not owned by training: the ledger first, then its task. Returns it, or None if it was gone."""
        controller = self.controller
        async with controller.barrier.mutation("group_removals"):
            if name not in controller.ledger.groups:
                return None
            group = controller.ledger.drop(name, why)
            if name in controller.replay:
                slot = controller.replay.take(name)
                samples = tuple(row.sample for row in slot.rows)
                await self.rt.call(DATA_PLANE, ClearSamples(partition=CANONICAL, keys=samples))
        task = self.running.get(name)
        if cancel and task is not None:
            task.cancel()
            await self.rt.first_of(task.join())
            self.running.pop(name, None)  # a task that was cancelled before its first step cleans up nothing itself
        async with controller.barrier.mutation("group_removals"):
            await clear_staging(controller, group)
        controller.permits.release()
        controller.admission.set()
        controller.replay_changed.set()
        return group
