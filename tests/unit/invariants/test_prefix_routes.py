"""I54, I55, I56, I42 (handoffs): route rows are their tokens', stay the same, and are read in few short handoffs."""

from __future__ import annotations

import struct

import msgspec
import pytest
from ledger_files import judged, pack, snapshot
from prefix_files import AGAIN, CALL, CARRY, CHECKPOINT, NEXT, SOURCE, asked, chunk, chunks, prefix_terms, restored, saved, staged

from invariants.ledger.no_section_visits_all import NoSectionVisitsAll
from invariants.prefix.each_route_row_is_its_tokens import EachRouteRowIsItsTokens
from invariants.prefix.restored_routes_are_trained import RestoredRoutesAreTrained
from invariants.prefix.route_reads_are_grouped import RouteReadsAreGrouped
from invariants.prefix.routes import added
from protocol.data_plane.extras import Extras, RouteBlock
from protocol.data_plane.routes import routes_digest, rows_between
from protocol.history import (
    CallEnded,
    CallFrozen,
    CutAsked,
    EngineFound,
    EngineStarted,
    HandoffDone,
    OptimizerApplied,
    ReceiptSent,
    RoutesAssembled,
    TokensGenerated,
    TrainedRow,
)

REPLAY = prefix_terms(router_replay={"enabled": True})
TORN = msgspec.structs.replace(REPLAY, torn_routes=True)
FOUND = EngineFound("fake", True, 2, 1, "int8")
FROZEN = [CallFrozen(CALL, CHECKPOINT, 3, 0, 0, (4, 4, 3), 8)]
DENSE = prefix_terms()


def block(*rows):
    """Two layers of one expert; -1 stands for the sentinel."""
    return RouteBlock("int8", 2, 1, b"".join(struct.pack("2b", row, row) for row in rows))


def found(kind, *events, given=REPLAY, start=None, life=2):
    steps = [event if isinstance(event, tuple) else ("worker-0", event) for event in events]
    return judged(kind, *steps, given=given, start=start, life=life)


def ended(rows, routed="", boundary="", prefix="", call=CALL, outcome="answered", generated=5, restored_tokens=0):
    return CallEnded(
        call, outcome, generated, restored_tokens, generated, 8, "stop", "t", "t", prefix, routed, boundary, rows, 0
    )  # fmt: skip


# --- I54

ROWS = chunks(2, 4)
BLOCK = block(1, 2, 3, 4, 5, 6, -1)  # of the carry's two tokens, and of five
OWN = routes_digest(BLOCK, 0)


def test_rows_that_are_their_tokens_are_held():
    first = chunk(0, 2, extras=Extras(routes=block(1, 2, 3, 4)))
    rows = [first, chunk(2, 4, first.cumulative, extras=Extras(routes=block(5, 6)))]
    assert found(EachRouteRowIsItsTokens, start=saved(rows)) == []
    cut = [asked(), staged(ROWS[0], route_rows=4, carried=2), staged(ROWS[1], route_rows=2)]
    assert found(EachRouteRowIsItsTokens, *cut, TokensGenerated(CALL, 5, "c", OWN), ended(7, OWN)) == []
    child = [asked(previous=9), TokensGenerated(CALL, 5, "c", added((OWN, "b")))]
    assert found(EachRouteRowIsItsTokens, *child, ended(8, OWN, "b")) == []
    again = [asked(AGAIN, ROWS), restored(ROWS, routes="a"), TokensGenerated(AGAIN, 5, "c", "b")]
    assert found(EachRouteRowIsItsTokens, *again, ended(7, added(("a", "b")), call=AGAIN)) == []
    other = [FOUND, asked(AGAIN, ROWS), restored(ROWS, shape=(3, 2))]
    said = [RoutesAssembled(AGAIN, "terminal", 0, 9, 0, "misfit", "x"), ended(-1, call=AGAIN)]
    assert found(EachRouteRowIsItsTokens, *other, *said) == []
    short = [FOUND, asked(), FROZEN[0], RoutesAssembled(CALL, "cut", 0, 4, 0, "short", "x")]
    less = [RoutesAssembled(CALL, "terminal", 0, 5, 0, "short", "x"), ended(-1)]  # of a carry of two and five tokens
    assert found(EachRouteRowIsItsTokens, *short, *less, given=TORN) == []
    torn = [asked(), RoutesAssembled(CALL, "terminal", 0, 9, 7, "unreadable", "x"), ended(-1)]
    assert found(EachRouteRowIsItsTokens, *torn, given=TORN) == []


