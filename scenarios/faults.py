"""Faults of a scenario: where (a protocol event of one process) and what the world does there.

With ``edge = "after"`` a fault takes effect at the boundary after the step that recorded the event, with ``"before"``
inside that record: the call that an ``...Issued`` event announces is then already affected.

What has no verb of its own is said with these:
    a late reply of an older attempt    ``delay`` of a reply of RunRows by more than the row's deadline, or ``delay`` of it
                                        and a ``discard`` of the group while it is on its way
    a delayed data-plane save           ``delay`` of SaveCheckpoint (the request: the save is late; the reply: its word is)
    a delayed weight write              ``delay`` of SaveWeights, or of SetWeightVersion for the weights of the workers
    a train step that commits at any await    ``stall`` or ``hold`` what that await waits for (gym-0 at ControlReceived until
                                        the controller records StepCommitted), and ``delay`` the reply of TrainGroup so
                                        that the step is under way by then (scenario step-in-a-gym-phase)
    a group discarded at any await      ``discard`` at any event, on either edge
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import ValidationError

from protocol import identity, messages
from protocol.config import Job, with_values
from protocol.errors import ConfigError
from protocol.external import Service
from protocol.history import KINDS, RENAMED
from scenarios.verbs import VERBS

PARTITION_NAMES = {
    "canonical": messages.CANONICAL,
    "staging": messages.STAGING,
    messages.CANONICAL: messages.CANONICAL,
    messages.STAGING: messages.STAGING,
}


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """When the ``occurrence``-th ``event`` of ``process`` in life ``life`` (0: in every one) is recorded, do ``verb``."""

    process: str
    event: str
    occurrence: int = 1
    edge: str = "after"
    life: int = 1
    verb: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


AT_REST = ("tamper", "corrupt_media")  # change what an earlier life has left
RESTART = ("config", *AT_REST)
ONE_LEVEL = ("target_level", "rollout_recovery.level_overrides")  # keys of the job that no life may have of its own
# Requests that a peer carries out as often as they come: the transport brings them once at most, and the protocol rests on it.
ONCE = ("RunRows", "Generate", "PutSamples", "ClearSamples", "LoadCheckpoint", "LoadWeights")
FATES = ("kill", "restart", "stall", "hold")
OPERATIONS = {
    kind.__name__.lower(): kind.__name__
    for kind in vars(messages).values()
    if isinstance(kind, type) and issubclass(kind, messages.Message) and kind is not messages.Message
}


def process_names(job: Job, services: Sequence[Service] = ()) -> tuple[str, ...]:
    """Every process of a run of ``job``, and the services outside of it; ``job`` itself is one (it records what the world
    does)."""
    return (
        "job",
        identity.CONTROLLER,
        identity.DATA_PLANE,
        identity.TRAINER,
        *(identity.finalizer_name(index) for index in range(job.num_finalizer_workers)),
        *(identity.worker_name(index) for index in range(job.generation_workers)),
        *(identity.gym_name(index) for index in range(job.gym_instances)),
        *(service.service for service in services),
    )


def absent(fault: Fault, known: Sequence[str]) -> list[str]:
    """Processes that ``fault`` names and that are not ``known``."""
    arguments = fault.arguments
    until = (arguments.get("until") or {}).get("process")
    named = (fault.process, *(arguments.get(key) for key in ("process", "instance", "worker", "to")), until)
    return [name for name in dict.fromkeys(named) if name is not None and name not in known]


def fault_from(
    at: dict[str, Any], do: dict[str, dict[str, Any]], job: Job, where: str, services: Sequence[Service] = ()
) -> tuple[Fault | None, list[str]]:
    """One fault, or what is wrong with it: ``at`` is already well-typed, ``do`` is not. Each fault names its key."""
    wrong: list[str] = []
    processes = process_names(job, services)
    if at["process"] not in processes:
        wrong.append(f"{where}.at.process is {at['process']!r}: this job has {', '.join(processes)}")
    event = RENAMED.get(at["event"], at["event"])
    if event not in KINDS:
        wrong.append(f"{where}.at.event is {event!r}: it must be an event of docs/events.md{nearest(event, KINDS)}")
    if len(do) != 1:
        wrong.append(f"{where}.do has {len(do)} verbs: it must have exactly one of {', '.join(VERBS)}")
        return None, wrong
    (verb, raw), *_ = do.items()
    if verb not in VERBS:
        close = nearest(verb, VERBS)
        wrong.append(f"{where}.do.{verb} is not a known verb{close}: it must be one of {', '.join(VERBS)}")
        return None, wrong
    try:
        arguments = VERBS[verb].model_validate(raw).model_dump(exclude_defaults=verb in RESTART)
    except ValidationError as error:
        return None, wrong + faults_of(error, f"{where}.do.{verb}")
    wrong += _misplaced(verb, (at["process"], event), arguments, job, services, f"{where}.do.{verb}")
    if "set" in arguments:
        wrong += [
            f"{where}.do.{verb}.set has {key}: groups of two levels in one run cannot be judged, give it in every life (life = 0)"
            for key in arguments["set"]
            if at["life"] != 0 and key.startswith(ONE_LEVEL)
        ]
        try:
            with_values(job, arguments["set"])
        except ConfigError as error:
            wrong.append(f"{where}.do.{verb}.set: {error}")
    if verb in RESTART and (at["process"], event) != ("job", "LifeStarted"):
        wrong.append(f"{where}.at is {event} of {at['process']}: {verb} takes effect at LifeStarted of job only")
    if verb in AT_REST and at["life"] == 1:
        wrong.append(f"{where}.at.life is 1: {verb} changes what an earlier life has left, it must be 2 or more, or 0")
    if verb in FATES and (at["process"], event) == ("job", "LifeStarted"):
        wrong.append(f"{where}.at is LifeStarted of job: no process has started there that {verb} could befall")
    if wrong:
        return None, wrong
    return Fault(
        process=at["process"],
        event=event,
        occurrence=at["occurrence"],
        edge=at["edge"],
        life=at["life"],
        verb=verb,
        arguments=arguments,
    ), []


def _misplaced(
    verb: str, at: tuple[str, str], arguments: dict[str, Any], job: Job, services: Sequence[Service], where: str
) -> list[str]:
    """What ``arguments`` name that this job does not have, or that the verb cannot befall. Completes ``operation``."""
    wrong: list[str] = []
    processes = process_names(job, services)
    outside = tuple(service.service for service in services)
    real = tuple(name for name in process_names(job) if name != "job")
    gyms = tuple(identity.gym_name(index) for index in range(job.gym_instances))
    workers = tuple(identity.worker_name(index) for index in range(job.generation_workers))
    for key, right, what in (
        ("instance", gyms, "Gym instances are"),
        ("worker", workers, "workers are"),
        ("to", (*real, *outside), "processes are"),
        ("process", real, "processes are"),
    ):
        if arguments.get(key) is not None and arguments[key] not in right:
            wrong.append(f"{where}.{key} is {arguments[key]!r}: this job's {what} {', '.join(right)}")
    if verb in ("kill", "restart") and arguments["process"] == identity.CONTROLLER:
        wrong.append(f"{where}.process is {identity.CONTROLLER!r}: the job ends with it, and that is what a crash point is")
    if verb == "hold":
        until = arguments["until"]
        until["event"] = RENAMED.get(until["event"], until["event"])
        if at[0] == "job" or at[0] in outside:
            wrong.append(f"{where} is at an event of {at[0]}: it is no process of the job, and only such a one can be held")
        if until["process"] not in processes:
            wrong.append(f"{where}.until.process is {until['process']!r}: this job has {', '.join(processes)}")
        elif until["process"] == at[0]:
            wrong.append(f"{where}.until.process is {at[0]!r}: it stands still then, and would wait for itself for ever")
        if until["event"] not in KINDS:
            event = until["event"]
            wrong.append(f"{where}.until.event is {event!r}: it must be an event of docs/events.md{nearest(event, KINDS)}")
    if "operation" in arguments:
        operation = str(arguments["operation"]).replace("_", "").lower()
        if operation not in OPERATIONS:
            wrong.append(f"{where}.operation is {arguments['operation']!r}: it must be the name of a message"
                         f"{nearest(operation, OPERATIONS)}")  # fmt: skip
        else:
            arguments["operation"] = OPERATIONS[operation]
            if arguments.get("cause") == "data" and issubclass(vars(messages)[arguments["operation"]], messages.Control):
                wrong.append(f"{where}.cause is 'data': a control call has no prompt, it must be infra, unavailable or broken")
            if verb == "duplicate" and arguments["what"] == "request" and arguments["operation"] in ONCE:
                wrong.append(
                    f"{where}.operation is {arguments['operation']!r}: the transport brings such a request once at most, "
                    "only its reply can be doubled (what = 'reply')"
                )
    if "partition" in arguments:
        arguments["partition"] = PARTITION_NAMES[arguments["partition"]]
    return wrong


def nearest(name: str, known: Sequence[str] | dict[str, Any]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def faults_of(error: ValidationError, where: str = "") -> list[str]:
    """pydantic's errors as one line each: the key, what it holds, what would be right."""
    lines = []
    for entry in error.errors(include_url=False):
        path = where
        for part in entry["loc"]:
            path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
        match entry["type"]:
            case "extra_forbidden":
                lines.append(f"{path} is not a known key")
            case "missing":
                lines.append(f"{path} is missing")
            case "string_pattern_mismatch":
                lines.append(f"{path} is {entry['input']!r}: it must be lower-case letters, digits and -")
            case "too_short":
                lines.append(f"{path} is {entry['input']!r}: it must have at least one entry")
            case _:
                right = entry["msg"].replace("Input should be", "it must be").replace("valid dictionary", "table")
                right = right.split(" or instance of ")[0]  # the rest is our own class: nothing that a file can hold
                lines.append(f"{path} is {entry['input']!r}: {right}")
    return lines
