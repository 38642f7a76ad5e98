"""Calls and streams between the processes of one job.

A landing is one step and the resumption it causes another. A request to a process that does not serve yet waits there
until it does. A handler's ProtocolError reaches the caller as a pickled copy, anything else, and one that cannot be
pickled, as ``PeerFailed``. Messages and replies are frozen and shared. Links, which keep messages in order, are in
``sim.links``.

When a process dies alone, whoever waits for an answer of it hears Lost after a network delay, behind what it had sent
before; so does whoever calls it until its next incarnation serves. A process that stands still hears nothing and is
heard no more; what is on its way waits at its door.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from protocol.errors import Cause, Lost, PeerFailed, ProtocolError, Refusal
from protocol.runtime import Handler
from sim.fault_messages import MessageFaults
from sim.kernel import Kernel
from sim.links import Link, Outbox, Overtaking, Way
from sim.replies import SimCall, SimStream
from sim.services import Door, Services
from sim.streams import SeededStream
from sim.tasks import Task

PATIENCE_S = 1.0  # how long a message that is to be overtaken waits for the one that overtakes it


class Endpoint:
    """What one process serves, and the requests that came before it did. ``down``: it died, and does not serve again yet."""

    __slots__ = ("down", "handlers", "started", "waiting")

    def __init__(self) -> None:
        self.started = 0  # requests: each handler's task has a name of its own
        self.handlers: dict[type, Handler] | None = None
        self.waiting: list[Request] = []
        self.down = False


class Answering(Task):
    """The task that answers a request."""

    __slots__ = ("request",)

    def __init__(self, kernel: Kernel, coroutine: Coroutine[Any, Any, Any], name: str, request: Request) -> None:
        super().__init__(kernel, coroutine, name, request.peer)
        self.request = request


class Request:
    """One call or stream on its way: what both its ends know."""

    __slots__ = ("caller", "handler", "message", "network", "peer", "reply", "spoiled")

    def __init__(self, network: Network, caller: str, peer: str, message: Any) -> None:
        self.network = network
        self.caller = caller
        self.peer = peer
        self.message = message
        self.handler: Task | None = None
        self.spoiled = ""  # by a fault: the reply never comes back (lost), or the connection breaks in its place (broken)
        self.reply: SimCall | SimStream

    def arrive(self, _: object) -> None:
        endpoint = self.network.endpoint(self.peer)
        if endpoint.handlers is not None:
            self.start(endpoint.handlers)
        elif endpoint.down:
            self.break_off()
        else:
            endpoint.waiting.append(self)

    def start(self, handlers: Mapping[type, Handler]) -> None:
        network, kind = self.network, type(self.message)
        endpoint = network.endpoint(self.peer)
        endpoint.started += 1
        handler = handlers.get(kind)
        if network.faults.at_door and handler is not None:
            handler = network.faults.at_the_door(network, self, handler)
        name = f"{kind.__name__} {endpoint.started} from {self.caller}"
        self.handler = Answering(network.kernel, self._answer(handler), name, self)

    def break_off(self) -> None:
        """Whom it was for is dead: that is all the caller will hear."""
        network = self.network
        text = f"{self.peer} is dead: the connection broke before {type(self.message).__name__} was answered"
        network.send(self.peer, self.caller, self.reply.conclude, None, Lost(text))

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
        self.answered(value, error)

    def answered(self, value: Any, error: ProtocolError | None) -> None:
        network = self.network
        if self.spoiled == "broken":
            value, error = None, Lost(f"the connection to {self.peer} broke before {type(self.message).__name__} was answered")
        if self.spoiled == "lost":
            return
        if network.faults.on_replies:
            network.faults.reply(network, self, self.reply.conclude, value, error)
        else:
            network.send(self.peer, self.caller, self.reply.conclude, value, error)

    def reach_nobody(self, _: object) -> None:
        """It was sent to an incarnation that died before it landed."""
        self.break_off()

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
    """As it would cross a process boundary: no traceback and no object is shared. One that cannot cross arrives untyped."""
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception as failure:
        return PeerFailed(f"{type(error).__name__} cannot cross a process boundary ({failure}): {error}")
    assert isinstance(copy, ProtocolError)
    return copy


class Network:
    def __init__(self, kernel: Kernel, faults: MessageFaults, seed: int, life: int) -> None:
        self.kernel = kernel
        self.faults = faults
        self.services = Services()  # outside the job: what is sent to them may land even if the job crashes
        self._seed = seed
        self._life = life
        self._links: dict[tuple[str, str], Way] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self._still: set[str] = set()  # processes into which nothing lands
        self._mute: dict[str, list[tuple[str, Outbox]]] = {}  # of each process that stands still in the middle of a step

    def endpoint(self, process: str) -> Endpoint:
        endpoint = self._endpoints.get(process)
        if endpoint is None:
            endpoint = self._endpoints[process] = Endpoint()
        return endpoint

    def serve(self, process: str, handlers: Mapping[type, Handler]) -> None:
        if self.kernel.fenced:
            return
        endpoint = self.endpoint(process)
        endpoint.down = False
        served = endpoint.handlers = {**(endpoint.handlers or {}), **handlers}
        waiting, endpoint.waiting = endpoint.waiting, []
        for request in waiting:
            request.start(served)

    def send(self, sender: str, receiver: str, function: Callable[[Any, Any], None], first: Any, second: Any) -> None:
        """Call ``function(first, second)`` when the message has crossed the link."""
        if self.kernel.fenced:
            return
        way = self._links.get((sender, receiver))
        if way is None:
            way = self.way(sender, receiver)
        way.send(function, first, second)

    def way(self, sender: str, receiver: str) -> Way:
        way = self._links.get((sender, receiver))
        if way is None:
            way = Link(self.kernel, SeededStream(self._seed, "network", f"{sender}>{receiver}", self._life))
            if receiver in self.services:
                way = Door(way, self.services, receiver)
            if receiver in self._still:
                way.link.stop()
            self._links[sender, receiver] = way
            if sender in self._mute:
                way = self._outbox(sender, receiver)
        return way

    def call(self, caller: str, peer: str, message: Any) -> SimCall:
        request = Request(self, caller, peer, message)
        call = SimCall(self.kernel, request)
        if self.faults.on_requests:
            self.faults.request(self, request)
        else:
            self.send(caller, peer, Request.arrive, request, None)
        return call

    def stream(self, caller: str, peer: str, message: Any) -> SimStream:
        request = Request(self, caller, peer, message)
        stream = SimStream(self.kernel, request)
        if self.faults.on_requests:
            self.faults.request(self, request)
        else:
            self.send(caller, peer, Request.arrive, request, None)
        return stream

    def carries(self, request: Request) -> bool:
        """Whether it, its answer or a broken connection's notice is on its way: for the drawing of who waits for whom."""
        return any(
            first is request or getattr(function, "__self__", None) is request.reply
            for way in self._links.values()
            for _, function, first, _ in way.link.line
        )

    # --- what faults do to messages ------------------------------------------------------------------------------

    def overtaken(
        self, sender: str, receiver: str, message: tuple[Callable[[Any, Any], None], Any, Any], over: Callable[[bool], None]
    ) -> None:
        """``message`` is set aside until the next one of its link has passed it; ``over`` is told whether one did."""
        inner = self.way(sender, receiver)

        def passed(was: bool) -> None:
            if self._links[sender, receiver] is way:
                self._links[sender, receiver] = way.inner
            over(was)

        way = self._links[sender, receiver] = Overtaking(inner, message, passed, PATIENCE_S)

    def twin(self, request: Request) -> Request:
        """The same request once more: to a call whichever answer comes first counts, a stream's second answer is heard by
        nobody."""
        twin = Request(self, request.caller, request.peer, request.message)
        if isinstance(request.reply, SimCall):
            twin.reply = request.reply
        else:
            SimStream(self.kernel, twin)
        return twin

    def abort(self, request: Request) -> bool:
        """Break off the handler of ``request`` and refuse it in its place; False if nothing runs there for it any more."""
        handler = request.handler
        if handler is None or handler.done or handler.cancelled:
            return False
        handler.cancel()
        request.answered(None, Refusal(f"{request.peer} aborted {type(request.message).__name__}", Cause.INFRA))
        return True

    def running(self, process: str, kind: type) -> list[Request]:
        """The requests of that kind that ``process`` is answering, oldest first."""
        tasks = [task for task in self.kernel.tasks if isinstance(task, Answering) and task.process == process]
        return [task.request for task in tasks if type(task.request.message) is kind]

    # --- one process alone ---------------------------------------------------------------------------------------

    def down(self, process: str, dead: list[Task]) -> None:
        """It is dead, and ``dead`` were its tasks: whom they were answering hears Lost."""
        endpoint = self.endpoint(process)
        endpoint.handlers, endpoint.down = None, True
        broken, endpoint.waiting = endpoint.waiting, []
        for (_, receiver), way in self._links.items():
            if receiver == process:
                way.link.replace(Request.arrive, Request.reach_nobody)
        for task in dead:
            if isinstance(task, Answering):
                task.request.break_off()
        for request in broken:
            request.break_off()

    def still(self, process: str) -> None:
        """Nothing lands in it any more."""
        self._still.add(process)
        for (_, receiver), way in self._links.items():
            if receiver == process:
                way.link.stop()

    def go(self, process: str) -> None:
        """What waited at its door lands."""
        self._still.discard(process)
        for (_, receiver), way in self._links.items():
            if receiver == process:
                way.link.go()

    def mute(self, process: str) -> None:
        """What it sends from now on in its running step stays in it."""
        self._mute[process] = []
        for sender, receiver in list(self._links):
            if sender == process:
                self._outbox(process, receiver)

    def _outbox(self, sender: str, receiver: str) -> Outbox:
        box = Outbox(self._links[sender, receiver])
        self._links[sender, receiver] = box
        self._mute[sender].append((receiver, box))
        return box

    def unmute(self, process: str, sends: bool) -> None:
        """It sends what it had kept back; or that is lost with it (``sends`` False)."""
        for receiver, box in self._mute.pop(process, ()):
            if self._links[process, receiver] is box:
                self._links[process, receiver] = box.inner
            box.open(sends)
