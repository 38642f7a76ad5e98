"""One life of a job in one operating system process: both stages, on asyncio, over a real folder.

The same two stages as in the simulator: the clean-up alone, then every process in start order with the clock at 0. A
trigger of the recorder kills this very process inside ``record``; whoever started it sees SIGKILL as its exit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from protocol import identity
from protocol.checkpoint.restore import clean_up as job_clean_up
from protocol.errors import ConfigError
from protocol.history import LifeStarted, ProcessStarted
from protocol.judging import RunStatus
from protocol.parts import Factory
from protocol.runtime import Runtime
from real.files import clear_removed
from real.processes import Job, RealTask
from real.recorder import Recorder, Trigger, save_status
from real.runtime import AsyncioRuntime
from scenarios.faults import Fault

JOB = "job"  # the process that starts lives
CleanUp = Callable[[Runtime], Coroutine[Any, Any, None]]


async def live(
    processes: Mapping[str, Factory],
    root: Path,
    recorder: Recorder,
    *,
    seed: int,
    time_scale: float,
    limit_s: float,
    clean_up: CleanUp = job_clean_up,
) -> RunStatus:
    """Run one life to its end. ``limit_s`` is real time: running out is the outcome ``time``.

    The controller's task ends the life; so does a failure that nobody joins. No task is left when this returns.
    """
    try:
        async with asyncio.timeout(limit_s):
            first = Job(recorder.life, recorder, time_scale)
            first.record(JOB, LifeStarted(recorder.life))
            runtime = AsyncioRuntime(first, identity.CONTROLLER, root, seed)
            first.main = RealTask(runtime.process, clean_up(runtime), "clean-up")
            status = await _until_over(first)
            if status.outcome != "ended":
                return status
            second = Job(recorder.life, recorder, time_scale)
            for name, factory in processes.items():
                runtime = AsyncioRuntime(second, name, root, seed)
                task = RealTask(runtime.process, _boot(runtime, factory), "main")
                second.main = task if name == identity.CONTROLLER else second.main
            return await _until_over(second)
    except TimeoutError:
        return RunStatus("time")


async def _boot(runtime: AsyncioRuntime, factory: Factory) -> None:
    runtime.record(ProcessStarted())
    await factory(runtime)


async def _until_over(job: Job) -> RunStatus:
    """Wait until the main task ends or something fails, then stop whatever still runs."""
    try:
        await job.over.wait()
    finally:
        await job.stop()
    if job.failure is not None:
        error = job.failure[2]
        return RunStatus("failed", error=f"{type(error).__name__}: {error}")
    return RunStatus("ended")


def run_one_life(
    processes: Mapping[str, Factory],
    root: Path,
    history: Path,
    life: int,
    *,
    seed: int,
    time_scale: float,
    limit_s: float,
    trigger: Trigger | None = None,
    faults: Sequence[Fault] = (),
    clean_up: CleanUp = job_clean_up,
) -> RunStatus:
    """``live`` with its own loop and recorder. ``history`` is this life's file; its status is saved beside it.

    ``faults`` are those of the scenario: what this world cannot do to a job is refused (ConfigError), not left out.
    """
    refuse(faults)
    root.mkdir(parents=True, exist_ok=True)
    clear_removed(root)
    recorder = Recorder(history, life, trigger)
    try:
        status = asyncio.run(
            live(processes, root, recorder, seed=seed, time_scale=time_scale, limit_s=limit_s, clean_up=clean_up)
        )
    finally:
        recorder.close()
    save_status(status_file(history), status)
    return status


def refuse(faults: Sequence[Fault]) -> None:
    """The whole job can be killed here (``trigger``); its processes share one operating system process, and messages one
    loop, so that no verb of a scenario has a real counterpart yet."""
    if faults:
        verbs = ", ".join(dict.fromkeys(fault.verb for fault in faults))
        raise ConfigError(f"faults: the real world cannot do {verbs}: run this scenario in the simulator, or without its faults")


def status_file(history: Path) -> Path:
    return history.with_suffix(".status.json")
