"""One life of the whole job in the simulator, with parts of one's own: for tests of races between its processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from small_world import SmallScenario

from protocol.checkpoint.restore import clean_up
from protocol.config import (
    Job,
    RolloutCheckpointing,
    RolloutFailure,
    RolloutRecovery,
    TokenCapture,
    Watchdog,
    accept,
)
from protocol.history import Event, Record
from protocol.job import processes
from protocol.judging import RunStatus
from protocol.messages import PromptTask, ToolCall
from protocol.parts import Engine, EngineCall, Parts
from protocol.runtime import Runtime
from scenarios.faults import Fault
from sim.disk import ALL, NONE, Disk
from sim.environments.workplace import FakeWorkplace
from sim.fake_data_plane import FakeDataPlane
from sim.fake_engine import FakeEngine, FakeOutput
from sim.fake_trainer import FakeTrainer
from sim.world import PARTICIPANTS, World

E = TypeVar("E", bound=Event)

TASKS = tuple(
    PromptTask(
        f"t{index}", "workplace", f"Add meeting {index} and tell Beate", ("calendar_create_event", "email_send_email"),
        (ToolCall("calendar_create_event", f'{{"event_name": "m{index}"}}'), ToolCall("email_send_email", '{"body": "hi"}')),
    )
    for index in range(8)
)  # fmt: skip
JOB = Job(
    num_prompts_per_step=2, num_generations_per_prompt=2, train_steps=2, target_level="turn", generation_workers=1,
    rollout_failure=RolloutFailure(backoff_base_s=0.05, max_backoff_s=0.5),
    rollout_checkpointing=RolloutCheckpointing(interval_s=0.35),
    rollout_recovery=RolloutRecovery(gym_prepare_timeout_s=2.0, reply_grace_s=0.5, resume_retry_s=0.1),
    token_capture=TokenCapture(control_timeout_s=2.0),
    watchdog=Watchdog(interval_s=5.0, stall_timeout_s=60.0),
)  # fmt: skip


def changed(job: Job = JOB, **changes: Any) -> Job:
    return msgspec.structs.replace(job, **changes)


def every(interval_s: float, **changes: Any) -> RolloutCheckpointing:
    return RolloutCheckpointing(interval_s=interval_s, **changes)


def fault(event: str, verb: str, occurrence: int = 1, life: int = 1, process: str = "controller", **arguments: Any) -> Fault:
    return Fault(process=process, event=event, occurrence=occurrence, life=life, verb=verb, arguments=arguments)


@dataclass(frozen=True)
class Lived:
    """How a life ended, and what it left."""

    status: RunStatus
    history: list[Record]
    disk: Disk
    planes: list[FakeDataPlane] = field(default_factory=list)

    def events(self, kind: type[E]) -> list[E]:
        return [record.event for record in self.history if isinstance(record.event, kind)]

    def times(self, kind: type[E], such: Callable[[E], bool] = lambda event: True) -> list[float]:
        return [record.time for record in self.history if isinstance(record.event, kind) and such(record.event)]

    def after_crash(self) -> Disk:
        return Disk.of(self.disk.surviving(NONE))

    def files(self) -> dict[str, bytes]:
        """Un-synced ones too."""
        return self.disk.surviving(ALL)


class TouchyEngine(FakeEngine):
    """``touch`` is called with (runtime, capture key, turn) before each call; it may sleep, or raise PeerFailed."""

    def __init__(self, rt: Runtime, profile: dict[str, Any], touch: Callable[..., Any]) -> None:
        super().__init__(rt, profile)
        self.touch = touch

    def start(self, call: EngineCall) -> FakeOutput:
        return TouchedOutput(self, call)


class TouchedOutput(FakeOutput):
    async def done(self) -> None:
        engine = self.engine
        assert isinstance(engine, TouchyEngine)
        await engine.touch(engine.rt, self.call.call.split("/")[0], self.call.turn)
        self.began = engine.rt.now()
        await super().done()


def live(
    job: Job = JOB,
    *faults: Fault,
    seed: int = 0,
    number: int = 1,
    disk: Disk | None = None,
    profile: dict[str, Any] | None = None,
    touch: Callable[..., Any] | None = None,
    crash: Callable[[list[Record]], bool] | None = None,
    participants: Callable[[str], tuple[str, ...]] = lambda instance: PARTICIPANTS,
    max_time: float = 300.0,
    engine_class: type[FakeEngine] = FakeEngine,
    hands_context: bool = False,
) -> Lived:
    """One life of the whole job; ``crash`` is asked after every step."""
    knobs = profile or {}
    planes: list[FakeDataPlane] = []

    def engine(rt: Runtime) -> Engine:
        return engine_class(rt, knobs) if touch is None else TouchyEngine(rt, knobs, touch)

    def data_plane(rt: Runtime) -> FakeDataPlane:
        planes.append(FakeDataPlane(rt, knobs))
        return planes[-1]

    parts = Parts(
        engine=engine,
        environment=lambda rt: FakeWorkplace(rt, knobs),
        data_plane=data_plane,
        trainer=lambda rt: FakeTrainer(rt, job, knobs),
        participants=participants,
        hands_context=hands_context,
    )
    scenario = SmallScenario(job=accept(job), tasks=TASKS, faults=faults, profile=knobs)
    world = World(
        scenario, seed, number, disk if disk is not None else Disk(), processes=processes(job, TASKS, parts), clean_up=clean_up
    )
    status = world.live(crash=None if crash is None else lambda: crash(world.history), max_time=max_time)
    world.bury()
    return Lived(status, world.history, world.disk, planes)
