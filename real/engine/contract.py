"""The contract test of an engine on this host: what the protocol rests on and no public interface promises.

Run by ``rollproof models verify-engine`` on a tiny mixture of experts, in two starts of the engine. Each check is one promise;
the first one that is broken is named, and the engine stays unverified.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from protocol.errors import ConfigError
from protocol.runtime import Runtime
from protocol.worker.text import call_text
from real.engine import models
from real.engine.environment import settings_of
from real.engine.host import Answer, Host, answer_of, call_of, finished
from real.engine.verified import VerifiedEngine, this_engine
from real.engine.vllm_engine import VllmEngine, boot
from real.engine.weights import weights_folder

PROMPT = tuple(range(60, 100))
SEEDED: dict[str, Any] = {"temperature": 1.0, "seed": 1}  # of more than 100 tokens
CUTS = (1, 7, 13, 22)
CALLS = 16  # at once
UNDER_TEST = "under test"


class Broken(Exception):
    """A promise that this engine does not keep."""


def must(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


async def going_on_is_exact(engine: VllmEngine, rt: Runtime) -> None:
    """A call that goes on after a prefix has the tokens, logprobs and routes of one that was never cut, drawn or not."""
    greedy: dict[str, Any] = {"temperature": 0.0}
    for name, sampling in (("greedy", greedy), ("seeded", SEEDED), ("unseeded", {"temperature": 1.0})):
        whole = await finished(engine, call_of(name, PROMPT, **sampling))
        for count in (count for count in CUTS if count < len(whole.tokens)):
            prefix = Answer(whole.tokens[:count], whole.logprobs[:count], "")
            rest = await finished(engine, call_of(f"{name}-{count}", PROMPT, prefix=prefix, **sampling))
            must(rest.tokens == whole.tokens[count:], f"{name}, cut at {count}: other tokens")
            must(rest.logprobs == whole.logprobs[count:], f"{name}, cut at {count}: other logprobs")
            must(rest.routes == whole.routes, f"{name}, cut at {count}: other routes")


async def draws_belong_to_positions(engine: VllmEngine, rt: Runtime) -> None:
    """A draw depends on the seed and on the position: not on the batch, and on both of them."""
    alone = await finished(engine, call_of("alone", PROMPT, **SEEDED))
    outputs = [engine.start(call_of(f"c{n}", PROMPT, temperature=1.0, seed=1 + n // 2)) for n in range(CALLS)]
    for output in outputs:
        await output.done()
    answers = [answer_of(output) for output in outputs]
    must(answers[0].tokens == answers[1].tokens == alone.tokens, "the batch changes a draw")
    must(len({answer.tokens for answer in answers}) == CALLS // 2, "two seeds draw the same")


async def routes_are_appended(engine: VllmEngine, rt: Runtime) -> None:
    """A running call's route rows are one for each token that was fed, and exactly the beginning of the final ones."""
    output = engine.start(call_of("routed", PROMPT, limit=900, **SEEDED))
    layout = engine.layout
    must(layout is not None, "it records no routes")
    assert layout is not None
    size = layout.layers * layout.top_k
    snapshots: list[bytes] = []
    while not output.finish:
        await output.more()
        (pieces,) = engine.route_pieces([("routed", 0)])
        must(sum(piece.rows for piece in pieces) == output.rows, "pieces and rows differ")
        must(output.finish != "" or output.routed == len(output.tokens) - 1, "a token that was fed has no row")
        snapshots.append(b"".join(piece.read() for piece in pieces))
    final = answer_of(output).routes
    must(len(final) == size * (len(PROMPT) + len(output.tokens) - 1), "the final routes are not one row a fed token")
    must(len(set(snapshots)) > 2, "routes come only with the last output")
    must(all(final.startswith(snapshot) for snapshot in snapshots), "a snapshot is no beginning of the final routes")
    engine.release("routed")


