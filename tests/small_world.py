"""One life of a few processes in the simulator, for tests of a single process."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from protocol.config import Job
from protocol.history import Event, Record
from protocol.identity import CONTROLLER
from protocol.judging import Contract
from protocol.parts import Factory
from protocol.runtime import Runtime
from sim.disk import ALL, Disk
from sim.world import World

E = TypeVar("E", bound=Event)
Client = Callable[[Runtime], Coroutine[Any, Any, Any]]


@dataclass(frozen=True)
class SmallScenario:
    name: str = "small"
    job: Job = field(default_factory=Job)
    tables: Mapping[str, Any] = field(default_factory=dict)
    tasks: Sequence[Any] = ()
    faults: Sequence[Any] = ()
    profile: Mapping[str, Any] = field(default_factory=dict)
    contract: Contract = Contract()
    environment: str = "workplace"


@dataclass(frozen=True)
class Played:
    """``result`` of the client, the history, what is on disk (un-synced included), seconds and digest of the life."""

    result: Any
    history: list[Record]
    files: dict[str, bytes]
    seconds: float
    digest: str

    def events(self, kind: type[E]) -> list[E]:
        return [record.event for record in self.history if isinstance(record.event, kind)]


def play(
    client: Client, processes: Mapping[str, Factory], *, files: Mapping[str, bytes] | None = None, seed: int = 0, life: int = 1
) -> Played:
    """Run ``client`` as the controller beside ``processes``; raises what the client raised."""
    result: list[Any] = []

    async def main(rt: Runtime) -> None:
        result.append(await client(rt))

    world = World(SmallScenario(), seed, life, Disk.of(files or {}), processes={**processes, CONTROLLER: main})
    status = world.live(max_steps=20_000)
    world.bury()
    if world.failure is not None:
        raise world.failure
    assert status.outcome == "ended", status
    return Played(result[0], world.history, world.disk.surviving(ALL), world.now, world.digest())
