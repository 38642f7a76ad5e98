"""Router replay in a worker: from the engine's pieces to the route rows of a chunk or of a finished call (PROTOCOL 7).

    frozen calls -> packed into groups -> one handoff to the engine's loop a group: it copies lists of pieces, and nothing else
    pieces -> the rows of one call, each turned into bytes once, on the task that cuts or completes

The engine numbers a call's rows from its boundary row on (the parent's last token; there is none for a root), then the carry,
then what was generated; tokens that were restored are part of what it was fed, but their rows are those of the cut. Rows that
are missing are never made up: the call's cut fails, or its answer is staged without routes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from protocol.config import Job
from protocol.data_plane.chunks import ChunkRow
from protocol.data_plane.extras import RouteBlock
from protocol.data_plane.routes import (
    ENGINE_SIZES,
    SIZES,
    all_real,
    boundary_rows,
    from_engine,
    is_placeholder,
    joined,
    placeholder,
    row_count,
    row_size,
    rows_between,
    shaped,
    widened,
    widest,
    wire_dtype,
)
from protocol.history import RoutesAssembled
from protocol.parts import Capabilities, Engine, RouteLayout, RoutePiece
from protocol.runtime import Runtime
from protocol.worker.batches import decide_batches

ENGINE_LOOP = "engine"
GROUP_CALLS_MAX = 64  # calls of one handoff, whatever the batch size is: the loop stands still meanwhile
WHOLE, SHORT, MISFIT, UNREADABLE = "whole", "short", "misfit", "unreadable"


# Engines whose pieces are known to be append-only, with one row for each token that was fed (vLLM: 0.29, PROTOCOL 10). Any
# other release must have proved it on its host (``Capabilities.verified``).
VERIFIED_RELEASES = ("fake", "0.29")


def replay_fault(capabilities: Capabilities) -> str:
    """Why routes cannot be replayed from this engine, '' if they can be. How an engine keeps its pieces is its own affair, and
    another release may keep them otherwise: one that nobody has verified is refused, whatever it says of itself."""
    key, release, layout = "router_replay.enabled is true", capabilities.release, capabilities.routes
    if release not in VERIFIED_RELEASES and not capabilities.verified:
        verified = ", ".join(map(repr, VERIFIED_RELEASES))
        cure = ": run `rollproof models verify-engine` on this host" if release.startswith("vllm") else ""
        return f"{key}: the routes of engine release {release!r} are verified by nobody, those of {verified} are{cure}"
    if layout is None:
        return f"{key}: engine release {release!r} records no routes"
    if not wire_dtype(layout.dtype) or layout.layers < 1 or layout.top_k < 1:
        return f"{key}: nobody reads routes of {layout.layers} x {layout.top_k} {layout.dtype!r} (engine release {release!r})"
    return ""


class Assembled(msgspec.Struct, frozen=True, gc=False):
    """Rows of one call, or why there are none. ``materialised``: rows that were turned into bytes for it."""

    block: RouteBlock | None
    outcome: str
    reason: str
    materialised: int


@dataclass(eq=False, kw_only=True)
class CallRoutes:
    """What is known of one call's routes: its pieces, by reference, as far as they were read. ``boundary`` 0 or 1 rows come
    before those of the ``carry``."""

    layout: RouteLayout
    boundary: int
    carry: int
    pieces: list[RoutePiece] = field(default_factory=list)
    rows: int = 0  # in these pieces

    @property
    def shape(self) -> RouteBlock:
        return shaped(wire_dtype(self.layout.dtype), self.layout.layers, self.layout.top_k)

    def row_of(self, token: int) -> int:
        """Row of a generated token of the whole call, restored ones included."""
        return self.boundary + self.carry + token

    def absorb(self, first: int, pieces: Sequence[RoutePiece]) -> None:
        """The engine's pieces from number ``first`` on."""
        self.rows -= sum(piece.rows for piece in self.pieces[first:])
        self.pieces[first:] = pieces
        self.rows += sum(piece.rows for piece in pieces)

    def between(self, *ranges: tuple[int, int]) -> Assembled:
        """Rows [start, end) of each range, in order: exactly those. A piece that several of them need is read once."""
        needed = max(end for _, end in ranges)
        if needed > self.rows:
            return Assembled(None, SHORT, f"the engine has {self.rows} route rows, {needed} are needed", 0)
        parts: list[bytes] = []
        materialised = at = 0
        size = self.layout.layers * self.layout.top_k * ENGINE_SIZES[self.layout.dtype]
        for piece in self.pieces:
            rows = piece.rows
            inside = [(max(start - at, 0), min(end - at, rows)) for start, end in ranges if start < at + rows and end > at]
            at += rows
            if not inside:
                continue
            data = piece.read()
            materialised += rows
            if len(data) != rows * size:
                return Assembled(None, UNREADABLE, f"a piece of {rows} rows has {len(data)} bytes", materialised)
            parts += [from_engine(data[low * size : high * size], self.layout.dtype) for low, high in inside]
        block = joined(self.shape, parts)
        if not all_real(block):
            return Assembled(None, UNREADABLE, "a row of the engine holds no experts", materialised)
        return Assembled(block, WHOLE, "", materialised)

    # --- what is staged

    def chunk(self, start: int, count: int, finish: str) -> Assembled:
        """One row for each generated token [start, count), behind those of the carry if they are the first. No boundary row;
        the last token of a finished call has the placeholder."""
        first = self.boundary if start == 0 else self.row_of(start)
        found = self.between((first, self.row_of(count - 1 if finish else count)))
        if finish and found.block is not None:
            block = joined(self.shape, (found.block.data, placeholder(self.shape)))
            found = msgspec.structs.replace(found, block=block)
        return found

    def whole(self, count: int, prefix: RouteBlock | None, restored: int) -> Assembled:
        """The rows of a finished call of ``count`` generated tokens: the boundary row, those of the carry and of the
        ``restored`` tokens as they were cut (``prefix``), what the engine has routed since, the placeholder."""
        if not restored:
            found = self.between((0, self.row_of(count - 1)))
            return found if found.block is None else self._ended(found, (found.block,))
        kept = "no routes" if prefix is None else f"{row_count(prefix)} rows of {prefix.layers} x {prefix.top_k}"
        shape = self.shape
        if prefix is None or row_count(prefix) != self.carry + restored or not alike(prefix, shape):
            return Assembled(None, MISFIT, f"the restored prefix has {kept}: that is not its {restored} tokens'", 0)
        found = self.between((0, self.boundary), (self.row_of(restored), self.row_of(count - 1)))
        if found.block is None:
            return found
        head, tail = rows_between(found.block, 0, self.boundary), rows_between(found.block, self.boundary, row_count(found.block))
        return self._ended(found, (head, prefix, tail))

    def _ended(self, found: Assembled, parts: Sequence[RouteBlock]) -> Assembled:
        dtype = widest(part.dtype for part in parts)
        shape = shaped(dtype, self.layout.layers, self.layout.top_k)
        block = joined(shape, [*(widened(part, dtype).data for part in parts), placeholder(shape)])
        return msgspec.structs.replace(found, block=block)


