"""One real engine for all tests of a session that need one: a tiny mixture of experts, and lives to use it in."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from protocol.history import Event
from protocol.parts import EngineCall
from protocol.runtime import Runtime
from real.engine import models
from real.engine.environment import settings_of
from real.engine.host import Answer, Host, answer_of
from real.engine.vllm_engine import VllmEngine, boot
from real.engine.weights import weights_folder

T = TypeVar("T")
E = TypeVar("E", bound=Event)
NEEDS_VLLM = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="the extra 'real' is not installed")
PROMPT = tuple(range(60, 100))
GREEDY, SEEDED = {"temperature": 0.0}, {"temperature": 1.0, "seed": 1}  # more than 100 tokens


class EngineBench:
    """The engine, and the loop that it lives on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, host: Host, model: Path) -> None:
        self.loop = loop
        self.host = host
        self.model = model

    def life(self, use: Callable[[VllmEngine, Runtime], Awaitable[T]]) -> T:
        return self.loop.run_until_complete(self.host.life(use))

    def ask(self, *calls: EngineCall) -> list[Answer]:
        """All of them at once."""

        async def use(engine: VllmEngine, rt: Runtime) -> list[Answer]:
            outputs = [engine.start(call) for call in calls]
            for output in outputs:
                await output.done()
            return [answer_of(output) for output in outputs]

        return self.life(use)

    def events(self, kind: type[E]) -> list[E]:
        """Of the last life."""
        return [event for event in self.host.events if isinstance(event, kind)]

    def leave_weights(self, version: int, folder: Path) -> str:
        """As a trainer would, for the life that comes next."""
        place = weights_folder(self.host.root, self.host.lives + 1, version)
        shutil.copytree(folder, place)
        digest = models.file_digest(place / models.WEIGHTS)
        models.name_weights(place, version, digest)
        return digest


def engine_bench(folder: Path) -> Iterator[EngineBench]:
    models.make(folder / "moe", "moe")
    loop = asyncio.new_event_loop()
    settings = settings_of(folder / "moe", media=str(folder / "media"))
    booted = loop.run_until_complete(boot(msgspec.structs.replace(settings, max_model_len=1024), "under test"))
    yield EngineBench(loop, Host(booted, folder / "run"), folder / "moe")
    booted.close()
    loop.close()


def cut(answer: Answer, count: int) -> Answer:
    """Its first tokens, as a cut would have kept them."""
    return Answer(answer.tokens[:count], answer.logprobs[:count], "")
