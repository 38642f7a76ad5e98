"""The processes of one stage of a life: each can die alone, start again, or stand still.

A process that dies takes its volatile state, its tasks and what it had issued and was not done with it; its files stay,
and what it had sent arrives. Its next incarnation is made by the same factory, with a Runtime of its own. One that
stands still is a stopped process: its timers come due and wait, what is sent to it lies at its door, and nobody is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from protocol.history import Event, ProcessContinued, ProcessKilled, ProcessStalled, ProcessStarted
from protocol.parts import Factory
from sim.kernel import Kernel
from sim.network import Network
from sim.runtime import SimRuntime
from sim.tasks import Task


class KeepsRecords(Protocol):
    """``sim.world.Recorder``: ``keep`` holds records back, ``let_go`` makes those that were kept (False: drops them)."""

    def record(self, event: Event) -> None: ...
    def keep(self) -> None: ...
    def let_go(self, make: bool) -> None: ...


class Process:
    """One name in one stage. ``incarnation`` counts from 1; ``stalls`` tells one stall from the next."""

    __slots__ = ("alive", "factory", "incarnation", "recorder", "runtime", "stalls", "still")

    def __init__(self, factory: Factory, runtime: SimRuntime, recorder: KeepsRecords) -> None:
        self.factory = factory
        self.runtime = runtime
        self.recorder = recorder
        self.incarnation = 1
        self.alive = True
        self.still = False
        self.stalls = 0


class Processes:
    """``make(name, incarnation)`` gives a process its Runtime and the recorder behind it; ``record`` is job's."""

    def __init__(
        self,
        kernel: Kernel,
        network: Network,
        make: Callable[[str, int], tuple[SimRuntime, KeepsRecords]],
        record: Callable[[Event], None],
    ) -> None:
        self.kernel = kernel
        self.network = network
        self.by_name: dict[str, Process] = {}
        self._make = make
        self._record = record
        kernel.when_doomed = self._died

    def start(self, factories: Mapping[str, Factory], main: str) -> None:
        """Every process, in start order; the run ends with ``main``."""
        for name, factory in factories.items():
            process = self.by_name[name] = Process(factory, *self._make(name, 1))
            task = self._boot(process)
            if name == main:
                self.kernel.main = task

    def _boot(self, process: Process) -> Task:
        async def boot() -> None:
            process.runtime.record(ProcessStarted(process.incarnation))
            await process.factory(process.runtime)

        return self.kernel.spawn(boot(), "main", process.runtime.me)

    # --- fates (sim.fault_processes) -----------------------------------------------------------------------------

    def kill(self, process: str) -> bool:
        """It dies now; in the middle of its own step, at once after the record that is being made."""
        found = self.by_name.get(process)
        if found is None or not found.alive:
            return False
        found.alive = False
        running = self.kernel.current
        if running is not None and running.process == process:
            self.kernel.doomed = process
            self.kernel.after_step.append(partial(self._not_torn_off, process))
        else:
            self._died(process)
        return True

    def restart(self, process: str, after_s: float, started: Callable[[], None]) -> bool:
        if not self.kill(process):
            return False
        self.kernel.at(after_s, lambda _: self._start_again(process, started))
        return True

    def stall(self, process: str, for_s: float | None) -> bool:
        """``for_s`` None: until ``go_on``. In the middle of its own step, what comes after the record waits too."""
        found = self.by_name.get(process)
        if found is None or not found.alive or found.still:
            return False
        found.still = True
        found.stalls += 1
        running = self.kernel.current
        if running is not None and running.process == process:
            found.recorder.keep()
            self.network.mute(process)
            self.kernel.after_step.append(partial(self._stand_still, process, found.stalls, for_s))
        else:
            self._stand_still(process, found.stalls, for_s)
        return True

    def go_on(self, process: str) -> None:
        found = self.by_name[process]
        if not found.still:
            return
        found.still = False
        self._record(ProcessContinued(process))
        self.kernel.unpark(process)
        self.network.go(process)
        found.recorder.let_go(True)
        if not found.still:  # what was kept back may itself have stopped it again
            self.network.unmute(process, True)

    def _stand_still(self, process: str, stall: int, for_s: float | None) -> None:
        found = self.by_name[process]
        if not found.still or found.stalls != stall:
            return
        self.kernel.park(process)
        self.network.still(process)
        self._record(ProcessStalled(process, for_s or 0.0))
        if for_s is not None:
            self.kernel.at(for_s, lambda _: self._over(process, stall))

    def _over(self, process: str, stall: int) -> None:
        if self.by_name[process].stalls == stall:
            self.go_on(process)

    def _died(self, process: str) -> None:
        found = self.by_name[process]
        dead = self.kernel.kill(process)
        found.recorder.let_go(False)
        self.network.unmute(process, False)
        self.network.down(process, dead)
        if found.still:
            found.still = False
            self.network.go(process)
        found.runtime.fence()
        self._record(ProcessKilled(process))

    def _not_torn_off(self, process: str) -> None:
        """Its step recorded nothing more, and came to its end before it could be torn off."""
        if self.kernel.doomed == process:
            self.kernel.doomed = ""
            self._died(process)

    def _start_again(self, process: str, started: Callable[[], None]) -> None:
        found = self.by_name[process]
        found.incarnation += 1
        found.alive = True
        found.runtime, found.recorder = self._make(process, found.incarnation)
        self._boot(found)
        started()
