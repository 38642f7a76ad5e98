"""Generation cuts: one inventory of running calls made durable, each call in a transaction of its own (PROTOCOL 6.1).

    gate closed -> per group of calls: check, freeze -> routes read -> chunk rows put in one batch -> acknowledged, sealed

Whatever fails for one call rolls that call back and is acknowledged as its failure alone: decoding goes on, and after a
restore it is generated again from its turn boundary. Everything here runs on a task of its own, never on one that serves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from protocol.config import Job
from protocol.data_plane.chunks import CHUNK_ROW_VERSION, ChunkRow, encode_chunk, prefix_content, sealed_chunk
from protocol.data_plane.digests import carry_digest
from protocol.data_plane.extras import Extras
from protocol.data_plane.routes import routes_digest, row_count
from protocol.history import CallFrozen, ChunkStaged, CutAcknowledged, CutRolledBack, CutSealed, ReceiptSent
from protocol.identity import chunk_key
from protocol.messages import (
    DURABLE_FAILURE,
    DURABLE_PREFIX,
    TERMINAL_COMPLETION,
    CutAck,
    CutCalls,
    CutReceipt,
    PrefixEvidence,
    Ticket,
)
from protocol.parts import Engine
from protocol.runtime import Runtime, Task
from protocol.tasks import cancel_all
from protocol.worker.batches import PendingRow, PrefixWriter, decide_batches
from protocol.worker.cleanup import ChunkCleanup
from protocol.worker.cuttable import LAST_TOKENS, Candidate, decide_cuttable
from protocol.worker.gate import SnapshotGate
from protocol.worker.live import ENDS, Lifecycle, LiveCall, Prefix, Published
from protocol.worker.media import media_evidence
from protocol.worker.routes import FrozenRoutes, RouteReader

RECEIPTS_KEPT = 256  # answers to inventories, so that a repeated cut changes nothing
EVIDENCE_S = 3_600.0  # how long a finished call is known to have been this worker's

LATE = "the control deadline has passed"


def inventory_digest(tickets: Sequence[Ticket]) -> str:
    """SHA-256 hex of an inventory: who is in it, in order."""
    return hashlib.sha256(msgspec.msgpack.encode(tickets)).hexdigest()


class Ended(msgspec.Struct, frozen=True, gc=False):
    """A finished call whose terminal row, ``key``, was staged at ``at``."""

    ticket: Ticket
    key: str
    at: float


def ticket_of(live: LiveCall) -> Ticket:
    request = live.request
    return Ticket(request.call, request.rollout_id, request.attempt, request.admitted_at)


@dataclass(eq=False, kw_only=True)
class Transaction:
    """One call's cut, from its freeze to its seal: tokens [start, count) become a chunk. Its lock is held meanwhile."""

    live: LiveCall
    ticket: Ticket
    lock: Lifecycle
    count: int
    finish: str

    @property
    def start(self) -> int:
        return len(self.live.durable.tokens)


