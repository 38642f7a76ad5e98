"""The policy model's participant towards the generation workers: it has running calls cut, and opens their gates again.

A worker that does not answer costs its calls their prefix, never the checkpoint: those episodes are saved at their last
boundary, and generate the call again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from protocol.calls import ask
from protocol.config import Job, Level
from protocol.errors import ProtocolError
from protocol.history import CutAnswered, CutAsked
from protocol.identity import worker_name
from protocol.messages import (
    DURABLE_PREFIX,
    TERMINAL_COMPLETION,
    CutAck,
    CutCalls,
    CutReceipt,
    Message,
    OpenGate,
    RetirePrefix,
    Ticket,
)
from protocol.runtime import Runtime
from protocol.tasks import join_all
from protocol.worker.cut import inventory_digest

UNANSWERED = "unanswered"
TELL_AGAIN_S, TELL_AGAIN_MAX_S = 1.0, 30.0  # between two tries of a word that a worker must hear; doubling
CALLS_ASKED = 256  # calls of one inventory
EPOCHS_A_START = 1 << 32  # of one incarnation: those of the next one are all newer


def decide_answers(tickets: Sequence[Ticket], checkpoint: str, receipt: CutReceipt | None) -> dict[str, CutAck | None]:
    """What a receipt says of each ticket, by call; None where it says nothing that can be believed.

    A receipt of another inventory says nothing at all. A ticket that is not answered once, or by evidence that is none, costs
    its own call alone.
    """
    answers: dict[str, CutAck | None] = {ticket.call: None for ticket in tickets}
    if receipt is None or (receipt.checkpoint, receipt.inventory) != (checkpoint, inventory_digest(tickets)):
        return answers
    asked = {ticket.call: ticket for ticket in tickets}
    seen: dict[str, None] = {}
    for ack in receipt.acks:
        call = ack.ticket.call
        believed = asked.get(call) == ack.ticket and call not in seen and is_whole(ack)
        if call in answers:
            answers[call] = ack if believed else None
        seen[call] = None
    return answers


def is_whole(ack: CutAck) -> bool:
    """A durable prefix has its evidence, and nothing else has any."""
    evidence = ack.evidence
    if ack.kind == DURABLE_PREFIX:
        return evidence is not None and bool(evidence.keys and evidence.count and evidence.digest and evidence.limit)
    return evidence is None and bool(ack.key) == (ack.kind == TERMINAL_COMPLETION)


class PolicyModel:
    """``epoch`` counts the inventories of this process, above those of its earlier starts."""

    def __init__(self, rt: Runtime, job: Job) -> None:
        self.rt = rt
        self.job = job
        self.cuts = job.level >= Level.PREFIX
        self.epoch = rt.incarnation * EPOCHS_A_START
        self.asked: dict[str, None] = {}  # workers whose gates this instance may hold
        if self.cuts and rt.incarnation > 1:  # an earlier start of this process may have closed any of them
            self.asked = {worker_name(index): None for index in range(job.generation_workers)}

    def worker_of(self, ordinal: int) -> str:
        return worker_name(ordinal % self.job.generation_workers)

    async def cut(self, checkpoint: str, inventories: Mapping[str, Sequence[Ticket]], left_s: float) -> dict[str, CutAck | None]:
        """Have every call of these inventories (by worker) cut, within half of the time left. Returns the answers by call.

        No inventory has more than CALLS_ASKED of them: whoever answers one visits no more at a time (I42).
        """
        self.epoch += 1
        answers: dict[str, CutAck | None] = {}
        timeout_s = min(self.job.token_capture.control_timeout_s, left_s / 2)
        grace_s = min(self.job.rollout_recovery.reply_grace_s, left_s / 4)

        async def one(worker: str, tickets: tuple[Ticket, ...]) -> None:
            inventory = inventory_digest(tickets)
            calls = tuple(ticket.call for ticket in tickets)
            self.rt.record(CutAsked(worker, checkpoint, self.epoch, calls, inventory, timeout_s))
            request = CutCalls(checkpoint, self.rt.me, self.epoch, tickets, timeout_s)
            receipt: CutReceipt | None = None
            try:
                receipt = await ask(self.rt, worker, request, timeout_s + grace_s)
            except ProtocolError:
                pass  # nothing is known of any of them
            found = decide_answers(tickets, checkpoint, receipt)
            answers.update(found)
            kinds = tuple(UNANSWERED if ack is None else ack.kind for ack in found.values())
            self.rt.record(CutAnswered(worker, checkpoint, kinds))

        self.asked.update(dict.fromkeys(inventories))
        tasks = [
            self.rt.spawn(one(worker, tuple(tickets[start : start + CALLS_ASKED])), f"cut-{checkpoint}-{worker}-{start}")
            for worker, tickets in inventories.items()
            for start in range(0, len(tickets), CALLS_ASKED)
        ]
        await join_all(self.rt, tasks)
        return answers

    def open_gates(self) -> None:
        """The checkpoint is over: every gate that it may have closed opens, as soon as its worker hears of it."""
        for worker in self.asked:
            self.rt.spawn(self.tell(worker, OpenGate(self.rt.me, self.epoch)), f"open-gate-{worker}-{self.epoch}")
        self.asked = {}

    def retire(self, worker: str, call: str, keys: tuple[str, ...]) -> None:
        """The worker that had this call may have forgotten it: its chunks are deleted by whatever runs there now."""
        if keys:
            self.rt.spawn(self.tell(worker, RetirePrefix(call, keys)), f"retire-{call}")

    async def tell(self, worker: str, message: Message) -> None:
        """Until it was heard."""
        wait_s = TELL_AGAIN_S
        while True:
            try:
                await ask(self.rt, worker, message, self.job.token_capture.control_timeout_s)
                return
            except ProtocolError:
                await self.rt.sleep(wait_s)
                wait_s = min(2 * wait_s, TELL_AGAIN_MAX_S)
