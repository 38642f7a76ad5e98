"""One fault of one life: whether its trigger was reached, whether it took effect, and why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class FaultLike(Protocol):
    """The part of ``scenarios.model.Fault`` that a life reads. ``life`` 0 means every life."""

    @property
    def process(self) -> str: ...
    @property
    def event(self) -> str: ...
    @property
    def occurrence(self) -> int: ...
    @property
    def edge(self) -> str: ...
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
    """``left``: items, calls or rows still to go. ``report(verb, detail)`` records FaultInjected."""

    __slots__ = ("arguments", "fault", "key", "left", "number", "report", "state", "stream", "why")

    def __init__(self, fault: FaultLike, number: int, report: Callable[[str, str], None]) -> None:
        self.fault = fault
        self.number = number  # its place in the scenario, from 0
        self.report = report
        self.key = (fault.process, fault.event)
        self.arguments = dict(fault.arguments)
        self.state = WAITING
        self.left = 0
        self.stream: object | None = None
        self.why = ""  # in the place of what the state says

    def arm(self) -> None:
        self.state = ARMED
        detail = ", ".join(f"{name} {self.arguments[name]}" for name in sorted(self.arguments))
        self.report(self.fault.verb, f"armed: {detail}" if detail else "armed")

    def done(self, detail: str) -> None:
        """What it was armed for has happened."""
        self.state = DONE
        self.report(self.fault.verb, detail)

    def effect(self) -> str:
        """'' if it took effect, else why not."""
        return "" if self.state == DONE else self.why or WHY_UNFIRED[self.state]