class Cutter:
    """``calls`` are those that run, ``ended`` those that have finished not long ago, by call id; both are the worker's."""

    def __init__(
        self,
        rt: Runtime,
        job: Job,
        engine: Engine,
        gate: SnapshotGate,
        cleanup: ChunkCleanup,
        calls: Mapping[str, LiveCall],
        ended: Mapping[str, Ended],
        routes: RouteReader,
    ) -> None:
        self.rt = rt
        self.job = job
        self.engine = engine
        self.gate = gate
        self.cleanup = cleanup
        self.calls = calls
        self.ended = ended
        self.routes = routes
        self.one = rt.lock()  # inventory at a time: one loop for all cuts
        self.receipts: dict[tuple[str, str], CutReceipt] = {}
        self.running: dict[tuple[str, str], Task] = {}

    async def cut(self, request: CutCalls) -> CutReceipt:
        """Serves one inventory. Asked again, it answers as before, and cuts nothing twice."""
        inventory = inventory_digest(request.tickets)
        name = (request.checkpoint, inventory)
        known = self.receipts.get(name)
        if known is not None:
            self.rt.record(ReceiptSent(request.checkpoint, inventory, len(known.acks), True))
            return known
        running = self.running.get(name)
        if running is not None:
            repeated: CutReceipt = await running.join()
            return repeated
        task = self.running[name] = self.rt.spawn(self.run(request, inventory), f"cut-{request.checkpoint}-{request.holder}")
        try:
            receipt: CutReceipt = await task.join()
        finally:
            del self.running[name]
            task.cancel()  # whoever asked has given up: what is not sealed is rolled back
        self.receipts[name] = receipt
        if len(self.receipts) > RECEIPTS_KEPT:
            del self.receipts[next(iter(self.receipts))]
        self.rt.record(ReceiptSent(request.checkpoint, inventory, len(receipt.acks), False))
        return receipt

    async def run(self, request: CutCalls, inventory: str) -> CutReceipt:
        """Every ticket once, in order, whatever becomes of it."""
        limit = self.rt.now() + request.timeout_s
        acks: dict[str, CutAck] = {}
        if not self.gate.close(request.holder, request.epoch, request.checkpoint):
            left = "its driver has given up"
        else:
            left = LATE
            work = self.rt.spawn(self.work(request, limit, acks), f"cuts-{request.checkpoint}-{request.holder}")
            try:
                if await self.rt.first_of(work.join(), timeout_s=request.timeout_s) is not None:
                    await work.join()
            finally:
                work.cancel()
                if not work.done:
                    await self.rt.first_of(work.join())  # rolled back, before anything is said
        for ticket in request.tickets:
            if ticket.call not in acks:
                self.fail(request.checkpoint, ticket, left, acks)
        return CutReceipt(request.checkpoint, inventory, tuple(acks[ticket.call] for ticket in request.tickets))

    async def work(self, request: CutCalls, limit: float, acks: dict[str, CutAck]) -> None:
        async with self.one:
            await self.work_alone(request, limit, acks)

    async def work_alone(self, request: CutCalls, limit: float, acks: dict[str, CutAck]) -> None:
        if not await self.gate.settle(limit - self.rt.now()):
            return
        found: list[tuple[Ticket, LiveCall]] = []
        for ticket in request.tickets:
            live = self.calls.get(ticket.call)
            if live is None or live.staged or live.over or ticket_of(live) != ticket:
                self.settled(request.checkpoint, ticket, acks)
            elif live.output is None and not live.inherited.keys:
                self.not_begun(request.checkpoint, ticket, live, acks)
            else:
                found.append((ticket, live))
        await self.first_tokens([live for _, live in found if without_first_token(live)], limit)
        start = 0
        while start < len(found):
            end = self.group_end(found, start)
            await Group(self, request.checkpoint, limit, acks).cut(found[start:end])
            start = end

    async def first_tokens(self, waiting: Sequence[LiveCall], limit: float) -> None:
        """A call whose first token is there and has no logprob or route row yet is no uncuttable one: it gets a quarter of the
        time left to be observable. All others decode on meanwhile, and none of them waits for a call that is stuck."""
        if not waiting:
            return
        until = self.rt.now() + (limit - self.rt.now()) / 4
        tasks = [self.rt.spawn(first_token(live), f"first-token-{live.call}") for live in waiting]
        try:
            while left := [task for task in tasks if not task.done]:
                left_s = until - self.rt.now()
                if left_s <= 0 or await self.rt.first_of(*[task.join() for task in left], timeout_s=left_s) is None:
                    return
        finally:
            await cancel_all(self.rt, tasks)

    def group_end(self, found: Sequence[tuple[Ticket, LiveCall]], start: int) -> int:
        """Of the group that begins there. With router replay a group is one handoff to the engine's loop, within its bounds:
        so it is made up as late as this, from what the calls have published by now."""
        size = self.job.token_capture.generation_prefix_batch_size
        if not self.job.router_replay.enabled:
            return start + size
        reader = self.routes
        calls = found[start : start + reader.calls_max]
        positions = [reader.positions(live.routes, live.look().tokens) if live.routes else 0 for _, live in calls]
        (first, *_) = decide_batches(positions, reader.calls_max, reader.positions_max)
        return start + first[1]

    # --- what is said of a call that is not cut

    def not_begun(self, checkpoint: str, ticket: Ticket, live: LiveCall, acks: dict[str, CutAck]) -> None:
        """It is being restored: what it is restored from is still there, and stays until the gate opens."""
        evidence = live.request.prefix
        if evidence is None:
            self.fail(checkpoint, ticket, "no token yet", acks)
            return
        self.rt.record(
            CutAcknowledged(
                ticket.call, checkpoint, DURABLE_PREFIX, "", evidence.count, evidence.digest, evidence.keys, evidence.limit
            )
        )
        acks[ticket.call] = CutAck(ticket, DURABLE_PREFIX, evidence)

    def settled(self, checkpoint: str, ticket: Ticket, acks: dict[str, CutAck]) -> None:
        """It does not run here: it has finished, or nobody knows it."""
        ended = self.ended.get(ticket.call)
        if ended is None or ended.ticket != ticket:
            self.fail(checkpoint, ticket, "no such call runs here", acks)
        elif self.rt.now() - ended.at > EVIDENCE_S:
            self.fail(checkpoint, ticket, "it finished long ago: only its row is left", acks)
        else:
            self.rt.record(CutAcknowledged(ticket.call, checkpoint, TERMINAL_COMPLETION, keys=(ended.key,)))
            acks[ticket.call] = CutAck(ticket, TERMINAL_COMPLETION, key=ended.key)

    def fail(self, checkpoint: str, ticket: Ticket, reason: str, acks: dict[str, CutAck]) -> None:
        self.rt.record(CutAcknowledged(ticket.call, checkpoint, DURABLE_FAILURE, reason))
        acks[ticket.call] = CutAck(ticket, DURABLE_FAILURE, reason=reason)


