"""The rollout pump: reserves batches of prompts and runs one task per group (PROTOCOL 1.4)."""

from __future__ import annotations

from protocol.controller.budgets import AfterFailure, backoff_s, decide_failure
from protocol.controller.dispatch import GroupDispatch, PromptFailed, RowsFailed
from protocol.controller.finalization import clear_staging, finalize
from protocol.controller.flow import Flow
from protocol.controller.samplers import Shortfall, decide_admission, decide_batch, decide_shortfall, decide_stale
from protocol.errors import BudgetExhausted, Cause, ProtocolError
from protocol.history import CursorMoved
from protocol.identity import DATA_PLANE
from protocol.ledger.records import AttemptStatus, Group, GroupStatus
from protocol.ledger.transitions import Complete
from protocol.messages import CANONICAL, ClearSamples
from protocol.run import Run
from protocol.runtime import Task


class RolloutPump:
    def __init__(self, run: Run, flow: Flow) -> None:
        self.run = run
        self.flow = flow
        self.rt = run.rt
        self.running: dict[str, Task] = {}  # group -> its task

    async def pump(self) -> None:
        """Never returns: it is cancelled when the train pump has finished."""
        flow, batch = self.flow, self.run.job.num_prompts_per_step
        while True:
            while not self._admissible():
                await flow.admission.wait()
            await flow.permits.acquire(batch)
            if not self._admissible():  # the wait was a window: a step may have moved, or another top-up
                flow.permits.release(batch)
                continue
            names = await self._reserve(batch)
            flow.permits.release(batch - len(names))
            for name in names:
                await self._start(name)

    def unfinished(self) -> tuple[Group, ...]:
        """Groups of the ledger that are still to be generated or published, oldest prompt first."""
        waiting = (GroupStatus.GENERATING, GroupStatus.READY_TO_FINALIZE)
        groups = (group for group in self.run.ledger.groups.values() if group.status in waiting)
        return tuple(sorted(groups, key=lambda group: group.ordinal))

    async def recover(self, restored: tuple[Group, ...]) -> None:
        """Run what a restore left unfinished (listed before the pump reserved anything new); its permits were reclaimed."""
        for group in restored:
            if group.group_id in self.run.ledger.groups:
                if decide_stale(self.run.job.sampler, self.run.version, group):
                    await self.drop(group.group_id, "stale")
                else:
                    await self._start(group.group_id)

    def _shortfall(self) -> Shortfall | None:
        run = self.run
        return decide_shortfall(
            run.job.sampler, run.version, run.dispatch_index, run.ledger.targets(), run.job.num_prompts_per_step
        )

    def _admissible(self) -> bool:
        return decide_admission(self.run.job.sampler, self.run.version, self.run.dispatch_index, self._shortfall())

    async def _reserve(self, batch: int) -> list[str]:
        """One mutation: cursor, epoch, dispatch index and reservations are always in the same cut."""
        run, ledger, job = self.run, self.run.ledger, self.run.job
        async with run.barrier.mutation("prompt_reservations"):
            plan = decide_batch(job.sampler, run.cursor, batch, len(run.tasks), run.dispatch_index, self._shortfall())
            run.cursor, run.epoch, run.dispatch_index = plan.to, plan.epoch, plan.dispatch_index
            self.rt.record(CursorMoved(first=plan.first, to=plan.to, epoch=plan.epoch, target=plan.target))
            groups = [
                ledger.reserve(
                    run.task_of(ordinal),
                    ordinal,
                    ordinal // len(run.tasks),
                    plan.target,
                    run.version,
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
        dispatch = GroupDispatch(self.run, self.flow, name)
        work = self.flow.supervised(lambda: self._group(name, dispatch))
        task = self.running[name] = self.rt.spawn(work, f"group-{name}")
        await self.rt.first_of(dispatch.on_admitted.wait(), task.join())

    async def _group(self, name: str, dispatch: GroupDispatch) -> None:
        """Generate, then finalize. The slot is given back when generation ends, before finalization."""
        flow = self.flow
        try:
            await flow.slots.acquire()
            try:
                complete = await self._generate(name, dispatch)
            finally:
                flow.slots.release()
            if complete:
                await finalize(self.run, self.flow, name)
        finally:
            self.running.pop(name, None)

    async def _generate(self, name: str, dispatch: GroupDispatch) -> bool:
        """True when every sibling is sealed; False if the group was dropped meanwhile."""
        run, flow, ledger = self.run, self.flow, self.run.ledger
        while name in ledger.groups:
            if ledger.groups[name].status is GroupStatus.READY_TO_FINALIZE:
                return True
            while not flow.rollout_permitted:
                await flow.weights_synced.wait()
            try:
                await dispatch.until_sealed()
            except (RowsFailed, PromptFailed) as failure:
                if not await self._after_failure(name, dispatch, failure):
                    return False
                continue
            async with run.barrier.mutation("sibling_seals"):
                if name not in ledger.groups:
                    return False
                ledger.move(name, Complete())
        return False

    async def _after_failure(self, name: str, dispatch: GroupDispatch, failure: ProtocolError) -> bool:
        """A whole group attempt failed: spend its budget, then retry with new rollouts, skip the prompt, or end the run."""
        run, ledger, rules = self.run, self.run.ledger, self.run.job.rollout_failure
        async with run.barrier.mutation("recovery_retries"):
            if name not in ledger.groups:
                return False
            data = failure.cause is Cause.DATA
            group = ledger.groups[name]
            infra_spent, data_spent = group.infra_spent + (not data), group.data_spent + data
            limit = rules.max_data_attempts_per_prompt if data else rules.max_infra_attempts_per_prompt
            ledger.spend(name, "data" if data else "infra", "", data_spent if data else infra_spent, limit)
            after = decide_failure(rules, failure.cause, infra_spent, data_spent, ledger.skips)
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
        ledger = self.run.ledger
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
        run, flow = self.run, self.flow
        async with run.barrier.mutation("group_removals"):
            if name not in run.ledger.groups:
                return None
            group = run.ledger.drop(name, why)
            if name in run.replay:
                slot = run.replay.take(name)
                samples = tuple(row.sample for row in slot.rows)
                await self.rt.call(DATA_PLANE, ClearSamples(partition=CANONICAL, keys=samples))
        task = self.running.get(name)
        if cancel and task is not None:
            task.cancel()
            await self.rt.first_of(task.join())
            self.running.pop(name, None)  # a task that was cancelled before its first step cleans up nothing itself
        async with run.barrier.mutation("group_removals"):
            await clear_staging(run, group)
        flow.permits.release()
        flow.admission.set()
        flow.replay_changed.set()
        return group
