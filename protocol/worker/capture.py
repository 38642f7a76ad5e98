"""Capture of one model call: the delta row that it stages, and the coordinate that names it (PROTOCOL 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from protocol.data_plane.digests import (
    CHILD_MODE,
    ROOT_MODE,
    STAGED_ROW_VERSION,
    StagedRow,
    as_float32s,
    cumulative_digest,
    row_digest,
)
from protocol.data_plane.extras import Extras
from protocol.data_plane.routes import boundary_rows, routes_digest, row_count, rows_between
from protocol.history import CallAsked, EngineFound
from protocol.identity import model_call_id
from protocol.messages import Coordinate, Generate
from protocol.parts import Capabilities


def asked_of(request: Generate) -> CallAsked:
    """What the request asks for, as the history tells of it."""
    sampling, prefix = request.sampling, request.prefix
    return CallAsked(
        call=request.call,
        carry=len(request.carry),
        previous=request.previous_length,
        limit=-1 if sampling.max_tokens is None else sampling.max_tokens,
        seed=-1 if sampling.seed is None else sampling.seed,
        temperature=sampling.temperature,
        stop=len(sampling.stop),
        bad_words=len(sampling.bad_words),
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        grammar=bool(sampling.grammar),
        media=len(request.media),
        prefix=0 if prefix is None else prefix.count,
        keys=() if prefix is None else prefix.keys,
        digest="" if prefix is None else prefix.digest,
        prefix_limit=-1 if prefix is None else prefix.limit,
    )


def found_of(capabilities: Capabilities) -> EngineFound:
    """What an engine says of itself, as the history tells of it."""
    routes = capabilities.routes
    layout = (0, 0, "") if routes is None else (routes.layers, routes.top_k, routes.dtype)
    return EngineFound(capabilities.release, capabilities.position_keyed_draws, *layout)


def delta_row(
    request: Generate,
    segments: tuple[tuple[int, int], ...],
    tokens: Sequence[int],
    logprobs: Sequence[float],
    extras: Extras | None = None,
) -> StagedRow:
    """Carry (mask 0, logprob 0), then what was generated (mask 1), with both digests filled in.

    ``segments``: (weight version, tokens) of what was generated, at least one.
    """
    carried = len(request.carry)
    row = StagedRow(
        v=STAGED_ROW_VERSION,
        key=request.call,
        rollout_id=request.rollout_id,
        attempt=request.attempt,
        call=model_call_id(request.turn),
        ordinal=request.ordinal,
        generation=request.generation,
        turn=request.turn,
        mode=CHILD_MODE if request.parent else ROOT_MODE,
        parent=request.parent,
        previous_length=request.previous_length,
        tokens=request.carry + tuple(tokens),
        mask=(0,) * carried + (1,) * len(tokens),
        logprobs=(0.0,) * carried + as_float32s(logprobs),
        weight_version=segments[0][0],
        digest="",
        cumulative="",
        extras=extras,
        segments=segments if len(segments) > 1 else (),
    )
    return sealed_row(row, request.parent_cumulative)


def sealed_row(row: StagedRow, parent_cumulative: str) -> StagedRow:
    """The row with its digests: its own, and its chain's up to and with it."""
    fields = {name: getattr(row, name) for name in row.__struct_fields__}
    digest = row_digest(row)
    fields["digest"] = digest
    fields["cumulative"] = cumulative_digest(parent_cumulative, digest)
    return StagedRow(**fields)


def coordinate_of(row: StagedRow) -> Coordinate:
    return Coordinate(row.key, row.digest, row.cumulative, row.weight_version, row.generated)


def lost_coordinate(row: StagedRow) -> Coordinate:
    """Of a row that could not be staged: no digest, so that no chain through it can be verified."""
    return Coordinate(row.key, "", "", row.weight_version, row.generated)


class RoutesTold(msgspec.Struct, frozen=True):
    """Of a staged row's routes: digests of those of the restored prefix and the carry before it, of all of the call's own
    tokens, of the boundary row ('' where there are none); how many rows there are (-1: the row has no routes)."""

    prefix: str = ""
    own: str = ""
    boundary: str = ""
    rows: int = -1


def routes_told(row: StagedRow, prefix: int) -> RoutesTold:
    """``prefix`` of the generated tokens were restored."""
    block = row.extras.routes if row.extras is not None else None
    if block is None:
        return RoutesTold()
    first, boundary, rows = row.previous_length, boundary_rows(row.previous_length), row_count(block)
    own = rows_between(block, boundary, rows)
    restored = rows_between(own, 0, len(row.tokens) - row.generated + prefix)
    return RoutesTold(
        routes_digest(restored, first) if prefix else "",
        routes_digest(own, first),
        routes_digest(rows_between(block, 0, boundary), first - 1) if boundary else "",
        rows,
    )
