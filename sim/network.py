"""Calls and streams between the processes of one job.

Every link (sender, receiver) is a FIFO: one landing is scheduled at a time, so messages stay in order whatever the
schedule draws. A landing is one step and the resumption it causes another. A request to a process that does not
serve yet waits there until it does. A handler's ProtocolError reaches the caller as a fresh copy, anything else as
``PeerFailed``. Messages and replies are frozen and shared.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from protocol.errors import Cause, Lost, PeerFailed, ProtocolError, Refusal
from protocol.runtime import END, Handler
from sim.faults import FaultBoard
from sim.kernel import Kernel
from sim.services import Services
from sim.streams import SeededStream
from sim.tasks import IDLE, OVER, Task, Wait

DELAY_S = (0.0002, 0.003)  # one way, uniform


ORDER_S = 1e-9  # between two landings of one link; far above the resolution of a life's clock


class Link:
    """Messages of one sender to one receiver, in order: (time of landing, function, its two arguments)."""

    __slots__ = ("kernel", "last", "line", "stream")

    def __init__(self, kernel: Kernel, stream: SeededStream) -> None:
        self.kernel = kernel
        self.stream = stream
        self.line: deque[tuple[float, Callable[[Any, Any], None], Any, Any]] = deque()
        self.last = 0.0

    def send(self, function: Callable[[Any, Any], None], target: Any, payload: Any) -> None:
        now = self.kernel.clock()
        low, high = DELAY_S
        time = now + low + (high - low) * self.stream.random()
        if time <= self.last:  # later than the one before it: what two landings of one instant start would be a drawn tie
            time = self.last + ORDER_S
        self.last = time
        self.line.append((time, function, target, payload))
        if len(self.line) == 1:
            self.kernel.at(time - now, self.land)

    def land(self, landing: object) -> None:
        _, function, target, payload = self.line.popleft()
        if self.line:
            wait = self.line[0][0] - self.kernel.clock()
            self.kernel.at(wait if wait > 0.0 else 0.0, self.land)
        function(target, payload)


class Endpoint:
    """What one process serves, and the requests that came before it did."""

    __slots__ = ("handlers", "waiting")

    def __init__(self) -> None:
        self.handlers: dict[type, Handler] | None = None
        self.waiting: list[Request] = []


class Request:
    """One call or stream on its way: what both its ends know."""

    __slots__ = ("answer_broken", "answer_lost", "caller", "handler", "message", "network", "peer", "reply")

    def __init__(self, network: Network, caller: str, peer: str, message: Any) -> None:
        self.network = network
        self.caller = caller
        self.peer = peer
        self.message = message
        self.handler: Task | None = None
        self.answer_lost = False  # a fault: the reply never comes back
        self.answer_broken = False  # a fault: in its place the caller is told that the connection broke
        self.reply: SimCall | SimStream

    def arrive(self, _: object) -> None:
        endpoint = self.network.endpoint(self.peer)
        if endpoint.handlers is None:
            endpoint.waiting.append(self)
        else:
            self.start(endpoint.handlers)

    def start(self, handlers: Mapping[type, Handler]) -> None:
        name = f"{type(self.message).__name__} from {self.caller}"
        self.handler = self.network.kernel.spawn(self._answer(handlers.get(type(self.message))), name, self.peer)

    async def _answer(self, handler: Handler | None) -> None:
        value: Any = None
        error: ProtocolError | None = None
        if handler is None:
            error = PeerFailed(f"{self.peer} serves no {type(self.message).__name__}")
        else:
            try:
                value = await self.reply.run(handler, self.message)
            except ProtocolError as raised:
                error = _copy(raised)
            except Exception as raised:
                error = PeerFailed(f"{self.peer} failed on {type(self.message).__name__}: {type(raised).__name__}: {raised}")
        if self.answer_broken:
            value, error = None, Lost(f"the connection to {self.peer} broke before {type(self.message).__name__} was answered")
        if not self.answer_lost:
            self.network.send(self.peer, self.caller, self.reply.conclude, value, error)

    def cancel(self) -> None:
        """Sent by the caller; it lands behind the request."""
        self.network.send(self.caller, self.peer, self._cancel_handler, None, None)

    def _cancel_handler(self, _: object, __: object) -> None:
        if self.handler is not None:
            self.handler.cancel()
        else:
            waiting = self.network.endpoint(self.peer).waiting
            if self in waiting:
                waiting.remove(self)


def _copy(error: ProtocolError) -> ProtocolError:
    """As it would cross a process boundary: no traceback and no object is shared."""
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, ProtocolError)
    return copy


class SimCall(Wait):
    """``protocol.runtime.Call``. It is on its way from the start; a lost ``first_of`` only stops waiting for it."""

    __slots__ = ("request",)

    def __init__(self, network: Network, request: Request) -> None:
        super().__init__(network.kernel)
        self.request = request
        request.reply = self

    @property
    def done(self) -> bool:
        return self.state == OVER

    async def run(self, handler: Handler, message: Any) -> Any:
        return await handler(message)

    def conclude(self, value: Any, error: BaseException | None) -> None:
        if self.state != OVER:
            self.settle(value, error)

    def cancel(self) -> None:
        if self.state == OVER or self.kernel.fenced:
            return
        self.request.cancel()
        self.settle(None, Lost(f"the {self.describe()} was given up"))

    def describe(self) -> str:
        return f"reply of {self.request.peer} to {type(self.request.message).__name__}"


class SimStream:
    """``protocol.runtime.Stream``, the caller's side: what has landed and was not yet taken, then how it ended."""

    __slots__ = ("ended", "error", "items", "kernel", "next_wait", "request")

    def __init__(self, network: Network, request: Request) -> None:
        self.kernel = network.kernel
        self.request = request
        request.reply = self
        self.items: deque[Any] = deque()
        self.ended = False
        self.error: BaseException | None = None
        self.next_wait: NextItem | None = None

    def next(self) -> NextItem:
        return NextItem(self)

    async def run(self, handler: Handler, message: Any) -> None:
        await handler(message, SimOutlet(self))

    def deliver(self, item: Any, _: object) -> None:
        if self.ended:
            return
        faults = self.request.network.faults
        if faults.breaks:
            cut = faults.stream_item(self, self.request.peer, self.describe())
            if cut is not None and cut.drops_item:
                self.conclude(None, cut.error)
                return
            self._put(item)
            if cut is not None:
                self.conclude(None, cut.error)
            return
        self._put(item)

    def _put(self, item: Any) -> None:
        wait = self.next_wait
        if wait is not None:
            self.next_wait = None
            wait.settle(item)
        else:
            self.items.append(item)

    def conclude(self, _: object, error: BaseException | None) -> None:
        if self.ended:
            return
        self.ended = True
        self.error = error
        faults = self.request.network.faults
        if faults.breaks:
            faults.stream_over(self)
        wait = self.next_wait
        if wait is not None:
            self.next_wait = None
            wait.settle(None if error is not None else END, error)

    def cancel(self) -> None:
        if self.ended or self.kernel.fenced:
            return
        self.request.cancel()
        self.items.clear()
        self.conclude(None, Lost(f"the {self.describe()} was given up"))

    def describe(self) -> str:
        return f"stream {type(self.request.message).__name__} from {self.request.peer}"


