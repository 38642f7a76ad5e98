"""What all fake environments share: their knobs, words as tokens, latencies, and what cannot be saved."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.messages import PromptTask
from protocol.parts import Asked, Layout, ScoredAlone
from protocol.runtime import Runtime
from scenarios.boundary_hold import HOLD_MOST_S
from scenarios.sampling import SamplingRule, sampling_of
from sim.keyed import keyed

VOCABULARY = 50_000
PROMPT_TOKENS_MAX = 96
REPLY_TOKENS_MAX = 24
OF_THE_WORKPLACE = ("hold_first_boundary", "hold_most_s", "forced_first_call")
SERVERS = ("environment", "policy-model", "agent")  # what every deployment has


class EnvironmentProfile(msgspec.Struct, frozen=True, kw_only=True):
    """``unsavable``: a tool call in so many cannot be saved (0: none), or exactly these (ordinal, generation, turn).

    ``failing_cohorts``: (ordinal, group attempt) whose ranking fails. ``sampling``: what which calls ask for.

    Of the workplace alone: ``hold_first_boundary``, ``hold_most_s`` (``scenarios.boundary_hold``) and ``forced_first_call``
    (``scenarios.forced_call``).
    """

    unsavable: int | tuple[tuple[int, int, int], ...] = 24
    tool_min_s: float = 0.01
    tool_max_s: float = 0.06
    failing_cohorts: tuple[tuple[int, int], ...] = ()
    sampling: tuple[SamplingRule, ...] = ()
    hold_first_boundary: bool = False
    hold_most_s: float = HOLD_MOST_S
    forced_first_call: bool = False

    @classmethod
    def of(cls, knobs: EnvironmentProfile | Mapping[str, Any] | None) -> EnvironmentProfile:
        """From a scenario's profile, whose other knobs are for others. Raises ``msgspec.ValidationError``."""
        return knobs if isinstance(knobs, EnvironmentProfile) else msgspec.convert(dict(knobs or {}), cls)


def word_tokens(text: str, tokens_max: int) -> tuple[int, ...]:
    """One token a word, at least one."""
    return tuple(zlib.crc32(word.encode()) % VOCABULARY for word in text.split()[:tokens_max]) or (0,)


class FakeEnvironment(ScoredAlone):
    """What is alike in all of them; each kind adds its layout, its state, its moves and its rewards."""

    layout = Layout(participants=SERVERS)

    def __init__(self, rt: Runtime, profile: EnvironmentProfile | Mapping[str, Any] | None = None) -> None:
        self.rt = rt
        self.profile = EnvironmentProfile.of(profile)
        self._prompts: dict[str, tuple[int, ...]] = {}

    def prompt_tokens(self, task: PromptTask, ordinal: int) -> tuple[int, ...]:
        tokens = self._prompts.get(task.prompt)
        if tokens is None:
            tokens = self._prompts[task.prompt] = word_tokens(task.prompt, PROMPT_TOKENS_MAX)
        return tokens

    def words(self, text: str) -> tuple[int, ...]:
        return word_tokens(text, REPLY_TOKENS_MAX)

    def asks(self, task: PromptTask, ordinal: int, generation: int, turn: int) -> Asked:
        return Asked(sampling=sampling_of(self.profile.sampling, ordinal, generation, turn))

    async def latency(self, key: str) -> None:
        """How long a tool or a move takes."""
        profile = self.profile
        spread = profile.tool_max_s - profile.tool_min_s
        await self.rt.sleep(profile.tool_min_s + spread * self.rt.random("tool", key).random())

    def cannot_save(self, ordinal: int, generation: int, turn: int) -> tuple[str, ...]:
        """Each participant that keeps a part draws for itself."""
        unsavable, keeps = self.profile.unsavable, self.layout.keeps
        if isinstance(unsavable, int):
            draws = [keyed(ordinal, generation, turn, *((place,) if place else ())) for place in range(len(keeps))]
            return tuple(name for name, draw in zip(keeps, draws, strict=True) if unsavable and draw % unsavable == 0)
        return keeps if (ordinal, generation, turn) in unsavable else ()
