"""One life of a job in the simulated world: processes, network, disk, faults, history.

A life has two stages (docs/design.md, rule 2). ``clean`` records LifeStarted and runs the clean-up alone; ``start``
makes everything new (clock 0, streams newly seeded) and starts the processes; ``run`` steps until something ends the
life. The boundary is told after every step of both stages, and a crash is asked for after it.

A life depends on nothing but the disk it starts from, the scenario, the seed, its number and the schedule.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Mapping
from time import perf_counter_ns
from typing import Any, Protocol

import msgspec

from protocol import identity
from protocol.config import Job
from protocol.external import NOTHING, External
from protocol.history import Event, FaultInjected, LifeStarted, Record, record_bytes
from protocol.job import processes
from protocol.judging import Contract, Panel, RunStatus
from protocol.messages import STAGING, DiscardGroup, Generate
from protocol.parts import Factory, Parts
from protocol.runtime import Runtime
from sim.disk import Disk
from sim.faults import FaultBoard
from sim.kernel import Kernel
from sim.media import MediaStore
from sim.network import Network
from sim.processes import Processes
from sim.runtime import SimRuntime
from sim.services import FakeService, ServiceProfile, Services
from sim.tamper import tampered
from sim.tasks import Task, Wait, Waiter
from sim.trained_rows import AppliedStep
from sim.waiting import draw

JOB = "job"  # the process that starts lives and injects faults
MAX_STEPS = 200_000
MAX_TIME_S = 3_600.0
HASH_EVERY = 4_096  # records kept for the hash when no history is kept
PARTICIPANTS = ("environment", "policy-model", "agent", "resources")  # of the workplace, the usual environment


class ScenarioLike(Protocol):
    """The part of ``scenarios.model.Scenario`` that a life reads."""

    @property
    def name(self) -> str: ...
    @property
    def job(self) -> Job: ...
    @property
    def tables(self) -> Mapping[str, Any]: ...  # what set-up is given instead of ``job``, if there are any
    @property
    def tasks(self) -> Any: ...
    @property
    def faults(self) -> Any: ...
    @property
    def profile(self) -> Any: ...
    @property
    def contract(self) -> Contract: ...
    @property
    def environment(self) -> str: ...


class Recorder:
    """``Runtime.record`` of one process in one stage: the only place where a trigger is tested."""

    __slots__ = ("_kept", "_keys", "kernel", "me", "world")

    def __init__(self, world: World, kernel: Kernel, me: str) -> None:
        self.world = world
        self.kernel = kernel
        self.me = me
        self._keys: dict[type[Event], tuple[str, str]] = {}
        self._kept: list[tuple[Event, Task | None]] | None = None  # of a process that stands still in the middle of a step

    def record(self, event: Event) -> None:
        kernel = self.kernel
        if kernel.fenced:
            return
        if self._kept is not None:
            self._kept.append((event, kernel.current))
            return
        world = self.world
        kind = type(event)
        key = self._keys.get(kind)
        if key is None:
            key = self._keys[kind] = (self.me, kind.__name__)
        counts = world.counts
        occurrence = counts[key] = counts.get(key, 0) + 1
        task = kernel.current
        record = Record(world.events, kernel.clock(), self.me, world.life, task.name if task is not None else "", event)
        world.events += 1
        world.history.append(record)
        if not world.keep_history and len(world.history) >= HASH_EVERY:
            world.hash_records()
        world.last = (key[0], key[1], occurrence)
        world.recorded_at = world.steps_before + kernel.steps
        if kind in world.dispatch:
            world.judge(record)
        if key in world.triggers:
            world.faults.recorded(key, occurrence, kernel.after_step)
            if kernel.doomed == self.me:
                kernel.doom()

    def keep(self) -> None:
        """What is recorded from now on is kept back."""
        self._kept = []

    def let_go(self, make: bool) -> None:
        """Make the records that were kept back, in the name of their tasks, or drop them."""
        kept, self._kept = self._kept, None
        if kept and make:
            for event, task in kept:
                self.kernel.current = task
                self.record(event)
            self.kernel.current = None


class World:
    """One life. ``processes`` (name -> factory) and ``clean_up`` stand in for the job's own in tests of the simulator."""

    def __init__(
        self,
        scenario: ScenarioLike,
        seed: int,
        life: int,
        disk: Disk,
        *,
        panel: Panel | None = None,
        schedule: str = "0",
        timed: bool = False,
        keep_history: bool = True,
        processes: Mapping[str, Factory] | None = None,
        clean_up: Callable[[Runtime], Coroutine[Any, Any, None]] | None = None,
        external: External = NOTHING,
    ) -> None:
        self.scenario = scenario
        self.seed = seed
        self.life = life
        self.disk = disk
        self.panel = panel
        self.schedule = schedule
        self.timed = timed
        self.keep_history = keep_history
        self.history: list[Record] = []  # without keep_history: only what is not hashed yet
        self.trained: list[AppliedStep] | None = [] if keep_history else None
        self.events = 0
        self.counts: dict[tuple[str, str], int] = {}  # (process, event kind) -> how many so far in this life
        self.last = (JOB, LifeStarted.__name__, 0)  # address of the last recorded event: (process, kind, n)
        self.recorded_at = 0  # the step that recorded it
        self.steps_before = 0  # steps of the first stage
        self.failure: BaseException | None = None  # what made the life fail, with its traceback
        self.dispatch: Mapping[type[Event], Any] = panel.dispatch if panel is not None else {}
        self._processes = processes
        self._clean_up = clean_up
        self._hash = hashlib.sha256()
        self._hashed = 0
        self._core_ns = self._judge_ns = 0  # of the first stage
        self._started = False
        self._discards: list[tuple[int, Callable[[str], None]]] = []  # of the first stage: sent when a controller can hear it
        self.faults = FaultBoard(scenario.faults, life, self)
        self.tampered = tampered(disk.surviving("all"), scenario.faults, life)
        if self.tampered is not None:
            self.disk = Disk.of(self.tampered.after, disk.scratch())
            self.faults.restart.tampered = self.tampered.told
        self.triggers = self.faults.triggers
        self.services = Services(scenario.contract.effects, external)
        self._stage()

    def _stage(self) -> None:
        self.kernel = Kernel(self.seed, self.life, self.schedule, self.timed)
        self.network = Network(self.kernel, self.faults.messages, self.seed, self.life)
        self.network.services = self.services
        self._job_recorder = Recorder(self, self.kernel, JOB)
        self.fates = Processes(self.kernel, self.network, self._made, self._job_recorder.record)

    # --- what the explorer reads ---------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        return self.steps_before + self.kernel.steps

    @property
    def now(self) -> float:
        return self.kernel.clock()

    @property
    def since(self) -> int:
        """Steps completed after the step that recorded the last event."""
        return self.steps_before + self.kernel.steps - self.recorded_at

    @property
    def core_ns(self) -> int:
        """CPU inside the coroutines' sends, judges left out (only if timed)."""
        return self._core_ns + self.kernel.core_ns

    @property
    def judge_ns(self) -> int:
        """CPU inside the judges' ``on`` (only if timed)."""
        return self._judge_ns + self.kernel.judge_ns

    def digest(self) -> str:
        """SHA-256 over ``record_bytes`` of every record of this life so far."""
        self.hash_records()
        return self._hash.hexdigest()

    def fault_state(self) -> bytes:
        """What is left of this life's faults, with the counts that their triggers go by: lives that are to share
        their second stage must be equal in it too."""
        left = [(armed.fault.verb, armed.state, armed.left, self.counts.get(armed.key, 0)) for armed in self.faults.all]
        return msgspec.msgpack.encode((left, [ordinal for ordinal, _ in self._discards]))

    # --- the two stages ------------------------------------------------------------------------------------------

    def clean(
        self,
        boundary: Callable[[], None] | None = None,
        crash: Callable[[], bool] | None = None,
        max_steps: int = MAX_STEPS,
        max_time: float = MAX_TIME_S,
    ) -> RunStatus | None:
        """Stage 1: LifeStarted, then the clean-up alone. None when it is complete."""
        self.kernel.main = self.kernel.spawn(self._begin_life(), JOB, JOB)
        status = self.run(boundary, crash, max_steps, max_time)
        return None if status.outcome == "ended" else status

    async def _begin_life(self) -> None:
        self._job_recorder.record(LifeStarted(self.life))
        clean_up = self._clean_up
        if clean_up is None and self._processes is None:
            from protocol.checkpoint.restore import clean_up as job_clean_up

            clean_up = job_clean_up
        if clean_up is not None:
            runtime, _ = self._made(identity.CONTROLLER, 1)
            await self.kernel.spawn(clean_up(runtime), "clean-up", identity.CONTROLLER).join()

    def start(self) -> None:
        """Stage 2: a new kernel, and every process in start order."""
        self.kernel.bury()
        self.steps_before += self.kernel.steps
        self._core_ns, self._judge_ns = self.core_ns, self.judge_ns
        self._stage()
        self._started = True
        for name in self.services.held:
            runtime, _ = self._made(name, 1)
            FakeService(runtime, self.services, ServiceProfile.of(self.scenario.profile)).serve()
        for ordinal, told in self._discards:
            self.send_discard(ordinal, told)
        self.fates.start(self._factories(), identity.CONTROLLER)

    def run(
        self,
        boundary: Callable[[], None] | None = None,
        crash: Callable[[], bool] | None = None,
        max_steps: int = MAX_STEPS,
        max_time: float = MAX_TIME_S,
    ) -> RunStatus:
        """Step until the life ends, its budget is spent, nothing is left to do, or ``crash()`` says so."""
        outcome = self.kernel.run(boundary, crash, max_steps, max_time)
        if outcome == "failed" and self.kernel.failure is not None:
            self.failure = self.kernel.failure[1]
            return RunStatus(outcome, error=f"{type(self.failure).__name__}: {self.failure}", at_s=self.now)
        if outcome not in ("idle", "steps", "time"):
            return RunStatus(outcome, at_s=self.now)
        waits = draw(self.kernel)
        return RunStatus(outcome, waiting=waits.text(), waits=waits, at_s=max_time if outcome == "time" else self.now)

    def live(
        self,
        boundary: Callable[[], None] | None = None,
        crash: Callable[[], bool] | None = None,
        max_steps: int = MAX_STEPS,
        max_time: float = MAX_TIME_S,
    ) -> RunStatus:
        """Both stages, one after the other."""
        status = self.clean(boundary, crash, max_steps, max_time)
        if status is None:
            self.start()
            status = self.run(boundary, crash, max_steps, max_time)
        return status

    def bury(self) -> None:
        """Close every coroutine of this life under the fence; call it before the next life starts."""
        self.kernel.bury()

    # --- parts ---------------------------------------------------------------------------------------------------

    def _made(self, name: str, incarnation: int) -> tuple[SimRuntime, Recorder]:
        recorder = Recorder(self, self.kernel, name)
        runtime = SimRuntime(name, self.life, self.seed, self.kernel, self.network, self.disk, recorder.record, incarnation)
        return runtime, recorder

    def _factories(self) -> Mapping[str, Factory]:
        if self._processes is not None:
            return self._processes
        from sim.environments import environment
        from sim.fake_data_plane import FakeDataPlane
        from sim.fake_engine import FakeEngine
        from sim.fake_trainer import FakeTrainer

        planes: list[FakeDataPlane] = []  # its incarnations

        def data_plane(rt: Runtime) -> FakeDataPlane:
            planes.append(FakeDataPlane(rt, profile, self.faults.rows))
            return planes[-1]

        def staged() -> tuple[str, ...]:
            return planes[-1].partitions[STAGING].keys()

        job, profile = self.faults.restart.job(self.scenario.job), self.scenario.profile
        parts = Parts(
            engine=lambda rt: FakeEngine(rt, profile, self.services.media),
            environment=lambda rt: environment(self.scenario.environment, rt, profile),
            data_plane=data_plane,
            trainer=lambda rt: FakeTrainer(rt, job, profile, self.trained, staged),
            participants=self._participants,
            services=self.scenario.contract.effects,
        )
        return processes(self.scenario.tables or job, self.scenario.tasks, parts)

    def _participants(self, instance: str) -> tuple[str, ...]:
        from sim.environments import layout_of

        return self.faults.restart.participants(instance, layout_of(self.scenario.environment).participants)

    # --- history and faults --------------------------------------------------------------------------------------

    def judge(self, record: Record) -> None:
        panel = self.panel
        if panel is None:
            return
        if self.timed:
            began = perf_counter_ns()
            panel.feed(record)
            self.kernel.judge_ns += perf_counter_ns() - began
        else:
            panel.feed(record)

    def hash_records(self) -> None:
        self._hash.update(b"".join(map(record_bytes, self.history[self._hashed :])))
        self._hashed = len(self.history)
        if not self.keep_history:
            self.history.clear()
            self._hashed = 0

    def report_fault(self, verb: str, detail: str) -> None:
        self._job_recorder.record(FaultInjected(verb, detail))

    def record_as(self, process: str, event: Event) -> None:
        """An event that the world makes in the place of a process: what a fault answers at its door."""
        recorder = self.fates.by_name[process].recorder
        recorder.record(event)

    def media_store(self) -> MediaStore:
        return self.services.media

    def abort(self, worker: str) -> str:
        """Abort the newest model call that runs at ``worker``: which one, '' if none runs."""
        running = self.network.running(worker, Generate)
        return running[-1].message.call if running and self.network.abort(running[-1]) else ""

    def send_discard(self, ordinal: int, told: Callable[[str], None]) -> None:
        if not self._started:
            self._discards.append((ordinal, told))
            return
        self.network.call(JOB, identity.CONTROLLER, DiscardGroup(ordinal)).hold(_Told(told))


class _Told(Waiter):
    """Hears the answer of a call that no task waits for."""

    __slots__ = ("told",)

    def __init__(self, told: Callable[[str], None]) -> None:
        self.told = told

    def wake(self, wait: Wait, direct: bool) -> None:
        self.told(wait.value or "")  # an error: nothing was dropped
