"""``protocol.runtime.Runtime`` of one simulated process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar, cast

from protocol.history import Event
from protocol.runtime import Fenced, Files, Handler
from sim.disk import Disk
from sim.files import SimFiles
from sim.kernel import Kernel
from sim.loops import Handoff, Loop
from sim.network import Network
from sim.replies import SimCall, SimStream
from sim.streams import SeededStream
from sim.tasks import AllOf, Task
from sim.waits import FirstOf, Lock, Queue, Signal, Sleep

T = TypeVar("T")


class SimRuntime:
    """One process's view of one stage of a life. Once the stage is buried, or this incarnation has died, whatever waits or
    starts raises Fenced. The random streams of a later incarnation are its own: it does not draw again what was drawn."""

    def __init__(
        self,
        me: str,
        life: int,
        seed: int,
        kernel: Kernel,
        network: Network,
        disk: Disk,
        record: Callable[[Event], None],
        incarnation: int = 1,
    ) -> None:
        self.me = me
        self.life = life
        self.incarnation = incarnation
        self.record = record
        self._again = "" if incarnation == 1 else f"\0incarnation {incarnation}"
        self._disk = disk
        self.files: Files = SimFiles(kernel, disk, SeededStream(seed, "files", me + self._again, life), record)
        self.now = kernel.clock
        self._seed = seed
        self._kernel = kernel
        self._network = network
        self._streams: dict[tuple[str, str], SeededStream] = {}
        self._loops: dict[str, Loop] = {}

    def fence(self) -> None:
        """This incarnation is dead: it sees a kernel whose life is over."""
        grave = Kernel(self._seed, self.life)
        grave.fenced = True
        self._kernel = grave
        self._network = Network(grave, self._network.faults, self._seed, self.life)
        self._loops = {}
        self.record = _nobody_hears
        self.files = SimFiles(grave, self._disk, SeededStream(self._seed, "files", self.me, self.life), _nobody_hears)

    def task(self) -> Task:
        task = self._kernel.current
        assert task is not None, "rt.task() outside a task"
        return task

    def section(self) -> int:
        return self._kernel.steps

    def sleep(self, seconds: float) -> Sleep:
        return Sleep(self._kernel, seconds)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> Task:
        return self._kernel.spawn(coroutine, name, self.me)

    def signal(self) -> Signal:
        return Signal(self._kernel)

    def lock(self) -> Lock:
        return Lock(self._kernel)

    def queue(self) -> Queue:
        return Queue(self._kernel)

    def first_of(self, *waits: Awaitable[Any], timeout_s: float | None = None) -> FirstOf:
        return FirstOf(self._kernel, waits, timeout_s)

    def all_of(self, tasks: Sequence[Any]) -> AllOf:
        return AllOf(self._kernel, list(tasks))

    def call(self, peer: str, message: Any) -> SimCall:
        return self._network.call(self.me, peer, message)

    def stream(self, peer: str, message: Any) -> SimStream:
        if self._kernel.fenced:
            raise Fenced
        return self._network.stream(self.me, peer, message)

    def serve(self, handlers: Mapping[type, Handler]) -> None:
        self._network.serve(self.me, handlers)

    def on_loop(self, name: str, function: Callable[[Sequence[Any]], T], items: Sequence[Any]) -> Awaitable[T]:
        return cast("Awaitable[T]", Handoff(self.loop(name), function, items))

    def loop(self, name: str) -> Loop:
        """The loop itself, for the fake that runs on it."""
        loop = self._loops.get(name)
        if loop is None:
            stream = SeededStream(self._seed, "loop", f"{self.me}/{name}{self._again}", self.life)
            loop = self._loops[name] = Loop(self._kernel, name, stream, self.record)
        return loop

    def random(self, purpose: str, entity: str) -> SeededStream:
        """This process's stream of that name; asked for again, it goes on where it stands."""
        key = (purpose, entity)
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = SeededStream(self._seed, purpose, entity + self._again, self.life)
        return stream


def _nobody_hears(event: Event) -> None:
    """``record`` of the dead."""
