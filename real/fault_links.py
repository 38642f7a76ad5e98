"""What faults do to the messages of one process, at its own links and at its own door.

A message is bent where it is sent, and what comes back for it where it arrives: both at the process whose record armed the fault,
which therefore must be the one that sends the request (``real.faults`` refuses any other). A message matches as in the simulator:
by its operation and by the process it goes to; of several faults that match, the one armed first is taken, for ``times``
messages. What each verb means stands in ``docs/faults.md``; a request that is given up while it is held up is never sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import msgspec

from protocol.errors import Cause, Lost, ProtocolError, Refusal
from protocol.history import EpisodeRefused, Event
from protocol.identity import GymCheckpointEpisode
from protocol.messages import PARKED, Generate, RowFailed, RowRefused, RunRows
from real.killer.control import Armed, Ask, InVain, Told
from real.outside import in_background
from real.remote import Link, Sender, Served
from scenarios.faults import Fault

AT_LINKS = ("drop", "delay", "duplicate", "reorder", "fail_call", "break_stream")
AT_DOORS = ("refuse", "fail_row")
COUNTED = {"break_stream": ("rows", 0), "refuse": ("rows", 1), "fail_row": ("rows", 1)}
PATIENCE_S = 1.0  # of the core, in which a message that is to be overtaken waits for another
OVERTAKE_S = 0.02  # real seconds by which the one that overtakes is ahead


class LinkFault:
    """``left``: messages, items or rows still to go. ``stream``: the one that breaks."""

    def __init__(self, fault: Fault, number: int, tell: Callable[[Ask], object]) -> None:
        self.verb = fault.verb
        self.arguments = fault.arguments
        self.number = number
        counted, default = COUNTED.get(self.verb, ("times", 1))
        self.left = int(self.arguments.get(counted, default))
        self.stream: object | None = None
        self._tell = tell

    def done(self, detail: str) -> None:
        self._tell(Told(self.verb, detail, self.number))

    def in_vain(self, why: str) -> None:
        self._tell(InVain(self.number, why))


class StreamCut(NamedTuple):
    """``drops_item``: the item that has just come is lost too. ``error`` None: an early, clean end."""

    drops_item: bool
    error: Lost | None


class LinkFaults:
    """All of one process. ``tell`` reaches the killer; ``record`` records in the name of the process."""

    def __init__(self, tell: Callable[[Ask], object], record: Callable[[Event], None], time_scale: float = 1.0) -> None:
        self._tell = tell
        self.record = record
        self.time_scale = time_scale
        self.requests: list[LinkFault] = []
        self.replies: list[LinkFault] = []
        self.breaks: list[LinkFault] = []
        self.rows: list[LinkFault] = []

    def arming(self, fault: Fault, number: int) -> Callable[[], None]:
        """What is done inside ``record``. On the edge ``after`` the running step is not affected any more: the messages that it
        sends leave in the next turn of the loop, so the fault is armed in the turn after that."""

        def arm() -> None:
            self.arm(fault, number)

        def behind_the_step() -> None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:  # recorded by a thread
                arm()
                return
            loop.call_soon(loop.call_soon, arm)

        return arm if fault.edge == "before" else behind_the_step

    def arm(self, fault: Fault, number: int) -> None:
        detail = ", ".join(f"{name} {fault.arguments[name]}" for name in sorted(fault.arguments))
        self._tell(Armed(fault.verb, f"armed: {detail}" if detail else "armed", number))
        among = self.requests
        if fault.verb == "break_stream":
            among = self.breaks
        elif fault.verb in AT_DOORS:
            among = self.rows
        elif fault.arguments.get("what", "request") == "reply":
            among = self.replies
        among.append(LinkFault(fault, number, self._tell))

    def link(self, peer: str, inner: Link) -> Link:
        return FaultyLink(peer, inner, self)

    def door(self, inner: Served) -> Served:
        return FaultyDoor(inner, self)

    def seconds(self, fault: LinkFault) -> float:
        return float(fault.arguments.get("by_s", 0.0)) * self.time_scale

    def taken(self, among: list[LinkFault], message: Any, peer: str) -> LinkFault | None:
        """The first of ``among`` that matches, which has one message less to go."""
        for fault in among:
            if (fault.arguments["operation"], fault.arguments["to"]) == (type(message).__name__, peer):
                fault.left -= 1
                if not fault.left:
                    among.remove(fault)
                return fault
        return None

    def stream_item(self, stream: object, peer: str, text: str) -> StreamCut | None:
        """An item of ``stream`` has come: whether, and how, the stream breaks here."""
        for fault in self.breaks:
            if fault.stream is None and fault.arguments["instance"] == peer:
                fault.stream = stream
            if fault.stream is not stream:
                continue
            drops = fault.left == 0
            fault.left -= 0 if drops else 1
            if fault.left:
                return None
            self.breaks.remove(fault)
            clean = bool(fault.arguments.get("clean", False))
            fault.done(f"{text} {'ended early' if clean else 'broke'} after {int(fault.arguments.get('rows', 0))} more items")
            return StreamCut(drops, None if clean else Lost(f"the {text} broke"))
        return None

    def stream_over(self, stream: object) -> None:
        """It ended before it could break: the fault waits for the next one."""
        for fault in self.breaks:
            if fault.stream is stream:
                fault.stream, fault.left = None, int(fault.arguments.get("rows", 0))


class Lane:
    """The messages of one direction of a link, in order: one that is held up holds up what comes behind it."""

    def __init__(self) -> None:
        self._last: asyncio.Event | None = None
        self._aside: list[asyncio.Event] = []

    async def turn(self, hold_s: float = 0.0) -> None:
        """Returns when everything ahead has gone, and ``hold_s`` have passed besides."""
        before, mine = self._last, asyncio.Event()
        self._last = mine
        try:
            if before is not None:
                await before.wait()
            if hold_s:
                await asyncio.sleep(hold_s)
        finally:
            if before is None or before.is_set():
                mine.set()
            else:  # given up while it waited: what is behind it still waits for what is ahead
                in_background(_set_after(before, mine), "a place that was given up")
        for event in self._aside:
            event.set()

    async def be_overtaken(self, patience_s: float) -> bool:
        """Set aside until the next message has passed; False if none came in time."""
        passed = asyncio.Event()
        self._aside.append(passed)
        try:
            async with asyncio.timeout(patience_s):
                await passed.wait()
            await asyncio.sleep(OVERTAKE_S)
            return True
        except TimeoutError:
            return False
        finally:
            self._aside.remove(passed)


async def _set_after(before: asyncio.Event, mine: asyncio.Event) -> None:
    await before.wait()
    mine.set()


class FaultyLink:
    """``real.remote.Link`` to ``peer``, as the faults leave it."""

    def __init__(self, peer: str, inner: Link, faults: LinkFaults) -> None:
        self.peer = peer
        self.inner = inner
        self.faults = faults
        self.out, self.back = Lane(), Lane()

    async def call(self, message: Any) -> Any:
        spoiled = await self._send(message)
        value: Any = None
        error: ProtocolError | None = None
        try:
            value = await self.inner.call(message)
        except ProtocolError as raised:
            error = raised
        if spoiled:
            value, error = None, await self._spoiled(spoiled, message)
        landed: list[bool] = []
        await self._land(message, lambda: landed.append(True))
        if not landed:
            await _for_ever()
        if error is not None:
            raise error
        return value

    async def stream(self, message: Any) -> AsyncIterator[Any]:
        spoiled = await self._send(message)
        landed: asyncio.Queue[tuple[Any, Exception | None, bool]] = asyncio.Queue()
        pump = in_background(self._pump(message, spoiled, landed), f"stream of {_what(message, self.peer)}")
        name, stream = f"stream {type(message).__name__} from {self.peer}", object()
        try:
            while True:
                item, error, over = await landed.get()
                if over:
                    self.faults.stream_over(stream)
                    if error is not None:
                        raise error
                    return
                cut = self.faults.stream_item(stream, self.peer, name)
                if cut is None or not cut.drops_item:
                    yield item
                if cut is not None:
                    if cut.error is not None:
                        raise cut.error
                    return
        finally:
            pump.cancel()

    async def close(self) -> None:
        await self.inner.close()

    async def _pump(self, message: Any, spoiled: str, landed: asyncio.Queue[tuple[Any, Exception | None, bool]]) -> None:
        """Each item, and the end, lands by a task of its own: one may overtake another."""
        error: Exception | None = None
        items = self.inner.stream(message)
        async with asyncio.TaskGroup() as landings:
            try:
                async for item in items:
                    if not spoiled:
                        landings.create_task(self._land(message, _putting(landed, (item, None, False))))
            except Exception as raised:
                error = raised
            if spoiled:
                error = await self._spoiled(spoiled, message)
            landings.create_task(self._land(message, _putting(landed, (None, error, True))))

    async def _send(self, message: Any) -> str:
        """Returns when the request may leave: '', or how its answer is spoiled. Raises Refusal for one that is not to be sent."""
        faults, what = self.faults, _what(message, self.peer)
        fault = faults.taken(faults.requests, message, self.peer)
        if fault is None:
            await self.out.turn()
            return ""
        if fault.verb == "fail_call":
            how = str(fault.arguments.get("how", "error"))
            if how == "error":
                cause = _cause(fault, message)
                fault.done(f"{what}: {how} ({cause.value})")
                raise Refusal(f"{type(message).__name__} was refused by {self.peer}, by a fault", cause)
            fault.done(f"{what}: {how}")
            await self.out.turn()
            return how
        if fault.verb == "duplicate":
            in_background(self._once_more(message, faults.seconds(fault)), f"once more: {what}")
        await self._bend(fault, self.out, what)
        return ""

    async def _land(self, message: Any, deliver: Callable[[], None]) -> None:
        """What has come for ``message`` is delivered, one way or another."""
        faults = self.faults
        fault = faults.taken(faults.replies, message, self.peer)
        if fault is None:
            await self.back.turn()
            deliver()
            return
        if not await self._bend(fault, self.back, f"the answer to {_what(message, self.peer)}", wait=False):
            return
        deliver()
        if fault.verb == "duplicate":
            by_s = faults.seconds(fault)
            if by_s:
                asyncio.get_running_loop().call_later(by_s, deliver)
            else:
                deliver()

    async def _bend(self, fault: LinkFault, lane: Lane, what: str, wait: bool = True) -> bool:
        """Returns when the message may go on; False if it never may (``wait``: then it does not return)."""
        by_s = float(fault.arguments.get("by_s", 0.0))
        match fault.verb:
            case "drop":
                fault.done(f"{what} was dropped")
                if wait:
                    await _for_ever()
                return False
            case "delay":
                fault.done(f"{what} was held up for {by_s:g} s")
                await lane.turn(self.faults.seconds(fault))
            case "duplicate":
                fault.done(f"{what} was sent twice" + (f", the second time {by_s:g} s later" if by_s else ""))
                await lane.turn()
            case "reorder":
                if await lane.be_overtaken(PATIENCE_S * self.faults.time_scale):
                    fault.done(f"{what} was overtaken")
                else:
                    fault.in_vain(f"nothing came behind {what} that could have overtaken it")
        return True

    async def _once_more(self, message: Any, after_s: float) -> None:
        """The peer gets it twice; nobody hears the second answer."""
        await asyncio.sleep(after_s)
        try:
            await self.inner.call(message)
        except Exception:
            return

    async def _spoiled(self, how: str, message: Any) -> Lost:
        if how == "lost":
            await _for_ever()
        return Lost(f"the connection to {self.peer} broke before {type(message).__name__} was answered")


class FaultyDoor:
    """``real.remote.Served`` of a Gym instance: rows that come to it are refused, or fail, before anybody has seen them."""

    def __init__(self, inner: Served, faults: LinkFaults) -> None:
        self.name = inner.name
        self.inner = inner
        self.faults = faults

    async def answer(self, sender: Sender, message: Any) -> Any:
        return await self.inner.answer(sender, message)

    async def answer_stream(self, sender: Sender, message: Any, send: Callable[[Any], None]) -> None:
        if isinstance(message, RunRows) and self.faults.rows:
            message = self._without_the_stopped(message, send)
            if not message.rows:
                return
        await self.inner.answer_stream(sender, message, send)

    def _without_the_stopped(self, message: RunRows, send: Callable[[Any], None]) -> RunRows:
        fault = self.faults.rows[0]
        stopped, rest = message.rows[: fault.left], message.rows[fault.left :]
        fault.left -= len(stopped)
        if not fault.left:
            self.faults.rows.remove(fault)
        refuses, words = fault.verb == "refuse", fault.arguments
        fault.done(f"{len(stopped)} rows {'were refused' if refuses else 'failed'} at the door of {self.name}")
        for row in stopped:
            key = GymCheckpointEpisode(row.rollout_id, row.attempt).capture_key
            if refuses:
                self.faults.record(EpisodeRefused(key, PARKED))
                send(RowRefused(key, PARKED, 0.0))
            else:
                no_result, status = str(words.get("no_result", "")), int(words.get("status", 0))
                send(RowFailed(key, False, "a fault", 0.0, words.get("terminal"), no_result, status))
        return msgspec.structs.replace(message, rows=rest)


def _putting(landed: asyncio.Queue[Any], entry: Any) -> Callable[[], None]:
    return lambda: landed.put_nowait(entry)


def _cause(fault: LinkFault, message: Any) -> Cause:
    """Of a refusal: what the scenario says, else UNAVAILABLE, of a model call DATA (the engine turned the prompt down)."""
    named = fault.arguments.get("cause")
    if named is not None:
        return Cause(named)
    return Cause.DATA if isinstance(message, Generate) else Cause.UNAVAILABLE


def _what(message: Any, peer: str) -> str:
    return f"{type(message).__name__} to {peer}"


async def _for_ever() -> None:
    await asyncio.Event().wait()
