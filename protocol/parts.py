"""What a world brings of its own into the core's processes: fakes in the simulator, real parts elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from protocol.messages import PromptTask, ToolCall
from protocol.runtime import Runtime

Factory = Callable[[Runtime], Coroutine[Any, Any, None]]


class Engine(Protocol):
    """What generates tokens inside a worker process."""

    async def generate(
        self, call: str, ordinal: int, generation: int, turn: int, version: int, prompt_length: int
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Tokens and their logprobs (same length, at least 1). Records ``TokensGenerated`` as it goes."""
        ...


class Environment(Protocol):
    """What an episode is about, inside a Gym process. ``state`` is plain JSON data (dict, list, str, int, float, bool)."""

    def prompt_tokens(self, task: PromptTask) -> tuple[int, ...]: ...

    def seed(self, task: PromptTask, ordinal: int) -> dict[str, Any]:
        """A fresh tool state of one episode."""
        ...

    def decide(self, task: PromptTask, ordinal: int, generation: int, turn: int, tokens: tuple[int, ...]) -> ToolCall | None:
        """The tool call that the model's tokens stand for; None ends the episode."""
        ...

    async def run_tool(self, state: dict[str, Any], call: ToolCall, key: str, effect: str) -> tuple[int, ...]:
        """Run it: changes ``state`` in place, at once, after its latency; returns the reply's tokens (at least 1).

        ``key`` is the staging key of the turn. A tool that an outside service answers is asked for under the key
        ``effect`` (``protocol.gym.effects.deliver``), and its answer is in the state and in the reply."""
        ...

    def reward(self, task: PromptTask, state: dict[str, Any]) -> float:
        """In [0, 1], from the final state alone: a lost or doubled effect shows."""
        ...

    def can_be_saved(self, ordinal: int, generation: int, turn: int) -> bool:
        """False: while this turn's tool runs the episode holds something that no commit can write."""
        ...


class Server(Protocol):
    async def main(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a world brings. ``participants`` names each Gym instance's participants at this start of the job."""

    engine: Callable[[Runtime], Engine]
    environment: Callable[[Runtime], Environment]
    data_plane: Callable[[Runtime], Server]
    trainer: Callable[[Runtime], Server]
    participants: Callable[[str], tuple[str, ...]]
