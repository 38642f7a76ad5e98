"""A workplace whose tools are SQL: ``protocol.parts.Environment`` for real.

State, one part: ``{"resources": {"ordinal", "tables": {domain: {id: {field: text}}}}}``, the rows of its session in the resources
server's tables. A tool call is sent there under its staging key and answered with the rows after it, which take the place of
those before it in one step.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.identity import sample_of_key
from protocol.messages import PromptTask, ToolCall
from protocol.parts import Asked, Layout, ScoredAlone, State
from protocol.runtime import Runtime
from real.gym.resources import TOOL, Tools
from real.gym.scoring import Scorer
from real.gym.tables import Rows, keyed, seed_rows
from real.gym.tokens import ModelTokens
from scenarios.boundary_hold import HOLD_MOST_S, BoundaryHold
from scenarios.forced_call import forced_call, with_forced
from scenarios.sampling import SamplingRule, sampling_of
from scenarios.workplace_calls import COURSES, chosen_call

RESOURCES = "resources"
LAYOUT = Layout(participants=("environment", "policy-model", "agent", RESOURCES), keeps=(RESOURCES,))
CALLED = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


class WorkplaceProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Knobs of a scenario's ``[profile]``; its others are for others.

    ``unsavable``: a tool call in so many cannot be saved (0: none), or exactly these (ordinal, generation, turn).
    ``hold_first_boundary``, ``hold_most_s``: ``scenarios.boundary_hold``. ``forced_first_call``: ``scenarios.forced_call``.
    """

    unsavable: int | tuple[tuple[int, int, int], ...] = 24
    tool_min_s: float = 0.01
    tool_max_s: float = 0.06
    sampling: tuple[SamplingRule, ...] = ()
    hold_first_boundary: bool = False
    hold_most_s: float = HOLD_MOST_S
    forced_first_call: bool = False

    @classmethod
    def of(cls, knobs: WorkplaceProfile | Mapping[str, Any] | None) -> WorkplaceProfile:
        """Raises ``msgspec.ValidationError``."""
        return knobs if isinstance(knobs, WorkplaceProfile) else msgspec.convert(dict(knobs or {}), cls)


class RealWorkplace(ScoredAlone):
    """``profile`` may be a scenario's knobs."""

    layout = LAYOUT

    def __init__(
        self,
        rt: Runtime,
        tools: Tools,
        tokens: ModelTokens,
        profile: WorkplaceProfile | Mapping[str, Any] | None = None,
    ) -> None:
        self.rt = rt
        self.tools = tools
        self.tokens = tokens
        self.profile = WorkplaceProfile.of(profile)
        self.hold = BoundaryHold(rt, self.profile.hold_first_boundary, self.profile.hold_most_s)
        self._scorer = Scorer()

    def prompt_tokens(self, task: PromptTask, ordinal: int) -> tuple[int, ...]:
        return self.tokens.prompt(task)

    def words(self, text: str) -> tuple[int, ...]:
        return self.tokens.reply(text)

    def seed(self, task: PromptTask, ordinal: int, generation: int) -> State:
        return {RESOURCES: msgspec.to_builtins(seed_rows(task, ordinal))}

    def asks(self, task: PromptTask, ordinal: int, generation: int, turn: int) -> Asked:
        return Asked(sampling=sampling_of(self.profile.sampling, ordinal, generation, turn))

    def decide(self, task: PromptTask, state: State, turn: int, tokens: tuple[int, ...]) -> ToolCall | None:
        """The tool call that the model has written, if it has; else the policy head's. A forced one comes before them."""
        if self.profile.forced_first_call:
            if turn == 0:
                return forced_call(Rows.of(state[RESOURCES]).ordinal)
            turn -= 1
        return called(self.tokens.text(tokens)) or policy_head(task, turn, tokens)

    async def run_tool(self, state: State, call: ToolCall, key: str) -> tuple[int, ...]:
        profile = self.profile
        spread = profile.tool_max_s - profile.tool_min_s
        await self.rt.sleep(profile.tool_min_s + spread * self.rt.random("tool", key).random())
        session, _, turn = key.rpartition("/c")
        ran = await self.tools.run(session, key, call, Rows.of(state[RESOURCES]))
        if ran.changed and not self.cannot_save(ran.rows.ordinal, generation_of(session), int(turn)):
            await self.hold.stay(session)
        state[RESOURCES] = msgspec.to_builtins(ran.rows)
        return self.tokens.reply(ran.reply)

    def reward(self, task: PromptTask, state: State, answer: tuple[int, ...]) -> float:
        rows = Rows.of(state[RESOURCES])
        return self._scorer.reward(with_forced(task, rows.ordinal) if self.profile.forced_first_call else task, rows)

    def cannot_save(self, ordinal: int, generation: int, turn: int) -> tuple[str, ...]:
        unsavable = self.profile.unsavable
        if isinstance(unsavable, int):
            drawn = unsavable and keyed("unsavable", ordinal, generation, turn) % unsavable == 0
            return LAYOUT.keeps if drawn else ()
        return LAYOUT.keeps if (ordinal, generation, turn) in unsavable else ()


def generation_of(capture_key: str) -> int:
    return int(sample_of_key(capture_key).rpartition("_g")[2])


def called(text: str) -> ToolCall | None:
    """The first whole ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>`` in a model's text.

    It is data: a name that could be no tool's, or arguments that are no object, make no call.
    """
    for found in CALLED.finditer(text):
        try:
            call = json.loads(found[1])
        except (ValueError, RecursionError):
            continue
        name, arguments = call.get("name"), call.get("arguments", {})
        if isinstance(name, str) and TOOL.fullmatch(name) and isinstance(arguments, dict):
            return ToolCall(name, json.dumps(arguments))
    return None


def policy_head(task: PromptTask, turn: int, tokens: tuple[int, ...]) -> ToolCall | None:
    """What a model too small to say anything is taken to mean: a fixed hash of its tokens chooses.

    So trained tokens decide what happens, equal tokens do the same in every life, and all kinds of turns come about.
    """
    data = b"".join(token.to_bytes(4, "little") for token in tokens)
    choice = hashlib.blake2b(data, digest_size=8).digest()[0] % COURSES
    return chosen_call(task.ground_truth, turn, choice)
