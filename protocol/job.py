"""The processes of one job, as factories: what the core is, with what a world brings of its own filled in.

A factory takes the process's ``Runtime`` and returns the coroutine of its ``main``; a restart calls it again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from protocol import identity
from protocol.config import Job
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

    async def run_tool(self, state: dict[str, Any], call: ToolCall, key: str) -> tuple[int, ...]:
        """Run it: changes ``state`` in place, at once, after its latency; returns the reply's tokens (at least 1)."""
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


def processes(job: Job, tasks: Sequence[PromptTask], parts: Parts) -> dict[str, Factory]:
    """Name -> factory, in start order."""
    from protocol.controller.controller import Controller
    from protocol.data_plane.finalizer import Finalizer
    from protocol.gym.instance import GymInstance
    from protocol.worker.worker import GenerationWorker

    out: dict[str, Factory] = {
        identity.TRAINER: lambda rt: parts.trainer(rt).main(),
        identity.DATA_PLANE: lambda rt: parts.data_plane(rt).main(),
    }
    for index in range(job.num_finalizer_workers):
        out[identity.finalizer_name(index)] = lambda rt: Finalizer(rt, job).main()
    for index in range(job.generation_workers):
        out[identity.worker_name(index)] = lambda rt: GenerationWorker(rt, job, parts.engine(rt)).main()
    for index in range(job.gym_instances):
        out[identity.gym_name(index)] = lambda rt: GymInstance(rt, job, parts.environment(rt), parts.participants(rt.me)).main()
    out[identity.CONTROLLER] = lambda rt: Controller(rt, job, tuple(tasks)).main()
    return out
