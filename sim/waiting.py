"""Draws who waits for whom in a simulated world (``protocol.wait_for``). It reads everything and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.wait_for import NOBODY, Edge, Node, WaitGraph
from sim.kernel import Kernel
from sim.network import Request
from sim.replies import NextItem, SimCall
from sim.tasks import AllOf, Join, Task, Wait
from sim.waits import Acquire, FirstOf, Get, SignalWait, Sleep

Alternatives = list[tuple[Edge, ...]]


def draw(kernel: Kernel) -> WaitGraph:
    """Every unfinished task, in the order of their start."""
    drawing = _Drawing(kernel)
    nodes = tuple(Node(f"{task.process}/{task.name}", task.place, tuple(drawing.of_task(task))) for task in kernel.tasks)
    return WaitGraph(nodes, drawing.numbers.get(kernel.main, NOBODY) if kernel.main is not None else NOBODY)


class _Drawing:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.numbers = {task: number for number, task in enumerate(kernel.tasks)}

    def of_task(self, task: Task) -> Alternatives:
        if task.process in self.kernel.parked:
            return [(Edge("stall", f"{task.process} to go on, which stands still"),)]
        return [(Edge("turn", "its turn", moves=True),)] if task.wait is None else self.of_wait(task.wait, task)

    def of_wait(self, wait: Wait, task: Task) -> Alternatives:
        match wait:
            case FirstOf():
                parts: list[Wait] = [*wait.waits, *([wait.timer] if wait.timer is not None else [])]
                return [alternative for part in parts for alternative in self.of_wait(part, task)]
            case Join():
                return [(self._to("join", "the end", wait.task),)]
            case AllOf():
                return [tuple(self._to("join", "the end", one) for one in wait.tasks if not one.done)]
            case SignalWait():
                return self._signal(wait, task)
            case Acquire():
                holder = wait.lock.holder
                return [(self._to("lock", "a lock", holder) if holder is not None else Edge("lock", "a lock", moves=True),)]
            case SimCall():
                return [(self._answer("call", wait.request),)]
            case NextItem():
                return [(self._answer("stream", wait.stream.request),)]
            case Get():
                return [(Edge("queue", wait.describe()),)]
            case Sleep():
                return [(Edge("timer", wait.describe(), moves=True),)]
            case _:  # a file or a loop: it lands by itself
                return [(Edge("flight", wait.describe(), moves=True),)]

    def _signal(self, wait: SignalWait, task: Task) -> Alternatives:
        signal = wait.signal
        owed: Iterable[Iterable[Task]] = signal.owed_by(task) if signal.owed_by is not None else ()
        alternatives = [tuple(self._to("lock", signal.what, one) for one in parts) for parts in owed]
        return [parts for parts in alternatives if parts] or [(Edge("signal", signal.what),)]

    def _to(self, how: str, what: str, task: Task) -> Edge:
        if task not in self.numbers:
            return Edge(how, f"{what} of {task.process}/{task.name}, which is {'over' if task.done else 'dead'}")
        return Edge(how, what, self.numbers[task])

    def _answer(self, how: str, request: Request) -> Edge:
        """Of a call or a stream: its handler, or what became of the request."""
        network, handler = request.network, request.handler
        text = f"{request.peer}'s answer to {type(request.message).__name__}"
        if handler is not None and not handler.done:
            return self._to(how, text, handler)
        if request in network.endpoint(request.peer).waiting:
            return Edge(how, f"{text}, which serves nothing yet")
        if not network.carries(request):
            return Edge(how, f"{text}, which was lost")
        if handler is None and request.peer in self.kernel.parked:
            return Edge(how, f"{text}, which stands still")
        return Edge("flight", f"{text} (in flight)", moves=True)
