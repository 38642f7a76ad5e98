"""Routes of one call in a worker: what is read of the engine, in which groups, and which rows are staged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from route_samples import LAYERS, SHAPE, TOP_K, route_row, route_rows
from toy import toy_world

from protocol.config import Job, RouterReplay, TokenCapture
from protocol.data_plane.chunks import ChunkRow
from protocol.data_plane.extras import Extras, RouteBlock
from protocol.data_plane.routes import joined, placeholder, row_count, rows_between, shaped, widened
from protocol.history import HandoffDone, RoutesAssembled
from protocol.parts import Capabilities, RouteLayout
from protocol.worker.routes import (
    MISFIT,
    SHORT,
    UNREADABLE,
    WHOLE,
    CallRoutes,
    FrozenRoutes,
    RouteReader,
    chunk_routes_fault,
    ended_rows,
    joined_chunks,
    replay_fault,
    terminal_prefix,
)

LAYOUT = RouteLayout(LAYERS, TOP_K, "int16")
BEFORE, CARRY = 10, 4  # tokens of the sample before the call, and of its carry


class Piece:
    """Rows of the tokens at positions [start, end) of the sample; ``reads`` counts how often they were turned into bytes."""

    def __init__(self, start: int, end: int, shape: RouteBlock = SHAPE, torn: int = 0) -> None:
        self.rows = end - start
        self.data = route_rows(start, end, shape).data
        self.torn = torn
        self.reads = 0

    def read(self) -> bytes:
        self.reads += 1
        return self.data[: len(self.data) - self.torn]


def pieces(end: int, first: int = BEFORE - 1, sizes: Sequence[int] = (5, 1, 3)) -> list[Piece]:
    """Of positions [first, end), in pieces of these sizes and then of 2."""
    found = []
    for size in (*sizes, *(2,) * end):
        if first < end:
            found.append(Piece(first, min(first + size, end)))
            first += size
    return found


def child(generated: int, **layout: Any) -> CallRoutes:
    """A call with a parent, as many of whose generated tokens were fed; each row says which position it is of."""
    routes = CallRoutes(layout=msgspec.structs.replace(LAYOUT, **layout), boundary=1, carry=CARRY)
    routes.absorb(0, pieces(BEFORE + CARRY + generated))
    return routes


def at(token: int) -> int:
    """Position of a generated token in the sample."""
    return BEFORE + CARRY + token


# --- a chunk -------------------------------------------------------------------------------------------------------------


def test_the_first_chunk_leads_with_the_carry_and_leaves_the_boundary_row_out() -> None:
    found = child(9).chunk(0, 6, "")
    assert found.outcome == WHOLE
    assert found.block == route_rows(BEFORE, at(6))


def test_the_first_chunk_of_a_root_has_no_other_rows_either() -> None:
    routes = CallRoutes(layout=LAYOUT, boundary=0, carry=CARRY)
    routes.absorb(0, pieces(CARRY + 9, 0))
    assert routes.chunk(0, 6, "").block == route_rows(0, CARRY + 6)


def test_a_later_chunk_has_one_row_for_each_of_its_tokens_and_no_more() -> None:
    assert child(9).chunk(3, 8, "").block == route_rows(at(3), at(8))


def test_the_last_token_of_a_finished_call_has_the_placeholder() -> None:
    found = child(8).chunk(3, 9, "stop")
    assert found.block == joined(SHAPE, [route_rows(at(3), at(8)).data, placeholder(SHAPE)])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
def test_the_engines_dtype_is_the_wires(dtype: str) -> None:
    shape = shaped(dtype, LAYERS, TOP_K)
    routes = CallRoutes(layout=RouteLayout(LAYERS, TOP_K, dtype), boundary=0, carry=1)
    routes.absorb(0, [Piece(0, 5, shape)])
    assert routes.chunk(0, 3, "").block == route_rows(0, 4, shape)


def test_an_unsigned_engine_is_read_in_the_next_wider_dtype() -> None:
    narrow = shaped("int8", LAYERS, TOP_K)  # all ids are below 128: the bytes of an unsigned engine are the same
    routes = CallRoutes(layout=RouteLayout(LAYERS, TOP_K, "uint8"), boundary=0, carry=1)
    routes.absorb(0, [Piece(0, 2, narrow), Piece(2, 6, narrow)])
    assert routes.chunk(0, 4, "").block == route_rows(0, 5)


def test_each_row_is_turned_into_bytes_once_and_only_where_it_is_needed() -> None:
    routes = child(9)
    found = routes.chunk(3, 8, "")
    assert found.materialised == sum(piece.rows * piece.reads for piece in routes.pieces)  # type: ignore[attr-defined]
    assert max(piece.reads for piece in routes.pieces) == 1  # type: ignore[attr-defined]
    assert [piece.reads for piece in routes.pieces][:2] == [0, 0]  # type: ignore[attr-defined]
    assert found.materialised < routes.rows


def test_rows_that_are_missing_are_not_made_up() -> None:
    found = child(5).chunk(0, 6, "")
    assert (found.block, found.outcome) == (None, SHORT)
    assert "10 route rows, 11 are needed" in found.reason


def test_a_piece_of_another_length_than_it_says_is_unreadable() -> None:
    routes = child(9)
    routes.pieces[2] = Piece(BEFORE + 5, BEFORE + 8, torn=1)
    found = routes.chunk(0, 6, "")
    assert (found.block, found.outcome) == (None, UNREADABLE)
    assert routes.chunk(6, 9, "").outcome == WHOLE  # it does not look there


def test_a_sentinel_in_a_row_of_the_engine_is_unreadable() -> None:
    routes = CallRoutes(layout=LAYOUT, boundary=0, carry=1)
    lost = Piece(1, 2)
    lost.data = placeholder(SHAPE)
    routes.absorb(0, [Piece(0, 1), lost, Piece(2, 4)])
    assert routes.chunk(0, 3, "").outcome == UNREADABLE


def test_pieces_that_came_since_go_behind_those_that_were_read() -> None:
    routes = child(3)
    known = len(routes.pieces)
    whole = [*routes.pieces, Piece(at(3), at(5)), Piece(at(5), at(6))]
    routes.absorb(known, whole[known:])
    assert (routes.pieces, routes.rows) == (whole, at(6) - BEFORE + 1)
    routes.absorb(0, whole)
    assert (routes.pieces, routes.rows) == (whole, at(6) - BEFORE + 1)


# --- a finished call -----------------------------------------------------------------------------------------------------


def test_a_finished_call_has_its_boundary_row_first_and_the_placeholder_last() -> None:
    found = child(6).whole(7, None, 0)
    assert found.block == joined(SHAPE, [route_rows(BEFORE - 1, at(6)).data, placeholder(SHAPE)])
    assert found.materialised == 1 + CARRY + 6


def restored_rows(count: int) -> RouteBlock:
    """Rows of the carry and of ``count`` tokens as they were cut, in another batch than they are now fed in."""
    return route_rows(BEFORE, at(count), salt=5)


def test_restored_rows_take_their_places_behind_the_boundary_row() -> None:
    prefix = restored_rows(4)
    found = child(8).whole(9, prefix, 4)
    assert found.outcome == WHOLE
    assert found.block == joined(SHAPE, [route_row(BEFORE - 1), prefix.data, route_rows(at(4), at(8)).data, placeholder(SHAPE)])


def test_a_piece_of_which_both_ends_are_needed_is_turned_into_bytes_once() -> None:
    routes = CallRoutes(layout=LAYOUT, boundary=1, carry=CARRY)
    piece = Piece(BEFORE - 1, at(8))
    routes.absorb(0, [piece])
    prefix = restored_rows(4)
    found = routes.whole(9, prefix, 4)
    assert found.block == child(8).whole(9, prefix, 4).block
    assert (piece.reads, found.materialised) == (1, piece.rows)


def test_restored_rows_of_a_root_come_first() -> None:
    routes = CallRoutes(layout=LAYOUT, boundary=0, carry=CARRY)
    routes.absorb(0, pieces(CARRY + 8, 0))
    prefix = route_rows(0, CARRY + 4, salt=5)
    expected = joined(SHAPE, [prefix.data, route_rows(CARRY + 4, CARRY + 8).data, placeholder(SHAPE)])
    assert routes.whole(9, prefix, 4).block == expected


def test_a_call_of_one_more_token_than_its_prefix_has_the_placeholder_alone_behind_it() -> None:
    prefix = restored_rows(4)
    assert child(4).whole(5, prefix, 4).block == joined(SHAPE, [route_row(BEFORE - 1), prefix.data, placeholder(SHAPE)])


@pytest.mark.parametrize(
    "prefix",
    [
        None,
        restored_rows(3),
        restored_rows(5),
        joined(shaped("int16", LAYERS + 1, TOP_K), [bytes(8 * 2 * (LAYERS + 1) * TOP_K)]),
    ],
)
def test_restored_rows_that_do_not_fit_are_a_misfit_and_raise_nothing(prefix: RouteBlock | None) -> None:
    found = child(8).whole(9, prefix, 4)
    assert (found.block, found.outcome) == (None, MISFIT)


def test_a_tail_that_the_engine_does_not_have_is_not_made_up() -> None:
    assert child(7).whole(9, restored_rows(4), 4).outcome == SHORT
    assert child(7).whole(9, None, 0).outcome == SHORT


def test_rows_of_two_dtypes_are_put_together_in_the_wider_one() -> None:
    wide = widened(restored_rows(4), "int32")
    found = child(8).whole(9, wide, 4)
    narrow = child(8).whole(9, restored_rows(4), 4)
    assert found.block is not None
    assert narrow.block is not None
    assert found.block == widened(narrow.block, "int32")


def test_a_call_answered_from_its_prefix_leaves_the_parents_placeholder_where_it_is() -> None:
    ended = ended_rows(restored_rows(4))
    assert ended == joined(SHAPE, [rows_between(restored_rows(4), 0, CARRY + 3).data, placeholder(SHAPE)])
    found = terminal_prefix(ended, 1)
    assert found.block == joined(SHAPE, [placeholder(SHAPE), ended.data])
    assert found.materialised == 0


# --- chunks that were read back ------------------------------------------------------------------------------------------


def chunk(start: int, end: int, finish: str = "", routes: RouteBlock | None = None) -> ChunkRow:
    carried = CARRY if start == 0 else 0
    rows = [route_rows(at(start) - carried, at(end) - (1 if finish else 0)).data, placeholder(SHAPE) if finish else b""]
    return ChunkRow(
        v=1, key="k", call="c", rollout_id="r", attempt=0, ordinal=0, generation=0, turn=0, previous_length=BEFORE, carry="",
        start=start, tokens=(7,) * (end - start), logprobs=(-1.0,) * (end - start), limit=99, finish=finish, weight_version=0,
        extras=Extras(routes=routes or joined(SHAPE, rows)), digest="", cumulative="",
    )  # fmt: skip


def test_the_rows_of_a_prefix_are_those_of_its_chunks_in_order() -> None:
    chunks = [chunk(0, 3), chunk(3, 7), chunk(7, 9, "stop")]
    assert [chunk_routes_fault(each, CARRY, SHAPE) for each in chunks] == ["", "", ""]
    assert joined_chunks(chunks) == joined(SHAPE, [route_rows(BEFORE, at(8)).data, placeholder(SHAPE)])
    assert joined_chunks([chunk(0, 3), msgspec.structs.replace(chunk(3, 7), extras=None)]) is None


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (msgspec.structs.replace(chunk(0, 3), extras=None), "it has no routes"),
        (msgspec.structs.replace(chunk(0, 3), extras=Extras()), "it has no routes"),
        (chunk(0, 3, routes=route_rows(0, 3)), "it has 3 route rows, they must be 7"),
        (chunk(0, 3, routes=route_rows(0, 8)), "it has 8 route rows, they must be 7"),
        (chunk(3, 5, routes=route_rows(0, 3)), "it has 3 route rows, they must be 2"),
        (chunk(3, 5, routes=joined(SHAPE, [placeholder(SHAPE), route_row(0)])), "a token that was fed has no route row"),
        (chunk(3, 5, routes=joined(SHAPE, [route_row(0), placeholder(SHAPE)])), "a token that was fed has no route row"),
        (chunk(3, 5, "stop", routes=route_rows(0, 2)), "the last one of a finished call has one"),
        (chunk(3, 5, routes=RouteBlock("uint8", LAYERS, TOP_K, bytes(12))), "no rows of"),
        (chunk(3, 5, routes=RouteBlock("int16", LAYERS, TOP_K, bytes(23))), "no rows of"),
        (chunk(3, 5, routes=RouteBlock("int16", TOP_K, LAYERS, bytes(24))), "another shape than those before it"),
    ],
)
def test_chunk_rows_that_are_not_one_for_each_token_are_found(row: ChunkRow, says: str) -> None:
    assert says in chunk_routes_fault(row, CARRY, SHAPE)


# --- set-up ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layout",
    [None, RouteLayout(3, 2, "uint16"), RouteLayout(3, 2, "float32"), RouteLayout(0, 2, "int16"), RouteLayout(3, 0, "int8")],
)
def test_an_engine_whose_routes_nobody_can_read_is_refused_with_the_key(layout: RouteLayout | None) -> None:
    fault = replay_fault(Capabilities(release="fake", routes=layout))
    assert fault.startswith("router_replay.enabled is true: ") and "'fake'" in fault


def test_an_engine_of_a_release_that_nobody_has_verified_is_refused_with_the_key_and_the_release() -> None:
    fault = replay_fault(Capabilities(release="0.30", routes=LAYOUT))
    assert fault == (
        "router_replay.enabled is true: the routes of engine release '0.30' are verified by nobody, those of 'fake', '0.29' are"
    )


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32"])
def test_an_engine_whose_routes_can_be_read_is_accepted(dtype: str) -> None:
    assert replay_fault(Capabilities(release="fake", routes=RouteLayout(3, 2, dtype))) == ""


# --- reading ---------------------------------------------------------------------------------------------------------------


class Lists:
    """As much of an engine as a read needs: pieces by call, and what was asked for."""

    def __init__(self, held: dict[str, list[Piece]]) -> None:
        self.held = held
        self.asked: list[list[tuple[str, int]]] = []

    def route_pieces(self, asked: Sequence[tuple[str, int]]) -> list[tuple[Piece, ...]]:
        self.asked.append(list(asked))
        return [tuple(self.held.get(call, ())[first:]) for call, first in asked]


def frozen(call: str, count: int, routes: CallRoutes | None = None) -> FrozenRoutes:
    return FrozenRoutes(call, routes or CallRoutes(layout=LAYOUT, boundary=1, carry=CARRY), count)


def reads(
    calls: list[list[FrozenRoutes]], lists: Lists, batch: int = 64, budget: int = 65_536, mode: str = "grouped"
) -> list[Any]:
    """The handoffs of these reads, one after the other."""
    job = Job(
        target_level="prefix",
        token_capture=TokenCapture(generation_prefix_batch_size=batch, generation_prefix_token_budget=budget),
        router_replay=RouterReplay(enabled=True, read_mode=mode),
    )

    async def main(rt: Any) -> None:
        reader = RouteReader(rt, job, lists)  # type: ignore[arg-type]
        for inventory in calls:
            await reader.read(inventory)

    world = toy_world(controller=main)
    assert world.live().outcome == "ended", world.failure
    return [record.event for record in world.history if isinstance(record.event, HandoffDone)]


def held(*counts: int) -> dict[str, list[Piece]]:
    return {f"c{number}": pieces(at(count)) for number, count in enumerate(counts)}


def test_a_group_is_one_handoff_and_each_call_gets_its_own_pieces() -> None:
    lists = Lists(held(5, 6, 7))
    calls = [frozen(f"c{number}", 5 + number) for number in range(3)]
    (done,) = reads([calls], lists)
    assert (done.loop, done.items, done.positions, done.rows) == ("engine", 3, 3 * (1 + CARRY) + 18, 0)
    assert [call.routes.pieces for call in calls] == list(lists.held.values())
    assert all(piece.reads == 0 for call in calls for piece in call.routes.pieces)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("batch", "budget", "sizes"),
    [
        (64, 65_536, [7]),
        (3, 65_536, [3, 3, 1]),
        (1, 65_536, [1] * 7),
        (64, 20, [2, 2, 2, 1]),  # of 10 positions each
        (64, 29, [2, 2, 2, 1]),
        (64, 9, [1] * 7),  # each larger than the budget: alone, and not left out
    ],
)
def test_a_group_stays_within_the_batch_size_and_the_token_budget(batch: int, budget: int, sizes: list[int]) -> None:
    calls = [frozen(f"c{number}", 5) for number in range(7)]
    assert [done.items for done in reads([calls], Lists(held(*(5,) * 7)), batch, budget)] == sizes


def test_a_group_is_never_of_more_than_64_calls() -> None:
    calls = [frozen(f"c{number}", 1) for number in range(130)]
    assert [done.items for done in reads([calls], Lists(held(*(1,) * 130)), 1_000)] == [64, 64, 2]


def test_call_by_call_is_a_handoff_for_each_with_the_same_pieces() -> None:
    calls, others = ([frozen(f"c{number}", 5) for number in range(4)] for _ in range(2))
    lists = Lists(held(5, 5, 5, 5))
    assert [done.items for done in reads([calls], lists, mode="per_call")] == [1, 1, 1, 1]
    reads([others], lists)
    assert [call.routes.pieces for call in calls] == [call.routes.pieces for call in others]


def test_a_later_cut_copies_only_what_is_new_where_it_may() -> None:
    for mode, positions in (("new_chunks", [10, 4]), ("grouped", [10, 14])):
        lists = Lists({"c0": pieces(at(5))})
        first = frozen("c0", 5)
        known = len(lists.held["c0"])
        later = frozen("c0", 9, first.routes)
        assert reads([[first]], lists, mode=mode)[0].positions == positions[0]
        lists.held["c0"].append(Piece(at(5), at(9)))
        assert reads([[later]], lists, mode=mode)[0].positions == positions[1]
        assert lists.asked[1] == [("c0", known if mode == "new_chunks" else 0)]
        assert later.routes.chunk(5, 9, "").block == route_rows(at(5), at(9))


def test_nothing_to_read_is_no_handoff() -> None:
    assert reads([[]], Lists({})) == []


def test_a_call_that_the_engine_does_not_know_is_short_and_no_other_one() -> None:
    calls = [frozen("c0", 5), frozen("gone", 5), frozen("c1", 5)]
    reads([calls], Lists(held(5, 5)))
    assert [call.routes.chunk(0, 5, "").outcome for call in calls] == [WHOLE, SHORT, WHOLE]


def test_a_call_has_routes_only_where_they_are_replayed() -> None:
    class Routed(Lists):
        capabilities = Capabilities(release="0.29", routes=LAYOUT)

    class Dense(Lists):
        capabilities = Capabilities(release="0.29")

    def reader(engine: Lists, enabled: bool) -> RouteReader:
        return RouteReader(None, Job(router_replay=RouterReplay(enabled=enabled)), engine)  # type: ignore[arg-type]

    assert reader(Routed({}), False).of(CARRY, BEFORE) is None
    assert reader(Dense({}), True).of(CARRY, BEFORE) is None
    first, later = reader(Routed({}), True).of(CARRY, 0), reader(Routed({}), True).of(CARRY, BEFORE)
    assert first is not None
    assert later is not None
    assert (first.boundary, later.boundary, later.carry) == (0, 1, CARRY)


def test_what_came_of_a_finished_call_is_told_once() -> None:
    async def main(rt: Any) -> None:
        reader = RouteReader(rt, Job(router_replay=RouterReplay(enabled=True)), Lists({}))  # type: ignore[arg-type]
        rows = reader.whole("c0", CallRoutes(layout=LAYOUT, boundary=1, carry=CARRY), 7, None, 0, pieces(at(6)))
        assert rows is not None
        assert row_count(rows) == 1 + CARRY + 7
        assert reader.whole("c1", CallRoutes(layout=LAYOUT, boundary=1, carry=CARRY), 9, None, 0, pieces(at(6))) is None
        ended = reader.whole("c2", CallRoutes(layout=LAYOUT, boundary=1, carry=CARRY), 4, restored_rows(4), 4, None)
        assert ended is not None
        assert row_count(ended) == 1 + CARRY + 4

    world = toy_world(controller=main)
    assert world.live().outcome == "ended", world.failure
    told = [record.event for record in world.history if isinstance(record.event, RoutesAssembled)]
    assert [(event.call, event.what, event.rows, event.available, event.materialised, event.outcome) for event in told] == [
        ("c0", "terminal", 12, 11, 11, WHOLE),
        ("c1", "terminal", 0, 11, 0, SHORT),
        ("c2", "terminal", 9, 0, 0, WHOLE),
    ]
