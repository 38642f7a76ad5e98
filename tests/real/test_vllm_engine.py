"""The real engine on a tiny mixture of experts: what it answers, goes on with, loads and says. One engine for all of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from engine_bench import GREEDY, NEEDS_VLLM, PROMPT, SEEDED, EngineBench, cut

from protocol.data_plane.digests import generated_digest
from protocol.errors import Cause, Refusal
from protocol.history import EngineAborted, EngineStarted, TokensGenerated
from protocol.messages import Sampling
from protocol.parts import EngineCall
from protocol.runtime import Runtime
from protocol.worker.text import call_text
from real.engine import models
from real.engine.environment import settings_of
from real.engine.host import Answer, Host, answer_of, call_of, finished
from real.engine.vllm_engine import VllmEngine, boot
from real.engine.weights import weights_folder

pytestmark = [pytest.mark.real, NEEDS_VLLM]


@pytest.fixture
def bench(real_engine: EngineBench) -> EngineBench:
    return real_engine


@pytest.fixture(scope="module")
def fresh(real_engine: EngineBench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, int]]:
    """Another engine, started with the weights of another seed, and its core's process."""
    folder = tmp_path_factory.mktemp("fresh")
    models.make(folder / "new", "moe", seed=1)
    before = cores()
    booted = real_engine.loop.run_until_complete(boot(settings_of(folder / "new"), "under test"))
    (core,) = cores() - before
    yield Host(booted, folder / "run"), core
    booted.close()


def cores() -> set[int]:
    """Processes of engine cores below this one."""
    import psutil

    return {child.pid for child in psutil.Process().children(recursive=True) if "EngineCore" in child.name() + child.cmdline()[0]}


ROW = 4  # bytes of a route row: two layers, two experts