class NextItem(Wait):
    __slots__ = ("stream",)

    def __init__(self, stream: SimStream) -> None:
        super().__init__(stream.kernel)
        self.stream = stream

    def begin(self) -> None:
        stream = self.stream
        if stream.items:
            self.value, self.state = stream.items.popleft(), OVER
        elif stream.ended:
            self.value, self.error, self.state = END, stream.error, OVER
        else:
            assert stream.next_wait is None, f"two tasks read {stream.describe()}"
            stream.next_wait = self

    def detach(self) -> None:
        self.stream.next_wait = None

    def give_back(self) -> None:
        self.state = IDLE
        if self.error is None and self.value is not END:
            self.stream.items.appendleft(self.value)

    def describe(self) -> str:
        return f"the next item of {self.stream.describe()}"


class SimOutlet:
    """``protocol.runtime.Outlet``."""

    __slots__ = ("stream",)

    def __init__(self, stream: SimStream) -> None:
        self.stream = stream

    def send(self, item: Any) -> None:
        request = self.stream.request
        request.network.send(request.peer, request.caller, self.stream.deliver, item, None)


class Network:
    def __init__(self, kernel: Kernel, faults: FaultBoard, seed: int, life: int) -> None:
        self.kernel = kernel
        self.faults = faults
        self.services = Services()  # outside the job: what is sent to them may land even if the job crashes
        self._seed = seed
        self._life = life
        self._links: dict[tuple[str, str], Link] = {}
        self._endpoints: dict[str, Endpoint] = {}

    def endpoint(self, process: str) -> Endpoint:
        endpoint = self._endpoints.get(process)
        if endpoint is None:
            endpoint = self._endpoints[process] = Endpoint()
        return endpoint

    def serve(self, process: str, handlers: Mapping[type, Handler]) -> None:
        if self.kernel.fenced:
            return
        endpoint = self.endpoint(process)
        served = endpoint.handlers = {**(endpoint.handlers or {}), **handlers}
        waiting, endpoint.waiting = endpoint.waiting, []
        for request in waiting:
            request.start(served)

    def send(self, sender: str, receiver: str, function: Callable[[Any, Any], None], first: Any, second: Any) -> None:
        """Call ``function(first, second)`` when the message has crossed the link."""
        if self.kernel.fenced:
            return
        key = (sender, receiver)
        link = self._links.get(key)
        if link is None:
            stream = SeededStream(self._seed, "network", f"{sender}>{receiver}", self._life)
            link = self._links[key] = Link(self.kernel, stream)
        link.send(function, first, second)

    def call(self, caller: str, peer: str, message: Any) -> SimCall:
        request = Request(self, caller, peer, message)
        call = SimCall(self, request)
        if self.faults.failing:
            how = self.faults.call_fails(peer, type(message).__name__)
            if how == "error":
                error = Refusal(f"{peer} is unavailable: {type(message).__name__} was refused by a fault", Cause.UNAVAILABLE)
                self.send(peer, caller, call.conclude, None, error)
                return call
            request.answer_lost, request.answer_broken = how == "lost", how == "broken"
        if peer in self.services:
            self.services.leaves(peer, message)
        self.send(caller, peer, Request.arrive, request, None)
        return call

    def stream(self, caller: str, peer: str, message: Any) -> SimStream:
        request = Request(self, caller, peer, message)
        stream = SimStream(self, request)
        self.send(caller, peer, Request.arrive, request, None)
        return stream
