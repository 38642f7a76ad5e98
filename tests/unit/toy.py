"""Small processes and a small scenario, to test the simulated world without the core."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from protocol.config import Job
from protocol.judging import Contract
from protocol.messages import Message
from sim.disk import Disk
from sim.world import World


class Ask(Message):
    number: int


class Other(Message):
    number: int


@dataclass(frozen=True)
class ToyFault:
    process: str
    event: str
    verb: str
    arguments: dict[str, Any] = field(default_factory=dict)
    occurrence: int = 1
    edge: str = "after"
    life: int = 0


@dataclass(frozen=True)
class ToyScenario:
    faults: tuple[ToyFault, ...] = ()
    name: str = "toy"
    job: Job = Job()
    tasks: tuple[Any, ...] = ()
    profile: dict[str, Any] = field(default_factory=dict)
    contract: Contract = Contract()
    environment: str = "workplace"


Main = Callable[[Any], Coroutine[Any, Any, None]]


def toy_world(*, life: int = 1, seed: int = 0, disk: Disk | None = None, faults: tuple[ToyFault, ...] = (), clean_up: Any = None,
              **options: Any) -> World:  # fmt: skip
    """A world whose processes are the given mains; keyword ``gym_0`` is process ``gym-0``."""
    names = ("panel", "schedule", "timed", "keep_history")
    given = {name: options.pop(name) for name in names if name in options}
    mains = {name.replace("_", "-"): main for name, main in options.items()}
    return World(ToyScenario(faults), seed, life, disk or Disk(), processes=mains, clean_up=clean_up, **given)
