"""From a reserved group to N sealed siblings: streams, refusals, lost rows (PROTOCOL 1.8, 5.2, 5.3).

One ``Stream`` of this file is one request of some rows to one Gym instance. What a stream may end with:

    every row sealed                                   done
    a row refused (409 checkpoint_parked)              re-sent alone, from inside the open stream, same identity
    a row failed: data                                 raised at once: the prompt fails whole
    a row failed: transport, or it never came back     held to the end of the round, then replaced under a new id

A round sends every unsealed sibling; a round that loses rows spends one row attempt of each lost row.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol.controller.budgets import backoff_s
from protocol.controller.flow import Flow
from protocol.errors import Cause, Lost, PeerFailed, ProtocolError
from protocol.history import CompletionArrived, FailureArrived, RefusalArrived, RowsSubmitted, StreamEnded
from protocol.identity import gym_name
from protocol.ledger.receipts import receipt_of
from protocol.ledger.records import Attempt, AttemptStatus, Group, Sibling
from protocol.messages import PARKED, Row, RowCompleted, RowFailed, RowRefused, RunRows
from protocol.run import Run
from protocol.runtime import END, Stream, Task


class RowsFailed(ProtocolError):
    """The last row attempt of a sibling failed."""

    cause = Cause.INFRA


class PromptFailed(ProtocolError):
    """A row failed in a way that the same prompt would fail again."""

    cause = Cause.DATA


def decide_refusal(reason: str) -> Cause:
    """What a refusal of one row means: the reason decides, not the code (a router's 409 is INFRA)."""
    return Cause.PARKED if reason == PARKED else Cause.INFRA


def decide_replace(attempt: Attempt) -> bool:
    """Whether an unsealed row of a finished round gets a new identity: only if it was sent. One that never reached Gym,
    or was refused and not sent again, keeps its own and spends nothing."""
    return attempt.status is AttemptStatus.DISPATCHED


class GroupDispatch:
    """Runs the rounds of one group until every sibling is sealed."""

    def __init__(self, run: Run, flow: Flow, name: str) -> None:
        self.run = run
        self.flow = flow
        self.rt = run.rt
        self.name = name
        self.admitted = False  # the first round has passed the dispatch gate: the producer may go on
        self.on_admitted = run.rt.signal()
        self.failed: dict[str, bool] = {}  # capture key -> Gym itself said that it ended

    @property
    def group(self) -> Group:
        return self.run.ledger.groups[self.name]

    def unsealed(self) -> list[Sibling]:
        return [sibling for sibling in self.group.siblings if sibling.current.status is not AttemptStatus.SEALED]

    async def until_sealed(self) -> None:
        """Returns when every sibling is sealed. Raises RowsFailed or PromptFailed."""
        while self.unsealed():
            await self._mint_missing()
            await self._round()
            if self.unsealed():
                await self._replace_lost()

    async def _mint_missing(self) -> None:
        """Successors of attempts that a restart or a failed group attempt abandoned; they spend no row attempt."""
        ledger = self.run.ledger
        if any(sibling.current.status is AttemptStatus.ABANDONED for sibling in self.group.siblings):
            async with self.run.barrier.mutation("recovery_retries"):
                for sibling in self.group.siblings:
                    if sibling.current.status is AttemptStatus.ABANDONED:
                        ledger.mint(self.name, sibling.generation_index, "restart", sibling.row_attempts)

    async def _round(self) -> None:
        """One stream per instance, each its own task; when this returns or raises, none of them is alive (I37)."""
        self.failed.clear()
        by_instance: dict[str, list[str]] = {}
        for sibling in self.unsealed():
            by_instance.setdefault(self._instance(sibling.current), []).append(sibling.current.key)
        tasks = [
            self.rt.spawn(self._stream(instance, keys), f"stream-{self.name}-{instance}")
            for instance, keys in by_instance.items()
        ]
        await self._all_or_none(tasks)

    def _instance(self, attempt: Attempt) -> str:
        """A continuation runs where its state was restored; anything else is spread by prompt."""
        if attempt.restored_from is not None:
            return attempt.gym_instance_id
        return gym_name(self.group.ordinal % self.run.job.gym_instances)

    async def _all_or_none(self, tasks: list[Task]) -> None:
        """Join all. If this is cancelled or one fails, the others are cancelled and awaited."""
        try:
            waiting = list(tasks)
            while waiting:
                over = await self.rt.first_of(*[task.join() for task in waiting])
                assert over is not None, "no time-out was asked for"
                await waiting.pop(over).join()
        finally:
            await self._cancel_all(tasks)

    async def _cancel_all(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            if not task.done:
                task.cancel()
        for task in tasks:
            if not task.done:
                await self.rt.first_of(task.join())

    async def _stream(self, instance: str, keys: list[str]) -> None:
        run = self.run
        async with run.gate.mutation("dispatch"):
            async with run.barrier.mutation("recovery_retries"):
                keys = [key for key in keys if self._may_send(key)]  # both waits were windows
                if not keys:
                    return
                rows = tuple(self._row(key, instance) for key in keys)
            stream = self.rt.stream(instance, self._request(rows))
            self.rt.record(RowsSubmitted(group=self.name, instance=instance, keys=tuple(keys)))
        self.admitted = True
        self.on_admitted.set()
        waiting = dict.fromkeys(keys)
        resends: list[Task] = []
        outcome = "cancelled"
        try:
            outcome = await self._drain_stream(stream, instance, waiting, resends)
            await self._all_or_none(resends)
        finally:
            if outcome == "cancelled":
                stream.cancel()
            await self._cancel_all(resends)
            self.rt.record(StreamEnded(group=self.name, instance=instance, outcome=outcome, missing=len(waiting)))

    def _may_send(self, key: str) -> bool:
        """It is still the current attempt of its sibling and has not been sent."""
        found = self.run.ledger.find(key)
        return found is not None and found[1].current.status is AttemptStatus.RESERVED

    def _row(self, key: str, instance: str) -> Row:
        attempt = self.run.ledger.dispatch(key, instance)
        found = self.run.ledger.find(key)
        assert found is not None, "it was dispatched in this very step"
        group, sibling = found
        return Row(
            sample=group.sample(sibling.generation_index), generation=sibling.generation_index, rollout_id=attempt.rollout_id,
            attempt=attempt.gym_attempt, continued=attempt.restored_from is not None,
        )  # fmt: skip

    def _request(self, rows: tuple[Row, ...]) -> RunRows:
        group = self.group
        return RunRows(
            group=self.name, ordinal=group.ordinal, group_attempt=group.group_attempt,
            task=self.run.task_of(group.ordinal), rows=rows,
        )  # fmt: skip

    async def _drain_stream(self, stream: Stream, instance: str, waiting: dict[str, None], resends: list[Task]) -> str:
        """Take items until the stream is over. Returns ``clean`` or ``broken``; raises PromptFailed, or a re-send's failure."""
        while True:
            try:
                item = await stream.next()
            except (Lost, PeerFailed):
                return "broken"
            if item is END:
                return "clean"
            match item:
                case RowCompleted():
                    waiting.pop(item.key, None)
                    self.rt.record(CompletionArrived(key=item.key))
                    await self._seal(item)
                case RowRefused(key=key, reason=reason):
                    waiting.pop(key, None)
                    self.rt.record(RefusalArrived(key=key, reason=reason))
                    cause = decide_refusal(reason)
                    if cause is Cause.PARKED:
                        await self._refused(key)
                        resends.append(self.rt.spawn(self._resend(instance, key), f"resend-{key}"))
                    else:
                        self.failed[key] = True
                case RowFailed(key=key, transport=transport, message=message):
                    waiting.pop(key, None)
                    cause = Cause.INFRA if transport else Cause.DATA
                    self.rt.record(FailureArrived(key=key, cause=cause.value))
                    self.failed[key] = True
                    if cause is Cause.DATA:
                        raise PromptFailed(f"{key}: {message}")
            for task in resends:
                if task.done:
                    await task.join()  # a failed re-send fails this stream

    async def _seal(self, item: RowCompleted) -> None:
        async with self.run.barrier.mutation("sibling_seals"):
            found = self.run.ledger.find(item.key)
            if found is None or found[1].current.status is AttemptStatus.SEALED:
                return  # a late reply of an attempt that was replaced or dropped, or the same reply again
            receipt = receipt_of(found[1].current.rollout_id, item.key, item.calls)
            self.run.ledger.seal(item.key, receipt, item.reward)

    async def _refused(self, key: str) -> None:
        async with self.run.barrier.mutation("recovery_retries"):
            if self.run.ledger.find(key) is not None:
                self.run.ledger.refuse(key)

    async def _resend(self, instance: str, key: str) -> None:
        """Send one refused row again, under the same identity, once the gate is open; bounded backoff if Gym is still closed."""
        refusals = self.flow.count_refusal(key)
        if refusals > 1:
            await self.rt.sleep(backoff_s(self.run.job.rollout_failure, refusals - 1))
        await self._stream(instance, [key])

    async def _replace_lost(self) -> None:
        """Rows that failed or never came back: a new rollout id each, the old one retired.

        Raises RowsFailed at the last attempt.
        """
        run, ledger = self.run, self.run.ledger
        limit = run.job.rollout_failure.nemo_gym.max_row_attempts
        async with run.barrier.mutation("recovery_retries"):
            if self.name not in ledger.groups:
                return
            lost = [sibling for sibling in self.unsealed() if decide_replace(sibling.current)]
            spent = [sibling for sibling in lost if sibling.row_attempts >= limit]
            if spent:
                key = spent[0].current.key
                raise RowsFailed(f"{key} did not come back in {limit} attempts")
            whole = len(lost) == len(self.group.siblings)
            for sibling in lost:
                self._replace(sibling, limit)
            if whole:
                ledger.raise_group_attempt(self.name)

    def _replace(self, sibling: Sibling, limit: int) -> None:
        ledger, attempt = self.run.ledger, sibling.current
        told = attempt.key in self.failed
        ledger.abandon(attempt.key, "row-failed" if told else "lost-row", held_by_gym=not told)
        ledger.spend(self.name, "row", attempt.key, sibling.row_attempts + 1, limit)
        ledger.mint(self.name, sibling.generation_index, "lost-row", sibling.row_attempts + 1)
