"""Routed experts of the fake engine: the same for the same call, in pieces that are never changed, on the engine's loop."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from toy import toy_world

from protocol.data_plane.routes import digests_added, from_engine, joined, routes_digest, shaped
from protocol.history import HandoffDone, TokensGenerated
from protocol.parts import EngineCall
from sim.fake_engine import EngineProfile, FakeEngine
from sim.fake_routes import Experts, RouteKnobs
from sim.loops import LoopCosts

KNOBS = RouteKnobs(layers=3, top_k=2, experts=200, piece=3)
PROFILE = EngineProfile(tokens_min=20, tokens_max=20, jitter_s=0.0, race=0.0, routes=KNOBS)
CALL = EngineCall(call="c0", ordinal=3, generation=1, turn=1, version=2, previous_length=10, carry=(7, 8, 9, 10))


def live(main: Any) -> list[Any]:
    world = toy_world(worker_0=main, controller=idle)
    assert world.live().outcome == "ended", world.failure
    return [record.event for record in world.history]


async def idle(rt: Any) -> None:
    await rt.sleep(5.0)


def test_a_row_depends_on_the_call_and_its_position_and_on_nothing_else() -> None:
    experts = Experts(KNOBS)
    rows = experts.rows(CALL, 9, 20)
    again = msgspec.structs.replace(CALL, call="another", limit=5)
    assert experts.rows(again, 9, 20) == rows
    assert experts.rows(CALL, 12, 14) == rows[3 * 6 : 5 * 6]
    assert max(rows) < KNOBS.experts
    for change in ({"ordinal": 4}, {"generation": 0}, {"turn": 2}, {"version": 3}):
        assert experts.rows(msgspec.structs.replace(CALL, **change), 9, 20) != rows  # type: ignore[arg-type]


def test_tokens_that_were_restored_are_routed_a_little_differently_when_they_are_fed() -> None:
    experts = Experts(KNOBS)
    resumed = msgspec.structs.replace(CALL, prefix=(1, 2, 3))
    size = 6
    before, after = experts.rows(CALL, 9, 20), experts.rows(resumed, 9, 20)
    same = [before[row * size : (row + 1) * size] == after[row * size : (row + 1) * size] for row in range(11)]
    assert same == [True] + [False] * 7 + [True] * 3  # the parent's last token; carry and prefix; what comes after


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
def test_every_dtype_holds_the_same_ids(dtype: str) -> None:
    few = RouteKnobs(layers=3, top_k=2, experts=100)
    narrow = joined(shaped("int16", 3, 2), [from_engine(Experts(few).rows(CALL, 9, 20), "uint8")])
    wide = Experts(msgspec.structs.replace(few, dtype=dtype)).rows(CALL, 9, 20)
    assert routes_digest(joined(shaped(dtype, 3, 2), [wide]), 9) == routes_digest(narrow, 9)


def test_pieces_are_appended_and_never_changed_and_the_newest_token_has_no_row() -> None:
    async def main(rt: Any) -> None:
        engine = FakeEngine(rt, PROFILE)
        output = engine.start(CALL)
        before: list[Any] = []
        for _ in range(40):
            await rt.sleep(0.006)
            (pieces,) = engine.route_pieces([("c0", 0)])
            assert list(pieces[: len(before)]) == before
            rows = sum(piece.rows for piece in pieces)
            tokens, routed = len(output.tokens), output.routed
            assert rows == (1 + len(CALL.carry) + routed if pieces else 0)
            assert routed <= max(tokens - 1, 0)
            assert routed % KNOBS.piece == 0 or output.finish
            assert engine.route_pieces([("c0", len(before))]) == [pieces[len(before) :]]
            assert list(output.pieces) == (list(pieces) if output.finish else [])
            before = list(pieces)
        assert (output.finish, output.routed) == ("stop", 19)
        assert [piece.rows for piece in before] == [5, 3, 3, 3, 3, 3, 3, 1]
        assert engine.route_pieces([("nobody", 0)]) == [()]

    live(main)


def test_the_engine_tells_of_every_row_but_those_of_a_restored_prefix() -> None:
    async def main(rt: Any) -> None:
        engine = FakeEngine(rt, PROFILE)
        for call in (CALL, msgspec.structs.replace(CALL, call="c1", prefix=(1, 2, 3))):
            await engine.start(call).done()

    told = {event.call: event.routes for event in live(main) if isinstance(event, TokensGenerated) and event.content}
    experts = Experts(KNOBS)

    def digest(call: EngineCall, first: int, end: int) -> str:
        return routes_digest(joined(shaped("int16", 3, 2), [from_engine(experts.rows(call, first, end), "uint8")]), first)

    resumed = msgspec.structs.replace(CALL, prefix=(1, 2, 3))
    assert told["c0"] == digest(CALL, 9, 33)
    assert told["c1"] == digests_added([digest(resumed, 9, 10), digest(resumed, 17, 33)])


def test_a_handoff_puts_off_the_tokens_that_come_after_it_and_what_it_copies_costs_time() -> None:
    ends: list[float] = []

    async def main(rt: Any) -> None:
        for held in (False, True):
            engine = FakeEngine(rt, PROFILE)
            engine.loop.costs = LoopCosts(base_from_s=0.002, base_to_s=0.002, reference_s=0.001)
            began = rt.now()
            output = engine.start(msgspec.structs.replace(CALL, call=f"c{held}"))
            await rt.sleep(0.106)
            if held:
                await rt.on_loop("engine", engine.route_pieces, [(f"c{held}", 0)])
            await output.done()
            ends.append(rt.now() - began)
            engine.release(f"c{held}")

    (done,) = [event for event in live(main) if isinstance(event, HandoffDone)]
    assert 0 < done.waited_s <= 0.01
    assert done.held_s == pytest.approx(0.002 + LoopCosts().item_s + 4 * 0.001)  # the prompt's piece and three of 3 rows
    assert ends[1] - ends[0] == pytest.approx(done.held_s, abs=1e-6)


def test_a_piece_that_is_read_on_the_loop_holds_it_and_elsewhere_it_does_not() -> None:
    async def main(rt: Any) -> None:
        engine = FakeEngine(rt, PROFILE)
        engine.start(CALL)
        await rt.sleep(0.106)
        ((first, *_),) = engine.route_pieces([("c0", 0)])
        await rt.on_loop("engine", lambda items: [item.read() for item in items], [first])
        first.read()
        await rt.on_loop("engine", len, ())

    held = [(event.rows, event.held_s) for event in live(main) if isinstance(event, HandoffDone)]
    assert [rows for rows, _ in held] == [5, 0]
    assert held[0][1] > 5 * LoopCosts().row_s > held[1][1] - LoopCosts().base_to_s


def test_calls_may_lack_a_piece_or_have_torn_ones() -> None:
    async def main(rt: Any) -> None:
        whole, short, torn = (
            FakeEngine(rt, msgspec.structs.replace(PROFILE, routes=msgspec.structs.replace(KNOBS, **fault)))  # type: ignore[arg-type]
            for fault in ({}, {"short": 1.0}, {"torn": 1.0})
        )
        for engine in (whole, short, torn):
            engine.start(CALL)
        await rt.sleep(0.106)
        pieces = [engine.route_pieces([("c0", 0)])[0] for engine in (whole, short, torn)]
        assert [len(each) for each in pieces] == [4, 3, 4]
        assert len(pieces[2][0].read()) == len(pieces[0][0].read()) - 1

    live(main)


@pytest.mark.parametrize(
    "knobs",
    [
        {"layers": 0, "top_k": 2},
        {"layers": 2, "top_k": 0},
        {"layers": 2, "top_k": 2, "piece": 0},
        {"layers": 2, "top_k": 2, "experts": 0},
        {"layers": 2, "top_k": 2, "experts": 257},
        {"layers": 2, "top_k": 2, "experts": 129, "dtype": "int8"},
        {"layers": 2, "top_k": 2, "dtype": "uint16"},
        {"layers": 2, "top_k": 2, "width": 2},
    ],
)
def test_knobs_that_no_engine_could_have_are_refused(knobs: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        EngineProfile.of({"routes": knobs})


def test_an_engine_without_experts_has_no_routes_and_no_steps() -> None:
    async def main(rt: Any) -> None:
        engine = FakeEngine(rt, EngineProfile(tokens_min=5, tokens_max=5))
        output = engine.start(CALL)
        await output.done()
        assert (output.routed, output.pieces, engine.route_pieces([("c0", 0)])) == (-1, (), [()])
        assert engine.capabilities.routes is None

    events = live(main)
    assert [event.routes for event in events if isinstance(event, TokensGenerated)] == ["", ""]
