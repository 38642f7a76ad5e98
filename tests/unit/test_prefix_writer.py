"""Chunk rows of one inventory: batches, failed puts, deadlines, and what never sealed (PROTOCOL 6.2)."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import IllegalStep
from protocol.history import ChunkIssued, ChunksDiscarded, ChunksLeft
from protocol.worker.batches import DEADLINE_PASSED, PrefixWriter, decide_batches, decide_patience_s
from protocol.worker.cleanup import ChunkCleanup
from tests.unit.chunk_plane import OpenGate, Outcome, ScriptedPlane, bad_row, events, job, keys, pending, play, script

REFUSED = "put failed: refused by the script"


@pytest.mark.parametrize(
    ("positions", "rows_max", "positions_max", "expected"),
    [
        ([], 4, 100, ()),
        ([10], 4, 100, ((0, 1),)),
        ([10] * 4, 4, 100, ((0, 4),)),
        ([10] * 5, 4, 100, ((0, 4), (4, 5))),
        ([10] * 3, 1, 100, ((0, 1), (1, 2), (2, 3))),
        ([50, 50, 1], 4, 100, ((0, 2), (2, 3))),
        ([60, 50, 40], 4, 100, ((0, 1), (1, 3))),
        ([500, 10, 10], 4, 100, ((0, 1), (1, 3))),
        ([10, 500, 10], 4, 100, ((0, 1), (1, 2), (2, 3))),
        ([0, 0, 0], 2, 1, ((0, 2), (2, 3))),
    ],
)
def test_batches_keep_to_rows_and_positions(
    positions: list[int], rows_max: int, positions_max: int, expected: tuple[tuple[int, int], ...]
) -> None:
    assert decide_batches(positions, rows_max, positions_max) == expected


@pytest.mark.parametrize(
    ("now", "deadline", "expected"),
    [(5.0, None, 60.0), (0.0, 300.0, 60.0), (0.0, 60.0, 30.0), (59.0, 60.0, 0.5), (61.0, 60.0, -0.5)],
)
def test_a_request_takes_half_of_the_time_left_at_most(now: float, deadline: float | None, expected: float) -> None:
    assert decide_patience_s(now, deadline, 60.0) == expected


def writer_of(rt: Any, deadline: float | None = None, **sizes: Any) -> PrefixWriter:
    return PrefixWriter(rt, job(**sizes), ChunkCleanup(rt, job(**sizes), OpenGate(rt)), deadline)


def write(plane: ScriptedPlane, count: int, **sizes: Any) -> tuple[dict[str, str], Any]:
    found: dict[str, str] = {}

    async def main(rt: Any) -> None:
        found.update(await writer_of(rt, **sizes).write(pending(count)))

    return found, play(plane, main)


@pytest.mark.parametrize(("rows", "puts"), [(1, 5), (2, 3), (4, 2), (64, 1)])
def test_a_batch_size_changes_the_number_of_puts_and_nothing_else(rows: int, puts: int) -> None:
    plane = ScriptedPlane()
    reasons, world = write(plane, 5, rows=rows)
    assert reasons == dict.fromkeys(keys(*range(5)), "")
    assert plane.rows == {row.key: row.data for row in pending(5)}
    assert (plane.count("put"), plane.count("clear")) == (puts, 0)
    assert [(event.key, event.rows, event.positions) for event in events(world, ChunkIssued)] == [
        (key, len(batch), 10 * len(batch)) for batch in plane.of("put") for key in batch
    ]


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("stored", [0, 1, 3])
def test_a_bad_row_costs_itself_alone_its_key_is_gone_and_nobody_else_notices(rows: int, stored: int) -> None:
    plane = ScriptedPlane(bad_row("c2/p0", stored=stored))
    reasons, world = write(plane, 6, rows=rows)
    assert {key: reason for key, reason in reasons.items() if reason} == {"c2/p0": REFUSED}
    assert sorted(plane.rows) == list(keys(0, 1, 3, 4, 5))
    assert events(world, ChunksLeft) == []
    discarded = [(event.call, event.keys, event.why) for event in events(world, ChunksDiscarded)]
    first = (0, 1, 2, 3) if rows == 4 else (2,)
    assert discarded == [(f"c{n}", keys(n), "put-failed") for n in (*first, 2)]


def test_every_key_of_a_failed_put_is_discarded_before_a_row_is_tried_alone_once() -> None:
    plane = ScriptedPlane(script(("put", Outcome(2, refused=True))))
    reasons, _ = write(plane, 4)
    assert reasons == dict.fromkeys(keys(0, 1, 2, 3), "")
    assert plane.asked[:2] == [("put", keys(0, 1, 2, 3)), ("clear", keys(0, 1, 2, 3))]
    assert sorted(plane.asked[2:]) == [("put", keys(n)) for n in range(4)]


@pytest.mark.parametrize("stored", [0, None])
def test_a_put_without_an_answer_is_a_failed_put(stored: int | None) -> None:
    plane = ScriptedPlane(script(("put", Outcome(stored, lost=True))))
    reasons, _ = write(plane, 3, rpc_timeout_s=2.0)
    assert reasons == dict.fromkeys(keys(0, 1, 2), "")
    assert plane.asked[1] == ("clear", keys(0, 1, 2))


def test_a_row_that_gets_no_answer_even_alone_leaves_the_others_their_time() -> None:
    def rule(kind: str, asked: tuple[str, ...]) -> Outcome:
        return Outcome(lost=True) if kind == "put" and "c0/p0" in asked else Outcome()

    plane = ScriptedPlane(rule)
    found: dict[str, str] = {}

    async def main(rt: Any) -> None:
        found.update(await writer_of(rt, deadline=8.0, rows=2).write(pending(6)))
        assert rt.now() < 8.0

    play(plane, main)
    assert {key for key, reason in found.items() if reason} == {"c0/p0"}
    assert sorted(plane.rows) == list(keys(1, 2, 3, 4, 5))


def test_what_has_not_begun_by_the_deadline_is_a_failure_and_nothing_is_sent_for_it() -> None:
    plane = ScriptedPlane()
    found: dict[str, str] = {}

    async def main(rt: Any) -> None:
        await rt.sleep(3.0)
        found.update(await writer_of(rt, deadline=3.0).write(pending(6)))

    world = play(plane, main)
    assert found == dict.fromkeys(keys(*range(6)), DEADLINE_PASSED)
    assert plane.asked == [] and events(world, ChunkIssued, ChunksDiscarded, ChunksLeft) == []


def test_an_outage_is_over_by_the_deadline_and_its_keys_are_with_the_clean_up() -> None:
    plane = ScriptedPlane(lambda kind, asked: Outcome(lost=True))
    found: dict[str, str] = {}

    async def main(rt: Any) -> None:
        found.update(await writer_of(rt, deadline=10.0, rows=2).write(pending(4)))
        assert rt.now() <= 10.0

    world = play(plane, main)
    assert set(found) == set(keys(0, 1, 2, 3)) and all(found.values())
    assert events(world, ChunksDiscarded) == []
    left = [key for event in events(world, ChunksLeft) for key in event.keys]
    issued = [event.key for event in events(world, ChunkIssued)]
    assert set(issued) <= set(left)


def test_a_flush_clears_what_never_sealed_and_leaves_what_did() -> None:
    plane = ScriptedPlane()

    async def main(rt: Any) -> None:
        writer = writer_of(rt)
        await writer.write(pending(4))
        writer.seal("c1/p0")
        writer.seal("c3/p0")
        await writer.flush()
        await writer.flush()

    world = play(plane, main)
    assert list(plane.rows) == list(keys(1, 3))
    assert plane.of("clear") == [keys(0, 2)]
    assert events(world, ChunksDiscarded) == [ChunksDiscarded(f"c{n}", keys(n), "unsealed") for n in (0, 2)]


@pytest.mark.parametrize("rule", [script(), script(("put", Outcome(1, refused=True)))])
@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.004, 0.008, 0.012])
def test_an_inventory_that_is_cancelled_leaves_nothing_behind(rule: Any, after_s: float) -> None:
    plane = ScriptedPlane(rule)

    async def main(rt: Any) -> None:
        writer = writer_of(rt)

        async def inventory() -> None:
            try:
                await writer.write(pending(6))
                await rt.sleep(60.0)
            finally:
                await writer.flush()

        task = rt.spawn(inventory(), "inventory")
        await rt.sleep(after_s)
        task.cancel()
        await rt.first_of(task.join())
        await rt.sleep(1.0)
        assert writer.unsealed == {}

    world = play(plane, main)
    assert plane.rows == {}
    assert events(world, ChunksLeft) == []


def test_a_flush_that_is_cancelled_itself_hands_its_keys_to_the_clean_up() -> None:
    plane = ScriptedPlane(script(("clear", Outcome(0, lost=True))))

    async def main(rt: Any) -> None:
        writer = writer_of(rt)
        await writer.write(pending(2))
        task = rt.spawn(writer.flush(), "flush")
        await rt.sleep(0.5)
        task.cancel()
        await rt.first_of(task.join())
        await writer.cleanup.wait_for("c0")
        await writer.cleanup.wait_for("c1")

    world = play(plane, main)
    assert plane.rows == {}
    assert events(world, ChunksLeft) == [ChunksLeft(f"c{n}", keys(n), "unsealed") for n in (0, 1)]


def test_only_a_stored_row_seals_and_only_once() -> None:
    plane = ScriptedPlane(bad_row("c0/p0"))

    async def main(rt: Any) -> None:
        writer = writer_of(rt)
        await writer.write(pending(2))
        writer.seal("c1/p0")
        for key in ("c0/p0", "c1/p0", "c7/p0"):
            with pytest.raises(IllegalStep):
                writer.seal(key)

    play(plane, main)


def test_a_rolled_back_row_is_deleted_with_its_reason() -> None:
    plane = ScriptedPlane()

    async def main(rt: Any) -> None:
        writer = writer_of(rt)
        await writer.write(pending(3))
        await writer.discard(["c1/p0"], "rolled-back")
        await writer.discard(["c1/p0"], "rolled-back")

    world = play(plane, main)
    assert list(plane.rows) == list(keys(0, 2))
    assert events(world, ChunksDiscarded) == [ChunksDiscarded("c1", keys(1), "rolled-back")]
