"""The real engine looks at images: preprocessed once for what is staged, and put where their places are, after a prefix too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import msgspec
import pytest
from engine_bench import NEEDS_VLLM, SEEDED, cut

from protocol.errors import Cause, MissingFile, Refusal
from protocol.messages import MediaSource
from protocol.parts import EngineCall
from protocol.runtime import Runtime
from protocol.worker.media import digested
from real.engine import models
from real.engine.environment import settings_of
from real.engine.host import Answer, Host, call_of, finished
from real.engine.vllm_engine import VllmEngine, boot

pytestmark = [pytest.mark.real, pytest.mark.slow, NEEDS_VLLM]

T = TypeVar("T")
PLACES = 8  # tokens of an image of 112 x 56 pixels
BEFORE, BEHIND = (*range(65, 75), models.VISION_START), (models.VISION_END, *range(75, 90))
PROMPT = (*BEFORE, *(models.IMAGE,) * PLACES, *BEHIND)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Callable[..., Awaitable[Any]]], Any]]:
    from PIL import Image

    folder = tmp_path_factory.mktemp("images")
    models.make(folder / "vl", "vl")
    for name, shade in (("dark.png", 40), ("light.png", 200)):
        Image.new("RGB", (112, 56), (shade, shade // 2, 255 - shade)).save(folder / name)
    (folder / "broken.png").write_bytes(b"no image")
    loop = asyncio.new_event_loop()
    booted = loop.run_until_complete(boot(settings_of(folder / "vl", media=str(folder)), "under test"))
    host = Host(booted, folder / "run")
    yield lambda use: loop.run_until_complete(host.life(use))
    booted.close()
    loop.close()


def looking(name: str, image: str, prompt: tuple[int, ...] = PROMPT, **changes: Any) -> EngineCall:
    media = (MediaSource("image", image, len(BEFORE), PLACES),)
    return msgspec.structs.replace(call_of(name, prompt, **SEEDED, **changes), media=media)


def test_an_answer_depends_on_the_image_and_goes_on_after_a_prefix_where_it_was_cut(life: Callable[..., Any]) -> None:
    async def use(engine: VllmEngine, rt: Runtime) -> list[Answer]:
        dark = await finished(engine, looking("dark", "dark.png"))
        light = await finished(engine, looking("light", "light.png"))
        rest = await finished(engine, looking("rest", "dark.png", prefix=cut(dark, 11)))
        reply = (90, 91, 92)
        chain = (*PROMPT, *dark.tokens)
        child = msgspec.structs.replace(looking("child", "dark.png", reply), context=chain, previous_length=len(chain), turn=1)
        flat = looking("flat", "dark.png", (*chain, *reply))
        return [dark, light, rest, await finished(engine, child), await finished(engine, flat)]

    dark, light, rest, child, flat = life(use)
    assert dark.tokens != light.tokens
    assert rest.tokens == dark.tokens[11:]
    assert rest.logprobs == pytest.approx(dark.logprobs[11:], abs=1e-4)
    assert child == flat


def test_media_are_preprocessed_alike_each_time_and_digested(life: Callable[..., Any]) -> None:
    async def use(engine: VllmEngine, rt: Runtime) -> list[Any]:
        sources = [MediaSource("image", name, 3, PLACES) for name in ("dark.png", "light.png", "dark.png")]
        return list(digested(await engine.media(sources)))

    dark, light, again = life(use)
    assert dark == again != light
    assert [(tensor.name, tensor.dtype, tensor.shape) for tensor in dark.tensors] == [
        ("image_grid_thw", "int64", (1, 3)),
        ("pixel_values", "float32", (4 * PLACES, 1176)),
    ]


def test_no_call_says_a_placeholder_itself(life: Callable[..., Any]) -> None:
    """A call that goes on after one would look for its image. This model would say one in some thousands of tokens."""

    async def use(engine: VllmEngine, rt: Runtime) -> list[int]:
        sampling = {"temperature": 1.0}
        outputs = [engine.start(call_of(f"c{n}", (*BEFORE, 70 + n), seed=n, limit=900, **sampling)) for n in range(48)]
        for output in outputs:
            await output.done()
        return [token for output in outputs for token in output.tokens]

    said = life(use)
    assert len(said) > 10_000 and not {models.IMAGE, models.VIDEO} & set(said)
    assert set(said) & set(range(models.VIDEO + 1, models.VOCABULARY)), "tokens as rare as those are said"


def test_what_cannot_be_looked_at_is_refused_by_name(life: Callable[..., Any]) -> None:
    async def use(engine: VllmEngine, rt: Runtime) -> list[Exception]:
        failures: list[Exception] = []
        for name, image, prompt in (
            ("gone", "nowhere.png", PROMPT),
            ("outside", "../x.png", PROMPT),
            ("broken", "broken.png", PROMPT),
            ("other-size", "dark.png", (*BEFORE, *(models.IMAGE,) * 5, *BEHIND)),
            ("no-place", "dark.png", (*BEFORE, *BEHIND)),
        ):
            try:
                await finished(engine, looking(name, image, prompt))
            except (Refusal, MissingFile) as failure:
                failures.append(failure)
        return failures

    gone, outside, broken, size, place = life(use)
    assert isinstance(gone, MissingFile) and "nowhere.png" in str(gone)
    assert "outside the media folder" in str(outside)
    assert "broken.png is no image that can be read" in str(broken)
    assert "the prompt has 32 tokens, with its images 35" in str(size)
    assert "places for 0 images, the call names 1" in str(place)
    assert all(failure.cause is Cause.DATA for failure in (outside, broken, size, place))