def without_first_token(live: LiveCall) -> bool:
    look = live.look()
    return live.output is not None and not look.finish and not live.over and look.tokens > 0 and look.observable == 0


async def first_token(live: LiveCall) -> None:
    while without_first_token(live):
        assert live.output is not None
        await live.output.more()


def staged(row: ChunkRow, size: int, carry: int) -> ChunkStaged:
    """A chunk of ``size`` bytes that lies in staging now, as the history tells of it. ``carry``: tokens that its call brought."""
    routes = None if row.extras is None else row.extras.routes
    rows = -1 if routes is None else row_count(routes)
    first = row.previous_length + (carry + row.start if row.start else 0)
    parts = () if row.extras is None else tuple(name for name in Extras.__struct_fields__ if getattr(row.extras, name))
    return ChunkStaged(
        call=row.call, key=row.key, start=row.start, end=row.end, digest=row.digest, cumulative=row.cumulative,
        content=prefix_content(row.tokens, row.logprobs), route_rows=rows, carried=max(rows - len(row.tokens), 0),
        extras=parts, bytes=size, routes="" if routes is None else routes_digest(routes, first),
    )  # fmt: skip


class Group:
    """Calls of one inventory that are cut together."""

    def __init__(self, cutter: Cutter, checkpoint: str, limit: float, acks: dict[str, CutAck]) -> None:
        self.cutter = cutter
        self.rt = cutter.rt
        self.checkpoint = checkpoint
        self.limit = limit  # the control call's deadline
        self.acks = acks
        self.writer = PrefixWriter(cutter.rt, cutter.job, cutter.cleanup, limit)
        self.begun: dict[str, Transaction] = {}

    async def cut(self, group: Sequence[tuple[Ticket, LiveCall]]) -> None:
        try:
            for ticket, live in group:
                await self.freeze(ticket, live)
            extras = await self.extras()
            rows = {call: self.row(transaction, extras.get(call)) for call, transaction in self.begun.items()}
            pending = [
                PendingRow(call=call, key=row.key, data=encode_chunk(row), positions=len(row.tokens))
                for call, row in rows.items()
                if row is not None
            ]
            carries = {call: len(transaction.live.request.carry) for call, transaction in self.begun.items()}
            sizes = {row.key: len(row.data) for row in pending}
            reasons = await self.writer.write(pending)
            for call, row in rows.items():
                reason = reasons[row.key] if row is not None else ""
                if reason:
                    await self.roll_back(call, reason)
                    continue
                if row is not None:
                    self.rt.record(staged(row, sizes[row.key], carries[call]))
                await self.seal(call, row)
        finally:
            for call in list(self.begun):  # interrupted: nothing of it is durable
                await self.roll_back(call, LATE)
            await self.writer.flush()

    async def freeze(self, ticket: Ticket, live: LiveCall) -> None:
        """Check, then freeze: nothing is frozen that may not be cut."""
        lock = live.lifecycle("cut")
        await lock.__aenter__()
        kept = False
        try:
            look = live.look()
            if live.staged or live.over:
                self.cutter.settled(self.checkpoint, ticket, self.acks)
                return
            count = look.observable
            reason = self.fault(live, look, count)
            if reason:
                self.cutter.fail(self.checkpoint, ticket, reason, self.acks)
                return
            finish = look.finish if look.finish in ENDS and count == look.tokens else ""
            live.frozen = count
            self.rt.record(
                CallFrozen(
                    ticket.call,
                    self.checkpoint,
                    count,
                    len(live.durable.tokens),
                    len(live.inherited.tokens),
                    (look.tokens, look.logprobs, look.routed),
                    live.limit or 0,
                    finish,
                )  # fmt: skip
            )
            self.begun[ticket.call] = Transaction(live=live, ticket=ticket, lock=lock, count=count, finish=finish)
            kept = True
        finally:
            if not kept:
                await lock.__aexit__(None, None, None)

    def fault(self, live: LiveCall, look: Published, count: int) -> str:
        if live.unverified:
            return live.unverified
        engine = self.cutter.engine
        last = live.tokens(max(count - LAST_TOKENS, 0), count)
        candidate = Candidate(
            sampling=live.request.sampling,
            limit=live.limit,
            tokens=count,
            logprobs=look.logprobs,
            last=engine.text(last),
            finish=look.finish,
            dropped=live.output is not None and live.output.dropped,
            late=self.rt.now() >= self.limit,
        )
        return decide_cuttable(candidate, engine.capabilities)

    async def extras(self) -> dict[str, Extras]:
        """What each frozen call's chunk holds beside its columns: the evidence of its media, and with router replay the routes
        of its new tokens. A call whose rows the engine does not have, or cannot give, is rolled back; and no other one."""
        reader = self.cutter.routes
        extras = {call: Extras(media=media_evidence(begun.live.media, begun.start)) for call, begun in self.begun.items()}
        routed = [(begun, begun.live.routes) for begun in self.begun.values() if begun.live.routes and begun.start < begun.count]
        for begun, routes in routed:
            if begun.finish and begun.live.output is not None:
                routes.absorb(0, begun.live.output.pieces)  # they came with its last output
        await reader.read([FrozenRoutes(begun.live.call, routes, begun.count) for begun, routes in routed if not begun.finish])
        for begun, routes in routed:
            found = routes.chunk(begun.start, begun.count, begun.finish)
            reader.tell(begun.live.call, "cut", routes, found)
            if found.block is None:
                await self.roll_back(begun.live.call, f"routes {found.outcome}: {found.reason}")
            else:
                extras[begun.live.call] = msgspec.structs.replace(extras[begun.live.call], routes=found.block)
        return {call: found for call, found in extras.items() if found != Extras()}

    def row(self, transaction: Transaction, extras: Extras | None) -> ChunkRow | None:
        live, start, count = transaction.live, transaction.start, transaction.count
        if start == count:
            return None
        request = live.request
        assert live.limit is not None
        return sealed_chunk(
            ChunkRow(
                v=CHUNK_ROW_VERSION,
                key=chunk_key(request.call, start),
                call=request.call,
                rollout_id=request.rollout_id,
                attempt=request.attempt,
                ordinal=request.ordinal,
                generation=request.generation,
                turn=request.turn,
                previous_length=request.previous_length,
                carry=carry_digest(request.carry),
                start=start,
                tokens=live.tokens(start, count),
                logprobs=live.logprobs(start, count),
                limit=live.limit,
                finish=transaction.finish,
                weight_version=live.version,
                extras=extras,
                digest="",
                cumulative="",
            ),
            live.durable.digest,
        )

    async def seal(self, call: str, row: ChunkRow | None) -> None:
        """Acknowledge, then seal: what is said to be durable is what lies in chunks."""
        transaction = self.begun.pop(call)
        live, ticket, durable = transaction.live, transaction.ticket, transaction.live.durable
        if row is not None:
            durable = Prefix(
                keys=(*durable.keys, row.key),
                tokens=(*durable.tokens, *row.tokens),
                logprobs=(*durable.logprobs, *row.logprobs),
                digest=row.cumulative,
                segments=live.segments(row.end),
                finish=row.finish,
            )
        assert live.limit is not None
        evidence = PrefixEvidence(durable.keys, len(durable.tokens), durable.digest, live.limit)
        self.rt.record(
            CutAcknowledged(
                call,
                self.checkpoint,
                DURABLE_PREFIX,
                "",
                evidence.count,
                evidence.digest,
                evidence.keys,
                evidence.limit,
                prefix_content(durable.tokens, durable.logprobs),
            )  # fmt: skip
        )
        self.acks[call] = CutAck(ticket, DURABLE_PREFIX, evidence)
        live.durable, live.frozen = durable, None
        if row is not None:
            self.writer.seal(row.key)
        self.rt.record(CutSealed(call, len(durable.tokens)))
        await transaction.lock.__aexit__(None, None, None)

    async def roll_back(self, call: str, reason: str) -> None:
        """As before the freeze. Its row, if it was written, goes with the flush."""
        transaction = self.begun.pop(call)
        live = transaction.live
        live.frozen = None
        self.rt.record(CutRolledBack(call, len(live.durable.tokens), live.frozen is not None, reason))
        self.cutter.fail(self.checkpoint, transaction.ticket, reason, self.acks)
        await transaction.lock.__aexit__(None, None, None)
