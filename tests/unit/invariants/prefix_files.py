"""Hand-written chunk rows, cuts and snapshots for the judges of the prefix level."""

from __future__ import annotations

from typing import Any

import msgspec
from ledger_files import SOURCE, attempt, group, pack, snapshot, terms

from protocol.data_plane.chunks import ChunkRow, encode_chunk, prefix_content, sealed_chunk
from protocol.data_plane.digests import carry_digest
from protocol.data_plane.extras import Extras
from protocol.history import CallAsked, ChunkStaged, CutAcknowledged, PrefixRestored
from protocol.identity import GymCheckpointEpisode, chunk_key
from protocol.judging import Terms

GROUP = "e0p0i1"
KEY = f"{GROUP}_g0r0-a0"
NEXT = f"{GROUP}_g0r0-a1"
CALL = f"{KEY}/c0"
AGAIN = f"{NEXT}/c0"
CARRY = (3, 4)
TOKENS = (11, 12, 13, 14, 15)
LOGPROBS = (-0.5, -0.25, -1.0, -2.0, -0.75)
LIMIT = 8
CHECKPOINT = "1-1"


def prefix_terms(**job: Any) -> Terms:
    return terms(**{"target_level": "prefix", "max_new_tokens": LIMIT, **job})


def chunk(start: int, end: int, before: str = "", call: str = CALL, **other: Any) -> ChunkRow:
    """Tokens [start, end) of the hand-written call; ``before`` is the chain's digest up to it."""
    key, _, turn = call.rpartition("/c")
    episode = GymCheckpointEpisode.of(key)
    values: dict[str, Any] = {
        "v": 1, "key": chunk_key(call, start), "call": call, "rollout_id": episode.rollout_id, "attempt": episode.attempt,
        "ordinal": 0, "generation": 0, "turn": int(turn), "previous_length": 0, "carry": carry_digest(CARRY), "start": start,
        "tokens": TOKENS[start:end], "logprobs": LOGPROBS[start:end], "limit": LIMIT, "finish": "", "weight_version": 0,
        "extras": None, "digest": "", "cumulative": "",
    }  # fmt: skip
    return sealed_chunk(ChunkRow(**{**values, **other}), before)


def chunks(*ends: int, call: str = CALL, extras: Extras | None = None, **other: Any) -> list[ChunkRow]:
    """A chain of chunks that end there; ``extras`` of the first."""
    out: list[ChunkRow] = []
    for end in ends:
        start = out[-1].end if out else 0
        held = extras if not out else None
        out.append(chunk(start, end, out[-1].cumulative if out else "", call, extras=held, **other))
    return out


def evidence(rows: list[ChunkRow], **other: Any) -> dict[str, Any]:
    """What a saved session's record says of a cut."""
    return {
        "keys": [row.key for row in rows], "count": rows[-1].end, "digest": rows[-1].cumulative, "limit": rows[-1].limit,
        "buffer": "rollout_staging", **other,
    }  # fmt: skip


def saved(rows: list[ChunkRow], cut: dict[str, Any] | None = None, stored: list[ChunkRow] | None = None) -> dict[str, bytes]:
    """A run folder whose only snapshot holds one episode, cut in its first model call. ``stored``: rows in staging."""
    episode = GymCheckpointEpisode.of(KEY)
    cut = evidence(rows) if cut is None else cut
    gym = {
        "schema": 1, "checkpoint": CHECKPOINT, "topology": ["gym-0"],
        "instances": {"gym-0": {"participants": ["agent"], "restarts": [], "episodes": [
            {"rollout_id": episode.rollout_id, "attempt": episode.attempt, "staging_keys": list(cut.get("keys") or ())}]}},
    }  # fmt: skip
    files = snapshot(group(0, attempt(KEY, "DISPATCHED"), level="prefix"), gym=gym)
    staging = rows if stored is None else stored
    record = {"turn": 0, "calls": [], "finished": False, "cut": cut or None, "ordinal": 0, "generation": 0}
    return {
        **files,
        f"{SOURCE}/data_plane/rollout_staging.msgpack": pack([[row.key, encode_chunk(row)] for row in staging]),
        f"{SOURCE}/gym/gym-0/agent/episodes.msgpack": pack({KEY: record}),
    }


def asked(call: str = CALL, rows: list[ChunkRow] | None = None, **other: Any) -> CallAsked:
    values: dict[str, Any] = {"call": call, "carry": len(CARRY), "previous": 0}
    if rows:
        values |= {
            "prefix": rows[-1].end, "keys": tuple(row.key for row in rows), "digest": rows[-1].cumulative,
            "prefix_limit": rows[-1].limit,
        }  # fmt: skip
    return CallAsked(**{**values, **other})


def content(rows: list[ChunkRow]) -> str:
    return prefix_content([token for row in rows for token in row.tokens], [value for row in rows for value in row.logprobs])


def staged(row: ChunkRow, **other: Any) -> ChunkStaged:
    values: dict[str, Any] = {
        "call": row.call, "key": row.key, "start": row.start, "end": row.end, "digest": row.digest, "cumulative": row.cumulative,
        "content": content([row]), "route_rows": -1, "carried": 0, "extras": (), "bytes": len(encode_chunk(row)),
    }  # fmt: skip
    return ChunkStaged(**{**values, **other})


def acknowledged(rows: list[ChunkRow], **other: Any) -> CutAcknowledged:
    values: dict[str, Any] = {
        "call": rows[-1].call, "checkpoint": CHECKPOINT, "kind": "durable_prefix", "count": rows[-1].end,
        "digest": rows[-1].cumulative, "keys": tuple(row.key for row in rows), "limit": rows[-1].limit, "content": content(rows),
    }  # fmt: skip
    return CutAcknowledged(**{**values, **other})


def restored(rows: list[ChunkRow], call: str = AGAIN, **other: Any) -> PrefixRestored:
    values: dict[str, Any] = {
        "call": call, "keys": tuple(row.key for row in rows), "count": rows[-1].end, "digest": rows[-1].cumulative,
        "content": content(rows), "version": min(row.weight_version for row in rows), "routes": "",
        "remaining": rows[-1].limit - rows[-1].end, "terminal": False,
    }  # fmt: skip
    return PrefixRestored(**{**values, **other})


def changed(row: ChunkRow, **other: Any) -> ChunkRow:
    """The row with other content under its old digests."""
    return msgspec.structs.replace(row, **other)
