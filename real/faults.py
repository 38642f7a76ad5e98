"""What the real world does at a record: the crash of the job, and the faults of the scenario.

A trigger belongs to the process that records its event, and is tested inside ``record`` there. Fates of processes (kill, restart,
stall, hold) are the killer's; what befalls messages is done by whoever sends them (``real.fault_links``). What this world cannot
do is said before anything starts (``unfit_faults``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from protocol import identity
from protocol.errors import ConfigError
from protocol.history import Record
from real.fault_links import AT_DOORS, AT_LINKS, LinkFaults
from real.killer.control import Control, Copy, Crash, Hold, Kill, Release, Stall
from real.recorder import Act, Trigger
from scenarios.faults import Fault, process_names
from scenarios.model import Scenario

if TYPE_CHECKING:
    from real.cluster.setting import LifeSetting

FATES = ("kill", "restart", "stall", "hold")
SENDERS = {  # of a message: kinds of processes that send it; all others are the controller's
    "Generate": ("gym",), "CutCalls": ("gym",), "OpenGate": ("gym",), "RetirePrefix": ("gym",),
    "PutSamples": ("worker", "finalizer"), "GetSamples": ("worker", "finalizer", "trainer"),
    "ClearSamples": ("controller", "worker", "finalizer"),
}  # fmt: skip
UNREACHED = "its trigger was never reached"
UNTOLD = "its trigger was reached, and the life was over before it took effect"

Acts = dict[Trigger, list[Act]]


def acts_of(setting: LifeSetting, process: str, links: LinkFaults | None = None) -> Acts:
    """What ``process`` sets off in this life, by event. ``links``: what it does to its own messages."""
    control = Control(setting.control)
    acts: Acts = {}
    for number, fault in enumerate(setting.scenario.faults):
        if fault.life not in (0, setting.life):
            continue
        if fault.verb == "hold" and fault.arguments["until"]["process"] == process:
            until = fault.arguments["until"]
            release = Trigger(process, until["event"], int(until.get("occurrence", 1)))
            acts.setdefault(release, []).append(Act(False, _ask(control, Release(number))))
        if fault.process == process and fault.verb in FATES:
            trigger = Trigger(process, fault.event, fault.occurrence)
            acts.setdefault(trigger, []).append(Act(fault.edge == "before", fate(control, fault, number)))
        if fault.process == process and links is not None and fault.verb in (*AT_LINKS, *AT_DOORS):
            trigger = Trigger(process, fault.event, fault.occurrence)
            acts.setdefault(trigger, []).append(Act(fault.edge == "before", links.arming(fault, number)))
    for number, copy in enumerate(setting.copies):  # in the place of a crash: behind all that befalls the process there
        if copy.process == process:
            acts.setdefault(copy, []).append(Act(False, _ask(control, Copy(process, number))))
    crash = setting.crash
    if crash is not None and crash.process == process:
        acts.setdefault(crash, []).append(Act(False, _ask(control, Crash(process))))
    return acts


def fate(control: Control, fault: Fault, number: int) -> Callable[[], None]:
    arguments = fault.arguments
    match fault.verb:
        case "kill":
            return _ask(control, Kill(arguments["process"], None, number))
        case "restart":
            return _ask(control, Kill(arguments["process"], float(arguments.get("after_s", 0.5)), number))
        case "stall":
            return _ask(control, Stall(arguments["process"], float(arguments["for_s"]), number))
        case "hold":
            return _ask(control, Hold(fault.process, number))
    raise ConfigError(f"faults: the real world cannot do {fault.verb}")


def _ask(control: Control, question: Crash | Copy | Kill | Stall | Hold | Release) -> Callable[[], None]:
    def run() -> None:
        control.ask(question)

    return run


def bends_messages(scenario: Scenario, process: str) -> bool:
    """Whether a fault of ``process`` may befall its messages."""
    return any(fault.process == process and fault.verb in (*AT_LINKS, *AT_DOORS) for fault in scenario.faults)


def unfit_faults(scenario: Scenario) -> list[str]:
    """What of the scenario's faults this world cannot do, each with its place."""
    known = [name for name in process_names(scenario.job) if name != "job"]
    wrong: list[str] = []
    for number, fault in enumerate(scenario.faults):
        where = f"faults[{number}].do.{fault.verb}"
        until = fault.arguments.get("until")
        if fault.verb not in (*FATES, *AT_LINKS, *AT_DOORS):
            wrong.append(f"{where}: the real world cannot do {fault.verb}: it can do {', '.join((*FATES, *AT_LINKS, *AT_DOORS))}")
        elif fault.process not in known or (until is not None and until["process"] not in known):
            name = next(one for one in (fault.process, (until or {}).get("process")) if one not in known)
            wrong.append(f"{where}: the real world has triggers in processes of the job only, and {name} is none")
        elif fault.verb in AT_LINKS and not _sends(fault, known):
            wrong.append(f"{where}: the real world can do {fault.verb} only at an event of the process that sends, and "
                         f"{fault.process} sends {_sent(fault)} to nobody of that name")  # fmt: skip
        elif fault.verb in AT_DOORS and fault.process != fault.arguments["instance"]:
            wrong.append(f"{where}: the real world can do {fault.verb} only at an event of the process whose door it is, "
                         f"{fault.arguments['instance']}, and at is one of {fault.process}")  # fmt: skip
    return wrong


def _sent(fault: Fault) -> str:
    return "RunRows" if fault.verb == "break_stream" else str(fault.arguments["operation"])


def _sends(fault: Fault, known: Sequence[str]) -> bool:
    to = fault.arguments["instance"] if fault.verb == "break_stream" else fault.arguments["to"]
    kind = fault.process.rpartition("-")[0] if fault.process[-1].isdigit() else fault.process
    return to in known and to != fault.process and kind in SENDERS.get(_sent(fault), (identity.CONTROLLER,))


def effects_of(scenario: Scenario, life: int, told: Mapping[int, str], records: Sequence[Record]) -> dict[int, str]:
    """Of each fault of this life, by its place in the scenario: '' if it took effect, else why not. ``told``: what the killer
    knows of it (``Outcome.effects``)."""
    counts: Counter[tuple[str, str]] = Counter()
    for record in records:
        counts[record.process, type(record.event).__name__] += 1
    effects: dict[int, str] = {}
    for number, fault in enumerate(scenario.faults):
        if fault.life in (0, life):
            reached = counts[fault.process, fault.event] >= fault.occurrence
            effects[number] = told.get(number, UNTOLD if reached else UNREACHED)
    return effects
