"""The rollout pump: reserves batches of prompts and runs one task per group (PROTOCOL 1.4)."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.controller.budgets import AfterFailure, backoff_s
from protocol.controller.dispatch import GroupDispatch, RolloutTimeout, RowsFailed
from protocol.controller.failures import charge
from protocol.controller.finalization import clear_staging, finalize
from protocol.controller.flow import Flow
from protocol.controller.row_stream import BatchFailed, PromptFailed
from protocol.controller.samplers import Shortfall, decide_admission, decide_batch, decide_shortfall, decide_stale
from protocol.errors import Cause, ProtocolError
from protocol.history import CursorMoved, GroupRecovered
from protocol.identity import DATA_PLANE
from protocol.ledger.records import AttemptStatus, Group, GroupStatus
from protocol.ledger.transitions import Complete
from protocol.messages import CANONICAL, ClearSamples
from protocol.run import Run
from protocol.runtime import Task
from protocol.tasks import cancel_all


class RolloutPump:
    def __init__(self, run: Run, flow: Flow) -> None:
        self.run = run
        self.flow = flow
        self.rt = run.rt
        self.running: dict[str, Task] = {}  # group -> its task

    async def pump(self) -> None:
        """Never returns: it is cancelled when the train pump has finished."""
        flow = self.flow
        while True:
            wanted = self._wanted()
            if wanted is None or flow.permits.free < wanted:
                # Both may change while we wait: a batch that was too big may shrink to a top-up.
                await self.rt.first_of(flow.admission.wait(), flow.permits.released.wait())
                continue
            flow.permits.take_now(wanted)
            names = await self._reserve()
            flow.permits.release(wanted - len(names))
            for name in names:
                await self._start(name)

    async def unfinished(self) -> tuple[Group, ...]:
        """Groups of the ledger that are still to be generated or published, oldest prompt first."""
        waiting, found = (GroupStatus.GENERATING, GroupStatus.READY_TO_FINALIZE), list[Group]()
        slices, groups = self.run.slices, self.run.ledger.groups.values()
        await slices.groups(groups, lambda part: found.extend(group for group in part if group.status in waiting))
        return tuple(await slices.ordered(found, lambda group: group.ordinal))

    async def recover(self, restored: tuple[Group, ...]) -> None:
        """Run what a restore left unfinished (listed before the pump reserved anything new); its permits were reclaimed."""
        for group in restored:
            if group.group_id in self.run.ledger.groups:
                sealed = sum(1 for sibling in group.siblings if sibling.current.status is AttemptStatus.SEALED)
                unsealed = len(group.siblings) - sealed
                self.rt.record(GroupRecovered(group=group.group_id, reused=sealed, unsealed=unsealed))
                if decide_stale(self.run.job.sampler, self.run.version, group):
                    await self.drop(group.group_id, "stale")
                else:
                    await self._start(group.group_id)

    def _shortfall(self) -> Shortfall | None:
        run = self.run
        return decide_shortfall(
            run.job.sampler, run.version, run.dispatch_index, run.ledger.targets(), run.job.num_prompts_per_step
        )

    def _wanted(self) -> int | None:
        """Groups that the next batch would reserve, or None if no batch may start now."""
        run, shortfall = self.run, self._shortfall()
        if not decide_admission(run.job.sampler, run.version, run.dispatch_index, shortfall):
            return None
        return run.job.num_prompts_per_step if shortfall is None else shortfall.missing

    async def _reserve(self) -> list[str]:
        """One mutation: cursor, epoch, dispatch index and reservations are always in the same cut."""
        run, ledger, job = self.run, self.run.ledger, self.run.job
        wanted = self._wanted()
        async with run.barrier.mutation("prompt_reservations"):
            if self._wanted() != wanted:  # the wait for the barrier was a window
                return []
            plan = decide_batch(
                job.sampler, run.cursor, job.num_prompts_per_step, len(run.tasks), run.dispatch_index, self._shortfall()
            )
            run.cursor, run.epoch, run.dispatch_index = plan.to, plan.epoch, plan.dispatch_index
            self.rt.record(CursorMoved(first=plan.first, to=plan.to, epoch=plan.epoch, target=plan.target))
            names: list[str] = []
            passed: list[int] = []

            def reserve(ordinals: Sequence[int]) -> None:
                for ordinal in ordinals:
                    task, epoch = run.task_of(ordinal), ordinal // len(run.tasks)
                    siblings, level = job.num_generations_per_prompt, job.level_of(task.name)
                    names.append(ledger.reserve(task, ordinal, epoch, plan.target, run.version, siblings, level).group_id)

            def pass_over(ordinals: Sequence[int]) -> None:
                passed.extend(ordinals)
                for ordinal in ordinals:
                    ledger.pass_over(ordinal, "topped-up")

            try:
                await run.slices.groups(plan.reserve, reserve)
                await run.slices.groups(plan.passed_over, pass_over)
            finally:  # cancelled between two slices: the cursor has moved over all of them
                reserve(plan.reserve[len(names) :])
                pass_over(plan.passed_over[len(passed) :])
        return names

    async def _start(self, name: str) -> None:
        """Start a group's task, and go on when its first rows have passed the dispatch gate (or it is over)."""
        dispatch = GroupDispatch(self.run, self.flow, name)
        work = self.flow.supervised(lambda: self._group(name, dispatch))
        task = self.running[name] = self.rt.spawn(work, f"group-{name}")
        while not dispatch.admitted and not task.done:
            await self.flow.groups_moved.wait()

    async def _group(self, name: str, dispatch: GroupDispatch) -> None:
        """Generate, then finalize. The slot is given back when generation ends, before finalization."""
        flow = self.flow
        try:
            await flow.slots.acquire()
            try:
                complete = await self._generate(name, dispatch)
            finally:
                flow.slots.release()
            dispatch.admitted = True
            flow.groups_moved.set()
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
            except (RowsFailed, PromptFailed, BatchFailed, RolloutTimeout) as failure:
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
        async with self.run.barrier.mutation("recovery_retries"):
            if name not in self.run.ledger.groups:
                return False
            after, infra_spent = charge(self.run, name, failure)
            if after is AfterFailure.RETRY:
                self._renew(name, dispatch)
        if after is AfterFailure.SKIP:
            await self.drop(name, "skipped", cancel=False)
            return False
        if failure.cause is not Cause.DATA:
            await self.rt.sleep(backoff_s(self.run.job.rollout_failure, infra_spent))
        return True

    def _renew(self, name: str, dispatch: GroupDispatch) -> None:
        """Sealed siblings stay; every other one starts a new chain of row attempts."""
        ledger = self.run.ledger
        lost = dispatch.unsealed()
        for sibling in lost:
            attempt = sibling.current
            if attempt.status is not AttemptStatus.ABANDONED:
                ledger.abandon(attempt.key, "group-failed")
            ledger.mint(name, sibling.generation_index, "retry", 1)
        dispatch.start_cohort_over()

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
                await run.ask(DATA_PLANE, ClearSamples(partition=CANONICAL, keys=samples))
        task = self.running.get(name)
        if cancel and task is not None:
            await cancel_all(self.rt, (task,))
            self.running.pop(name, None)  # a task that was cancelled before its first step cleans up nothing itself
        self.flow.groups_moved.set()
        async with run.barrier.mutation("group_removals"):
            await clear_staging(run, group)
        flow.permits.release()
        flow.admission.set()
        flow.replay_changed.set()
        return group
