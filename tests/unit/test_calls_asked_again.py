"""A model call that is asked for again, by an instance that has lost the first answer."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.errors import Refusal
from protocol.history import CallEnded, ChunksDiscarded, ChunkStaged, RowStagedDone, TokensGenerated
from protocol.messages import STAGING, CutCalls, CutReceipt, Generate, Generated, GetSamples, ListSampleIds, OpenGate, Ticket
from sim.world import World
from tests.unit.gym_bench import JOB, Bench, events, until
from tests.unit.test_worker import ROOT

LONG = {"tokens_min": 60, "tokens_max": 60, "unsavable": 0}
PREFIX = msgspec.structs.replace(JOB, target_level="prefix")


def asked(at: float) -> Generate:
    return msgspec.structs.replace(ROOT, admitted_at=at)


def cut(request: Generate, epoch: int) -> CutCalls:
    ticket = Ticket(request.call, request.rollout_id, request.attempt, request.admitted_at)
    return CutCalls(f"1.{epoch}", "gym-0", epoch, (ticket,), 5.0)


async def outcome(call: Any) -> Any:
    try:
        return await call
    except Refusal as refusal:
        return str(refusal)


def test_the_newer_call_is_answered_and_the_older_one_ends_before_it_begins() -> None:
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        first = rt.call("worker-0", asked(0.0))
        await until(rt, world, TokensGenerated)
        second = rt.call("worker-0", asked(1.0))
        found.extend([await outcome(first), await outcome(second)])

    world = Bench(LONG, job=PREFIX).run(script)
    older, newer = found
    assert "gave it up" in older
    assert isinstance(newer, Generated) and newer.coordinate.captured
    assert [event.outcome for event in events(world, CallEnded)] == ["aborted", "answered"]


def test_rows_of_the_older_call_that_waits_at_the_gate_take_none_of_the_newer_ones_with_them() -> None:
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        first = rt.call("worker-0", asked(0.0))
        await until(rt, world, TokensGenerated)
        await rt.call("worker-0", cut(asked(0.0), 1))
        await until(rt, world, TokensGenerated, 2)  # it has finished, and waits for the gate
        await rt.sleep(0.01)
        second = rt.call("worker-0", asked(1.0))
        await until(rt, world, TokensGenerated, 3)
        receipt: CutReceipt = await rt.call("worker-0", cut(asked(1.0), 2))
        await rt.call("worker-0", OpenGate("gym-0", 2))
        await rt.sleep(0.1)
        (ack,) = receipt.acks
        assert ack.evidence is not None
        found.append(dict(await rt.call("data-plane", GetSamples(STAGING, ack.evidence.keys))).keys() >= {*ack.evidence.keys})
        found.extend([await outcome(first), await outcome(second)])
        found.append(await rt.call("data-plane", ListSampleIds(STAGING)))

    world = Bench(LONG, job=PREFIX).run(script)
    there, older, newer, left = found
    assert there
    assert "asked for again" in older
    assert isinstance(newer, Generated)
    assert len(events(world, ChunkStaged)) == 2
    assert [event.why for event in events(world, ChunksDiscarded)] == ["completed"]
    assert len(events(world, RowStagedDone)) == 1
    assert left == (ROOT.call,)
