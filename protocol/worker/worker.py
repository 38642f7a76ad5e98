"""A generation worker: answers model calls, and stages what each one adds before its answer leaves.

    Generate -> admitted (version, limit) -> restored prefix? -> engine -> terminal write through the snapshot gate -> Generated
    CutCalls -> what runs becomes durable (``cut``)

What may have to wait for a call's lifecycle lock, or for the gate, runs on tasks of its own: one that serves never does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Coroutine
from typing import Any

from protocol.calls import ask
from protocol.config import Job, Level
from protocol.data_plane.digests import StagedRow, carry_digest
from protocol.data_plane.extras import Extras, RouteBlock
from protocol.data_plane.media import rejects
from protocol.errors import Cause, ConfigError, ProtocolError, Refusal
from protocol.history import (
    CallBegun,
    CallEnded,
    CallRefused,
    ChunksDiscarded,
    RowStagedDone,
    RowStagedIssued,
    RunFailed,
    WeightsReceived,
)
from protocol.identity import DATA_PLANE
from protocol.messages import (
    NO_BACKEND,
    STAGING,
    ClearSamples,
    Coordinate,
    CutCalls,
    CutReceipt,
    Generate,
    Generated,
    Health,
    OpenGate,
    Probe,
    PutSamples,
    RetirePrefix,
    SetWeightVersion,
)
from protocol.parts import Engine, EngineCall
from protocol.runtime import Runtime
from protocol.worker.batches import PrefixReader
from protocol.worker.capture import asked_of, coordinate_of, delta_row, found_of, lost_coordinate, routes_told
from protocol.worker.cleanup import ChunkCleanup
from protocol.worker.cut import RECEIPTS_KEPT, Cutter, Ended, ticket_of
from protocol.worker.cuttable import effective_limit
from protocol.worker.gate import TERMINAL, SnapshotGate
from protocol.worker.live import LiveCall
from protocol.worker.media import admit, compare_parents, encoded, with_tensors
from protocol.worker.prefix_restore import PrefixRestorer
from protocol.worker.routes import RouteReader, replay_fault
from protocol.worker.text import call_text

ENDED_KEPT = 64 * RECEIPTS_KEPT  # finished calls that a late cut can still ask about


def decide_version(current: int | None, given: int) -> int:
    """The weight version after a push."""
    return given if current is None else max(current, given)


class GenerationWorker:
    def __init__(self, rt: Runtime, job: Job, engine: Engine) -> None:
        self.rt = rt
        self.job = job
        self.engine = engine
        self.version: int | None = None  # none yet: it was given no weights since it started
        self.weights = rt.lock()  # one load at a time
        self.loading = False  # no call begins meanwhile
        self.loaded = rt.signal()
        self.loaded.what = "weights that are being loaded"
        self.calls: dict[str, LiveCall] = {}
        self.ended: dict[str, Ended] = {}
        self.leaving: dict[str, LiveCall] = {}  # calls that are over, and not gone
        self.left = rt.signal()  # one is gone
        self.left.what = "an older call of the same name"
        self.gate = SnapshotGate(rt, job.park_bound_s)
        self.cleanup = ChunkCleanup(rt, job, self.gate)
        self.restorer = PrefixRestorer(rt, engine, PrefixReader(rt, job), self.cleanup)
        self.routes = RouteReader(rt, job, engine)
        self.cutter = Cutter(rt, job, engine, self.gate, self.cleanup, self.calls, self.ended, self.routes)

    async def main(self) -> None:
        """Raises ConfigError if the engine cannot do what the job asks for."""
        if self.job.router_replay.enabled:
            fault = replay_fault(self.engine.capabilities)
            if fault:
                refused = ConfigError(fault)
                self.rt.record(RunFailed(ConfigError.__name__, refused.cause.value, fault))
                raise refused
        if self.job.level >= Level.PREFIX:
            self.rt.record(found_of(self.engine.capabilities))
        self.rt.serve(
            {
                Generate: self.generate,
                SetWeightVersion: self.set_weight_version,
                Probe: self.probe,
                CutCalls: self.cut_calls,
                OpenGate: self.open_gate,
                RetirePrefix: self.retire_prefix,
            }
        )

    async def set_weight_version(self, request: SetWeightVersion) -> None:
        """Weights never go back: a push that was overtaken by a later one changes nothing. Raises Refusal(INFRA) if the engine
        cannot load them: it goes on with those it has, and the next push tries again."""
        async with self.weights:
            version = decide_version(self.version, request.version)
            if version == self.version:
                return
            self.loading = True
            try:
                held = await self.engine.use_weights(version, request.weights)
                self.version = version
                self.rt.record(WeightsReceived(version, held))
            finally:
                self.loading = False
                self.loaded.set()

    async def probe(self, request: Probe) -> Health:
        return Health(self.rt.incarnation, -1 if self.version is None else self.version)

    # --- control of the prefix level

    async def cut_calls(self, request: CutCalls) -> CutReceipt:
        return await self.cutter.cut(request)

    async def open_gate(self, request: OpenGate) -> None:
        self.gate.open(request.holder, request.epoch)

    async def retire_prefix(self, request: RetirePrefix) -> None:
        self.cleanup.leave(request.call, request.keys, "retired")

    # --- a model call

    async def generate(self, request: Generate) -> Generated:
        """Raises Refusal (INFRA) while this worker has no weights: whatever it said would be nobody's."""
        await self.give_up_older(request.call)
        if self.job.level >= Level.PREFIX:
            self.rt.record(asked_of(request))
        while self.loading:
            await self.loaded.wait()
        # Stamped at the beginning: a sync during the call does not change what the call counts as.
        version = self.version
        if version is None:
            self.rt.record(CallRefused(request.call, NO_BACKEND))
            raise Refusal(f"{NO_BACKEND}: {self.rt.me} was given no weights since it started", Cause.INFRA)
        self.rt.record(CallBegun(request.call, version, carry_digest(request.carry)))
        limit = effective_limit(request.sampling, self.job.max_new_tokens)
        live = LiveCall(rt=self.rt, request=request, version=version, limit=limit, lock=self.rt.lock())
        live.routes = self.routes.of(len(request.carry), request.previous_length)
        self.calls[request.call] = live
        answered, outcome = False, "aborted"
        try:
            await self.admit_media(live)
            await self.begin(live)
            if live.output is not None:
                await live.output.done()
                if live.look().finish == "aborted":
                    raise Refusal(f"{request.call}: the engine gave it up", Cause.INFRA)
            generated: Generated | None = await self.alone(live, self.terminal(live), "terminal")
            if generated is None:
                raise asked_again(live)
            answered = True
            return generated
        except Refusal as refusal:
            if rejects(str(refusal)):
                outcome = "rejected"
            raise
        finally:
            live.over = True
            if self.calls.get(request.call) is live:
                del self.calls[request.call]
            if live.output is not None and not answered:
                self.engine.abort(request.call)
            if answered:
                self.is_gone(live)
            else:
                self.abort(live, outcome)
            if live.output is not None:
                self.engine.release(request.call)

    async def give_up_older(self, call: str) -> None:
        """Of a call that was asked for before: whoever did is gone, and asks again. Both calls have the same name, and so have
        their rows: the new one begins when nothing is left of the older one."""
        while (older := self.calls.get(call) or self.leaving.get(call)) is not None:
            if not older.over:
                older.over = True
                self.engine.abort(call)
            if older.work is not None:
                older.work.cancel()
            while not older.gone:
                await self.left.wait()

    async def alone(self, live: LiveCall, work: Coroutine[Any, Any, Any], what: str) -> Any:
        """Have a task of its own do what may wait for the call's lifecycle lock, or for the gate. Raises Refusal(INFRA) if the
        call was asked for again; None: meanwhile."""
        if live.over:
            work.close()
            raise asked_again(live)
        task = live.work = self.rt.spawn(work, f"{what}-{live.call}")
        try:
            return await task.join()
        finally:
            task.cancel()
            live.work = None

    async def admit_media(self, live: LiveCall) -> None:
        """Raises Refusal(DATA): a source is not there, which is found before anything is read; or media of a call before have
        changed. Where those cannot be read, the call is answered, and nothing of it is staged."""
        try:
            live.media = await admit(self.rt, self.engine, live.request)
            live.unverified = await compare_parents(self.rt, live.request, live.media, self.job.rpc_timeout_s)
            if rejects(live.unverified):
                raise Refusal(live.unverified, Cause.DATA)
        except Refusal as refusal:
            self.restorer.refuse(live, str(refusal))
            raise

    async def begin(self, live: LiveCall) -> None:
        """Start the engine, after the restored prefix if there is one that can be used."""
        if live.request.prefix is not None:
            await self.alone(live, self.resume(live), "restore")
        elif not live.over:
            self.start(live)
        if live.over:
            raise asked_again(live)

    async def resume(self, live: LiveCall) -> None:
        async with live.lifecycle("restore"):
            await self.restorer.restore(live)
            if not live.inherited.finish:
                self.start(live)

    def start(self, live: LiveCall) -> None:
        request, prefix = live.request, live.inherited.tokens
        live.output = self.engine.start(
            EngineCall(
                call=request.call,
                ordinal=request.ordinal,
                generation=request.generation,
                turn=request.turn,
                version=live.version,
                previous_length=request.previous_length,
                carry=request.carry,
                prefix=prefix,
                limit=None if live.limit is None else live.limit - len(prefix),
                sampling=request.sampling,
                prefix_logprobs=live.inherited.logprobs,
                context=request.context,
                media=(*(source for retained in request.retained for source in retained.media), *request.media),
            )
        )

    async def terminal(self, live: LiveCall) -> Generated:
        """Stage the whole call's row, then take away its chunks: all behind one passage of the gate."""
        request = live.request
        async with self.gate.passage(live.call, TERMINAL):
            async with live.lifecycle("terminal"):
                look = live.look()
                tokens, logprobs = live.tokens(0, look.tokens), live.logprobs(0, look.tokens)
                routes = self.terminal_routes(live, len(tokens))
                extras = with_tensors(None if routes is None else Extras(routes=routes), live.media)
                row = delta_row(request, live.segments(len(tokens)), tokens, logprobs, extras)
                coordinate = lost_coordinate(row) if live.unverified else await self.stage(row)
                live.staged = coordinate.captured
                if live.staged:
                    self.ended[live.call] = Ended(ticket_of(live), row.key, self.rt.now())
                    if len(self.ended) > ENDED_KEPT:
                        del self.ended[next(iter(self.ended))]
                    self.restorer.consume(live)
                else:
                    self.restorer.release(live)
                live.over = True
            await self.drop_chunks(live, "completed" if live.staged else "terminal-failed")
        await self.cleanup.wait_for(live.call)
        text = call_text(self.engine, request.carry, tokens, look.finish, request.sampling.stop)
        prefix = len(live.inherited.tokens)
        generated = Generated(
            tokens, logprobs, coordinate, text, look.finish, len(tokens), prefix, live.inherited.digest if prefix else ""
        )
        outcome = "capture-failed"
        if live.staged:
            outcome = "answered" if live.output is not None else "terminal-prefix"
        told = routes_told(row, prefix)
        self.rt.record(
            CallEnded(
                call=live.call,
                outcome=outcome,
                generated=len(tokens),
                prefix=prefix,
                reported=generated.completion_tokens,
                limit=live.limit or 0,
                finish=look.finish,
                text=text_digest(text),
                plain=self.plain(request, tokens, look.finish),
                routes=told.prefix,
                routed=told.own,
                boundary=told.boundary,
                route_rows=told.rows,
                version=row.weight_version,
            )
        )
        return generated

    def plain(self, request: Generate, tokens: tuple[int, ...], finish: str) -> str:
        """Digest of what the engine itself makes of these tokens; '' below the prefix level, where no call is interrupted."""
        if self.job.level < Level.PREFIX:
            return ""
        return text_digest(self.engine.plain_text(request.carry, tokens, finish, request.sampling.stop))

    def terminal_routes(self, live: LiveCall, count: int) -> RouteBlock | None:
        """What the call's row holds; None without router replay, and if the rows cannot be had or do not fit."""
        if live.routes is None:
            return None
        pieces = None if live.output is None else live.output.pieces
        return self.routes.whole(live.call, live.routes, count, live.inherited.routes, len(live.inherited.tokens), pieces)

    async def drop_chunks(self, live: LiveCall, why: str) -> None:
        """The call's row holds what they held, or nobody will go on from them."""
        keys = live.durable.keys
        if not keys:
            return
        deleted = False
        try:
            await ask(self.rt, DATA_PLANE, ClearSamples(STAGING, keys), self.job.rpc_timeout_s)
            deleted = True
        except ProtocolError:
            pass  # the clean-up tries until it is answered
        finally:
            if deleted:
                self.rt.record(ChunksDiscarded(live.call, keys, why))
            else:
                self.cleanup.leave(live.call, keys, why)

    async def stage(self, row: StagedRow) -> Coordinate:
        """Store the row and wait for the data plane's word; a failed capture never fails the completion."""
        data = await encoded(self.rt, row)
        self.rt.record(RowStagedIssued(row.key))
        try:
            await ask(self.rt, DATA_PLANE, PutSamples(STAGING, ((row.key, data),)), self.job.rpc_timeout_s)
        except ProtocolError:
            # It may have been stored all the same: a row that no coordinate names, and staging may hold more than is owned.
            return lost_coordinate(row)
        tensors = () if row.extras is None else row.extras.tensors
        self.rt.record(RowStagedDone(row.key, len(row.tokens), row.digest, len(data), sum(map(len, tensors))))
        return coordinate_of(row)

    # --- a call that gets no answer

    def abort(self, live: LiveCall, outcome: str) -> None:
        """What is left of it waits for whoever holds the call, and not here."""
        if live.request.prefix is not None or live.durable.keys or live.lock.held:
            self.leaving[live.call] = live
            self.rt.spawn(self.forget(live), f"abort-{live.call}")
        else:
            self.is_gone(live)
        self.rt.record(CallEnded(live.call, outcome, prefix=len(live.inherited.tokens), version=live.version))

    async def forget(self, live: LiveCall) -> None:
        async with live.lifecycle("abort"):
            self.restorer.release(live)
            self.cleanup.leave(live.call, live.durable.keys, "aborted")
            if not live.resolved:
                self.restorer.refuse(live, "interrupted")
        self.is_gone(live)

    def is_gone(self, live: LiveCall) -> None:
        live.gone = True
        if self.leaving.get(live.call) is live:
            del self.leaving[live.call]
        self.left.set()


def asked_again(live: LiveCall) -> Refusal:
    return Refusal(f"{live.call}: it was asked for again", Cause.INFRA)


def text_digest(text: str) -> str:
    """BLAKE2b-128 hex of UTF-8 text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