def test_a_call_that_was_cut_whole_is_staged_with_the_rows_of_its_cut():
    cut = [staged(ROWS[0], route_rows=4, carried=2, routes="5"), staged(ROWS[1], route_rows=2, routes="6")]
    assert found(EachRouteRowIsItsTokens, asked(), *cut, ended(6, added(("5", "6")), generated=4)) == []
    assert found(EachRouteRowIsItsTokens, asked(), *cut, ended(7, "1", generated=5)) == []  # its last token is in no chunk
    lines = found(EachRouteRowIsItsTokens, asked(), *cut, ended(6, "1", generated=4))
    assert "was cut whole with other route rows" in lines[0] and len(lines) == 1
    goes_on = [asked(AGAIN, ROWS[:1]), restored(ROWS[:1], routes="5"), staged(ROWS[1], call=AGAIN, route_rows=2, routes="6")]
    assert "was cut whole" in found(EachRouteRowIsItsTokens, *goes_on, ended(6, "1", generated=4, call=AGAIN))[0]


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([asked(), staged(ROWS[0], route_rows=2)], "holds 2 route rows (0 of the carry) for 2 tokens and a carry of 2"),
        ([asked(previous=9), staged(ROWS[0], route_rows=5, carried=3)], "holds 5 route rows (3 of the carry)"),
        (
            [asked(), staged(ROWS[1], route_rows=3, carried=1)],
            "holds 3 route rows (1 of the carry) for 2 tokens",
        ),
        ([asked(), ended(8, OWN)], "is staged with 8 route rows; its 5 tokens need 7"),
        ([asked(previous=9), ended(7, OWN)], "its 5 tokens need 8"),
        ([asked(), ended(-1)], "is staged without routes, and nothing says why"),
        ([asked(), TokensGenerated(CALL, 5, "c", "1"), ended(7, OWN)], "or at other places, than its engine and its prefix have"),
        ([asked(), restored(ROWS, CALL, routes="a"), ended(7, "b", outcome="terminal-prefix")], "or at other places"),
        ([restored(ROWS, routes="a"), EngineStarted(AGAIN, 4, 4, -1, 0, False, "b")], "than its engine made for its prefix"),
        ([asked(), RoutesAssembled(CALL, "cut", 0, 9, 0, "unreadable", "x")], "(cut, unreadable: x); its engine has them all"),
        ([asked(), RoutesAssembled(CALL, "cut", 0, 9, 0, "misfit", "x")], "are said not to fit (x)"),
        (
            [FOUND, asked(AGAIN, ROWS), restored(ROWS, shape=(2, 1)), RoutesAssembled(AGAIN, "terminal", 0, 9, 0, "misfit", "x")],
            "are said not to fit (x)",
        ),
    ],
)
def test_rows_that_are_not_their_tokens_break_I54(events, text):
    lines = found(EachRouteRowIsItsTokens, *events)
    assert any(text in line for line in lines) and lines != []


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([FROZEN[0], RoutesAssembled(CALL, "cut", 0, 5, 0, "short", "x")], "(x); its engine has 5, which is enough"),
        ([RoutesAssembled(CALL, "terminal", 0, 6, 0, "short", "x"), ended(-1)], "(x); its engine has 6, which is enough"),
    ],
)
def test_rows_that_are_there_and_count_as_missing_break_I54(events, text):
    (line,) = found(EachRouteRowIsItsTokens, FOUND, asked(), *events, given=TORN)
    assert text in line


def staged_row(routes, previous=0, tokens=3):
    return pack({"previous_length": previous, "tokens": [1] * tokens, "extras": {"routes": routes}})


