"""From the staged rows of one sealed attempt to its canonical row (PROTOCOL 3.3, 3.4).

Nothing here raises for a bad row: what is wrong with a chain is data, because a bad chain costs its sample
(a masked row), never the group and never the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from protocol.data_plane.digests import (
    CHILD_MODE,
    ROOT_MODE,
    STAGED_ROW_VERSION,
    StagedRow,
    as_float32s,
    cumulative_digest,
    decode_row,
    joined_segments,
    row_digest,
)
from protocol.data_plane.extras import MediaItem, RouteBlock
from protocol.data_plane.media import bytes_fault, span_fault
from protocol.data_plane.routes import (
    all_real,
    block_fault,
    boundary_rows,
    is_placeholder,
    joined,
    placeholder,
    row_count,
    row_size,
    rows_between,
    shaped,
    widened,
    widest,
)
from protocol.data_plane.rows import CANONICAL_ROW_VERSION, CanonicalRow, moved, sealed, tools_digest
from protocol.identity import GymCheckpointEpisode, model_call_id, staging_key
from protocol.ledger.receipts import receipt_of
from protocol.messages import Coordinate, Receipt

TOKEN_END = 1 << 32  # token ids are u32
FLOAT32_MAX = 3.4028234663852886e38


class Chain(msgspec.Struct, frozen=True, gc=False):
    """``rows`` that could be verified, root first; ``reason`` why the next one could not, '' if the chain is whole."""

    rows: tuple[StagedRow, ...]
    reason: str


def verify_chain(receipt: Receipt, staged: Mapping[str, bytes], ordinal: int, generation: int) -> Chain:
    """Check every call of ``receipt`` against what staging holds (``staged``: row bytes by staging key).

    The receipt names the terminal chain, root first and terminal last; its own digest says that none of its calls
    is missing. Verification stops at the first fault.
    """
    if receipt != receipt_of(receipt.rollout_id, receipt.key, receipt.calls):
        return Chain((), f"{receipt.key}: the receipt differs from its digest {receipt.digest}")
    rows: list[StagedRow] = []
    for turn, coordinate in enumerate(receipt.calls):
        data = staged.get(coordinate.key)
        if data is None:
            return Chain(tuple(rows), f"{coordinate.key}: missing from staging")
        try:
            row = decode_row(data)
        except msgspec.DecodeError as error:
            return Chain(tuple(rows), f"{coordinate.key}: not a staged row ({error})")
        fault = (
            identity_fault(receipt, coordinate, row, ordinal, generation, turn)
            or parent_fault(row, rows)
            or column_fault(row)
            or route_fault(row, rows)
            or media_fault(row)
            or digest_fault(coordinate, row, rows[-1].cumulative if rows else "")
        )
        if fault:
            return Chain(tuple(rows), f"{coordinate.key}: {fault}")
        rows.append(row)
    return Chain(tuple(rows), "" if rows else f"{receipt.key}: the receipt names no call")


def identity_fault(receipt: Receipt, coordinate: Coordinate, row: StagedRow, ordinal: int, generation: int, turn: int) -> str:
    """Is this the row that the coordinate names, and a call of this rollout?"""
    sealed_by = GymCheckpointEpisode.of(receipt.key)
    # Turns that a restored episode had completed were captured under an earlier attempt of the same rollout.
    if not 0 <= row.attempt <= sealed_by.attempt:
        return f"attempt is {row.attempt}, the sealed attempt is {sealed_by.attempt}"
    captured = GymCheckpointEpisode(receipt.rollout_id, row.attempt).capture_key
    return _differs(
        ("v", row.v, STAGED_ROW_VERSION),
        ("rollout_id of the receipt's key", sealed_by.rollout_id, receipt.rollout_id),
        ("rollout_id", row.rollout_id, receipt.rollout_id),
        ("key", row.key, coordinate.key),
        ("key", row.key, staging_key(captured, row.call)),
        ("call", row.call, model_call_id(turn)),
        ("turn", row.turn, turn),
        ("ordinal", row.ordinal, ordinal),
        ("generation", row.generation, generation),
        ("weight_version", row.weight_version, coordinate.version),
    )


def parent_fault(row: StagedRow, before: Sequence[StagedRow]) -> str:
    """Does this row continue exactly the rows before it? ``before`` is empty for the root."""
    if not before:
        return _differs(("mode", row.mode, ROOT_MODE), ("parent", row.parent, ""), ("previous_length", row.previous_length, 0))
    parent = before[-1]
    if row.attempt < parent.attempt:
        return f"attempt is {row.attempt}, its parent's is {parent.attempt}"
    return _differs(
        ("mode", row.mode, CHILD_MODE),
        ("parent", row.parent, parent.key),
        ("previous_length", row.previous_length, parent.previous_length + len(parent.tokens)),
    )


def column_fault(row: StagedRow) -> str:
    """Are the columns of one length, first the carry and then what was generated, every logprob finite?"""
    lengths = len(row.tokens), len(row.mask), len(row.logprobs)
    if len(set(lengths)) != 1 or not row.tokens:
        return "tokens, mask and logprobs have {}, {} and {} items: they must be equal, and at least 1".format(*lengths)
    carry = len(row.tokens) - row.mask.count(1)
    if row.mask != (0,) * carry + (1,) * (len(row.tokens) - carry):
        return "mask is not carry (0) followed by generated tokens (1)"
    if carry == len(row.tokens):
        return "no token was generated"
    if not all(0 <= token < TOKEN_END for token in row.tokens):
        return "a token id is not an unsigned 32-bit integer"
    finite = all(math.isfinite(value) and abs(value) <= FLOAT32_MAX for value in row.logprobs)
    # The digest covers 32 bits of each logprob: more bits than that would be trained on unverified.
    if not finite or as_float32s(row.logprobs) != row.logprobs:
        return "a logprob is not a finite 32-bit float"
    if any(row.logprobs[:carry]):
        return "a carried token has a logprob"
    return segment_fault(row)


def segment_fault(row: StagedRow) -> str:
    """Do its segments, if it has any, tell of all that was generated, oldest weights first?"""
    versions = [version for version, _ in row.segments]
    if not versions:
        return ""
    if len(versions) < 2 or any(left >= right for left, right in zip(versions, versions[1:], strict=False)):
        return f"its segments are of weight versions {versions}: they must be at least two, and ascend"
    counts = [count for _, count in row.segments]
    if versions[0] != row.weight_version or min(counts) < 1 or sum(counts) != row.generated:
        return (
            f"its segments {list(row.segments)} are not those of {row.generated} tokens from weight version {row.weight_version}"
        )
    return ""


def route_fault(row: StagedRow, before: Sequence[StagedRow]) -> str:
    """Are its routes, if it has any, one row for each token behind the boundary row, the last one the placeholder?"""
    block = routes_in(row)
    if block is None:
        return ""
    fault = block_fault(block)
    if fault:
        return fault
    boundary = boundary_rows(row.previous_length)
    count, expected = row_count(block), boundary + len(row.tokens)
    if count != expected:
        return f"there are {count} route rows, they must be {expected}"
    if not is_placeholder(block, count - 1):
        return "the last route row is not the placeholder"
    # The boundary row is the placeholder in a call that was answered from a finished prefix: no engine has fed it the token.
    if not all_real(rows_between(block, boundary, count - 1)):
        return "a token that was fed has no route row"
    if boundary and not is_placeholder(block, 0) and not all_real(rows_between(block, 0, 1)):
        return "the boundary row is neither a token's nor the placeholder"
    shape = (block.layers, block.top_k)
    for other in filter(None, map(routes_in, before)):
        if shape != (other.layers, other.top_k):
            return f"route rows are of {shape}, those before are of {(other.layers, other.top_k)}"
    return ""


def digest_fault(coordinate: Coordinate, row: StagedRow, parent_cumulative: str) -> str:
    """Are the row and the chain up to it what the worker acknowledged? The columns must be sound."""
    digest = row_digest(row)
    cumulative = cumulative_digest(parent_cumulative, digest)
    return _differs(
        ("generated tokens", row.generated, coordinate.tokens),
        ("digest", row.digest, digest),
        ("digest", coordinate.digest, digest),
        ("cumulative", row.cumulative, cumulative),
        ("cumulative", coordinate.cumulative, cumulative),
    )


def _differs(*compared: tuple[str, object, object]) -> str:
    """The first (name, found, expected) that differs, in words, or ''."""
    for name, found, expected in compared:
        if found != expected:
            return f"{name} is {found!r}, it must be {expected!r}"
    return ""


def carried(row: StagedRow) -> tuple[int, ...]:
    """The tokens before what was generated: the prompt, for a root; else what the tools answered."""
    return row.tokens[: len(row.tokens) - row.generated]


def routes_in(row: StagedRow) -> RouteBlock | None:
    return row.extras.routes if row.extras is not None else None


def media_fault(row: StagedRow) -> str:
    """Are its media, if it has any, well-formed, and their tensors those that they name?"""
    extras = row.extras
    if extras is None or not (extras.media or extras.tensors):
        return ""
    fault = span_fault(extras.media, len(row.tokens) - row.generated) or bytes_fault(extras.media, extras.tensors)
    return f"its media cannot be read: {fault}" if fault else ""


def linear_media(chain: Sequence[StagedRow]) -> tuple[MediaItem, ...]:
    """The media of all calls of a verified chain, their places counted from the row's first token."""
    items = ((row.previous_length, row.extras.media) for row in chain if row.extras is not None)
    return tuple(moved(item, before) for before, media in items for item in media)


