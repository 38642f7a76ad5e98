"""A generation worker answers through its model server as it does in its own process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import Cause, MissingFile, PeerFailed, ProtocolError, Refusal
from protocol.history import CallBegun, CallEnded, CallRefused, CutSealed, EngineAborted, PrefixRestored, ReceiptSent
from protocol.messages import (
    DURABLE_FAILURE,
    DURABLE_PREFIX,
    NO_BACKEND,
    CutCalls,
    CutReceipt,
    Generate,
    Generated,
    Health,
    ListSampleIds,
    MediaSource,
    OpenGate,
    Probe,
    RetirePrefix,
    Sampling,
    SetWeightVersion,
    Ticket,
)
from protocol.worker.cut import inventory_digest
from sim.fake_engine import FakeEngine
from tests.contract.worker_bench import WAYS, Told, asked, play

pytestmark = pytest.mark.real
for _package in ("httpx", "fastapi", "uvicorn"):
    pytest.importorskip(_package, reason="the extra 'real' is not installed")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def outcome(told: Told, message: Any) -> Any:
    """The reply; a protocol error is the reply."""
    try:
        return await told.ask(message)
    except ProtocolError as error:
        return error


def replies(folder: Path, way: str, *messages: Any, **life: Any) -> list[Any]:
    found: list[Any] = []

    async def script(told: Told) -> None:
        for message in messages:
            found.append(await outcome(told, message))

    play(folder, way, script, **life)
    return found


def ticket(call: Generate) -> Ticket:
    return Ticket(call.call, call.rollout_id, call.attempt, call.admitted_at)


def cut(call: Generate, epoch: int = 1) -> CutCalls:
    return CutCalls(f"k{epoch}", "gym-0", epoch, (ticket(call),), 2.0)


CALLS = (
    asked(),
    asked(call="e0p6i1_g1r0-a2/c1", rollout_id="e0p6i1_g1r0", attempt=2, ordinal=6, generation=1, turn=1,
          parent="e0p6i1_g1r0-a2/c0", parent_cumulative="0" * 32, previous_length=17, carry=(4_294_967_295, 0)),
    asked(call="short", sampling=Sampling(max_tokens=3, seed=-5, temperature=0.0, top_p=0.5, stop=("x", "y"))),
)  # fmt: skip


def test_a_call_has_the_same_answer_either_way(tmp_path: Path) -> None:
    both = [replies(tmp_path, way, SetWeightVersion(0), *CALLS, profile={"token_s": 0.001}) for way in WAYS]
    assert both[0] == both[1]
    assert [(len(answer.tokens), answer.finish) for answer in both[1][1:]] == [(40, "stop"), (40, "stop"), (3, "length")]
    assert all(answer.text and answer.coordinate.captured for answer in both[1][1:])


def test_what_the_engine_generated_arrives_whole(tmp_path: Path, way: str) -> None:
    tokens, logprobs = FakeEngine(None, {"tokens_min": 40, "tokens_max": 40}).answer(5, 0, 0, 3)  # type: ignore[arg-type]
    _, _, answer, health = replies(tmp_path, way, Probe(), SetWeightVersion(3, "digest"), asked(), Probe())
    assert (answer.tokens, answer.logprobs, answer.completion_tokens) == (tokens, logprobs, 40)
    assert (answer.coordinate.version, answer.coordinate.tokens, health) == (3, 40, Health(1, 3))


def test_a_worker_without_weights_refuses_with_the_same_error(tmp_path: Path, way: str) -> None:
    refusal, health, again = replies(tmp_path, way, asked(), Probe(), asked())
    assert type(refusal) is Refusal and refusal.cause is Cause.INFRA
    assert str(refusal) == str(again) and str(refusal).startswith(NO_BACKEND)
    assert health == Health(1, -1)


class Troubled(FakeEngine):
    """Its weights cannot be had; a call fails as no engine should."""

    async def use_weights(self, version: int, weights: str) -> str:
        if version > 1:
            raise Refusal(f"weights {weights!r} are torn:\n\u2028{{}}", Cause.INFRA)
        return weights

    def start(self, call: Any) -> Any:
        raise ValueError("the engine core is gone")

    def media(self, sources: Any) -> Any:
        raise MissingFile(f"{sources[0].source} is not there")


def test_errors_arrive_as_what_they_were_raised_as(tmp_path: Path, way: str) -> None:
    torn, _, failed, missing, unserved = replies(
        tmp_path,
        way,
        SetWeightVersion(2, "\u00e9"),
        SetWeightVersion(1),
        asked(),
        asked(media=(MediaSource("image", "no-such.png", 0, 2),)),
        ListSampleIds("x"),
        engine=Troubled,
    )
    assert (type(torn), torn.cause, str(torn)) == (Refusal, Cause.INFRA, "weights '\u00e9' are torn:\n\u2028{}")
    assert (type(failed), failed.cause) == (PeerFailed, Cause.INFRA) and "the engine core is gone" in str(failed)
    assert (type(missing), missing.cause) == (Refusal, Cause.DATA) and "no-such.png" in str(missing)
    assert type(unserved) is PeerFailed and "ListSampleIds" in str(unserved)


def test_a_call_that_is_given_up_is_aborted_in_the_worker(tmp_path: Path, way: str) -> None:
    async def script(told: Told) -> None:
        await told.ask(SetWeightVersion(0))
        if way == "in-process":
            call = told.ask(asked())
            await told.until(CallBegun)
            call.cancel()  # type: ignore[attr-defined]
        else:
            task = asyncio.ensure_future(told.ask(asked()))
            await told.until(CallBegun)
            task.cancel()
        await told.until(CallEnded)

    events = [record.event for record in play(tmp_path, way, script, profile={"token_s": 0.1})]
    assert [event.outcome for event in events if isinstance(event, CallEnded)] == ["aborted"]
    assert len([event for event in events if isinstance(event, EngineAborted)]) == 1


async def cut_of(told: Told, call: Generate) -> tuple[int, CutReceipt]:
    """Of a running call, as soon as it is not inside a character; with the epoch that it took."""
    epoch = 1
    while True:
        await asyncio.sleep(0.03)
        receipt: CutReceipt = await told.ask(cut(call, epoch))
        if receipt.acks[0].kind != DURABLE_FAILURE:
            return epoch, receipt
        epoch += 1


def test_a_cut_answers_its_inventory_and_a_restored_call_goes_on_from_it(tmp_path: Path, way: str) -> None:
    found: list[Any] = []
    call = asked()

    async def script(told: Told) -> None:
        await told.ask(SetWeightVersion(0))
        running = asyncio.ensure_future(outcome(told, call))
        await told.until(CallBegun)
        epoch, receipt = await cut_of(told, call)
        again = await told.ask(cut(call, epoch))
        evidence = receipt.acks[0].evidence
        restored = asyncio.ensure_future(outcome(told, asked(call="e0p5i1_g0r0-a1/c0", attempt=1, prefix=evidence)))
        await told.until(PrefixRestored)
        await told.ask(OpenGate("gym-0", epoch))
        found.extend((receipt, again, await running, evidence, await restored))
        await told.ask(RetirePrefix(call.call, evidence.keys))  # type: ignore[union-attr]

    played = play(tmp_path, way, script)
    receipt, again, whole, evidence, restored = found
    assert isinstance(receipt, CutReceipt) and isinstance(whole, Generated) and isinstance(restored, Generated)
    assert receipt == again
    assert receipt.inventory == inventory_digest((ticket(call),))
    assert [(ack.ticket, ack.kind) for ack in receipt.acks] == [(ticket(call), DURABLE_PREFIX)]
    assert 0 < receipt.acks[0].evidence.count < 40  # type: ignore[union-attr]
    assert (restored.prefix, restored.prefix_digest) == (evidence.count, evidence.digest)
    assert (restored.tokens, restored.logprobs, restored.text) == (whole.tokens, whole.logprobs, whole.text)
    assert restored.completion_tokens == len(whole.tokens) == 40
    events = [record.event for record in played]
    assert [event.repeated for event in events if isinstance(event, ReceiptSent)][-2:] == [False, True]
    assert len([event for event in events if isinstance(event, CutSealed)]) == 1


def test_a_call_of_its_own_name_gives_up_the_older_one(tmp_path: Path, way: str) -> None:
    found: list[Any] = []

    async def script(told: Told) -> None:
        await told.ask(SetWeightVersion(0))
        first = asyncio.ensure_future(outcome(told, asked()))
        await told.until(CallBegun)
        found.append(await told.ask(asked()))
        found.append(await first)

    events = [record.event for record in play(tmp_path, way, script)]
    assert isinstance(found[0], Generated) and isinstance(found[1], Refusal)
    assert not [event for event in events if isinstance(event, CallRefused)]
