"""A fake CLEVR: one question about a picture, one answer, compared as a string. Its resources export no state.

The ground truth is one call ``answer`` whose argument ``text`` is the right word. The fake model answers with the
word that its tokens stand for: in half of the cases the right one.
"""

from __future__ import annotations

import json

from protocol.messages import PromptTask, ToolCall
from protocol.parts import Layout, State
from sim.environments.profile import SERVERS, FakeEnvironment

WORDS = ("cube", "sphere", "cylinder", "red", "blue", "metal", "rubber", "2", "3", "yes", "no")


def right_answer(task: PromptTask) -> str:
    return str(json.loads(task.ground_truth[0].arguments)["text"]) if task.ground_truth else WORDS[0]


def spoken(task: PromptTask, answer: tuple[int, ...]) -> str:
    """The word that the last call's tokens stand for."""
    choice = sum(answer)
    return right_answer(task) if choice % 2 == 0 else WORDS[choice // 2 % len(WORDS)]


class FakeClevr(FakeEnvironment):
    """Implements ``protocol.parts.Environment``."""

    layout = Layout(participants=(*SERVERS, "resources"))

    def seed(self, task: PromptTask, ordinal: int, generation: int) -> State:
        return {}

    def decide(self, task: PromptTask, state: State, turn: int, tokens: tuple[int, ...]) -> ToolCall | None:
        return None

    async def run_tool(self, state: State, call: ToolCall, key: str) -> tuple[int, ...]:
        raise AssertionError("nothing decides on a tool here")

    def reward(self, task: PromptTask, state: State, answer: tuple[int, ...]) -> float:
        return float(spoken(task, answer) == right_answer(task))
