"""The judges' own reader of chunk rows and of the evidence that saved sessions hold of them; digests are made again here."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from invariants.ledger.trained_content import content_digest
from protocol.identity import GymCheckpointEpisode, chunk_key

ITEM_BYTES = {"int8": 1, "int16": 2, "int32": 4}
SENTINEL = b"\xff"  # -1 in every signed type, byte by byte
NO_EXTRAS = b"\xc0"  # msgpack's nil

Remember = Callable[[Any, Callable[[], Any]], Any]


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """A chunk row as a judge reads it (``docs/design.md``). ``extras`` are the bytes that the digest covers."""

    v: int
    key: str
    call: str
    rollout_id: str
    attempt: int
    ordinal: int
    generation: int
    turn: int
    previous_length: int
    carry: str
    start: int
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    limit: int
    finish: str
    weight_version: int
    extras: msgspec.Raw
    digest: str
    cumulative: str

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """What a saved session says of the cut that it goes on from."""

    keys: tuple[str, ...]
    count: int
    digest: str
    limit: int


class Rebuilt(msgspec.Struct, frozen=True, gc=False):
    """A prefix put together from its chunks. ``faults``: why it cannot be one, in words; then the rest is as far as it got.

    ``content`` digests tokens and logprobs, ``version`` is the oldest of their weights and ``newest`` the newest, ``media``
    are the first chunk's items; ``segments``: (weight version, tokens), in order.
    """

    faults: tuple[str, ...]
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    content: str = ""
    version: int = -1
    finish: str = ""
    carry: str = ""
    media: tuple[Any, ...] = ()
    newest: int = -1
    segments: tuple[tuple[int, int], ...] = ()


_chunk = msgspec.msgpack.Decoder(Chunk).decode


def read_chunk(data: bytes) -> Chunk | None:
    try:
        return _chunk(data)
    except (msgspec.DecodeError, TypeError):
        return None


def digest_of(row: Chunk) -> str:
    """SHA-256 hex of everything in the row but its two digests, made from what lies there."""
    texts = [text.encode() for text in (row.key, row.call, row.rollout_id, row.carry, row.finish)]
    head = struct.pack(f">{len(texts)}I", *(len(text) for text in texts)) + b"".join(texts)
    counts = struct.pack(
        ">9q", row.v, row.attempt, row.ordinal, row.generation, row.turn, row.previous_length, row.start, row.limit,
        row.weight_version,
    )  # fmt: skip
    size = len(row.tokens)
    columns = struct.pack(f">2I{size}I{len(row.logprobs)}f", size, len(row.logprobs), *row.tokens, *row.logprobs)
    held = bytes(row.extras)
    extras = b"" if held == NO_EXTRAS else hashlib.sha256(b"extras\x01" + held).digest()
    return hashlib.sha256(b"chunk\x01" + head + counts + columns + extras).hexdigest()


def chained(before: str, digest: str) -> str:
    """Digest of a chain of chunks up to and with the one of ``digest``."""
    return hashlib.sha256(b"prefix\x01" + struct.pack(">2I", len(before), len(digest)) + (before + digest).encode()).hexdigest()


def extras_of(row: Chunk) -> dict[str, Any]:
    held = msgspec.msgpack.decode(row.extras)
    return held if isinstance(held, dict) else {}


def faults_of(row: Chunk) -> Iterator[str]:
    """What is wrong with one row, whoever goes on from it."""
    if not row.tokens or len(row.tokens) != len(row.logprobs):
        yield f"{row.key} holds {len(row.tokens)} tokens and {len(row.logprobs)} logprobs"
    if not all(map(math.isfinite, row.logprobs)):
        yield f"{row.key} holds a logprob that is not finite"
    if row.key != chunk_key(row.call, row.start):
        yield f"{row.key} begins at token {row.start} of {row.call}"
    if row.call.rpartition("/")[0] != GymCheckpointEpisode(row.rollout_id, row.attempt).capture_key:
        yield f"{row.key} is said to be of attempt {row.attempt} of {row.rollout_id}"
    if row.limit < row.end:
        yield f"{row.key} ends at token {row.end}, the call's limit is {row.limit}"
    try:
        right = digest_of(row)
    except (struct.error, OverflowError):
        right = "none: a column holds what it cannot"
    if row.digest != right:
        yield f"{row.key} says digest {row.digest[:12]}, its content has {right[:12]}"


def joined_segments(parts: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """(weight version, tokens) of tokens that follow each other: neighbours of one version are one, empty ones none."""
    out: list[tuple[int, int]] = []
    for version, count in parts:
        if count and out and out[-1][0] == version:
            out[-1] = version, out[-1][1] + count
        elif count:
            out.append((version, count))
    return tuple(out)


def rebuild(rows: Mapping[str, bytes], cut: Evidence, remember: Remember) -> Rebuilt:
    """The prefix that ``cut`` names, from the staging rows ``rows``."""
    found: list[Chunk] = []
    faults: list[str] = []
    for key in cut.keys:
        data = rows.get(key)
        row = None if data is None else remember(("chunk", data), partial(read_chunk, data))
        if row is None:
            return Rebuilt((f"{key} is {'missing' if data is None else 'no chunk row'}",))
        if row.key != key:
            faults.append(f"{key} holds the row of {row.key}")
        found.append(row)
    if not found:
        return Rebuilt(("it names no chunk",))
    for row in found:
        faults += remember(("chunk faults", rows[row.key] if row.key in rows else row.key), partial(_faults, row))
    faults += chain_faults(found, cut)
    tokens = tuple(token for row in found for token in row.tokens)
    logprobs = tuple(value for row in found for value in row.logprobs)
    try:
        content = content_digest(tokens, (1,) * len(tokens), logprobs)
    except (struct.error, OverflowError):
        content = ""
    return Rebuilt(
        tuple(faults),
        tokens,
        logprobs,
        content,
        min(row.weight_version for row in found),
        found[-1].finish,
        found[0].carry,
        tuple(extras_of(found[0]).get("media") or ()),
        max(row.weight_version for row in found),
        joined_segments((row.weight_version, len(row.tokens)) for row in found),
    )


def _faults(row: Chunk) -> tuple[str, ...]:
    return tuple(faults_of(row))


def chain_faults(found: Sequence[Chunk], cut: Evidence) -> Iterator[str]:
    """Whether the chunks follow each other, and end in what the evidence says."""
    first, last = found[0], found[-1]
    end, before, newest = 0, "", first.weight_version
    for row in found:
        if row.start != end:
            yield f"{row.key} begins at token {row.start}, the one before it ends at {end}"
        if row.cumulative != chained(before, row.digest):
            yield f"{row.key} does not end the chain of the chunks before it"
        if row.weight_version < newest:
            yield f"{row.key} is of weights {row.weight_version}, one before it of {newest}"
        same = ("rollout_id", "ordinal", "generation", "turn", "previous_length", "carry", "limit")
        other = [name for name in same if getattr(row, name) != getattr(first, name)]
        if other:
            yield f"{row.key} is of another call than {first.key} ({', '.join(other)})"
        if row.attempt < first.attempt:
            yield f"{row.key} is of attempt {row.attempt}, the first chunk of {first.attempt}"
        if row.finish and row is not last:
            yield f"{row.key} says that the call has finished, and is not the last chunk"
        if row is not first and extras_of(row).get("media"):
            yield f"{row.key} is a later chunk, and holds media"
        end, before, newest = row.end, row.cumulative, max(newest, row.weight_version)
    if end != cut.count:
        yield f"its chunks hold {end} tokens, {cut.count} are named"
    if before != cut.digest:
        yield f"its chain ends in {before[:12]}, {cut.digest[:12]} is named"
    if last.limit != cut.limit:
        yield f"its chunks are of a limit of {last.limit}, {cut.limit} is named"


def cut_in(record: Any) -> Evidence | None:
    """The evidence in a saved session's record, as plain data; None: it stands at its turn boundary."""
    cut = record.get("cut") if isinstance(record, dict) else None
    return None if not cut else Evidence(tuple(cut["keys"]), cut["count"], cut["digest"], cut["limit"])


def saved_cuts(read: Callable[[str], Any], gym: Any) -> dict[str, tuple[str, Evidence]]:
    """Saved key -> (the model call that was cut, its evidence), of every episode that a manifest names.

    ``read`` gives the content of a file below the snapshot's folder as plain data; ``gym`` is its gym_checkpoint.json.
    """
    out: dict[str, tuple[str, Evidence]] = {}
    for name, part in ((gym or {}).get("instances") or {}).items():
        named = [f"{one['rollout_id']}-a{one['attempt']}" for one in part["episodes"]]
        for participant in part["participants"]:
            content = read(f"gym/{name}/{participant}/episodes.msgpack")
            records = content if isinstance(content, dict) else {}
            for key in named:
                cut = cut_in(records.get(key))
                if cut is not None:
                    out[key] = (f"{key}/c{records[key]['turn']}", cut)
    return out
