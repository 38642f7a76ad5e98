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
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from protocol import identity, messages
from protocol.config import Job, with_values
from protocol.errors import ConfigError
from protocol.external import Service
from protocol.history import KINDS, RENAMED

PartitionName = Literal["canonical", "staging", "rollout_data", "rollout_staging"]
NoResultName = Literal["", "timed-out", "disconnected", "server-died", "overloaded", "malformed", "rejected"]  # errors.NoResult
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

    ``how``: error (refused with ``cause``, the peer never sees it); or the peer handles it, and broken (the caller is told
    that the answer is lost) or lost (no answer comes). ``cause`` None: unavailable, of a model call data.
    """

    operation: str
    to: str
    how: Literal["error", "broken", "lost"] = "error"
    cause: Literal["infra", "data", "unavailable", "broken"] | None = None
    times: int = Field(default=1, ge=1)


class Discard(Verb):
    """Drop the open group of prompt ``ordinal`` (-1: the oldest one with a dispatched row)."""

    ordinal: int = Field(default=-1, ge=-1)


class ChangeConfig(Verb):
    """At ``LifeStarted`` of ``job``, before its processes start: ``instance`` starts without ``drop_participant`` or with
    ``add_participant`` besides, or the keys of the job in ``set`` have other values in this life."""

    instance: str | None = None
    drop_participant: str = ""
    add_participant: str = ""
    set: dict[str, Any] = {}

    @model_validator(mode="after")
    def _one_change(self) -> ChangeConfig:
        asked = [name for name in ("drop_participant", "add_participant", "set") if getattr(self, name)]
        if len(asked) != 1:
            raise ValueError("it must have exactly one of drop_participant, add_participant and set")
        if (self.instance is None) != (asked == ["set"]):
            raise ValueError("a participant needs its instance, and nothing else has one")
        return self


class Tamper(Verb):
    """At ``LifeStarted`` of ``job``, from life 2 on: a file that the lives before left is changed before anything is read.

    ``path`` and ``source`` may begin with ``newest-snapshot/`` or ``newest-checkpoint/``; the parts of ``field`` are joined
    by dots, ``*`` stands for every one.
    """

    path: str
    change: Literal["drop_field", "set_field", "repeat", "truncate", "remove_file", "copy_of"]
    field: str = ""
    value: Any = None
    source: str = ""

    @model_validator(mode="after")
    def _what_it_needs(self) -> Tamper:
        if bool(self.field) != (self.change in ("drop_field", "set_field", "repeat")):
            raise ValueError("drop_field, set_field and repeat need a field, and nothing else has one")
        if bool(self.source) != (self.change == "copy_of"):
            raise ValueError("copy_of needs a source, and nothing else has one")
        return self


class Kill(Verb):
    """``process`` dies, and is not started again in this life."""

    process: str


class Restart(Verb):
    """``process`` dies, and is started again ``after_s`` later, with nothing but its files."""

    process: str
    after_s: float = Field(default=0.5, ge=0.0, le=100_000.0)


class Stall(Verb):
    """``process`` stands still for ``for_s``."""

    process: str
    for_s: float = Field(gt=0.0, le=100_000.0)


class Until(Verb):
    process: str
    event: str
    occurrence: int = Field(default=1, ge=1)


class Hold(Verb):
    """The process of ``at`` stops there until another one records an event."""

    until: Until


class OfMessages(Verb):
    """The next ``times`` requests of message ``operation`` to ``to``, or replies to them from there (each item that a
    stream delivers, and its end, is one)."""

    operation: str
    to: str
    what: Literal["request", "reply"] = "request"
    times: int = Field(default=1, ge=1)


class Drop(OfMessages):
    """They vanish."""


class Delay(OfMessages):
    """They land ``by_s`` later, and hold up what comes behind them on the same link."""

    by_s: float = Field(gt=0.0, le=100_000.0)


class Duplicate(OfMessages):
    """They land twice: the second time ``by_s`` later, past everything that was sent meanwhile."""

    by_s: float = Field(default=0.0, ge=0.0, le=100_000.0)


class Reorder(OfMessages):
    """The next message on the same link overtakes them."""


class Refuse(Verb):
    """The next ``rows`` rows at the door of ``instance`` are refused as checkpoint_parked, though it is open."""

    instance: str
    rows: int = Field(ge=1)


class FailRow(Verb):
    """The next ``rows`` rows at the door of ``instance`` fail there, in the words of ``messages.RowFailed``: either
    ``terminal`` or ``no_result`` is said, and a ``status`` on which nothing may be decided."""

    instance: str
    rows: int = Field(default=1, ge=1)
    terminal: bool | None = None
    no_result: NoResultName = ""
    status: int = Field(default=0, ge=0, le=599)


class Stray(Verb):
    """The next row at the door of ``instance`` brings a session along that nobody sent, under a rollout id of its own."""

    instance: str


class OfRows(Verb):
    """``partition``: whose rows. With ``chunks`` only requests for chunk rows count (pieces of model calls that have not
    finished)."""

    partition: PartitionName
    chunks: bool = False


class PartialPut(OfRows):
    """The next ``times`` puts of at least ``at_least`` rows store their first ``rows`` rows, and fail: they are refused, or,
    ``silent``, never answered."""

    rows: int = Field(ge=0)
    how: Literal["refused", "silent"] = "refused"
    at_least: int = Field(default=1, ge=1)
    times: int = Field(default=1, ge=1)


class LoseRows(OfRows):
    """The next ``times`` gets of at least ``at_least`` keys that find something come back ``rows`` rows short."""

    rows: int = Field(ge=1)
    at_least: int = Field(default=1, ge=1)
    times: int = Field(default=1, ge=1)


class BadRow(OfRows):
    """Row number ``row`` (from 0; the last one, if there are fewer) of the next put, or get, of at least ``at_least`` rows is
    bad: each ``request`` that holds its key is refused, this one included, ``times`` in all (0: for ever). A put so refused
    has stored its first ``stored`` rows."""

    request: Literal["put", "get"] = "put"
    row: int = Field(default=0, ge=0)
    at_least: int = Field(default=1, ge=1)
    stored: int = Field(default=0, ge=0)
    times: int = Field(default=0, ge=0)


class Outage(OfRows):
    """From the next such ``request`` on, and for ``for_s``, such requests come to nothing: they are refused, or,
    ``silent``, never answered."""

    request: Literal["put", "get", "clear", "all"] = "all"
    for_s: float = Field(gt=0.0, le=100_000.0)
    how: Literal["refused", "silent"] = "refused"


class ChangeMedia(Verb):
    """Other bytes lie under ``source`` from now on, in every later life too (``*``: under each one)."""

    source: str = Field(min_length=1)


class VanishMedia(Verb):
    """``source`` is not there any more, in no later life either (``*``: no source is)."""

    source: str = Field(min_length=1)


class CorruptMedia(Verb):
    """At ``LifeStarted`` of ``job``, from life 2 on: what staging rows of the newest snapshot say of media is changed, ``of`` the
    chunks of calls that were cut, or of the calls that unfinished sessions have behind them.

    ``how``: outside (an item reaches past the carried tokens), overlapping (two items share a place), untold (no tensor is
    named), missing (no item is), unreadable (the row cannot be decoded). All but the last under digests made anew."""

    of: Literal["chunks", "calls"] = "chunks"
    how: Literal["outside", "overlapping", "untold", "missing", "unreadable"]


class Abort(Verb):
    """The newest model call at ``worker``, or the next one there, is aborted (INFRA)."""

    worker: str


VERBS: dict[str, type[Verb]] = {
    "kill": Kill,
    "restart": Restart,
    "stall": Stall,
    "hold": Hold,
    "drop": Drop,
    "delay": Delay,
    "duplicate": Duplicate,
    "reorder": Reorder,
    "break_stream": BreakStream,
    "fail_call": FailCall,
    "refuse": Refuse,
    "fail_row": FailRow,
    "stray": Stray,
    "abort": Abort,
    "partial_put": PartialPut,
    "lose_rows": LoseRows,
    "bad_row": BadRow,
    "outage": Outage,
    "discard": Discard,
    "config": ChangeConfig,
    "tamper": Tamper,
    "change_media": ChangeMedia,
    "vanish_media": VanishMedia,
    "corrupt_media": CorruptMedia,
}
AT_REST = ("tamper", "corrupt_media")  # change what an earlier life has left
RESTART = ("config", *AT_REST)
ONE_LEVEL = ("target_level", "rollout_recovery.level_overrides")  # keys of the job that no life may have of its own
# Requests that a peer carries out as often as they come: the transport brings them once at most, and the protocol rests on it.
ONCE = ("RunRows", "Generate", "PutSamples", "LoadCheckpoint", "LoadWeights")
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
                lines.append(f"{path} is {entry['input']!r}: {right.removesuffix(' or instance of Load')}")
    return lines