def assert_continues(whole: Answer, count: int, rest: Answer) -> None:
    assert rest.tokens == whole.tokens[count:]
    assert max(abs(a - b) for a, b in zip(rest.logprobs, whole.logprobs[count:], strict=True)) <= 1e-4
    assert rest.finish == whole.finish
    assert rest.routes == whole.routes


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED, {"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9, "seed": 3}])
def test_a_call_that_goes_on_after_any_prefix_is_the_call_that_was_never_cut(
    bench: EngineBench, sampling: dict[str, Any]
) -> None:
    (whole,) = bench.ask(call_of("whole", PROMPT, **sampling))
    assert len(whole.tokens) == 40 or whole.finish == "stop"
    assert len(whole.routes) == ROW * (len(PROMPT) + len(whole.tokens) - 1)
    counts = sorted({1, 13, 31, len(whole.tokens) - 1} & set(range(len(whole.tokens))))
    rests = bench.ask(*(call_of(f"cut{n}", PROMPT, prefix=cut(whole, n), **sampling) for n in counts))
    for count, rest in zip(counts, rests, strict=True):
        assert_continues(whole, count, rest)


def test_draws_belong_to_the_seed_and_to_the_position(bench: EngineBench) -> None:
    prompts = [PROMPT[:20], PROMPT[:20], PROMPT[:20], PROMPT[1:21]]
    seeds = [1, 1, 11, 1]
    answers = bench.ask(*(call_of(f"c{n}", prompts[n], temperature=1.0, seed=seed, limit=30) for n, seed in enumerate(seeds)))
    assert answers[0] == answers[1]
    assert answers[0].tokens != answers[2].tokens
    assert answers[0].tokens != answers[3].tokens


def test_a_call_without_a_seed_is_drawn_again_by_who_it_is(bench: EngineBench) -> None:
    first, again, other = bench.ask(
        call_of("a", PROMPT, ordinal=5), call_of("another-attempt", PROMPT, ordinal=5), call_of("b", PROMPT, ordinal=6)
    )
    assert first == again
    assert first.tokens != other.tokens


def test_a_running_call_publishes_tokens_logprobs_and_rows_and_an_abort_keeps_them(bench: EngineBench) -> None:
    async def use(engine: VllmEngine, rt: Runtime) -> tuple[list[tuple[int, int, int]], Answer, bytes]:
        output = engine.start(call_of("long", PROMPT, limit=900, **SEEDED))
        looks = []
        while len(output.tokens) < 30 and not output.finish:
            looks.append((len(output.tokens), len(output.logprobs), output.routed))
            await output.more()
        (pieces,) = engine.route_pieces([("long", 0)])
        (tail,) = engine.route_pieces([("long", 3)])
        assert tail == pieces[3:]
        rows = b"".join(piece.read() for piece in pieces)
        engine.abort("long")
        await output.done()
        assert output.finish == "aborted" and not output.pieces and not output.dropped
        return looks, answer_of(output), rows

    looks, kept, rows = bench.life(use)
    assert all(tokens == logprobs and routed == max(tokens - 1, 0) for tokens, logprobs, routed in looks)
    assert looks[0] == (0, 0, 0) and len({tokens for tokens, _, _ in looks}) > 1
    aborted = bench.events(EngineAborted)
    assert aborted == [EngineAborted("long", len(kept.tokens))]
    (whole,) = bench.ask(call_of("whole", PROMPT, limit=len(kept.tokens), **SEEDED))
    assert whole.tokens == kept.tokens
    assert whole.routes.startswith(rows) and len(rows) >= ROW * len(PROMPT)


def test_what_is_recorded_of_a_call_digests_all_of_it(bench: EngineBench) -> None:
    (whole,) = bench.ask(call_of("whole", PROMPT, **SEEDED))
    middle, end = bench.events(TokensGenerated)
    assert (middle.count, middle.content) == (20, "")
    assert (end.count, end.content) == (40, generated_digest(whole.tokens, whole.logprobs))
    (rest,) = bench.ask(call_of("cut", PROMPT, prefix=cut(whole, 13), **SEEDED))
    assert bench.events(EngineStarted) == [EngineStarted("cut", 13, 27, 1, 13)]
    *_, ended = bench.events(TokensGenerated)
    assert (ended.count, ended.content) == (40, end.content)
    assert ended.routes and ended.routes != end.routes  # of the carry and the prefix it says nothing
    assert rest.tokens == whole.tokens[13:]


def test_a_child_call_has_its_parents_last_row_first(bench: EngineBench) -> None:
    (parent,) = bench.ask(call_of("parent", PROMPT, **SEEDED))
    chain, reply = (*PROMPT, *parent.tokens), (70, 71, 72)
    child = msgspec.structs.replace(call_of("child", reply, temperature=0.0), context=chain, previous_length=len(chain), turn=1)
    flat = call_of("flat", (*chain, *reply), temperature=0.0)
    found, expected = bench.ask(child, flat)
    assert (found.tokens, found.logprobs) == (expected.tokens, expected.logprobs)
    assert found.routes == expected.routes[ROW * (len(chain) - 1) :]
    assert expected.routes.startswith(parent.routes)


def test_a_call_that_cannot_be_right_is_refused_before_it_begins(bench: EngineBench) -> None:
    good = call_of("good", PROMPT)
    for wrong, cause, text in (
        (msgspec.structs.replace(good, previous_length=3), Cause.BROKEN, "brings 0 tokens of its chain, which has 3"),
        (msgspec.structs.replace(good, version=4), Cause.INFRA, "under weights 4, 0 are loaded"),
        (call_of("long", tuple(PROMPT) * 26), Cause.DATA, "1040 tokens leave no room"),
        (call_of("empty", ()), Cause.DATA, "the prompt is empty"),
    ):
        with pytest.raises(Refusal, match=text) as refused:
            bench.ask(wrong)
        assert refused.value.cause is cause


def test_a_limit_ends_a_call_and_the_models_length_does_where_there_is_none(bench: EngineBench) -> None:
    unlimited = msgspec.structs.replace(call_of("none", PROMPT[:30] * 34, **GREEDY), limit=None)
    short, none = bench.ask(call_of("short", PROMPT, limit=3, **GREEDY), unlimited)
    assert (len(short.tokens), short.finish) == (3, "length")
    assert none.finish == "stop" or len(none.tokens) == 1024 - 30 * 34


def test_a_stop_string_ends_a_call_and_is_no_part_of_its_text(bench: EngineBench) -> None:
    (whole,) = bench.ask(call_of("whole", PROMPT, **SEEDED))

    async def use(engine: VllmEngine, rt: Runtime) -> tuple[Answer, str, str]:
        text = engine.text(whole.tokens)
        stop = next(text[place : place + 2] for place in range(10, len(text)) if "\ufffd" not in text[place : place + 2])
        answer = await finished(engine, call_of("stopped", PROMPT, stop=(stop,), **SEEDED))
        said = call_text(engine, PROMPT, answer.tokens, answer.finish, (stop,))
        assert stop in engine.text(answer.tokens) and stop not in said
        return answer, said, engine.plain_text(PROMPT, answer.tokens, answer.finish, (stop,))

    answer, said, plain = bench.life(use)
    assert answer.finish == "stop" and answer.tokens == whole.tokens[: len(answer.tokens)]
    assert said == plain


def test_text_is_made_token_by_token_as_the_engine_makes_it_in_one_pass(bench: EngineBench) -> None:
    async def use(engine: VllmEngine, rt: Runtime) -> list[tuple[str, str]]:
        end = engine.stop_tokens()[0]
        spoken = list(" Größe 語 🙂 ok".encode())
        found = []
        for tokens, finish in ((spoken, "length"), (spoken[:-5], "length"), ([*spoken, end], "stop"), ([*spoken, end], "length")):
            found.append((call_text(engine, PROMPT, tokens, finish), engine.plain_text(PROMPT, tokens, finish, ())))
        assert engine.text(spoken) == " Größe 語 🙂 ok"
        assert engine.text(spoken[:3] + spoken[3:4]).endswith("\ufffd")
        return found

    found = bench.life(use)
    assert [said for said, _ in found][0] == " Größe 語 🙂 ok"
    assert all(said == plain for said, plain in found)


def test_weights_that_are_loaded_are_those_of_a_fresh_start_and_old_calls_end_under_the_old_ones(
    bench: EngineBench, fresh: tuple[Host, int], tmp_path: Path
) -> None:
    models.make(tmp_path / "new", "moe", seed=1)
    asked: Sequence[EngineCall] = [call_of(f"c{n}", PROMPT[n:], **SEEDED) for n in range(4)]
    before = bench.ask(*asked)
    digest = bench.leave_weights(1, tmp_path / "new")
    old = bench.leave_weights(2, bench.model)

    async def use(engine: VllmEngine, rt: Runtime) -> tuple[list[Answer], list[Answer], list[Answer]]:
        running = engine.start(call_of("c0", PROMPT, **SEEDED))
        await running.more()
        assert await engine.use_weights(1, digest) == digest
        assert running.finish
        new = [await finished(engine, msgspec.structs.replace(call, version=1)) for call in asked]
        assert await engine.use_weights(2, "") == old
        back = [await finished(engine, msgspec.structs.replace(call, version=2)) for call in asked]
        return [answer_of(running)], new, back

    running, new, back = bench.life(use)
    assert running == before[:1]
    assert back == before
    assert all(a.tokens != b.tokens for a, b in zip(new, before, strict=True))

    async def ask(engine: VllmEngine, rt: Runtime) -> list[Answer]:
        return [await finished(engine, call) for call in asked]

    host, _ = fresh
    assert new == bench.loop.run_until_complete(host.life(ask))


def test_weights_that_are_not_there_or_are_others_are_refused_and_those_before_stay(bench: EngineBench) -> None:
    (before,) = bench.ask(call_of("before", PROMPT, **SEEDED))
    digest = bench.leave_weights(1, bench.model)
    bench.leave_weights(2, bench.model)
    torn = weights_folder(bench.host.root, bench.host.lives + 1, 2) / models.WEIGHTS
    torn.write_bytes(torn.read_bytes()[:-1])

    async def use(engine: VllmEngine, rt: Runtime) -> Answer:
        for version, told, text in (
            (1, "0" * 64, "the trainer told 000000"),
            (2, "", "hashes to"),
            (3, digest, "cannot be read"),
        ):
            with pytest.raises(Refusal, match=text) as refused:
                await engine.use_weights(version, told)
            assert refused.value.cause is Cause.INFRA
        return await finished(engine, call_of("after", PROMPT, **SEEDED))

    assert bench.life(use) == before


def test_a_plain_call_is_answered_as_a_captured_one_and_recorded_nowhere(bench: EngineBench) -> None:
    from real.engine.plain import PlainCalls

    prompt = tuple(range(60, 100))
    (captured,) = bench.ask(call_of("plain-beside", prompt, limit=12, **GREEDY))

    async def use(engine: VllmEngine, rt: Runtime) -> tuple[Any, ...]:
        plain = PlainCalls(engine.llm, engine.booted.tokenizer, engine.settings.max_model_len)
        told = await plain.generate(prompt, Sampling(temperature=0.0, max_tokens=12))
        with pytest.raises(Refusal, match="tokens: 1 to"):
            await plain.generate((), Sampling())
        return told, plain.render([("user", "hm")])

    told, rendered = bench.life(use)
    assert (told.tokens, told.logprobs) == (captured.tokens, captured.logprobs)
    assert rendered and not [event for event in bench.host.events if isinstance(event, TokensGenerated)]


def test_what_a_call_asks_for_reaches_the_engine(bench: EngineBench) -> None:
    (plain,) = bench.ask(call_of("plain", PROMPT, **GREEDY))
    first = bytes(plain.tokens[:1]).decode()
    banned, yes, penal, hot = bench.ask(
        call_of("banned", PROMPT, bad_words=(first,), **GREEDY),
        call_of("grammar", PROMPT, grammar='root ::= "yes" | "no"', **GREEDY),
        call_of("penal", PROMPT, presence_penalty=2.0, frequency_penalty=2.0, **GREEDY),
        call_of("hot", PROMPT, temperature=2.0, seed=1),
    )
    assert banned.tokens[0] != plain.tokens[0]
    assert bytes(token for token in yes.tokens if token < 256) in (b"yes", b"no") and yes.finish == "stop"
    assert len(set(penal.tokens)) > len(set(plain.tokens))
    assert hot.tokens not in (plain.tokens, *(other.tokens for other in bench.ask(call_of("warm", PROMPT, **SEEDED))))


def test_a_core_that_dies_ends_the_process_that_it_belongs_to(bench: EngineBench, fresh: tuple[Host, int]) -> None:
    host, core = fresh

    async def use(engine: VllmEngine, rt: Runtime) -> None:
        output = engine.start(call_of("long", PROMPT, limit=900, **SEEDED))
        while len(output.tokens) < 5:
            await output.more()
        os.kill(core, signal.SIGKILL)
        await output.done()

    with pytest.raises(RuntimeError, match="the life ended as failed: EngineDeadError"):
        bench.loop.run_until_complete(host.life(use))
