"""A booted engine by itself, and short lives to use it in: for its contract test, for measurements."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from protocol.data_plane.digests import as_float32s
from protocol.history import Event
from protocol.identity import CONTROLLER
from protocol.messages import Sampling
from protocol.parts import EngineCall
from protocol.runtime import Runtime
from real.engine.output import VllmOutput
from real.engine.vllm_engine import BootedEngine, VllmEngine
from real.recorder import Recorder, read_history
from real.world import live

T = TypeVar("T")


class Answer(msgspec.Struct, frozen=True):
    """What came of a call. ``routes``: [rows, layers, top_k] as bytes, experts ascending; b'' without."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str
    routes: bytes = b""


def answer_of(output: VllmOutput) -> Answer:
    routes = b"".join(piece.read() for piece in output.pieces)
    return Answer(tuple(output.tokens), as_float32s(output.logprobs), output.finish, routes)


def call_of(
    name: str,
    prompt: Sequence[int],
    *,
    limit: int = 40,
    ordinal: int = 0,
    version: int = 0,
    prefix: Answer | None = None,
    **sampling: object,
) -> EngineCall:
    """The first call of an episode; ``prefix``: it goes on after what an earlier one has generated."""
    before = prefix if prefix is not None else Answer((), (), "")
    return EngineCall(
        call=name,
        ordinal=ordinal,
        generation=0,
        turn=0,
        version=version,
        previous_length=0,
        carry=tuple(prompt),
        prefix=before.tokens,
        prefix_logprobs=before.logprobs,
        limit=limit - len(before.tokens),
        sampling=msgspec.convert(sampling, Sampling),
    )


class Host:
    """``root``: folder of the lives, each with a number of its own."""

    def __init__(self, booted: BootedEngine, root: Path) -> None:
        self.booted = booted
        self.root = root
        self.lives = 0
        self.events: list[Event] = []  # of the last one

    def made(self, rt: Runtime) -> VllmEngine:
        return self.booted.engine(rt, self.root)

    async def life(self, use: Callable[[VllmEngine, Runtime], Awaitable[T]], limit_s: float = 120.0) -> T:
        """One life in which ``use`` has the engine; raises what it raises."""
        self.lives += 1
        found: list[T] = []
        failed: list[Exception] = []

        async def controller(rt: Runtime) -> None:
            engine = self.made(rt)
            engine.version = 0
            try:
                found.append(await use(engine, rt))
            except Exception as error:  # what the life would only name
                failed.append(error)

        self.root.mkdir(parents=True, exist_ok=True)
        history = self.root / f"history-{self.lives}.jsonl"
        recorder = Recorder(history, self.lives)
        try:
            status = await live({CONTROLLER: controller}, self.root, recorder, seed=0, time_scale=1.0, limit_s=limit_s)
        finally:
            recorder.close()
        self.events = [record.event for record in read_history(history)]
        if failed:
            raise failed[0]
        if status.outcome != "ended":
            raise RuntimeError(f"the life ended as {status.outcome}: {status.error}")
        return found[0]


async def finished(engine: VllmEngine, call: EngineCall) -> Answer:
    output = engine.start(call)
    await output.done()
    answer = answer_of(output)
    engine.release(call.call)
    return answer
