"""What a world brings of its own into the core's processes: fakes in the simulator, real parts elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from protocol.external import Service
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


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The participants that an environment needs, and which of them hold what of an episode.

    ``keeps``: each of them holds one part of every episode's state, under its own name. Who owns an episode at a commit
    follows from it: an environment server that keeps a part exports the episode; an agent that does drives it by its
    own /run; resources hold tool state, and the agent's session is the owner. ``verifier``: the participant that holds
    finished siblings and rewards them together ('': each is rewarded alone).
    """

    participants: tuple[str, ...]
    keeps: tuple[str, ...] = ()
    verifier: str = ""


State = dict[str, Any]  # participant -> its part of one episode's state, plain JSON data


class Environment(Protocol):
    """What an episode is about, inside a Gym process. ``state`` has one part for each of ``layout.keeps``."""

    @property
    def layout(self) -> Layout: ...

    def prompt_tokens(self, task: PromptTask, ordinal: int) -> tuple[int, ...]:
        """The same for all siblings."""
        ...

    def seed(self, task: PromptTask, ordinal: int, generation: int) -> State:
        """The fresh state of one episode."""
        ...

    def decide(self, task: PromptTask, state: State, turn: int, tokens: tuple[int, ...]) -> ToolCall | None:
        """The tool call or the move that the model's tokens stand for; None ends the episode. Changes nothing."""
        ...

    async def run_tool(self, state: State, call: ToolCall, key: str) -> tuple[int, ...]:
        """Run it: changes ``state`` in place, at once, after its latency; returns the reply's tokens (at least 1)."""
        ...

    def words(self, text: str) -> tuple[int, ...]:
        """What an outside service has said, as the tokens of a reply."""
        ...

    def over(self, state: State) -> bool:
        """Whether the state allows no further turn."""
        ...

    def reward(self, task: PromptTask, state: State, answer: tuple[int, ...]) -> float:
        """In [0, 1], from the final state and the tokens of the last model call: a lost or doubled effect shows."""
        ...

    def submission(self, task: PromptTask, state: State, answer: tuple[int, ...]) -> int:
        """What a finished sibling hands to the verifier, instead of ``reward``."""
        ...

    def rank(self, ordinal: int, group_attempt: int, submissions: Mapping[int, int]) -> dict[int, float]:
        """Rewards in [0, 1] by generation, each relative to the others. Raises Refusal: the verifier failed."""
        ...

    def cannot_save(self, ordinal: int, generation: int, turn: int) -> tuple[str, ...]:
        """Participants that hold, while this turn's tool runs, something that no commit can write."""
        ...


class Server(Protocol):
    async def main(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a world brings. ``participants`` names each Gym instance's participants at this start of the job; ``services`` are
    those outside of it, which a world lets Gym call by their names."""

    engine: Callable[[Runtime], Engine]
    environment: Callable[[Runtime], Environment]
    data_plane: Callable[[Runtime], Server]
    trainer: Callable[[Runtime], Server]
    participants: Callable[[str], tuple[str, ...]]
    services: tuple[Service, ...] = ()
