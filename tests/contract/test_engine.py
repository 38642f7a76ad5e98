"""What every engine does, whatever generates its tokens: the fake one, and vLLM with a tiny mixture of experts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import pytest
from engine_bench import NEEDS_VLLM, PROMPT, EngineBench, cut
from small_world import Played, play

from protocol.data_plane.digests import as_float32s, generated_digest
from protocol.errors import MissingFile
from protocol.history import EngineAborted, EngineStarted, Event, TokensGenerated
from protocol.messages import MediaSource
from protocol.parts import Engine, EngineCall
from protocol.runtime import Runtime
from protocol.worker.text import call_text
from real.engine.host import Answer, call_of
from sim.fake_engine import FakeEngine
from sim.media import GONE, STORE, MediaStore, ServiceValue

T = TypeVar("T")
E = TypeVar("E", bound=Event)
Use = Callable[[Engine, Runtime], Awaitable[T]]
SEEDED: dict[str, Any] = {"temperature": 1.0, "seed": 1}
LIMIT = 40
PROFILE = {
    "tokens_min": 60,
    "tokens_max": 80,
    "stop_token": True,
    "routes": {"layers": 2, "top_k": 2, "experts": 8},
}


class Stage(Protocol):
    def life(self, use: Use[T]) -> T: ...
    def events(self, kind: type[E]) -> list[E]: ...
    def leave_weights(self, version: int) -> str: ...


class FakeStage:
    def __init__(self) -> None:
        self.played: Played | None = None

    def life(self, use: Use[T]) -> T:
        store = MediaStore([ServiceValue(STORE, GONE + "nowhere.png", 1)])

        async def client(rt: Runtime) -> T:
            return await use(FakeEngine(rt, PROFILE, store), rt)

        self.played = play(client, {})
        result: T = self.played.result
        return result

    def events(self, kind: type[E]) -> list[E]:
        assert self.played is not None
        return self.played.events(kind)

    def leave_weights(self, version: int) -> str:
        return "any"


class RealStage:
    def __init__(self, bench: EngineBench) -> None:
        self.bench = bench

    def life(self, use: Use[T]) -> T:
        return self.bench.life(use)

    def events(self, kind: type[E]) -> list[E]:
        return self.bench.events(kind)

    def leave_weights(self, version: int) -> str:
        return self.bench.leave_weights(version, self.bench.model)


@pytest.fixture(params=["fake", pytest.param("real", marks=[pytest.mark.real, NEEDS_VLLM])])
def stage(request: pytest.FixtureRequest) -> Stage:
    return FakeStage() if request.param == "fake" else RealStage(request.getfixturevalue("real_engine"))


def call(name: str = "c", **changes: Any) -> EngineCall:
    return call_of(name, PROMPT, **{"limit": LIMIT, **SEEDED, **changes})


async def answered(engine: Engine, asked: EngineCall) -> Answer:
    output = engine.start(asked)
    await output.done()
    routes = b"".join(piece.read() for piece in output.pieces)
    answer = Answer(tuple(output.tokens), as_float32s(output.logprobs), output.finish, routes)
    engine.release(asked.call)
    return answer


def test_lists_only_grow_and_a_finished_call_is_whole(stage: Stage) -> None:
    async def use(engine: Engine, rt: Runtime) -> list[tuple[list[int], list[float], int, str]]:
        output = engine.start(call())
        looks = []
        while True:
            finish, routed = output.finish, output.routed
            scored = list(output.logprobs)
            looks.append((list(output.tokens), scored, routed, finish))
            if finish:
                break
            await output.more()
        await output.done()
        looks.append((list(output.tokens), list(output.logprobs), output.routed, output.finish))
        return looks

    looks = stage.life(use)
    for (tokens, logprobs, routed, _), (later, scored, rows, _) in zip(looks, looks[1:], strict=False):
        assert later[: len(tokens)] == tokens and scored[: len(logprobs)] == logprobs and rows >= routed
        assert len(logprobs) <= len(tokens)
    assert [look for look in looks if 0 < len(look[0]) < LIMIT], "tokens are seen as they come"
    tokens, logprobs, routed, finish = looks[-1]
    assert (len(tokens), len(logprobs), routed, finish) == (LIMIT, LIMIT, LIMIT - 1, "length")
    assert [look[3] for look in looks[:-2]] == [""] * (len(looks) - 2)


@pytest.mark.parametrize("count", [1, 7, 39])
def test_a_call_goes_on_after_a_prefix_where_it_was_cut(stage: Stage, count: int) -> None:
    async def use(engine: Engine, rt: Runtime) -> tuple[Answer, Answer]:
        whole = await answered(engine, call())
        return whole, await answered(engine, call(prefix=cut(whole, count)))

    whole, rest = stage.life(use)
    assert rest.tokens == whole.tokens[count:]
    assert rest.finish == whole.finish == "length"
    assert rest.logprobs == pytest.approx(whole.logprobs[count:], abs=1e-4)
    assert len(rest.routes) == len(whole.routes)
    (started,) = stage.events(EngineStarted)
    assert (started.prefix, started.limit, started.seed, started.first_draw) == (count, LIMIT - count, 1, count)


def test_the_last_word_on_a_call_digests_its_prefix_and_all_that_came(stage: Stage) -> None:
    async def use(engine: Engine, rt: Runtime) -> Answer:
        whole = await answered(engine, call())
        await answered(engine, call("cut", prefix=cut(whole, 7)))
        return whole

    whole = stage.life(use)
    last = [event for event in stage.events(TokensGenerated) if event.content]
    content = generated_digest(whole.tokens, whole.logprobs)
    assert [(event.call, event.count, event.content) for event in last] == [("c", LIMIT, content), ("cut", LIMIT, content)]
    assert all(event.routes for event in last)


def test_an_abort_ends_a_call_and_keeps_what_was_there(stage: Stage) -> None:
    async def use(engine: Engine, rt: Runtime) -> tuple[Answer, tuple[int, ...], str, int]:
        whole = await answered(engine, call())
        output = engine.start(call("given-up", limit=900))
        while len(output.tokens) < 5:
            await output.more()
        engine.abort("given-up")
        await output.done()
        await output.more()
        engine.abort("given-up")
        engine.abort("never-heard-of")
        kept = tuple(output.tokens)
        assert not output.pieces
        engine.release("given-up")
        (pieces,) = engine.route_pieces([("given-up", 0)])
        return whole, kept, output.finish, len(pieces)

    whole, kept, finish, pieces = stage.life(use)
    assert len(kept) >= 5 and whole.tokens[: len(kept)] == kept[:LIMIT]
    assert (finish, pieces) == ("aborted", 0)
    assert stage.events(EngineAborted) == [EngineAborted("given-up", len(kept))]


def test_pieces_are_appended_and_come_whole_with_the_last_output(stage: Stage) -> None:
    async def use(engine: Engine, rt: Runtime) -> tuple[list[bytes], bytes, int]:
        output = engine.start(call())
        snapshots = []
        while not output.finish:
            await output.more()
            (pieces,), (rest,), (none,) = (engine.route_pieces([asked]) for asked in (("c", 0), ("c", 2), ("other", 0)))
            assert list(rest) == list(pieces[2:]) and none == ()
            snapshots.append(b"".join(piece.read() for piece in pieces))
            assert all(len(piece.read()) == 4 * piece.rows for piece in pieces)
        await output.done()
        return snapshots, b"".join(piece.read() for piece in output.pieces), sum(piece.rows for piece in output.pieces)

    snapshots, final, rows = stage.life(use)
    assert rows == len(PROMPT) + LIMIT - 1 and len(final) == 4 * rows
    assert [snapshot for snapshot in snapshots if 0 < len(snapshot) < len(final)], "pieces are seen as they come"
    assert all(final.startswith(snapshot) for snapshot in snapshots)
    assert snapshots[-1] == final, "a finished call may still be cut"


def test_at_least_one_token_comes_and_no_more_than_the_limit(stage: Stage) -> None:
    async def use(engine: Engine, rt: Runtime) -> Answer:
        return await answered(engine, call(limit=1))

    answer = stage.life(use)
    assert (len(answer.tokens), len(answer.logprobs), answer.finish) == (1, 1, "length")


def test_text_is_the_same_token_by_token_and_in_one_pass(stage: Stage) -> None:
    async def use(engine: Engine, rt: Runtime) -> list[tuple[str, str, str]]:
        whole = await answered(engine, call())
        ended = (*whole.tokens, *engine.stop_tokens())
        return [
            (call_text(engine, PROMPT, tokens, finish), engine.plain_text(PROMPT, tokens, finish, ()), engine.text(tokens))
            for tokens, finish in ((whole.tokens, "length"), (ended, "stop"), (whole.tokens[:9], "length"))
        ]

    (long, plain, _), (stopped, again, _), (short, once, _) = stage.life(use)
    assert (long, short) == (plain, once) and len(long) > len(short) > 0
    assert stopped == again == long, "a stop token is no part of a text"


def test_weights_that_were_told_are_loaded_and_said_back(stage: Stage) -> None:
    digest = stage.leave_weights(1)

    async def use(engine: Engine, rt: Runtime) -> tuple[str, Answer]:
        said = await engine.use_weights(1, digest)
        return said, await answered(engine, call(version=1))

    said, answer = stage.life(use)
    assert said == digest
    assert len(answer.tokens) == LIMIT


def test_a_source_that_is_not_there_is_named(stage: Stage) -> None:
    async def use(engine: Engine, rt: Runtime) -> None:
        await engine.media([MediaSource("image", "nowhere.png", 0, 4)])

    with pytest.raises(MissingFile, match="nowhere.png"):
        stage.life(use)