@pytest.mark.parametrize(
    ("routes", "finish", "text"),
    [
        (block(1, 2), "", "holds 2 route rows for 2 tokens"),
        (block(1, 2, 3, -1), "", "holds the sentinel in rows [3] of 4; the call has not ended with it"),
        (block(1, -1, 3, 4), "", "holds the sentinel in rows [1]"),
        (block(1, 2, 3, 4), "stop", "holds the sentinel in rows [] of 4; the call has stop ended with it"),
        (RouteBlock("int8", 2, 1, bytes([1, 1, 2, 2, 3, 255, 4, 4])), "", "holds rows [2] that name experts in some"),
        (None, "", "holds no route rows"),
    ],
)
def test_a_chunk_on_disk_whose_rows_are_not_its_tokens_breaks_I54(routes, finish, text):
    files = saved([chunk(0, 2, finish=finish, extras=Extras(routes=routes))])
    files[f"{SOURCE}/config.yaml"] = b'{"target_level": "prefix", "router_replay": {"enabled": true}}'
    lines = found(EachRouteRowIsItsTokens, start=files)
    assert len(lines) == 2 and all(text in line for line in lines)  # where the life starts, and where it ends


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        (staged_row({"dtype": "int8", "layers": 2, "top_k": 1, "data": block(1, 2, -1).data}), ""),
        (staged_row({"dtype": "int8", "layers": 2, "top_k": 1, "data": block(9, 1, 2, -1).data}, 5), ""),
        (staged_row({"dtype": "int8", "layers": 2, "top_k": 1, "data": block(1, 2, 3).data}), "the sentinel in rows []"),
        (staged_row({"dtype": "int8", "layers": 2, "top_k": 1, "data": block(-1, 2, -1).data}), "the sentinel in rows [0, 2]"),
        (staged_row({"dtype": "int8", "layers": 2, "top_k": 1, "data": block(1, 2, 3, -1).data}), "holds 4 route rows for 3"),
    ],
)
def test_a_row_on_disk_ends_in_one_placeholder(row, wrong):
    files = snapshot()
    path = next(path for path in files if path.endswith("rollout_staging.msgpack"))
    lines = found(EachRouteRowIsItsTokens, start={**files, path: pack([[CALL, row]])})
    assert (lines == []) if not wrong else wrong in lines[0]


# --- I55

FIRST = block(1, 2, 3, 4)
ROUTED = [chunk(0, 2, extras=Extras(routes=FIRST))]
ROUTED.append(chunk(2, 4, ROUTED[0].cumulative, extras=Extras(routes=block(5, 6))))
PREFIX = added((routes_digest(FIRST, 0), routes_digest(block(5, 6), 4)))
SHORT = added((routes_digest(FIRST, 0), routes_digest(rows_between(block(5, 6), 0, 1), 4)))


def trained(*routes, calls=((AGAIN, "a", "b"),)):
    row = TrainedRow(0, 0, "s", "p", "c", ((0, 5),), "t", 1.0, True, calls, (), (), routes)
    return ("trainer", OptimizerApplied(1, "w0", "w1", (row,)))


GOES_ON = [asked(AGAIN, ROUTED), restored(ROUTED, routes=PREFIX), ended(7, "77", prefix=PREFIX, call=AGAIN)]
CHILD = f"{NEXT}/c1"


def test_routes_that_stay_the_same_are_held():
    assert found(RestoredRoutesAreTrained, *GOES_ON, trained("77"), start=saved(ROUTED)) == []
    ends = [asked(AGAIN, ROUTED), restored(ROUTED, routes=SHORT, terminal=True)]
    assert found(RestoredRoutesAreTrained, *ends, start=saved(ROUTED)) == []
    two = trained(added(("77", "8")), "99", calls=((AGAIN, "a", "b"), (CHILD, "a", "b")))
    assert found(RestoredRoutesAreTrained, *GOES_ON, ended(8, "99", "8", call=CHILD), two) == []
    without = [RoutesAssembled(AGAIN, "terminal", 0, 0, 0, "misfit", "x"), ended(-1, call=AGAIN)]
    assert found(RestoredRoutesAreTrained, *GOES_ON[:2], *without, trained()) == []


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([restored(ROUTED, routes="1")], "goes on with route rows 1, its chunks hold"),
        ([*GOES_ON[:2], ended(7, "77", prefix="2", call=AGAIN)], "is staged with route rows 2 of its prefix"),
        ([*GOES_ON[:2], ended(-1, call=AGAIN)], "without the route rows of its prefix, and nothing says why"),
        ([*GOES_ON, trained("78")], "is trained with route rows 78 of"),
        ([*GOES_ON, trained()], "is trained with route rows  of"),
    ],
)
def test_routes_that_change_on_the_way_break_I55(events, text):
    lines = found(RestoredRoutesAreTrained, *events, start=saved(ROUTED))
    assert any(text in line for line in lines) and lines != []