def alike(left: RouteBlock, right: RouteBlock) -> bool:
    return (left.layers, left.top_k) == (right.layers, right.top_k)


def terminal_prefix(prefix: RouteBlock, boundary: int) -> Assembled:
    """Rows of a call that is answered from its finished prefix alone. Nothing was fed, so nobody has routed the parent's last
    token here: its row stays the placeholder that the parent's own row ends in."""
    return Assembled(joined(prefix, (placeholder(prefix, boundary), prefix.data)), WHOLE, "", 0)


def ended_rows(prefix: RouteBlock) -> RouteBlock:
    """The prefix of a call that has finished with its last token: nobody will feed that one, its row is the placeholder."""
    return joined(prefix, (rows_between(prefix, 0, row_count(prefix) - 1).data, placeholder(prefix)))


# --- restored chunks -----------------------------------------------------------------------------------------------------


def chunk_routes_fault(chunk: ChunkRow, carry: int, before: RouteBlock | None) -> str:
    """Why this chunk's routes are not one row for each of its tokens (and for those of the carry, in the first one), or ''.
    ``before``: of the chunk before it."""
    block = chunk.extras.routes if chunk.extras is not None else None
    if block is None:
        return "it has no routes"
    if block.dtype not in SIZES or block.layers < 1 or block.top_k < 1 or len(block.data) % row_size(block):
        return f"its routes are no rows of {block.layers} x {block.top_k} {block.dtype!r}"
    expected = len(chunk.tokens) + (carry if chunk.start == 0 else 0)
    if row_count(block) != expected:
        return f"it has {row_count(block)} route rows, they must be {expected}"
    real = expected - 1 if chunk.finish else expected
    if not all_real(rows_between(block, 0, real)) or (chunk.finish and not is_placeholder(block, real)):
        return "a token that was fed has no route row, or the last one of a finished call has one"
    if before is not None and not alike(before, block):
        return "its routes have another shape than those before it"
    return ""


