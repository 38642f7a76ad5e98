"""What an environment of pictures does, fake or real: each image stands where its placeholders are, and nobody keeps a state."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from gym_reach import Kept, play_on_asyncio
from model_tokens import seeing_folder

from protocol.identity import model_call_id, staging_key
from protocol.messages import ToolCall
from scenarios.builtin import BUILTIN
from sim.environments.multimodal import BEGIN, END, LOOK, PLACES, FakePictures

pytestmark = pytest.mark.real

TASKS = BUILTIN["builtin:multimodal"]
QUICK = {"tool_min_s": 0.0, "tool_max_s": 0.0}
KEY = "e0p3i1_g2r0-a0"
ANSWERS = [tuple(range(40 + first, 59 + first)) for first in range(64)]

Script = Callable[[Any, "Marks"], Coroutine[Any, Any, Any]]


class Marks:
    """Tokens around an image, and those in its place."""

    def __init__(self, begin: int, end: int, places: tuple[int, ...]) -> None:
        self.begin, self.end, self.places = begin, end, places


@pytest.fixture(params=["fake", "in-process", "http"])
def pictures(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Runs a script with a fresh environment, on asyncio; returns its result."""
    if request.param != "fake":
        for package in ("fastapi", "uvicorn", "httpx", "PIL"):
            pytest.importorskip(package, reason=f"{package} of the extra 'real' is not installed")

    def run(script: Script) -> Any:
        result: list[Any] = []

        async def play(rt: Any) -> None:
            if request.param == "fake":
                result.append(await script(FakePictures(rt, QUICK), Marks(BEGIN, END, tuple(PLACES.values()))))
                return
            from real.gym.equipment import PicturesEquipment

            equipment = PicturesEquipment(
                process="gym-0", model=seeing_folder(tmp_path / "model"), media=tmp_path / "media", profile=QUICK,
                over_http=request.param == "http",
            )  # fmt: skip
            eye = equipment.scenes.eye
            try:
                result.append(await script(equipment.environment(rt), Marks(eye.begin, eye.end, eye.reserved)))
            finally:
                await equipment.close()

        asyncio.run(play_on_asyncio(play, tmp_path, {}, Kept()))
        return result[0]

    return run


def test_each_item_of_a_prompt_and_of_a_closer_look_stands_where_its_placeholders_are(pictures: Any) -> None:
    async def script(environment: Any, marks: Marks) -> int:
        checked = 0
        for ordinal, task in enumerate(TASKS):
            call = next(filter(None, (environment.decide(task, {}, 0, answer) for answer in ANSWERS)))
            reply = await environment.run_tool({}, call, staging_key(KEY, model_call_id(0)))
            for turn, tokens in enumerate((environment.prompt_tokens(task, ordinal), reply)):
                items = environment.asks(task, ordinal, 0, turn).media
                places = [place for item in items for place in range(item.position, item.position + item.length)]
                assert [place for place, token in enumerate(tokens) if token in marks.places] == places
                for item in items:
                    assert (tokens[item.position - 1], tokens[item.position + item.length]) == (marks.begin, marks.end)
                checked += len(items)
        return checked

    assert pictures(script) >= 2 * len(TASKS)


def test_siblings_look_at_the_same_media_and_every_look_at_another_one(pictures: Any) -> None:
    async def script(environment: Any, marks: Marks) -> Any:
        shown = [environment.asks(TASKS[1], 1, 0, turn).media for turn in range(3)]
        assert shown == [environment.asks(TASKS[1], 1, 3, turn).media for turn in range(3)]
        return [item.source for items in shown for item in items]

    sources = pictures(script)
    assert len(sources) == len(set(sources)) == 4


def test_equal_tokens_decide_alike_and_there_are_two_looks_at_most(pictures: Any) -> None:
    async def script(environment: Any, marks: Marks) -> list[Any]:
        decided = [[environment.decide(TASKS[0], {}, turn, answer) for answer in ANSWERS] for turn in range(3)]
        assert decided == [[environment.decide(TASKS[0], {}, turn, answer) for answer in ANSWERS] for turn in range(3)]
        return decided

    first, second, third = pictures(script)
    assert {type(call) for call in first} == {type(call) for call in second} == {ToolCall, type(None)}
    assert {call.name for call in first if call} == {LOOK} and third == [None] * len(ANSWERS)
    looks = [{json.loads(call.arguments)["look"] for call in calls if call} for calls in (first, second)]
    assert looks == [{1}, {2}]


def test_the_same_answer_earns_the_same_and_answers_of_siblings_differ(pictures: Any) -> None:
    async def script(environment: Any, marks: Marks) -> list[float]:
        return [environment.reward(TASKS[0], {}, answer) for answer in (*ANSWERS, *ANSWERS)]

    rewards = pictures(script)
    assert rewards[: len(ANSWERS)] == rewards[len(ANSWERS) :]
    assert len(set(rewards)) >= 2 and all(0.0 <= reward <= 1.0 for reward in rewards)


def test_no_state_is_kept_and_nothing_stands_in_the_way_of_a_commit(pictures: Any) -> None:
    async def script(environment: Any, marks: Marks) -> list[Any]:
        state = environment.seed(TASKS[0], 3, 2)
        call = next(filter(None, (environment.decide(TASKS[0], {}, 0, answer) for answer in ANSWERS)))
        replies = [await environment.run_tool(state, call, staging_key(KEY, model_call_id(0))) for _ in range(2)]
        assert replies[0] == replies[1]
        return [state, environment.layout.keeps, environment.cannot_save(3, 2, 0), environment.over(state)]

    assert pictures(script) == [{}, (), (), False]
