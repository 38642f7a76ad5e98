"""Chunk rows that are left over: deleted through the gate, as often as it takes (PROTOCOL 6.5; I49)."""

from __future__ import annotations

from typing import Any

from protocol.history import ChunksDiscarded, ChunksLeft, GatePassed
from protocol.worker.batches import PrefixWriter
from protocol.worker.cleanup import ChunkCleanup, decide_retry_s
from protocol.worker.gate import SnapshotGate
from tests.unit.chunk_plane import OpenGate, Outcome, ScriptedPlane, events, job, keys, pending, play, script


def test_retries_come_apart_up_to_a_bound() -> None:
    assert [decide_retry_s(failures) for failures in (1, 2, 3, 5, 6, 100)] == [1.0, 2.0, 4.0, 16.0, 30.0, 30.0]


def test_whoever_waits_for_a_call_hears_when_its_rows_are_gone_and_waits_for_no_other_call() -> None:
    def rule(kind: str, asked: tuple[str, ...]) -> Outcome:
        return Outcome(0, lost=True) if "c1/p0" in asked else Outcome()

    plane = ScriptedPlane(rule)
    plane.rows = dict.fromkeys(keys(0, 1), b"")

    async def main(rt: Any) -> None:
        cleanup = ChunkCleanup(rt, job(), OpenGate(rt))
        cleanup.leave("c1", keys(1), "aborted")
        cleanup.leave("c0", keys(0), "completed")
        await cleanup.wait_for("c0")
        assert rt.now() < 1.0 and list(plane.rows) == list(keys(1))
        await cleanup.wait_for("nobody")

    world = play(plane, main)
    assert events(world, ChunksLeft) == [ChunksLeft("c1", keys(1), "aborted"), ChunksLeft("c0", keys(0), "completed")]
    assert events(world, ChunksDiscarded) == [ChunksDiscarded("c0", keys(0), "completed")]


def test_a_delete_is_tried_until_the_data_plane_answers() -> None:
    plane = ScriptedPlane(script(("clear", Outcome(0, refused=True)), ("clear", Outcome(lost=True))))
    plane.rows = dict.fromkeys(keys(0), b"")

    async def main(rt: Any) -> None:
        cleanup = ChunkCleanup(rt, job(rpc_timeout_s=5.0), OpenGate(rt))
        cleanup.leave("c0", keys(0), "retired")
        await cleanup.wait_for("c0")
        assert 1.0 + 5.0 + 2.0 < rt.now() < 8.1

    world = play(plane, main)
    assert plane.rows == {} and plane.count("clear") == 3
    assert events(world, ChunksDiscarded) == [ChunksDiscarded("c0", keys(0), "retired")]


def test_nothing_is_deleted_while_the_gate_is_closed() -> None:
    plane = ScriptedPlane()
    plane.rows = dict.fromkeys(keys(0), b"")

    async def main(rt: Any) -> None:
        gate = OpenGate(rt)
        gate.closed = True
        cleanup = ChunkCleanup(rt, job(), gate)
        cleanup.leave("c0", keys(0), "completed")
        await rt.sleep(10.0)
        assert plane.asked == []
        gate.open()
        await cleanup.wait_for("c0")

    play(plane, main)
    assert plane.rows == {}


def test_the_gate_of_a_worker_keeps_deletes_back_until_every_holder_has_opened_it() -> None:
    plane = ScriptedPlane()
    plane.rows = dict.fromkeys(keys(0), b"")

    async def main(rt: Any) -> None:
        gate = SnapshotGate(rt, 60.0)
        cleanup = ChunkCleanup(rt, job(), gate)
        gate.close("gym-0", 1, "k1")
        gate.close("gym-1", 1, "k1")
        cleanup.leave("c0", keys(0), "completed")
        gate.open("gym-0", 1)
        await rt.sleep(5.0)
        assert plane.asked == []
        gate.open("gym-1", 1)
        await cleanup.wait_for("c0")
        assert await gate.settle(1.0)

    world = play(plane, main)
    assert plane.rows == {}
    assert events(world, GatePassed) == [GatePassed("c0", "cleanup")]


def test_rows_left_at_different_times_go_with_the_reason_of_each() -> None:
    plane = ScriptedPlane()

    async def main(rt: Any) -> None:
        cleanup = ChunkCleanup(rt, job(), OpenGate(rt))
        cleanup.leave("c0", ("c0/p0",), "rolled-back")
        cleanup.leave("c0", ("c0/p9",), "completed")
        await cleanup.wait_for("c0")
        cleanup.leave("c0", ("c0/p20",), "aborted")
        await cleanup.wait_for("c0")

    world = play(plane, main)
    assert plane.of("clear") == [("c0/p0", "c0/p9"), ("c0/p20",)]
    assert [(event.keys, event.why) for event in events(world, ChunksDiscarded)] == [
        (("c0/p0",), "rolled-back"),
        (("c0/p9",), "completed"),
        (("c0/p20",), "aborted"),
    ]


def test_a_row_that_is_written_again_is_not_deleted_by_the_clean_up_of_its_former_self() -> None:
    stored, refused = Outcome(1, refused=True), Outcome(0, refused=True)
    plane = ScriptedPlane(script(("put", stored), ("put", stored), ("clear", Outcome(0, lost=True)), ("clear", refused)))

    async def main(rt: Any) -> None:
        cleanup = ChunkCleanup(rt, job(rpc_timeout_s=3.0), OpenGate(rt))
        first = PrefixWriter(rt, job(rpc_timeout_s=3.0), cleanup)
        assert (await first.write(pending(1)))["c0/p0"]  # it is still there, and the clean-up is after it
        await rt.sleep(0.2)
        second = PrefixWriter(rt, job(), cleanup)
        assert (await second.write(pending(1)))["c0/p0"] == ""
        second.seal("c0/p0")
        await cleanup.wait_for("c0")
        await rt.sleep(120.0)

    play(plane, main)
    assert list(plane.rows) == ["c0/p0"]


def test_what_a_writer_cannot_delete_is_deleted_once_the_data_plane_is_back() -> None:
    plane = ScriptedPlane()
    plane.rule = lambda kind, asked: Outcome(lost=True) if kind == "clear" and plane.rt.now() < 100.0 else Outcome()

    async def main(rt: Any) -> None:
        cleanup = ChunkCleanup(rt, job(rpc_timeout_s=10.0), OpenGate(rt))
        writer = PrefixWriter(rt, job(rpc_timeout_s=10.0), cleanup)
        await writer.write(pending(2))
        assert len(plane.rows) == 2
        await writer.flush()
        for call in ("c0", "c1"):
            await cleanup.wait_for(call)
        assert rt.now() > 100.0

    world = play(plane, main)
    assert plane.rows == {}
    assert [event.why for event in events(world, ChunksDiscarded)] == ["unsealed", "unsealed"]
