"""Questions about pictures: ``protocol.parts.Environment`` for real. Images in the prompt, a closer look at them, one answer.

A closer look brings one more image, and the calls after it look at all of them. Nobody keeps a state: what has been looked at is
in the session, and which image a turn shows follows from the task and the turn. So nothing but a closer look can be called, and
what a model asks of it decides only whether there is one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from protocol.messages import PromptTask, ToolCall
from protocol.parts import Asked, Layout, ScoredAlone, State
from protocol.runtime import Runtime
from real.gym.looking import LOOK, AnswerScorer, LookCloser, Looking, hash_of
from real.gym.scenes import Scenes, folder_of
from real.gym.tokens import ModelTokens
from real.gym.workplace import called
from scenarios.sampling import SamplingRule, sampling_of

LAYOUT = Layout(participants=("environment", "policy-model", "agent", "resources"))
LOOKS_MAX = 2


class PicturesProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Knobs of a scenario's ``[profile]``; its others are for others."""

    tool_min_s: float = 0.01
    tool_max_s: float = 0.06
    sampling: tuple[SamplingRule, ...] = ()

    @classmethod
    def of(cls, knobs: PicturesProfile | Mapping[str, Any] | None) -> PicturesProfile:
        """Raises ``msgspec.ValidationError``."""
        return knobs if isinstance(knobs, PicturesProfile) else msgspec.convert(dict(knobs or {}), cls)


class RealPictures(ScoredAlone):
    """``profile`` may be a scenario's knobs."""

    layout = LAYOUT

    def __init__(
        self,
        rt: Runtime,
        looking: Looking,
        scenes: Scenes,
        tokens: ModelTokens,
        profile: PicturesProfile | Mapping[str, Any] | None = None,
    ) -> None:
        self.rt = rt
        self.looking = looking
        self.scenes = scenes
        self.tokens = tokens
        self.profile = PicturesProfile.of(profile)
        self._scorer = AnswerScorer(tokens)

    def prompt_tokens(self, task: PromptTask, ordinal: int) -> tuple[int, ...]:
        return (*self.scenes.eye.shown(self.scenes.of_prompt(task, ordinal)), *self._text(self.tokens.prompt(task)))

    def words(self, text: str) -> tuple[int, ...]:
        return self._text(self.tokens.reply(text))

    def seed(self, task: PromptTask, ordinal: int, generation: int) -> State:
        return {}

    def asks(self, task: PromptTask, ordinal: int, generation: int, turn: int) -> Asked:
        """The media of this turn's own carry; they lie in their folder when this returns."""
        media = (self.scenes.detail(task, turn),) if turn else self.scenes.of_prompt(task, ordinal)
        return Asked(sampling=sampling_of(self.profile.sampling, ordinal, generation, turn), media=self.scenes.there(media))

    def decide(self, task: PromptTask, state: State, turn: int, tokens: tuple[int, ...]) -> ToolCall | None:
        """A closer look where the model has written one, or, if it has called nothing, in two of three cases by a hash of its
        tokens; ``LOOKS_MAX`` times at most."""
        if turn >= LOOKS_MAX or LOOK not in task.tools:
            return None
        written = called(self.tokens.text(tokens))
        wanted = written.name == LOOK if written is not None else hash_of(tokens) % 3 > 0
        return ToolCall(LOOK, json.dumps({"picture": folder_of(task), "look": turn + 1})) if wanted else None

    async def run_tool(self, state: State, call: ToolCall, key: str) -> tuple[int, ...]:
        profile = self.profile
        spread = profile.tool_max_s - profile.tool_min_s
        await self.rt.sleep(profile.tool_min_s + spread * self.rt.random("tool", key).random())
        reply = await self.looking.look(msgspec.json.decode(call.arguments, type=LookCloser))
        return (*self.scenes.detail_tokens(), *self.words(reply))

    def reward(self, task: PromptTask, state: State, answer: tuple[int, ...]) -> float:
        return self._scorer.reward(task, answer)

    def cannot_save(self, ordinal: int, generation: int, turn: int) -> tuple[str, ...]:
        return ()

    def _text(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Without placeholders: a text that spells one has no image to put there."""
        return tuple(token for token in tokens if token not in self.scenes.eye.reserved)
