"""One request of some rows to one Gym instance, from the dispatch gate to its last item (PROTOCOL 1.8, 5.2, 5.3).

    a row completes                                    sealed
    a row is refused (409 checkpoint_parked)           RESERVED again, and re-sent alone from inside the open stream
    a row fails: data                                  abandoned, and raised at once: the prompt fails whole
    a row fails: transport, or is refused otherwise    abandoned; replaced when the round is over
    a row never comes back                             abandoned and queued for retire when the stream ends

A failed re-send fails the stream; a stream that breaks, fails or is cancelled cancels and awaits its re-sends.

Without an asynchronous engine a batch is taken whole: any row that fails or never comes back stops the stream and fails the
group attempt, whatever its cause is; no row is replaced alone.
"""

from __future__ import annotations

from typing import Protocol

from protocol.controller.budgets import backoff_s
from protocol.controller.flow import Flow
from protocol.errors import CAUSE_OF_NO_RESULT, Cause, Lost, PeerFailed, ProtocolError, Refusal
from protocol.history import (
    CompletionArrived,
    FailureArrived,
    RefusalArrived,
    RowReported,
    RowsSubmitted,
    StreamEnded,
    StreamOver,
)
from protocol.ledger.receipts import receipt_of
from protocol.ledger.records import Attempt, AttemptStatus, Group
from protocol.messages import PARKED, Row, RowCompleted, RowFailed, RowRefused, RunRows
from protocol.run import Run
from protocol.runtime import END, Stream, Task
from protocol.tasks import cancel_all, join_all


class PromptFailed(ProtocolError):
    """A row failed in a way that the same prompt would fail again."""

    cause = Cause.DATA


class BatchFailed(ProtocolError):
    """A row failed, or did not come back, where a batch is taken whole."""

    cause = Cause.INFRA


def decide_refusal(reason: str) -> Cause:
    """What a refusal of one row means: the reason decides, not the code (a router's 409 is INFRA)."""
    return Cause.PARKED if reason == PARKED else Cause.INFRA


def decide_replace(attempt: Attempt) -> bool:
    """Whether a row that was lost or failed gets a new identity: only if it was sent. One that never reached Gym, or was
    refused and not sent again, keeps its own and spends nothing."""
    return attempt.status is AttemptStatus.DISPATCHED


def unsealed(group: Group) -> tuple[int, ...]:
    """Generations whose rows come or will come again: a verifier of cohorts waits for them, and for nobody else."""
    return tuple(
        sibling.generation_index for sibling in group.siblings if sibling.current.status is not AttemptStatus.SEALED
    )  # fmt: skip


def decide_row_failure(failed: RowFailed) -> Cause:
    """What a failed row means. Gym's own words decide (its terminal flag, its class of a reply without a result), never a
    status or a text; a class that nobody knows is tried again, as often as the budget allows."""
    if failed.terminal is not None:
        return Cause.DATA if failed.terminal else Cause.INFRA
    if failed.no_result:
        known = {kind.value: cause for kind, cause in CAUSE_OF_NO_RESULT.items()}
        return known.get(failed.no_result, Cause.INFRA)
    return Cause.INFRA if failed.transport else Cause.DATA


TERMINAL = {True: "yes", False: "no", None: ""}


class OnAdmitted(Protocol):
    def __call__(self) -> None: ...


