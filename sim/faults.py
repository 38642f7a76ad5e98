"""Faults of a scenario in one life: triggers, and what they arm.

A trigger belongs to one process and is tested inside that process's ``record``, by its own count of that kind of
event; it takes effect at the boundary after the running step, or with ``edge = "before"`` inside ``record`` itself, so
that the call which an ``...Issued`` event announces is already affected. ``FaultInjected`` (process ``job``) is recorded
when a fault is armed, and again when what it armed has happened.

Verbs, by family: ``sim.fault_processes``, ``sim.fault_messages``, ``sim.fault_rows``, ``sim.fault_media``,
``sim.fault_restart``, and here
    discard {ordinal}                      DiscardGroup(ordinal) to the controller; one that is triggered during the
                                           clean-up is sent when the processes start. It has happened once the
                                           controller has answered with the group that it dropped
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from protocol.errors import ConfigError
from protocol.history import Event
from sim.armed import DONE, SENT, WAITING, Armed, FaultLike
from sim.fault_media import MediaFaults
from sim.fault_messages import MessageFaults
from sim.fault_processes import HasProcesses, ProcessFaults
from sim.fault_restart import RestartFaults
from sim.fault_rows import RowFaults
from sim.media import MediaStore


class Hands(HasProcesses, Protocol):
    """What faults do to the world of a life. ``send_discard`` calls ``told`` with the controller's answer: the group that
    it dropped, '' for none. ``abort`` aborts the newest model call of a worker, and names it."""

    def report_fault(self, verb: str, detail: str) -> None: ...
    def send_discard(self, ordinal: int, told: Callable[[str], None]) -> None: ...
    def abort(self, worker: str) -> str: ...
    def record_as(self, process: str, event: Event) -> None: ...
    def media_store(self) -> MediaStore: ...


def without_effect(faults: Sequence[FaultLike], lives: Sequence[Mapping[int, str]], crashed: bool = True) -> list[str]:
    """Faults that took effect in none of ``lives`` (of each, ``FaultBoard.effects``), in words: RULES 5.

    Unless the job was ``crashed``, nobody asked for the restored life, and a fault of it is not missed."""
    out = []
    for number, fault in enumerate(faults):
        told = [effects[number] for effects in lives if number in effects]
        if (told and not all(told)) or (fault.life == 2 and not crashed):
            continue
        why = told[-1] if told else f"no life {fault.life} was run" if fault.life else "no life was run"
        life = f"in life {fault.life}" if fault.life else "in any life"
        place = f"{fault.event} number {fault.occurrence} of {fault.process}"
        out.append(f"fault {number + 1}, {fault.verb} {fault.edge} {place}, took no effect {life}: {why}")
    return out


class FaultBoard:
    """All faults of one life."""

    def __init__(self, faults: Sequence[FaultLike], life: int, hands: Hands) -> None:
        self._hands = hands
        self.messages = MessageFaults(hands.record_as, hands.abort)
        self.rows = RowFaults()
        self.media = MediaFaults(hands.media_store)
        self.processes = ProcessFaults(hands)
        self.restart = RestartFaults()
        self._verbs: dict[str, Callable[[Armed], None]] = {
            **self.processes.verbs,
            **self.messages.verbs,
            **self.rows.verbs,
            **self.media.verbs,
            **self.restart.verbs,
            "discard": self._discard,
        }
        self.all = [Armed(fault, number, hands.report_fault) for number, fault in enumerate(faults) if fault.life in (0, life)]
        self.triggers: dict[tuple[str, str], list[Armed]] = {}
        for armed in self.all:
            if armed.fault.verb not in self._verbs:
                raise ConfigError(f"fault verb {armed.fault.verb!r} is unknown: known are {', '.join(self._verbs)}")
            self.triggers.setdefault(armed.key, []).append(armed)
            if armed.fault.verb == "hold":
                until = armed.arguments["until"]
                self.triggers.setdefault((until["process"], until["event"]), [])

    def recorded(self, key: tuple[str, str], occurrence: int, after_step: list[Callable[[], None]]) -> None:
        """An event whose key is one of ``triggers`` was recorded. ``after_step``: what is done at the next boundary."""
        for armed in self.triggers[key]:
            if armed.state == WAITING and armed.fault.occurrence == occurrence:
                if armed.fault.edge == "before":
                    self.arm(armed)
                else:
                    after_step.append(partial(self.arm, armed))
        for armed in self.processes.released(key, occurrence):
            after_step.append(partial(self.processes.release, armed))

    def arm(self, armed: Armed) -> None:
        armed.arm()
        self._verbs[armed.fault.verb](armed)

    def effects(self) -> dict[int, str]:
        """Of each fault of this life, by its number in the scenario: '' if it took effect, else why not."""
        return {armed.number: armed.effect() for armed in self.all}

    def _discard(self, armed: Armed) -> None:
        ordinal = int(armed.arguments.get("ordinal", -1))
        armed.state = SENT

        def told(group: str) -> None:
            if group:
                armed.state = DONE

        self._hands.send_discard(ordinal, told)
        armed.report(armed.fault.verb, f"DiscardGroup({ordinal}) sent")