def linear_routes(chain: Sequence[StagedRow]) -> RouteBlock | None:
    """The routes of a verified chain, one row for each token: each call's boundary row takes the place of the placeholder
    that its parent ends in. A call that was staged without routes is a span of placeholders. None: no call has routes."""
    blocks = [routes_in(row) for row in chain]
    found = [block for block in blocks if block is not None]
    if not found:
        return None
    dtype = widest(block.dtype for block in found)
    shape = shaped(dtype, found[0].layers, found[0].top_k)
    size = row_size(shape)
    rows = bytearray()
    for row, block in zip(chain, blocks, strict=True):
        if block is None:
            rows += placeholder(shape, len(row.tokens))
            continue
        data, boundary = widened(block, dtype).data, boundary_rows(row.previous_length) * size
        rows[len(rows) - boundary :] = data
    return joined(shape, (rows,))


def linearise(sample: str, group: str, chain: Sequence[StagedRow], reward: float) -> CanonicalRow:
    """The canonical row of a verified chain (root first, at least one row)."""
    root = chain[0]
    return sealed(
        CanonicalRow(
            v=CANONICAL_ROW_VERSION,
            sample=sample,
            group=group,
            ordinal=root.ordinal,
            generation=root.generation,
            tokens=tuple(token for row in chain for token in row.tokens),
            mask=tuple(mask for row in chain for mask in row.mask),
            logprobs=tuple(value for row in chain for value in row.logprobs),
            prompt_length=len(carried(root)),
            spans=tuple((row.weight_version, row.generated) for row in chain),
            reward=reward,
            sample_mask=1,
            tools=tools_digest([carried(row) for row in chain[1:]]),
            keys=tuple(row.key for row in chain),
            digest="",
            routes=linear_routes(chain),
            media=linear_media(chain),
            tensors=tuple(data for row in chain if row.extras is not None for data in row.extras.tensors),
            segments=linear_segments(chain),
        )
    )


def linear_segments(chain: Sequence[StagedRow]) -> tuple[tuple[int, int], ...]:
    """(weight version, tokens) of all that was generated; empty where each call's span says it."""
    if not any(row.segments for row in chain):
        return ()
    return joined_segments(*(row.segments or ((row.weight_version, row.generated),) for row in chain))


def masked(sample: str, group: str, ordinal: int, generation: int, prompt: tuple[int, ...]) -> CanonicalRow:
    """The row that stands in for a sample whose chain cannot be trusted: its prompt, sample_mask 0, reward 0."""
    return sealed(
        CanonicalRow(
            v=CANONICAL_ROW_VERSION,
            sample=sample,
            group=group,
            ordinal=ordinal,
            generation=generation,
            tokens=prompt,
            mask=(0,) * len(prompt),
            logprobs=(0.0,) * len(prompt),
            prompt_length=len(prompt),
            spans=(),
            reward=0.0,
            sample_mask=0,
            tools=tools_digest(()),
            keys=(),
            digest="",
        )
    )
