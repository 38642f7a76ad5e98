"""What the real world does at a record: the crash of the job, and the faults of the scenario.

A trigger belongs to the process that records its event, and is tested inside ``record`` there. Fates of processes (kill, restart,
stall, hold) are the killer's; what befalls messages is done by whoever sends them (``real.fault_links``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol.errors import ConfigError
from real.killer.control import Control, Crash, Hold, Kill, Release, Stall
from real.recorder import Act, Trigger
from scenarios.faults import Fault

if TYPE_CHECKING:
    from real.cluster.setting import LifeSetting

FATES = ("kill", "restart", "stall", "hold")

Acts = dict[Trigger, list[Act]]


def acts_of(setting: LifeSetting, process: str) -> Acts:
    """What ``process`` sets off in this life, by event. Raises ConfigError for a verb that this world cannot do."""
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


def _ask(control: Control, question: Crash | Kill | Stall | Hold | Release) -> Callable[[], None]:
    def run() -> None:
        control.ask(question)

    return run