class RowStream:
    """``admitted`` is called once the rows have passed the gate."""

    def __init__(self, run: Run, flow: Flow, group: str, instance: str, keys: list[str], admitted: OnAdmitted) -> None:
        self.run = run
        self.flow = flow
        self.rt = run.rt
        self.group = group
        self.instance = instance
        self.keys = keys
        self.admitted = admitted
        self.sent: tuple[str, ...] = ()
        self.sent_at = 0.0
        self.waiting: dict[str, None] = {}  # sent, and neither done, refused nor failed
        self.resends: list[Task] = []

    async def serve(self) -> None:
        """Returns when the stream and its re-sends are over. Raises PromptFailed or BatchFailed, of its own rows or of a
        re-sent one."""
        stream = await self._send()
        if stream is None:
            return
        self.admitted()
        outcome = "cancelled"
        try:
            ended = await self._take_items(stream)
            if ended == "broken":
                await cancel_all(self.rt, self.resends)
            else:
                await join_all(self.rt, self.resends)
            await self._abandon_lost()
            if self.waiting and not self.run.job.async_engine:
                raise BatchFailed(f"{len(self.waiting)} rows of {self.group} did not come back")
            outcome = ended
        finally:
            if outcome == "cancelled":
                stream.cancel()
            await cancel_all(self.rt, self.resends)
            for key in self.waiting:
                self.rt.record(RowReported(key=key, outcome="lost", run_s=self.rt.now() - self.sent_at))
            self.rt.record(StreamEnded(group=self.group, instance=self.instance, outcome=outcome, missing=len(self.waiting)))

    async def _send(self) -> Stream | None:
        """Mark and submit in one section of the gate, so that a closed gate means: dispatched is what may be in Gym."""
        run = self.run
        async with run.gate.mutation("dispatch"):
            async with run.barrier.mutation("recovery_retries"):
                keys = [key for key in self.keys if self._may_send(key)]  # both waits were windows
                if not keys:
                    return None
                rows = tuple(self._row(key) for key in keys)
            request = self._request(rows)
            stream = self.rt.stream(self.instance, request)
            self.rt.record(RowsSubmitted(self.group, self.instance, tuple(keys), request.group_attempt))
        self.sent, self.waiting, self.sent_at = tuple(keys), dict.fromkeys(keys), self.rt.now()
        return stream

    def _may_send(self, key: str) -> bool:
        """It is still the current attempt of its sibling and has not been sent."""
        found = self.run.ledger.find(key)
        return found is not None and found[1].current.status is AttemptStatus.RESERVED

    def _row(self, key: str) -> Row:
        attempt = self.run.ledger.dispatch(key, self.instance)
        _, sibling = self.run.ledger.must_find(key)
        return Row(
            sample=self.run.ledger.groups[self.group].sample(sibling.generation_index),
            generation=sibling.generation_index,
            rollout_id=attempt.rollout_id,
            attempt=attempt.gym_attempt,
            continued=attempt.restored_from is not None,
        )

    def _request(self, rows: tuple[Row, ...]) -> RunRows:
        group = self.run.ledger.groups[self.group]
        return RunRows(
            group=self.group,
            ordinal=group.ordinal,
            group_attempt=group.group_attempt,
            task=self.run.task_of(group.ordinal),
            rows=rows,
            expected=unsealed(group),
        )

    async def _take_items(self, stream: Stream) -> str:
        """Take items until the stream is over: ``clean`` or ``broken``. A re-send that is over is joined at once."""
        while True:
            item = stream.next()
            over = await self.rt.first_of(item, *[task.join() for task in self.resends])
            assert over is not None, "no time-out was asked for"
            if over > 0:
                await self.resends.pop(over - 1).join()  # raises what failed it
                continue
            try:
                taken = await item
            except (Lost, PeerFailed, Refusal):  # Gym refuses a row by an item; who refuses the stream cannot take it now
                self.rt.record(StreamOver(instance=self.instance, how="lost"))
                return "broken"
            if taken is END:
                self.rt.record(StreamOver(instance=self.instance, how="end"))
                return "clean"
            await self._take(taken)

    async def _take(self, item: RowCompleted | RowRefused | RowFailed) -> None:
        if item.key not in self.waiting:
            return  # answered already: a network may deliver an item twice, and the row may have been sent again since
        match item:
            case RowCompleted():
                self.rt.record(CompletionArrived(key=item.key))
                self._report(item, "completed")
                await self._seal(item)
            case RowRefused(key=key, reason=reason):
                self.rt.record(RefusalArrived(key=key, reason=reason))
                self._report(item, "refused")
                if decide_refusal(reason) is Cause.PARKED:
                    await self._refused(key)
                    self.resends.append(self.rt.spawn(self._resend(key), f"resend-{key}"))
                else:
                    await self._failed(key, decide_refusal(reason), reason)
            case RowFailed(key=key, message=message):
                cause = decide_row_failure(item)
                self.rt.record(FailureArrived(key, cause.value, TERMINAL[item.terminal], item.no_result, item.status))
                self._report(item, "failed")
                await self._failed(key, cause, message)

    def _report(self, item: RowCompleted | RowRefused | RowFailed, outcome: str) -> None:
        del self.waiting[item.key]
        self.rt.record(RowReported(key=item.key, outcome=outcome, run_s=item.run_s))

    async def _seal(self, item: RowCompleted) -> None:
        async with self.run.barrier.mutation("sibling_seals"):
            found = self.run.ledger.find(item.key)
            if found is None:
                return  # a late reply of an attempt that was replaced or dropped
            receipt = receipt_of(found[1].current.rollout_id, item.key, item.calls)
            self.run.ledger.seal(item.key, receipt, item.reward)

    async def _refused(self, key: str) -> None:
        async with self.run.barrier.mutation("recovery_retries"):
            if self.run.ledger.find(key) is not None:
                self.run.ledger.refuse(key)

    async def _failed(self, key: str, cause: Cause, message: str) -> None:
        """Gym itself said that this row is over: abandon it now, or a checkpoint would wait for a reply that came already.

        A continuation is queued for retire all the same: its restore left a mark that only a forget removes.
        Raises PromptFailed for a data failure; a transport failure is replaced when the round is over, or raises BatchFailed
        where a batch is taken whole.
        """
        async with self.run.barrier.mutation("recovery_retries"):
            found = self.run.ledger.find(key)
            if found is not None and decide_replace(found[1].current):
                held = found[1].current.restored_from is not None
                self.run.ledger.abandon(key, "row-failed", held_by_gym=held)
        if cause is Cause.DATA:
            raise PromptFailed(f"{key}: {message}")
        if not self.run.job.async_engine:
            raise BatchFailed(f"{key}: {message}", cause)

    async def _abandon_lost(self) -> None:
        """Rows of an ended stream that nobody answered, re-sent ones too: Gym may still run them, so each is to be retired."""
        if not any(self._is_lost(key) for key in self.sent):
            return
        async with self.run.barrier.mutation("recovery_retries"):
            for key in self.sent:
                if self._is_lost(key):
                    self.run.ledger.abandon(key, "lost-row")

    def _is_lost(self, key: str) -> bool:
        found = self.run.ledger.find(key)
        return found is not None and decide_replace(found[1].current)

    async def _resend(self, key: str) -> None:
        """One refused row again, under the same identity, once the gate is open; backs off while Gym stays closed."""
        refusals = self.flow.count_refusal(key)
        if refusals > 1:
            await self.rt.sleep(backoff_s(self.run.job.rollout_failure, refusals - 1))
        await RowStream(self.run, self.flow, self.group, self.instance, [key], self.admitted).serve()