async def an_abort_keeps_what_was_there(engine: VllmEngine, rt: Runtime) -> None:
    """Tokens and logprobs are published together as they come, and an abort keeps them."""
    whole = await finished(engine, call_of("whole", PROMPT, limit=60, **SEEDED))
    output = engine.start(call_of("aborted", PROMPT, limit=900, **SEEDED))
    while len(output.tokens) < 5 and not output.finish:
        await output.more()
        must(len(output.tokens) == len(output.logprobs), "a token without its logprob")
    engine.abort("aborted")
    await output.done()
    kept = answer_of(output)
    must(len(kept.tokens) >= 5 and kept.finish == "aborted", "an abort does not end the call")
    must(whole.tokens[: len(kept.tokens)] == kept.tokens[: len(whole.tokens)], "an aborted call has other tokens")
    must(whole.logprobs[: len(kept.logprobs)] == kept.logprobs[: len(whole.logprobs)], "an aborted call has other logprobs")
    engine.release("aborted")


async def text_is_incremental(engine: VllmEngine, rt: Runtime) -> None:
    """Token by token the engine's own detokenizer gives the text that it gives in one pass."""
    spoken = list(" Größe 語 ok".encode())
    for tokens, finish in ((spoken, "length"), (spoken[:10], "length"), ([*spoken, *engine.stop_tokens()], "stop")):
        must(
            call_text(engine, PROMPT, tokens, finish) == engine.plain_text(PROMPT, tokens, finish, ()),
            f"another text of {len(tokens)} tokens",
        )


ONE_START: tuple[Callable[[VllmEngine, Runtime], Awaitable[None]], ...] = (
    going_on_is_exact,
    draws_belong_to_positions,
    routes_are_appended,
    an_abort_keeps_what_was_there,
    text_is_incremental,
)
RELOAD = "a_reload_is_a_fresh_start"


async def verify(folder: Path, device: str, tell: Callable[[str], None]) -> VerifiedEngine:
    """Run all checks in a new ``folder``. Raises ConfigError that names the promise which is broken."""
    models.make(folder / "old", "moe")
    models.make(folder / "new", "moe", seed=1)
    settings = settings_of(folder / "old", device=device)
    if settings.device != "cpu":  # results that depend on the batch would hide what is tested
        settings = msgspec.structs.replace(settings, dtype="float32")
    tested = this_engine(settings.device)
    answers: list[Answer] = []
    for name in ("old", "new"):
        tell(f"the engine starts with the {name} weights")
        booted = await boot(msgspec.structs.replace(settings, model=str(folder / name)), UNDER_TEST)
        try:
            host = Host(booted, folder / f"lives-{name}")
            if name == "old":
                for check in ONE_START:
                    await _checked(host, check, tell)
                answers.append(await _reloaded(host, folder / "new"))
            else:
                answers.append(await host.life(_one_answer))
        finally:
            booted.close()
    if answers[0] != answers[1]:
        raise ConfigError(f"{RELOAD}: after a reload the engine answers otherwise than one that starts with those weights")
    tell(f"{RELOAD}: holds")
    names = tuple(check.__name__ for check in ONE_START)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return msgspec.structs.replace(tested, date=now, checks=(*names, RELOAD))


async def _checked(host: Host, check: Callable[[VllmEngine, Runtime], Awaitable[None]], tell: Callable[[str], None]) -> None:
    try:
        await host.life(check)
    except Broken as broken:
        raise ConfigError(f"{check.__name__}: {broken}") from broken
    tell(f"{check.__name__}: holds")


async def _one_answer(engine: VllmEngine, rt: Runtime) -> Answer:
    return await finished(engine, call_of("one", PROMPT, version=engine.version or 0, **SEEDED))


async def _reloaded(host: Host, new: Path) -> Answer:
    place = weights_folder(host.root, host.lives + 1, 1)
    shutil.copytree(new, place)
    models.name_weights(place, 1, models.file_digest(place / models.WEIGHTS))

    async def use(engine: VllmEngine, rt: Runtime) -> Answer:
        await _one_answer(engine, rt)  # its blocks are in the prefix cache now
        await engine.use_weights(1, "")
        return await _one_answer(engine, rt)

    return await host.life(use)
