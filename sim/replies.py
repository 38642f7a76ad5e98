"""The caller's side of calls and streams, and the outlet through which a stream is served."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from protocol.errors import Lost
from protocol.runtime import END, Handler
from sim.kernel import Kernel
from sim.tasks import IDLE, OVER, Wait

if TYPE_CHECKING:
    from sim.network import Request


class SimCall(Wait):
    """``protocol.runtime.Call``. It is on its way from the start; a lost ``first_of`` only stops waiting for it."""

    __slots__ = ("request",)

    def __init__(self, kernel: Kernel, request: Request) -> None:
        super().__init__(kernel)
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

    def __init__(self, kernel: Kernel, request: Request) -> None:
        self.kernel = kernel
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
        network = request.network
        if network.faults.on_replies:
            network.faults.reply(network, request, self.stream.deliver, item, None)
        else:
            network.send(request.peer, request.caller, self.stream.deliver, item, None)
