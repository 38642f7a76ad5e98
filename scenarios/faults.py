"""Faults of a scenario: where (a protocol event of one process) and what the world does there.

Verbs of this step: ``break_stream``, ``fail_call``, ``discard``, ``config``. The others of the scenario format are
known by name, so that a file which uses one is told that it comes later and not that it is misspelt.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol import identity, messages
from protocol.config import Job
from protocol.external import Service
from protocol.history import KINDS, RENAMED

LATER_VERBS = (
    "kill",
    "stall",
    "restart",
    "drop",
    "delay",
    "duplicate",
    "reorder",
    "refuse",
    "partial_put",
    "lose_rows",
    "abort",
    "hold",
)


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """When the ``occurrence``-th ``event`` of ``process`` in life ``life`` (0: in every one) is recorded, do ``verb``."""

    process: str
    event: str
    occurrence: int = 1
    edge: str = "after"
    life: int = 1
    verb: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


class Verb(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class BreakStream(Verb):
    """Of ``instance``, the first stream that delivers an item from now on breaks after ``rows`` delivered items.

    ``clean``: it ends early as if it were complete; else the caller hears that it is lost.
    """

    rows: int = Field(default=0, ge=0)
    instance: str
    clean: bool = False


class FailCall(Verb):
    """The next ``times`` calls of message ``operation`` to ``to`` fail.

    ``how``: error (refused as UNAVAILABLE, the peer never sees it); or the peer handles it, and broken (the caller is told
    that the answer is lost) or lost (no answer comes).
    """

    operation: str
    to: str
    how: Literal["error", "broken", "lost"] = "error"
    times: int = Field(default=1, ge=1)


class Discard(Verb):
    """Drop the open group of prompt ``ordinal`` (-1: the oldest one with a dispatched row)."""

    ordinal: int = Field(default=-1, ge=-1)


class ChangeConfig(Verb):
    """``instance`` starts without ``drop_participant``: at ``LifeStarted`` of ``job``, before its processes start."""

    drop_participant: str
    instance: str


VERBS: dict[str, type[Verb]] = {
    "break_stream": BreakStream,
    "fail_call": FailCall,
    "discard": Discard,
    "config": ChangeConfig,
}
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
    if at["edge"] == "before":
        wrong.append(f"{where}.at.edge 'before' comes with a later step of this project: use 'after'")
    if len(do) != 1:
        wrong.append(f"{where}.do has {len(do)} verbs: it must have exactly one of {', '.join(VERBS)}")
        return None, wrong
    (verb, raw), *_ = do.items()
    if verb in LATER_VERBS:
        wrong.append(f"{where}.do.{verb} comes with a later step of this project: this one has {', '.join(VERBS)}")
    elif verb not in VERBS:
        wrong.append(f"{where}.do.{verb} is not a known verb: it must be one of {', '.join(VERBS)}")
    if verb not in VERBS:
        return None, wrong
    try:
        arguments = VERBS[verb].model_validate(raw).model_dump()
    except ValidationError as error:
        return None, wrong + faults_of(error, f"{where}.do.{verb}")
    gyms = tuple(identity.gym_name(index) for index in range(job.gym_instances))
    for key, right in (("instance", gyms), ("to", processes)):
        if key in arguments and arguments[key] not in right:
            what = "Gym instances are" if key == "instance" else "processes are"
            wrong.append(f"{where}.do.{verb}.{key} is {arguments[key]!r}: this job's {what} {', '.join(right)}")
    if verb == "config" and (at["process"], event) != ("job", "LifeStarted"):
        wrong.append(f"{where}.at is {event} of {at['process']}: config takes effect at LifeStarted of job only")
    if verb == "fail_call":
        operation = str(arguments["operation"]).replace("_", "").lower()
        if operation not in OPERATIONS:
            wrong.append(f"{where}.do.fail_call.operation is {arguments['operation']!r}: it must be the name of a message"
                         f"{nearest(operation, OPERATIONS)}")  # fmt: skip
        else:
            arguments["operation"] = OPERATIONS[operation]
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
                lines.append(f"{path} is {entry['input']!r}: {right.removesuffix(' or instance of Load')}")
    return lines
