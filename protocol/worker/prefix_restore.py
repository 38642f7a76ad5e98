"""Restored prefixes: from the evidence of a cut to the tokens that a call goes on after (PROTOCOL 6.4).

A prefix that cannot be used costs the call its restored tokens and nothing else: it starts at its turn boundary, and the rows
are retired. A restored cut has one owner: a call claims it, then consumes it with its own row or releases it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from protocol.data_plane.chunks import CHUNK_ROW_VERSION, ChunkRow, chunk_digest, decode_chunk, prefix_content, prefix_digest
from protocol.data_plane.digests import as_float32s, carry_digest, joined_segments
from protocol.data_plane.media import rejects
from protocol.data_plane.routes import routes_digest
from protocol.errors import Cause, Refusal
from protocol.history import PrefixClaimed, PrefixFellBack, PrefixReleased, PrefixRestored
from protocol.identity import GymCheckpointEpisode, chunk_key, staging_key
from protocol.messages import STAGING, Generate, PrefixEvidence
from protocol.parts import Engine
from protocol.runtime import Runtime
from protocol.worker.batches import PrefixReader
from protocol.worker.cleanup import ChunkCleanup
from protocol.worker.live import ENDS, LiveCall, Prefix
from protocol.worker.media import PREFIX, compare
from protocol.worker.routes import chunk_routes_fault, ended_rows, joined_chunks

CONSUMED = "consumed"
OWNERS_KEPT = 4_096  # consumed cuts that are remembered: a consumed cut's rows are gone, so an older one falls back by itself


def evidence_fault(evidence: PrefixEvidence, limit: int | None) -> str:
    """Why this evidence is none, or is another request's, before anything is read; '' if it may be one."""
    if evidence.buffer != STAGING:
        return f"its buffer is {evidence.buffer!r}, not {STAGING!r}"
    if not evidence.keys or len(set(evidence.keys)) != len(evidence.keys) or evidence.count < len(evidence.keys):
        return f"{evidence.count} tokens in {len(evidence.keys)} chunks are no prefix"
    if evidence.limit != limit:
        return f"the output limit was {evidence.limit}, it is {limit}"
    return ""


def decide_prefix(
    evidence: PrefixEvidence, rows: Mapping[str, bytes], request: Generate, version: int, routed: bool = False
) -> tuple[Prefix, tuple[ChunkRow, ...]] | str:
    """The prefix and its rows, or why the rows are not what the cut acknowledged. ``version``: this worker's weights;
    ``routed``: with router replay."""
    chunks: list[ChunkRow] = []
    for key in evidence.keys:
        try:
            chunk = decode_chunk(rows[key])
        except msgspec.DecodeError as error:
            return f"{key} is not a chunk row ({error})"
        fault = chunk_fault(chunk, key, chunks, request, evidence.limit, version)
        if fault:
            return f"{key}: {fault}"
        chunks.append(chunk)
    last = chunks[-1]
    if routed:
        before = None
        for chunk in chunks:
            fault = chunk_routes_fault(chunk, len(request.carry), before)
            if fault:
                return f"{chunk.key}: {fault}"
            before = chunk.extras.routes if chunk.extras is not None else None
    if (last.end, last.cumulative) != (evidence.count, evidence.digest):
        return f"its chunks hold {last.end} tokens under {last.cumulative}, the cut says {evidence.count} under {evidence.digest}"
    tokens = tuple(token for chunk in chunks for token in chunk.tokens)
    logprobs = tuple(value for chunk in chunks for value in chunk.logprobs)
    prefix = Prefix(
        keys=evidence.keys,
        tokens=tokens,
        logprobs=logprobs,
        digest=evidence.digest,
        segments=joined_segments(tuple((chunk.weight_version, len(chunk.tokens)) for chunk in chunks)),
        finish=last.finish,
        routes=joined_chunks(chunks) if routed else None,
    )
    return prefix, tuple(chunks)


def chunk_fault(chunk: ChunkRow, key: str, before: Sequence[ChunkRow], request: Generate, limit: int, version: int) -> str:
    """Does this chunk continue exactly those before it, and belong to this very call?"""
    start = before[-1].end if before else 0
    oldest = before[-1].attempt if before else 0
    if not oldest <= chunk.attempt <= request.attempt:
        return f"attempt is {chunk.attempt}: it must be from {oldest} to {request.attempt}"
    captured = GymCheckpointEpisode(request.rollout_id, chunk.attempt).capture_key
    call = staging_key(captured, request.call.rpartition("/")[2])
    cumulative = before[-1].cumulative if before else ""
    digest = chunk_digest(chunk)
    for name, found, expected in (
        ("v", chunk.v, CHUNK_ROW_VERSION),
        ("key", chunk.key, key),
        ("call", chunk.call, call),
        ("key", chunk.key, chunk_key(call, start)),
        ("rollout_id", chunk.rollout_id, request.rollout_id),
        ("ordinal", chunk.ordinal, request.ordinal),
        ("generation", chunk.generation, request.generation),
        ("turn", chunk.turn, request.turn),
        ("previous_length", chunk.previous_length, request.previous_length),
        ("carry", chunk.carry, carry_digest(request.carry)),
        ("start", chunk.start, start),
        ("limit", chunk.limit, limit),
        ("digest", chunk.digest, digest),
        ("cumulative", chunk.cumulative, prefix_digest(cumulative, digest)),
    ):
        if found != expected:
            return f"{name} is {found!r}, it must be {expected!r}"
    if not chunk.tokens or len(chunk.tokens) != len(chunk.logprobs):
        return f"it has {len(chunk.tokens)} tokens and {len(chunk.logprobs)} logprobs"
    if as_float32s(chunk.logprobs) != chunk.logprobs:
        return "a logprob is not a 32-bit float"
    if before and chunk.extras is not None and chunk.extras.media:
        return "it names media, and is not the first chunk"
    if before and before[-1].finish:
        return "the chunk before it had ended the call"
    if chunk.finish and chunk.finish not in ENDS:
        return f"finish is {chunk.finish!r}"
    if before and chunk.weight_version < before[-1].weight_version:
        return f"its weights are {chunk.weight_version}, those before it {before[-1].weight_version}"
    if chunk.weight_version > version:
        return f"its weights are {chunk.weight_version}, this worker's are {version}"
    if chunk.end > limit:
        return f"it ends at token {chunk.end}, the output limit is {limit}"
    return ""


