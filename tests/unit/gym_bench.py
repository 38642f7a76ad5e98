"""A Gym instance with its worker and data plane in a simulated world; the test's script is the controller."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from protocol.config import Job
from protocol.gym.instance import GymInstance
from protocol.history import Event
from protocol.messages import (
    Commit,
    Forget,
    Prepare,
    PromptTask,
    Renew,
    Restore,
    Resume,
    Retire,
    Row,
    RunRows,
    SetWeightVersion,
    ToolCall,
)
from protocol.runtime import END
from protocol.worker.worker import GenerationWorker
from sim.disk import Disk
from sim.environments import environment, layout_of
from sim.fake_data_plane import FakeDataPlane
from sim.fake_engine import FakeEngine
from sim.world import PARTICIPANTS, World
from tests.unit.toy import toy_world

E = TypeVar("E", bound=Event)
JOB = Job(generation_workers=1, max_turns=4)
FOLDER = "bootstrap/rollout_snapshots/tmp_snapshot_000001"
TOKEN = "token of this run"
ALL_SAVABLE: dict[str, Any] = {"unsavable": 0}
NONE_SAVABLE: dict[str, Any] = {"unsavable": 1, "tool_min_s": 2.0, "tool_max_s": 2.0}


def task(*calls: ToolCall) -> PromptTask:
    truth = calls or tuple(ToolCall("calendar_create_event", f'{{"event_name": "review {index}"}}') for index in range(3))
    return PromptTask("t0", "workplace", "Set up three reviews with Carlos", ("calendar_create_event",), truth)


def row(generation: int = 0, attempt: int = 0, continued: bool = False, replaced: int = 0, ordinal: int = 5) -> Row:
    sample = f"e0p{ordinal}i1_g{generation}"
    return Row(sample, generation, f"{sample}r{replaced}", attempt, continued)


def key(generation: int = 0, attempt: int = 0, replaced: int = 0, ordinal: int = 5) -> str:
    return f"e0p{ordinal}i1_g{generation}r{replaced}-a{attempt}"


def rows(*given: Row, ordinal: int = 5) -> RunRows:
    return RunRows(
        f"e0p{ordinal}i1", ordinal, 0, task(), given or tuple(row(generation, ordinal=ordinal) for generation in range(4))
    )


def prepare(checkpoint: str = "k1", timeout_s: float = 5.0) -> Prepare:
    return Prepare(checkpoint, timeout_s, 1.0, token=TOKEN)


def renew(checkpoint: str = "k1", timeout_s: float = 5.0) -> Renew:
    return Renew(checkpoint, timeout_s, 1.0, token=TOKEN)


def commit(*scope: str, checkpoint: str = "k1", folder: str = FOLDER) -> Commit:
    return Commit(checkpoint, 5.0, 1.0, folder, scope, token=TOKEN)


def resume(checkpoint: str = "k1") -> Resume:
    return Resume(checkpoint, 5.0, 1.0, token=TOKEN)


def restore(*episodes: str, participants: tuple[str, ...] = PARTICIPANTS, folder: str = FOLDER) -> Restore:
    return Restore("k1", 5.0, 1.0, folder, episodes, participants, token=TOKEN)


def retire(*keys: str) -> Retire:
    return Retire("", 5.0, 1.0, keys, token=TOKEN)


def forget(*rollouts: str) -> Forget:
    return Forget("", 5.0, 1.0, rollouts, token=TOKEN)


async def collect(stream: Any) -> list[Any]:
    """Every item until the stream ends."""
    items: list[Any] = []
    while (item := await stream.next()) is not END:
        items.append(item)
    return items


async def until(rt: Any, world: World, kind: type[Event], count: int = 1) -> None:
    """Look every millisecond until that many events of this kind are recorded."""
    while len(events(world, kind)) < count:
        await rt.sleep(0.001)


def events(world: World, kind: type[E]) -> list[E]:
    return [record.event for record in world.history if isinstance(record.event, kind)]


Script = Callable[[Any, World], Coroutine[Any, Any, None]]


class Bench:
    """``run`` plays the script as the controller, to its end, and keeps what the instance held then."""

    def __init__(
        self,
        profile: Mapping[str, Any] = ALL_SAVABLE,
        *,
        job: Job = JOB,
        participants: tuple[str, ...] | None = None,
        environment: str = "workplace",
        disk: Disk | None = None,
        life: int = 1,
        seed: int = 0,
        data_plane: Callable[[Any], Any] = FakeDataPlane,
        weights: int | None = 0,
    ) -> None:
        self.weights = weights  # of the worker when the script begins; None: it has none
        self.profile = profile
        self.job = job
        self.environment = environment
        self.participants = participants or layout_of(environment).participants
        self.data_plane = data_plane
        self.disk = disk or Disk()
        self.life = life
        self.seed = seed

    def run(self, script: Script) -> World:
        async def gym_main(rt: Any) -> None:
            self.gym = GymInstance(rt, self.job, environment(self.environment, rt, self.profile), self.participants, TOKEN)
            await self.gym.main()

        async def controller_main(rt: Any) -> None:
            if self.weights is not None:
                await rt.call("worker-0", SetWeightVersion(self.weights))
            await script(rt, world)

        world = toy_world(
            life=self.life,
            seed=self.seed,
            disk=self.disk,
            data_plane=lambda rt: self.data_plane(rt).main(),
            worker_0=lambda rt: GenerationWorker(rt, self.job, FakeEngine(rt, self.profile, world.media_store())).main(),
            gym_0=gym_main,
            controller=controller_main,
        )
        status = world.live()
        self.tasks_left = [task.name for task in world.kernel.tasks if task.process == "gym-0"]
        self.live = [session.key for session in self.gym.sessions.live.values()]
        self.installed = list(self.gym.sessions.installed)
        world.bury()  # now, and not in the middle of a later life
        assert status.outcome == "ended", (status, world.failure)
        return world
