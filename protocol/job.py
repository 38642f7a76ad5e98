"""Set-up: the processes of one job, as factories. A factory takes the process's ``Runtime`` and returns the coroutine of its
``main``; a restart calls it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocol import identity
from protocol.config import Job, set_up
from protocol.controller.controller import Controller
from protocol.data_plane.finalizer import Finalizer
from protocol.errors import ConfigError
from protocol.gym.instance import GymInstance
from protocol.history import RunFailed
from protocol.messages import PromptTask
from protocol.parts import Factory, Parts
from protocol.run import fingerprint_of
from protocol.runtime import Runtime
from protocol.worker.worker import GenerationWorker


def processes(given: Job | Mapping[str, Any], tasks: Sequence[PromptTask], parts: Parts) -> dict[str, Factory]:
    """Name -> factory, in start order. Each start of the job has a control token, which only its Gym instances are given.

    ``given``: the job, or the tables it is read from. One that is refused starts nothing but a controller that says so.
    """
    try:
        job = set_up(given, dict.fromkeys(task.name for task in tasks))
    except ConfigError as refused:
        message = str(refused)
        return {identity.CONTROLLER: lambda rt: _refuse(rt, message)}
    run, secret = fingerprint_of(job, tasks), parts.secret
    out: dict[str, Factory] = {
        identity.TRAINER: lambda rt: parts.trainer(rt).main(),
        identity.DATA_PLANE: lambda rt: parts.data_plane(rt).main(),
    }
    for index in range(job.num_finalizer_workers):
        out[identity.finalizer_name(index)] = lambda rt: Finalizer(rt, job).main()
    for index in range(job.generation_workers):
        out[identity.worker_name(index)] = lambda rt: GenerationWorker(rt, job, parts.engine(rt)).main()
    for index in range(job.gym_instances):
        out[identity.gym_name(index)] = lambda rt: GymInstance(
            rt,
            job,
            parts.environment(rt),
            parts.participants(rt.me),
            identity.control_token(run, rt.life, secret),
            parts.services,
            parts.hands_context,
        ).main()
    out[identity.CONTROLLER] = lambda rt: Controller(rt, job, tuple(tasks), secret).main()
    return out


async def _refuse(rt: Runtime, message: str) -> None:
    error = ConfigError(message)
    rt.record(RunFailed(error=ConfigError.__name__, cause=error.cause.value, message=message))
    raise error
