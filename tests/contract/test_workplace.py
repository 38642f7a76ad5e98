"""What a workplace environment does, fake or real: its state is plain, and whatever happened to a tool's effect shows in it."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from gym_reach import Kept, play_on_asyncio
from model_tokens import model_folder

from protocol.gym.records import not_plain
from protocol.identity import model_call_id, staging_key
from protocol.messages import PromptTask, ToolCall
from scenarios.builtin import BUILTIN
from sim.environments.workplace import FakeWorkplace

pytestmark = pytest.mark.real

TASKS = BUILTIN["builtin:workplace"]
QUICK = {"tool_min_s": 0.0, "tool_max_s": 0.0, "unsavable": 0}
KEY = "e0p3i1_g2r0-a0"

Script = Callable[[Any], Coroutine[Any, Any, Any]]


@pytest.fixture(params=["fake", "in-process", "http"])
def workplace(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Runs a script with a fresh environment, on asyncio; returns its result."""
    if request.param != "fake":
        for package in ("fastapi", "uvicorn", "httpx"):
            pytest.importorskip(package, reason=f"{package} of the extra 'real' is not installed")

    def run(script: Script, profile: dict[str, Any] | None = None) -> Any:
        result: list[Any] = []

        async def play(rt: Any) -> None:
            if request.param == "fake":
                result.append(await script(FakeWorkplace(rt, {**QUICK, **(profile or {})})))
                return
            from real.gym.resources import open_tools
            from real.gym.tokens import ModelTokens
            from real.gym.workplace import RealWorkplace

            tools = open_tools("gym-0", tmp_path / "tables.sqlite", over_http=request.param == "http")
            tokens = ModelTokens(model_folder(tmp_path / "model"))
            try:
                result.append(await script(RealWorkplace(rt, tools, tokens, {**QUICK, **(profile or {})})))
            finally:
                await tools.close()

        asyncio.run(play_on_asyncio(play, tmp_path, {}, Kept()))
        return result[0]

    return run


async def played(environment: Any, task: PromptTask, *calls: ToolCall, ordinal: int = 3) -> Any:
    """The state after these calls."""
    state = environment.seed(task, ordinal, 2)
    for turn, call in enumerate(calls):
        assert await environment.run_tool(state, call, staging_key(KEY, model_call_id(turn)))
    return state


def test_the_ground_truth_earns_everything_and_nothing_earns_less(workplace: Any) -> None:
    async def script(environment: Any) -> list[tuple[float, float]]:
        found = []
        for ordinal, task in enumerate(TASKS):
            done = await played(environment, task, *task.ground_truth, ordinal=ordinal)
            nothing = environment.seed(task, ordinal, 2)
            found.append((environment.reward(task, done, ()), environment.reward(task, nothing, ())))
        return found

    assert workplace(script) == [(1.0, 0.0)] * len(TASKS)


def test_an_effect_that_is_lost_or_doubled_shows_in_the_reward(workplace: Any) -> None:
    task = next(task for task in TASKS if any("_create_" in call.name or "_send_" in call.name for call in task.ground_truth))
    truth = task.ground_truth
    adding = next(call for call in truth if "_create_" in call.name or "_send_" in call.name)

    async def script(environment: Any) -> list[float]:
        states = [await played(environment, task, *calls) for calls in (truth, (*truth, adding), truth[:-1])]
        return [environment.reward(task, state, ()) for state in states]

    whole, doubled, lost = workplace(script)
    assert whole == 1.0 and doubled < whole and lost < whole


def test_the_state_is_plain_json_at_every_turn_and_equal_episodes_have_equal_states(workplace: Any) -> None:
    async def script(environment: Any) -> list[Any]:
        states = []
        for _ in range(2):
            state = environment.seed(TASKS[0], 3, 2)
            states.append(copy.deepcopy(state))
            for turn, call in enumerate(TASKS[0].ground_truth):
                await environment.run_tool(state, call, staging_key(KEY, model_call_id(turn)))
                states.append(copy.deepcopy(state))
        return states

    states = workplace(script)
    half = len(states) // 2
    assert [not_plain(state) for state in states] == [""] * len(states)
    assert states[:half] == states[half:] and states[0] != states[1]


def test_an_episode_goes_on_from_its_saved_state_as_it_would_have_without_a_stop(workplace: Any) -> None:
    async def script(environment: Any) -> tuple[Any, Any]:
        task = TASKS[0]
        whole = await played(environment, task, *task.ground_truth)
        part = await played(environment, task, task.ground_truth[0])
        saved = json.loads(json.dumps(part))
        await played(environment, task, *task.ground_truth)  # what the process did after the cut is not in it
        for turn, call in enumerate(task.ground_truth[1:], start=1):
            await environment.run_tool(saved, call, staging_key("e0p3i1_g2r0-a1", model_call_id(turn)))
        return whole, saved

    whole, saved = workplace(script)
    assert saved == whole


def test_the_model_and_its_tokens_decide_the_same_for_ever_and_change_nothing(workplace: Any) -> None:
    async def script(environment: Any) -> list[Any]:
        task, found = TASKS[0], []
        state = environment.seed(task, 3, 2)
        before = copy.deepcopy(state)
        for turn in range(3):
            calls = [environment.decide(task, state, turn, (number, number + 1)) for number in range(200)]
            assert calls == [environment.decide(task, state, turn, (number, number + 1)) for number in range(200)]
            found.append(calls)
        assert state == before
        return found

    first, _, after = workplace(script)
    truth = TASKS[0].ground_truth
    assert first.count(truth[0]) > 100 and first.count(None) > 0 and len({str(call) for call in first}) >= 4
    assert after.count(None) > 120


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (ToolCall("nowhere_do_nothing", "{}"), "there is no tool nowhere_do_nothing"),
        (ToolCall("calendar_delete_event", '{"event_id": "99999999"}'), "calendar has no record 99999999"),
        (ToolCall("calendar_delete_event", "{}"), "calendar has no record without an id"),
        (ToolCall("calendar_update_event", "text"), "the arguments of calendar_update_event are not a JSON object"),
        (ToolCall("calendar_update_event", '["event_id"]'), "the arguments of calendar_update_event are not a JSON object"),
        (ToolCall("calendar_burn_event", "{}"), "calendar cannot burn"),
    ],
)
def test_a_call_that_cannot_be_made_is_answered_as_a_service_would(workplace: Any, call: ToolCall, says: str) -> None:
    async def script(environment: Any) -> tuple[Any, Any, tuple[int, ...], tuple[int, ...]]:
        state = environment.seed(TASKS[0], 3, 2)
        before = copy.deepcopy(state)
        reply = await environment.run_tool(state, call, staging_key(KEY, "c0"))
        return before, state, reply, environment.words(f"error: {says}")

    before, after, reply, words = workplace(script)
    assert after == before and reply == words


def test_what_cannot_be_saved_is_drawn_alike_in_every_life(workplace: Any) -> None:
    async def script(environment: Any) -> list[tuple[str, ...]]:
        return [environment.cannot_save(ordinal, generation, 1) for ordinal in range(20) for generation in range(4)]

    drawn = workplace(script, {"unsavable": 4})
    assert drawn == workplace(script, {"unsavable": 4}) and set(drawn) == {(), ("resources",)}
    assert set(workplace(script, {"unsavable": 0})) == {()}
    assert workplace(script, {"unsavable": [[3, 2, 1]]}).count(("resources",)) == 1
