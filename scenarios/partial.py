"""One process that fails alone, said in one word: ``restart:gym-0@EpisodeAdmitted-2``.

``<verb>:<process>[:<seconds>]@<event>-<n>``: right after ``process`` has recorded ``event`` for the n-th time in life 1 it
is killed, killed and started again after ``seconds``, or stalled for ``seconds``. It is a fault like those of a scenario
file, and the run goes on as a job does: where the process is one whose death the core does not survive by design (the
trainer, the data plane, a finalizer; any process that stays dead), the run may end with a typed error, and is started again
from its files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from protocol import identity
from protocol.config import Job
from protocol.errors import ProtocolError
from protocol.history import KINDS
from scenarios.faults import Fault, nearest, process_names
from scenarios.model import InputError, Scenario

VERBS = ("restart", "kill", "stall")
DEFAULT_S = {"restart": 0.2, "kill": 0.0, "stall": 5.0}
LONGEST_S = 100_000.0  # as of the faults of a scenario file
SURVIVED = ("gym-", "worker-")  # the core goes on while such a process dies and comes back
_FORM = re.compile(r"([a-z]+):([a-z0-9-]+)(?::([0-9]+(?:\.[0-9]+)?))?@([A-Za-z]+)-([0-9]{1,9})")


class Partial(NamedTuple):
    verb: str
    process: str
    event: str
    occurrence: int
    seconds: float

    @classmethod
    def parse(cls, text: str, job: Job) -> Partial:
        """Raises InputError that says what would have been right."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise InputError(f"--fail is {text!r}: it must be VERB:PROCESS[:SECONDS]@EVENT-N, as restart:gym-0@EpisodeAdmitted-2")
        verb, process, seconds, event, occurrence = found.groups()
        wrong: list[str] = []
        if verb not in VERBS:
            wrong.append(f"the verb is {verb!r}: it must be one of {', '.join(VERBS)}")
        if process not in failing_processes(job):
            wrong.append(f"the process is {process!r}: it must be one of {', '.join(failing_processes(job))}")
        if event not in KINDS:
            wrong.append(f"the event is {event!r}: it must be an event of docs/events.md{nearest(event, KINDS)}")
        if int(occurrence) < 1:
            wrong.append("the event's number is 0: they count from 1")
        wrong += wrong_seconds(verb, seconds)
        if wrong:
            raise InputError.of(f"--fail {text}", wrong)
        return cls(verb, process, event, int(occurrence), DEFAULT_S[verb] if seconds is None else float(seconds))

    def __str__(self) -> str:
        seconds = "" if self.seconds == DEFAULT_S[self.verb] else f":{self.seconds:g}"
        return f"{self.verb}:{self.process}{seconds}@{self.event}-{self.occurrence}"

    def fault(self) -> Fault:
        arguments: dict[str, object] = {"process": self.process}
        if self.verb == "restart":
            arguments["after_s"] = self.seconds
        elif self.verb == "stall":
            arguments["for_s"] = self.seconds
        return Fault(process=self.process, event=self.event, occurrence=self.occurrence, verb=self.verb, arguments=arguments)

    def survived(self, job: Job) -> bool:
        """Whether the run must go on as if nothing had happened: also through a stall, unless calls give it up before it ends."""
        if self.process.startswith(SURVIVED):
            return self.verb != "kill"
        limit_s = job.trainer_timeout_s if self.process == identity.TRAINER else job.rpc_timeout_s
        return self.verb == "stall" and self.seconds < limit_s


def wrong_seconds(verb: str, seconds: str | None) -> list[str]:
    """What is wrong with the digits given as ``verb``'s seconds (None: none were)."""
    if seconds is None:
        return []
    if verb == "kill":
        return ["a kill has no seconds: what is killed stays dead"]
    if float(seconds) > LONGEST_S:
        return [f"its seconds are more than {LONGEST_S:g}"]
    return ["a stall of 0 seconds is none"] if verb == "stall" and float(seconds) == 0.0 else []


def failing_processes(job: Job) -> tuple[str, ...]:
    """Those that can fail alone: the job itself ends with its controller."""
    return tuple(name for name in process_names(job) if name not in ("job", identity.CONTROLLER))


def with_partials(scenario: Scenario, partials: Sequence[Partial]) -> Scenario:
    return msgspec.structs.replace(scenario, faults=(*scenario.faults, *(partial.fault() for partial in partials)))


def without_partials(scenario: Scenario, partials: Sequence[object]) -> Scenario:
    """The scenario that ``partials`` were laid over."""
    return msgspec.structs.replace(scenario, faults=scenario.faults[: len(scenario.faults) - len(partials)])


def first_life(scenario: Scenario, partials: Sequence[Partial]) -> Scenario:
    """What life 1 is judged by: where a process dies that the core cannot do without, it may end with any typed error."""
    if all(partial.survived(scenario.job) for partial in partials):
        return scenario
    contract = scenario.contract
    may_end = dict.fromkeys((*contract.may_end, *(kind.__name__ for kind in _typed(ProtocolError))))
    return msgspec.structs.replace(scenario, contract=msgspec.structs.replace(contract, may_end=tuple(may_end)))


def _typed(kind: type[ProtocolError]) -> list[type[ProtocolError]]:
    return [one for below in kind.__subclasses__() for one in (below, *_typed(below))]
