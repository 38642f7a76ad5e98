"""Faults of one process alone.

    kill      ``process`` dies and is not started again
    restart   it dies, and ``after_s`` later its factory is called again
    stall     it stands still for ``for_s``: none of its tasks runs, nothing lands in it, and it counts as alive
    hold      the process of the trigger stops there until ``until.process`` records ``until.event`` for the
              ``until.occurrence``-th time; if that has been recorded by then, it does not stop

With ``edge = "before"`` the running step of the process itself goes no further than its record: nothing that comes after
it in that step happens (kill, restart), or it happens once the process goes on (stall, hold).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from sim.armed import Armed

Key = tuple[str, str]


class Fates(Protocol):
    """What a world can do to one of its processes (``sim.processes``). False: it is dead, or stands still already."""

    def kill(self, process: str) -> bool: ...
    def restart(self, process: str, after_s: float, started: Callable[[], None]) -> bool: ...
    def stall(self, process: str, for_s: float | None) -> bool: ...
    def go_on(self, process: str) -> None: ...


class HasProcesses(Protocol):
    """A world: ``counts`` says how often each event was recorded by each process of this life."""

    @property
    def counts(self) -> Mapping[Key, int]: ...
    @property
    def fates(self) -> Fates: ...


class ProcessFaults:
    def __init__(self, world: HasProcesses) -> None:
        self._world = world
        self.held: list[Armed] = []
        self.verbs: dict[str, Callable[[Armed], None]] = {
            "kill": self._kill,
            "restart": self._restart,
            "stall": self._stall,
            "hold": self._hold,
        }

    def _kill(self, armed: Armed) -> None:
        process = str(armed.arguments["process"])
        if self._world.fates.kill(process):
            armed.done(f"{process} dies")
        else:
            armed.why = f"{process} was not alive"

    def _restart(self, armed: Armed) -> None:
        process, after_s = str(armed.arguments["process"]), float(armed.arguments.get("after_s", 0.0))

        def started() -> None:
            armed.done(f"{process} starts again")

        if self._world.fates.restart(process, after_s, started):
            armed.why = f"{process} died, and the life was over before it started again"
        else:
            armed.why = f"{process} was not alive"

    def _stall(self, armed: Armed) -> None:
        process, for_s = str(armed.arguments["process"]), float(armed.arguments["for_s"])
        if self._world.fates.stall(process, for_s):
            armed.done(f"{process} stands still for {for_s:g} s")
        else:
            armed.why = f"{process} was not alive, or stood still already"

    def _hold(self, armed: Armed) -> None:
        until = armed.arguments["until"]
        process, occurrence = armed.fault.process, int(until.get("occurrence", 1))
        what = f"{until['event']} number {occurrence} of {until['process']}"
        if self._world.counts.get((until["process"], until["event"]), 0) >= occurrence:
            armed.why = f"{what} had been recorded before {process} came there"
        elif self._world.fates.stall(process, None):
            armed.why = f"{process} waits for {what}, which never came"
            self.held.append(armed)
        else:
            armed.why = f"{process} was not alive, or stood still already"

    def released(self, key: Key, occurrence: int) -> list[Armed]:
        """The holds that this record ends."""
        return [
            armed
            for armed in self.held
            if key == (armed.arguments["until"]["process"], armed.arguments["until"]["event"])
            and occurrence >= int(armed.arguments["until"].get("occurrence", 1))
        ]

    def release(self, armed: Armed) -> None:
        """At the boundary after the step that ended it."""
        if armed in self.held:
            self.held.remove(armed)
            self._world.fates.go_on(armed.fault.process)
            armed.done(f"{armed.fault.process} goes on")