def joined_chunks(chunks: Sequence[ChunkRow]) -> RouteBlock | None:
    """Rows of the carry and of all tokens of a prefix; None if a chunk has none."""
    blocks = [chunk.extras.routes for chunk in chunks if chunk.extras is not None and chunk.extras.routes is not None]
    if not blocks or len(blocks) != len(chunks):
        return None
    dtype = widest(block.dtype for block in blocks)
    return joined(shaped(dtype, blocks[0].layers, blocks[0].top_k), [widened(block, dtype).data for block in blocks])


# --- reading ---------------------------------------------------------------------------------------------------------------


class PiecesAsked(msgspec.Struct, frozen=True, gc=False):
    """Pieces of ``call`` from number ``first`` on. ``positions``: tokens that they stand for."""

    call: str
    first: int
    positions: int


@dataclass(frozen=True)
class FrozenRoutes:
    """A call whose first ``count`` tokens are frozen."""

    call: str
    routes: CallRoutes
    count: int


class RouteReader:
    """Reads the pieces of frozen calls on the engine's loop; one for a worker.

    ``mode``: grouped | per_call (a handoff each) | new_chunks (grouped, and only the pieces that no earlier cut has read).
    """

    def __init__(self, rt: Runtime, job: Job, engine: Engine) -> None:
        self.rt = rt
        self.engine = engine
        self.replay = job.router_replay.enabled
        self.mode = job.router_replay.read_mode
        self.calls_max = min(job.token_capture.generation_prefix_batch_size, GROUP_CALLS_MAX)
        self.positions_max = job.token_capture.generation_prefix_token_budget

    def positions(self, routes: CallRoutes, count: int) -> int:
        """Tokens that the read of a call frozen at ``count`` stands for."""
        rows = routes.row_of(count)
        return max(1, rows - routes.rows) if self.mode == "new_chunks" else rows

    def asked(self, frozen: FrozenRoutes) -> PiecesAsked:
        first = len(frozen.routes.pieces) if self.mode == "new_chunks" else 0
        return PiecesAsked(frozen.call, first, self.positions(frozen.routes, frozen.count))

    async def read(self, frozen: Sequence[FrozenRoutes]) -> None:
        """Afterwards each call's routes know the pieces of its frozen tokens, unless the engine does not have them."""
        asked = [self.asked(call) for call in frozen]
        calls_max = 1 if self.mode == "per_call" else self.calls_max
        for start, end in decide_batches([item.positions for item in asked], calls_max, self.positions_max):
            group = asked[start:end]
            copied = await self.rt.on_loop(ENGINE_LOOP, self._copy_lists, group)
            for call, item, pieces in zip(frozen[start:end], group, copied, strict=True):
                call.routes.absorb(item.first, pieces)

    def _copy_lists(self, asked: Sequence[PiecesAsked]) -> list[tuple[RoutePiece, ...]]:
        """Runs on the engine's loop, which stands still meanwhile."""
        return self.engine.route_pieces([(item.call, item.first) for item in asked])

    def of(self, carry: int, previous_length: int) -> CallRoutes | None:
        """Of a call that begins; None without router replay."""
        layout = self.engine.capabilities.routes if self.replay else None
        return None if layout is None else CallRoutes(layout=layout, boundary=boundary_rows(previous_length), carry=carry)

    def whole(
        self,
        call: str,
        routes: CallRoutes,
        count: int,
        prefix: RouteBlock | None,
        restored: int,
        pieces: Sequence[RoutePiece] | None,
    ) -> RouteBlock | None:
        """Rows of a finished call, whose ``pieces`` came with its last output; None pieces: it was answered from its prefix."""
        if pieces is None and prefix is not None:
            found = terminal_prefix(prefix, routes.boundary)
        else:
            routes.absorb(0, pieces or ())
            found = routes.whole(count, prefix, restored)
        self.tell(call, "terminal", routes, found)
        return found.block

    def tell(self, call: str, what: str, routes: CallRoutes, found: Assembled) -> None:
        rows, dtype = (row_count(found.block), found.block.dtype) if found.block is not None else (0, "")
        self.rt.record(RoutesAssembled(call, what, rows, routes.rows, found.materialised, found.outcome, found.reason, dtype))