def prefix_media_fault(rt: Runtime, live: LiveCall, first: ChunkRow) -> str:
    """Why the call may not go on after what was generated from the media that its first chunk names, or ''."""
    saved = () if first.extras is None else first.extras.media
    if not saved and not live.media.items:
        return ""
    return compare(rt, live.call, first.key, PREFIX, saved, live.media.items, len(live.request.carry))


class PrefixRestorer:
    """One for a worker."""

    def __init__(self, rt: Runtime, engine: Engine, reader: PrefixReader, cleanup: ChunkCleanup) -> None:
        self.rt = rt
        self.engine = engine
        self.reader = reader
        self.cleanup = cleanup
        self.owners: dict[str, str] = {}  # digest of a restored cut -> the call that owns it, or CONSUMED

    async def restore(self, live: LiveCall) -> None:
        """Resolve the prefix that this call was given, if it can be used: ``live.inherited`` and ``durable`` are it then.

        Raises Refusal(DATA) where going on, and generating again too, would be from other media: the call is rejected."""
        evidence = live.request.prefix
        assert evidence is not None
        live.resolved = True
        if not self.claim(live.call, evidence):
            self.fell_back(live, "another call owns it, or has consumed it")
            return
        reason = "interrupted"
        try:
            reason = await self.resolve_generation_cut(live, evidence)
        finally:
            if reason:
                self.release(live)
                self.fell_back(live, reason, rejects(reason))
                self.cleanup.leave(live.call, evidence.keys, "retired")
        if rejects(reason):
            raise Refusal(reason, Cause.DATA)

    def refuse(self, live: LiveCall, reason: str) -> None:
        """The call is refused before its prefix was looked at: its rows are nobody's."""
        evidence, live.resolved = live.request.prefix, True
        if evidence is not None:
            self.fell_back(live, reason, rejects(reason))
            self.cleanup.leave(live.call, evidence.keys, "retired")

    async def resolve_generation_cut(self, live: LiveCall, evidence: PrefixEvidence) -> str:
        """Read, verify, take over. Returns why the prefix cannot be used, '' if it is in place."""
        fault = evidence_fault(evidence, live.limit)
        if fault:
            return fault
        fetched = await self.reader.read(live.call, evidence.keys)
        if fetched.missing:
            key, why = next(iter(fetched.missing.items()))
            return f"{len(fetched.missing)} of its {len(evidence.keys)} chunks cannot be read, such as {key}: {why}"
        found = decide_prefix(evidence, fetched.rows, live.request, live.version, live.routes is not None)
        if isinstance(found, str):
            return found
        prefix, chunks = found
        reason = prefix_media_fault(self.rt, live, chunks[0])
        if reason:
            return reason
        remaining = evidence.limit - evidence.count
        finish = prefix.finish
        if not finish and prefix.tokens[-1] in self.engine.stop_tokens():
            finish = "stop"
        elif not finish and remaining == 0:
            finish = "length"
        routes = prefix.routes
        if routes is not None and finish and not prefix.finish:
            routes = ended_rows(routes)
        live.inherited = live.durable = msgspec.structs.replace(prefix, finish=finish, routes=routes)
        self.rt.record(
            PrefixRestored(
                live.call,
                prefix.keys,
                len(prefix.tokens),
                prefix.digest,
                prefix_content(prefix.tokens, prefix.logprobs),
                prefix.segments[0][0],
                routes_digest(routes, live.request.previous_length) if routes is not None else "",
                remaining,
                bool(finish),
                (routes.layers, routes.top_k) if routes is not None else (0, 0),
            )  # fmt: skip
        )
        return ""

    def claim(self, call: str, evidence: PrefixEvidence) -> bool:
        owned = evidence.digest not in self.owners
        if owned:
            self.owners[evidence.digest] = call
        self.rt.record(PrefixClaimed(call, evidence.digest, evidence.keys, "owned" if owned else "refused"))
        return owned

    def owns(self, live: LiveCall) -> bool:
        evidence = live.request.prefix
        return evidence is not None and self.owners.get(evidence.digest) == live.call

    def release(self, live: LiveCall) -> None:
        """The call does without it: nobody has used it."""
        evidence = live.request.prefix
        if evidence is not None and self.owns(live):
            del self.owners[evidence.digest]
            self.rt.record(PrefixReleased(live.call, evidence.digest, "released"))

    def consume(self, live: LiveCall) -> None:
        """The call's own row holds it now."""
        evidence = live.request.prefix
        if evidence is None or not self.owns(live):
            return
        del self.owners[evidence.digest]  # the newest last
        self.owners[evidence.digest] = CONSUMED
        self.rt.record(PrefixReleased(live.call, evidence.digest, CONSUMED))
        if len(self.owners) > OWNERS_KEPT:
            oldest = next((digest for digest, owner in self.owners.items() if owner == CONSUMED), "")
            self.owners.pop(oldest, None)

    def fell_back(self, live: LiveCall, reason: str, rejected: bool = False) -> None:
        assert live.request.prefix is not None
        self.rt.record(PrefixFellBack(live.call, live.request.prefix.keys, reason, rejected))
