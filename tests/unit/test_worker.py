from typing import Any

from protocol.data_plane.digests import decode_row, row_digest
from protocol.errors import Cause, Refusal
from protocol.history import (
    CallBegun,
    CallEnded,
    CallRefused,
    RowStagedDone,
    RowStagedIssued,
    TokensGenerated,
    WeightsReceived,
)
from protocol.messages import STAGING, Generate, Generated, GetSamples, Health, Probe, PutSamples, SetWeightVersion
from sim.fake_engine import FakeEngine
from sim.world import World
from tests.unit.gym_bench import Bench, events, until

ROOT = Generate(
    call="e0p5i1_g0r0-a0/c0",
    rollout_id="e0p5i1_g0r0",
    attempt=0,
    ordinal=5,
    generation=0,
    turn=0,
    parent="",
    parent_cumulative="",
    previous_length=0,
    carry=(1, 2, 3),
)


def test_a_reply_leaves_only_after_its_row_is_staged() -> None:
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        generated: Generated = await rt.call("worker-0", ROOT)
        found.append(generated)
        found.extend(await rt.call("data-plane", GetSamples(STAGING, (ROOT.call,))))

    world = Bench().run(script)
    generated, (name, data) = found
    row = decode_row(data)
    assert name == row.key == generated.coordinate.key == ROOT.call
    assert row.digest == generated.coordinate.digest == row_digest(row)
    assert row.tokens == (1, 2, 3, *generated.tokens)
    assert row.logprobs == (0.0, 0.0, 0.0, *generated.logprobs)
    assert (row.mode, generated.coordinate.tokens) == ("text", len(generated.tokens))
    kinds = (CallBegun, TokensGenerated, RowStagedIssued, RowStagedDone, CallEnded)
    assert [type(record.event) for record in world.history if isinstance(record.event, kinds)] == [
        CallBegun,
        TokensGenerated,
        TokensGenerated,
        RowStagedIssued,
        RowStagedDone,
        CallEnded,
    ]


def test_a_call_keeps_the_weight_version_it_began_with() -> None:
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        call = rt.call("worker-0", ROOT)
        await until(rt, world, CallBegun)
        await rt.call("worker-0", SetWeightVersion(3))
        found.append(await call)
        found.append(await rt.call("worker-0", ROOT))

    world = Bench().run(script)
    assert [event.version for event in events(world, CallBegun)] == [0, 3]
    assert [generated.coordinate.version for generated in found] == [0, 3]
    assert found[0].tokens != found[1].tokens


def test_a_worker_without_weights_refuses_calls_until_it_is_given_some() -> None:
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        found.append(await rt.call("worker-0", Probe()))
        try:
            await rt.call("worker-0", ROOT)
        except Refusal as refusal:
            found.append(refusal)
        await rt.call("worker-0", SetWeightVersion(2))
        found.append(await rt.call("worker-0", Probe()))
        await rt.call("worker-0", ROOT)

    world = Bench(weights=None).run(script)
    before, refusal, after = found
    assert (before, after) == (Health(1, -1), Health(1, 2))
    assert refusal.cause is Cause.INFRA and str(refusal).startswith("no_healthy_backend")
    assert events(world, CallRefused) == [CallRefused(ROOT.call, "no_healthy_backend")]
    assert [event.version for event in events(world, CallBegun)] == [2]


def test_a_push_that_a_later_one_has_overtaken_changes_nothing() -> None:
    async def script(rt: Any, world: World) -> None:
        for version in (3, 2, 3):
            await rt.call("worker-0", SetWeightVersion(version))
        await rt.call("worker-0", ROOT)

    world = Bench(weights=None).run(script)
    assert events(world, WeightsReceived) == [WeightsReceived(3)]
    assert [event.version for event in events(world, CallBegun)] == [3]


class FailingDataPlane:
    """Fails every put, with an error that is no ProtocolError."""

    def __init__(self, rt: Any) -> None:
        self.rt = rt

    async def main(self) -> None:
        self.rt.serve({PutSamples: self.put})

    async def put(self, message: PutSamples) -> None:
        raise ValueError("the disk is full")


def test_a_failed_capture_does_not_fail_the_completion() -> None:
    found: list[Generated] = []

    async def script(rt: Any, world: World) -> None:
        found.append(await rt.call("worker-0", ROOT))

    world = Bench(data_plane=FailingDataPlane).run(script)
    assert found[0].tokens
    assert (found[0].coordinate.digest, found[0].coordinate.cumulative) == ("", "")
    assert [(ended.call, ended.outcome) for ended in events(world, CallEnded)] == [(ROOT.call, "capture-failed")]
    assert events(world, RowStagedDone) == []


class NoWorld:
    """A Runtime that the pure part of an engine does not touch."""


def test_tokens_are_keyed_by_what_is_asked_and_nothing_else() -> None:
    engine = FakeEngine(NoWorld())  # type: ignore[arg-type]
    asked = [(5, 0, 0, 0), (6, 0, 0, 0), (5, 1, 0, 0), (5, 0, 1, 0), (5, 0, 0, 1)]
    answers = [engine.answer(*key) for key in asked]
    assert answers == [FakeEngine(NoWorld()).answer(*key) for key in asked]  # type: ignore[arg-type]
    assert len({tokens for tokens, _ in answers}) == len(asked)
    for tokens, logprobs in answers:
        assert 6 <= len(tokens) == len(logprobs) <= 22
        assert all(-16 < logprob < 0 and logprob * 1024 == int(logprob * 1024) for logprob in logprobs)


def test_spread_sets_the_lengths_of_prompts_apart() -> None:
    engine = FakeEngine(NoWorld(), {"tokens_min": 10, "tokens_max": 10, "spread": 1.0, "unsavable": 0})  # type: ignore[arg-type]
    assert [len(engine.answer(ordinal, 0, 0, 0)[0]) for ordinal in range(5)] == [10, 20, 30, 40, 10]
