"""Faults of a scenario in one life: triggers, and what they arm.

A trigger belongs to one process and is tested inside that process's ``record``, by its own count of that kind of
event; it takes effect at the boundary after the running step. ``FaultInjected`` (process ``job``) is recorded when
a fault is armed, and again when what it armed has happened.

Verbs of this step:
    break_stream {rows, instance, clean}   the first stream from ``instance`` that delivers an item from now on breaks
                                           after ``rows`` delivered items (the caller gets Lost, or an early END if
                                           ``clean``); the serving handler is left alone
    fail_call {operation, to, how, times}  the next calls of that message type to ``to``: ``error`` = Refusal
                                           (UNAVAILABLE) and the peer never sees it; else the peer handles it
                                           and the caller hears Lost (``broken``) or nothing (``lost``)
    discard {ordinal}                      DiscardGroup(ordinal) to the controller; one that is triggered during the
                                           clean-up is sent when the processes start. It has happened once the
                                           controller has answered with the group that it dropped
    config {drop_participant, instance}    at LifeStarted of ``job``: the instance starts without it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from protocol.errors import ConfigError, Lost


class FaultLike(Protocol):
    """The part of ``scenarios.model.Fault`` that a life reads. ``life`` 0 means every life."""

    @property
    def process(self) -> str: ...
    @property
    def event(self) -> str: ...
    @property
    def occurrence(self) -> int: ...
    @property
    def life(self) -> int: ...
    @property
    def verb(self) -> str: ...
    @property
    def arguments(self) -> Any: ...


WAITING, ARMED, SENT, DONE = "waiting", "armed", "sent", "done"
WHY_UNFIRED = {
    WAITING: "its trigger was never reached",
    ARMED: "it was armed, and what it waits for never came",
    SENT: "it was sent, and no open group was dropped by it",
}


class Armed:
    """One fault of this life. ``left``: items or calls still to go."""

    __slots__ = ("arguments", "fault", "key", "left", "number", "state", "stream")

    def __init__(self, fault: FaultLike, number: int) -> None:
        self.fault = fault
        self.number = number  # its place in the scenario, from 0
        self.key = (fault.process, fault.event)
        self.arguments = dict(fault.arguments)
        self.state = WAITING
        self.left = 0
        self.stream: object | None = None


def without_effect(faults: Sequence[FaultLike], lives: Sequence[Mapping[int, str]]) -> list[str]:
    """Faults that took effect in none of ``lives`` (of each, ``FaultBoard.effects``), in words: RULES 5."""
    out = []
    for number, fault in enumerate(faults):
        told = [effects[number] for effects in lives if number in effects]
        if not all(told) and told:
            continue
        why = told[-1] if told else f"no life {fault.life} was run" if fault.life else "no life was run"
        life = f"in life {fault.life}" if fault.life else "in any life"
        place = f"{fault.event} number {fault.occurrence} of {fault.process}"
        out.append(f"fault {number + 1}, {fault.verb} after {place}, took no effect {life}: {why}")
    return out


class StreamCut(NamedTuple):
    """``drops_item``: the item that is landing is lost too. ``error`` None: an early, clean END."""

    drops_item: bool
    error: Lost | None


class FaultBoard:
    """All faults of one life. ``report(verb, detail)`` records FaultInjected; ``discard(ordinal, told)`` sends the message
    and calls ``told`` with the controller's answer: the group that it dropped, '' for none."""

    def __init__(
        self,
        faults: Sequence[FaultLike],
        life: int,
        report: Callable[[str, str], None],
        discard: Callable[[int, Callable[[str], None]], None],
    ) -> None:
        self._report = report
        self._discard = discard
        self.all = [Armed(fault, number) for number, fault in enumerate(faults) if fault.life in (0, life)]
        self.triggers: dict[tuple[str, str], list[Armed]] = {}
        for armed in self.all:
            if armed.fault.verb not in _VERBS:
                raise ConfigError(f"fault verb {armed.fault.verb!r} is unknown: known are {', '.join(_VERBS)}")
            self.triggers.setdefault(armed.key, []).append(armed)
        self.breaks: list[Armed] = []
        self.failing: list[Armed] = []
        self.dropped: dict[str, set[str]] = {}  # instance -> participants it starts without

    def reached(self, key: tuple[str, str], occurrence: int) -> list[Armed]:
        """Faults that this event of this process triggers."""
        return [armed for armed in self.triggers.get(key, ()) if armed.state == WAITING and armed.fault.occurrence == occurrence]

    def arm(self, armed: Armed) -> None:
        """At the boundary after the step that reached the trigger."""
        armed.state = ARMED
        detail = ", ".join(f"{name} {armed.arguments[name]}" for name in sorted(armed.arguments))
        self._report(armed.fault.verb, f"armed: {detail}" if detail else "armed")
        _VERBS[armed.fault.verb](self, armed)

    def effects(self) -> dict[int, str]:
        """Of each fault of this life, by its number in the scenario: '' if it took effect, else why not."""
        return {armed.number: WHY_UNFIRED.get(armed.state, "") for armed in self.all}

    def _done(self, armed: Armed, detail: str) -> None:
        armed.state = DONE
        self._report(armed.fault.verb, detail)

    # --- break_stream --------------------------------------------------------------------------------------------

    def _arm_break(self, armed: Armed) -> None:
        armed.left = int(armed.arguments.get("rows", 0))
        self.breaks.append(armed)

    def stream_item(self, stream: object, peer: str, text: str) -> StreamCut | None:
        """An item of ``stream`` is landing: whether, and how, the stream breaks here."""
        for armed in self.breaks:
            if armed.stream is None and armed.arguments.get("instance") == peer:
                armed.stream = stream
            if armed.stream is not stream:
                continue
            drops = armed.left == 0
            if not drops:
                armed.left -= 1
            if armed.left:
                return None
            self.breaks.remove(armed)
            clean = bool(armed.arguments.get("clean", False))
            rows = int(armed.arguments.get("rows", 0))
            self._done(armed, f"{text} {'ended early' if clean else 'broke'} after {rows} more items")
            return StreamCut(drops, None if clean else Lost(f"the {text} broke"))
        return None

    def stream_over(self, stream: object) -> None:
        """It ended before it could break: the fault waits for the next one."""
        for armed in self.breaks:
            if armed.stream is stream:
                armed.stream = None
                armed.left = int(armed.arguments.get("rows", 0))

    # --- fail_call -----------------------------------------------------------------------------------------------

    def _arm_call(self, armed: Armed) -> None:
        armed.left = int(armed.arguments.get("times", 1))
        if armed.arguments.get("how", "error") not in ("error", "broken", "lost"):
            raise ConfigError(f"fail_call.how is {armed.arguments['how']!r}: it must be error, broken or lost")
        self.failing.append(armed)

    def call_fails(self, peer: str, operation: str) -> str | None:
        """error | lost | None, for a call that is about to be sent."""
        for armed in self.failing:
            if armed.arguments.get("operation") == operation and armed.arguments.get("to") == peer:
                armed.left -= 1
                how = str(armed.arguments.get("how", "error"))
                if not armed.left:
                    self.failing.remove(armed)
                self._done(armed, f"{operation} to {peer}: {how}")
                return how
        return None

    # --- discard, config -----------------------------------------------------------------------------------------

    def _arm_discard(self, armed: Armed) -> None:
        ordinal = int(armed.arguments.get("ordinal", -1))
        armed.state = SENT

        def told(group: str) -> None:
            if group:
                armed.state = DONE

        self._discard(ordinal, told)
        self._report(armed.fault.verb, f"DiscardGroup({ordinal}) sent")

    def _arm_config(self, armed: Armed) -> None:
        instance, participant = str(armed.arguments["instance"]), str(armed.arguments["drop_participant"])
        self.dropped.setdefault(instance, set()).add(participant)
        self._done(armed, f"{instance} starts without {participant}")


_VERBS: dict[str, Callable[[FaultBoard, Armed], None]] = {
    "break_stream": FaultBoard._arm_break,
    "fail_call": FaultBoard._arm_call,
    "discard": FaultBoard._arm_discard,
    "config": FaultBoard._arm_config,
}