# --- I56, I42

SMALL = prefix_terms(
    router_replay={"enabled": True}, token_capture={"generation_prefix_batch_size": 4, "generation_prefix_token_budget": 100}
)
ALONE = prefix_terms(router_replay={"enabled": True, "read_mode": "per_call"})
CALLS = tuple(f"{CALL}{index}" for index in range(6))
ASK = ("gym-0", CutAsked("worker-0", CHECKPOINT, 1, CALLS, "i"))
ALL_FROZEN = [CallFrozen(call, CHECKPOINT, 3, 0, 0, (4, 4, 3), 8) for call in CALLS]
SENT = ReceiptSent(CHECKPOINT, "i", 6, False)


def handoff(items, positions=20, rows=0, loop="engine"):
    return HandoffDone(loop, items, positions, 0.0, 0.0, rows)


def test_reads_that_are_grouped_are_held():
    assert found(RouteReadsAreGrouped, ASK, *ALL_FROZEN, handoff(4), handoff(2), SENT, given=SMALL) == []
    assert found(RouteReadsAreGrouped, ASK, *ALL_FROZEN, *[handoff(1)] * 6, SENT, given=ALONE) == []
    assert found(RouteReadsAreGrouped, ASK, handoff(9, loop="media"), SENT, given=DENSE) == []
    assert found(RouteReadsAreGrouped, RoutesAssembled(CALL, "cut", 5, 6, 6, "whole")) == []
    assert found(RouteReadsAreGrouped, ASK, handoff(1, 400), given=SMALL) == []  # one call alone may be larger
    late = ("worker-0", HandoffDone("engine", 4, 20, 0.0, 9.0, 0))  # its caller has left, and has said so
    assert found(RouteReadsAreGrouped, ASK, *ALL_FROZEN, SENT, late, given=SMALL) == []
    assert found(NoSectionVisitsAll, handoff(4), handoff(4, rows=9, loop="media")) == []


@pytest.mark.parametrize(
    ("events", "given", "text"),
    [
        ([handoff(5)], SMALL, "5 calls are handed to worker-0's engine loop at once; 4 are allowed"),
        ([handoff(65)], REPLAY, "64 are allowed"),
        ([handoff(3, 101)], SMALL, "101 token positions are handed over at once; 100 are allowed"),
        ([handoff(2)], ALONE, "1 are allowed"),
        ([handoff(1)], DENSE, "without router replay"),
        ([handoff(1, rows=7)], REPLAY, "7 route rows are turned into bytes on worker-0's engine loop"),
        ([ASK, *ALL_FROZEN, *[handoff(1)] * 6, SENT], REPLAY, "6 handoffs of worker-0's engine loop for 6 calls"),
        ([RoutesAssembled(CALL, "cut", 5, 6, 11, "whole")], REPLAY, "11 route rows of"),
        ([handoff(1)], REPLAY, "1 calls are handed to worker-0's engine loop, and no inventory is being cut there"),
        ([ASK, handoff(2), SENT, handoff(2)], REPLAY, "and no inventory is being cut there"),
    ],
)
def test_reads_that_hold_the_loop_too_often_or_too_long_break_I56(events, given, text):
    lines = found(RouteReadsAreGrouped, *events, given=given)
    assert any(text in line for line in lines) and lines != []


def test_rows_that_are_materialised_on_the_loop_break_I42():
    assert "7 route rows are turned into bytes" in found(NoSectionVisitsAll, handoff(1, rows=7))[0]


def test_the_carry_of_these_tests_has_two_tokens():
    assert len(CARRY) == 2
