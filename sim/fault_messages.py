"""Faults of messages: what a network does to requests and to what comes back for them.

A fault matches the messages of one operation with one process (``to``), requests or replies; what a stream delivers, and
its end, count as replies. Of several that match, the one armed first is taken, ``times`` messages long.

    drop        the message vanishes on its way
    delay       it lands ``by_s`` later; those behind it on the same link wait, as on one connection
    duplicate   it lands twice, ``by_s`` apart: a request is handled twice (the first answer counts), a stream's item is
                delivered twice
    reorder     the next message on its link overtakes it (none within a second: it lands, and nothing took effect)
    fail_call   ``error``: refused with this ``cause``, the peer never sees it; else the peer handles it, and the caller hears
                Lost (``broken``) or nothing (``lost``)
    refuse      the next ``rows`` rows that come to the door of ``instance`` are refused as a checkpoint would refuse them
    fail_row    the next ``rows`` rows that come to the door of ``instance`` fail there, as ``terminal`` or ``no_result`` says
    stray       the next row at the door of ``instance`` brings a session along that nobody sent
    abort       the newest model call that runs at ``worker``, or the next one there, is aborted: INFRA
    break_stream   the first stream from ``instance`` that delivers an item from now on breaks after ``rows`` delivered
                   items (the caller gets Lost, or an early END if ``clean``); the serving handler is left alone
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from protocol.errors import Cause, ConfigError, Lost, ProtocolError, Refusal
from protocol.history import EpisodeRefused, Event
from protocol.identity import GymCheckpointEpisode
from protocol.messages import PARKED, Generate, Row, RowFailed, RowRefused, RunRows
from protocol.runtime import Handler, Outlet
from sim.armed import DONE, Armed

if TYPE_CHECKING:
    from sim.network import Network, Request

STRAY = 999  # the number of a rollout that nobody counted
ABORT_S = 0.02  # how far into a model call an abort that waited for it comes
Landing = Callable[[Any, Any], None]
Message = tuple[Landing, Any, Any]


class StreamCut(NamedTuple):
    """``drops_item``: the item that is landing is lost too. ``error`` None: an early, clean END."""

    drops_item: bool
    error: Lost | None


class MessageFaults:
    """``record(process, event)`` records in the name of a process: what a fault does at its door, it does.

    ``abort(worker)`` aborts the newest call that runs there; '' if none does.
    """

    def __init__(self, record: Callable[[str, Event], None], abort: Callable[[str], str]) -> None:
        self._record = record
        self._abort = abort
        self.breaks: list[Armed] = []
        self.on_requests: list[Armed] = []
        self.on_replies: list[Armed] = []
        self.at_door: list[Armed] = []
        self.verbs: dict[str, Callable[[Armed], None]] = {
            "break_stream": self._arm_break,
            "fail_call": self._arm_call,
            "drop": self._arm_message,
            "delay": self._arm_message,
            "duplicate": self._arm_message,
            "reorder": self._arm_message,
            "refuse": self._arm_refuse,
            "fail_row": self._arm_refuse,
            "stray": self._arm_refuse,
            "abort": self._arm_abort,
        }

    # --- requests and replies ------------------------------------------------------------------------------------

    def _arm_call(self, armed: Armed) -> None:
        how = armed.arguments.get("how", "error")
        if how not in ("error", "broken", "lost"):
            raise ConfigError(f"fail_call.how is {how!r}: it must be error, broken or lost")
        armed.left = int(armed.arguments.get("times", 1))
        self.on_requests.append(armed)

    def _arm_message(self, armed: Armed) -> None:
        armed.left = int(armed.arguments.get("times", 1))
        (self.on_replies if armed.arguments.get("what", "request") == "reply" else self.on_requests).append(armed)

    def request(self, network: Network, request: Request) -> None:
        """A request is about to be sent: send it, one way or another."""
        caller, peer = request.caller, request.peer
        armed = _taken(self.on_requests, request)
        if armed is not None and armed.fault.verb == "fail_call":
            request.spoiled = how = str(armed.arguments.get("how", "error"))
            if how == "error":
                cause = _cause(armed, request)
                armed.done(f"{_what(request)}: {how} ({cause.value})")
                text = f"{type(request.message).__name__} was refused by {peer}, by a fault"
                network.send(peer, caller, request.reply.conclude, None, Refusal(text, cause))
                return
            armed.done(f"{_what(request)}: {how}")
            armed = None
        arrive = type(request).arrive
        if armed is None:
            network.send(caller, peer, arrive, request, None)
            return
        twin = network.twin(request) if armed.fault.verb == "duplicate" else request
        self._bend(network, armed, (caller, peer), ((arrive, request, None), (arrive, twin, None)), _what(request))

    def reply(self, network: Network, request: Request, function: Landing, value: Any, error: ProtocolError | None) -> None:
        """Something for the caller is about to leave the peer: send it, one way or another."""
        armed = _taken(self.on_replies, request)
        message = (function, value, error)
        if armed is None:
            network.send(request.peer, request.caller, *message)
        else:
            self._bend(network, armed, (request.peer, request.caller), (message, message), f"the answer to {_what(request)}")

    def _bend(self, network: Network, armed: Armed, ends: tuple[str, str], pair: tuple[Message, Message], what: str) -> None:
        """``pair``: the message, and what arrives beside it if it is duplicated."""
        match armed.fault.verb:
            case "drop":
                armed.done(f"{what} was dropped")
            case "delay":
                by_s = float(armed.arguments["by_s"])
                network.way(*ends).link.hold_up(by_s)
                network.send(*ends, *pair[0])
                armed.done(f"{what} was held up for {by_s:g} s")
            case "duplicate":
                by_s = float(armed.arguments.get("by_s", 0.0))
                network.send(*ends, *pair[0])
                if by_s:
                    network.kernel.at(by_s, lambda _: network.send(*ends, *pair[1]))
                else:
                    network.send(*ends, *pair[1])
                armed.done(f"{what} was sent twice" + (f", the second time {by_s:g} s later" if by_s else ""))
            case "reorder":

                def over(passed: bool) -> None:
                    if passed:
                        armed.done(f"{what} was overtaken")
                    elif armed.state != DONE:
                        armed.why = f"nothing came behind {what} that could have overtaken it"

                network.overtaken(*ends, pair[0], over)

    # --- what comes to a door ------------------------------------------------------------------------------------

    def _arm_refuse(self, armed: Armed) -> None:
        armed.left = int(armed.arguments.get("rows", 1))
        self.at_door.append(armed)

    def _arm_abort(self, armed: Armed) -> None:
        call = self._abort(str(armed.arguments["worker"]))
        if call:
            armed.done(f"{call} was aborted")
        else:
            self.at_door.append(armed)

    def at_the_door(self, network: Network, request: Request, handler: Handler) -> Handler:
        """What really answers a request that has come to its peer."""
        message, peer = request.message, request.peer
        for armed in self.at_door:
            if isinstance(message, RunRows) and armed.arguments.get("instance") == peer:
                if armed.fault.verb == "stray":
                    self.at_door.remove(armed)
                    row = msgspec.structs.replace(message.rows[0], rollout_id=f"{message.rows[0].sample}r{STRAY}", attempt=0)
                    armed.done(f"{GymCheckpointEpisode(row.rollout_id, 0).capture_key} came to {peer}, and nobody had sent it")
                    return self._bringing(handler, msgspec.structs.replace(message, rows=(*message.rows, row)))
                stopped, rest = message.rows[: armed.left], message.rows[armed.left :]
                armed.left -= len(stopped)
                if not armed.left:
                    self.at_door.remove(armed)
                refuses = armed.fault.verb == "refuse"
                armed.done(f"{len(stopped)} rows {'were refused' if refuses else 'failed'} at the door of {peer}")
                going_on = msgspec.structs.replace(message, rows=rest)
                if refuses:
                    return self._refusing(handler, peer, stopped, going_on)
                return self._failing(handler, armed.arguments, stopped, going_on)
            if isinstance(message, Generate) and armed.arguments.get("worker") == peer:
                self.at_door.remove(armed)
                network.kernel.at(ABORT_S, lambda _: self._abort_late(network, request, armed))
                break
        return handler

    def _refusing(self, handler: Handler, peer: str, refused: Sequence[Row], rest: RunRows) -> Handler:
        async def answer(message: RunRows, outlet: Outlet) -> None:
            for row in refused:
                key = GymCheckpointEpisode(row.rollout_id, row.attempt).capture_key
                self._record(peer, EpisodeRefused(key, PARKED))
                outlet.send(RowRefused(key, PARKED, 0.0))
            if rest.rows:
                await handler(rest, outlet)

        return answer

    def _bringing(self, handler: Handler, more: RunRows) -> Handler:
        async def answer(message: RunRows, outlet: Outlet) -> None:
            await handler(more, outlet)

        return answer

    def _failing(self, handler: Handler, words: dict[str, Any], failed: Sequence[Row], rest: RunRows) -> Handler:
        terminal, no_result, status = words.get("terminal"), str(words.get("no_result", "")), int(words.get("status", 0))

        async def answer(message: RunRows, outlet: Outlet) -> None:
            for row in failed:
                key = GymCheckpointEpisode(row.rollout_id, row.attempt).capture_key
                outlet.send(RowFailed(key, False, "a fault", 0.0, terminal, no_result, status))
            if rest.rows:
                await handler(rest, outlet)

        return answer

    def _abort_late(self, network: Network, request: Request, armed: Armed) -> None:
        if network.abort(request):
            armed.done(f"{request.message.call} was aborted")
        else:
            self._arm_abort(armed)  # it was over by then: another one

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
            armed.done(f"{text} {'ended early' if clean else 'broke'} after {rows} more items")
            return StreamCut(drops, None if clean else Lost(f"the {text} broke"))
        return None

    def stream_over(self, stream: object) -> None:
        """It ended before it could break: the fault waits for the next one."""
        for armed in self.breaks:
            if armed.stream is stream:
                armed.stream = None
                armed.left = int(armed.arguments.get("rows", 0))


def _cause(armed: Armed, request: Request) -> Cause:
    """Of a refusal: what the scenario says, else UNAVAILABLE, of a model call DATA (the engine turned the prompt down)."""
    named = armed.arguments.get("cause")
    if named is not None:
        return Cause(named)
    return Cause.DATA if isinstance(request.message, Generate) else Cause.UNAVAILABLE


def _taken(among: list[Armed], request: Request) -> Armed | None:
    """The first of ``among`` that matches, which has one message less to go."""
    operation = type(request.message).__name__
    for armed in among:
        if armed.arguments["operation"] == operation and armed.arguments["to"] == request.peer:
            armed.left -= 1
            if not armed.left:
                among.remove(armed)
            return armed
    return None


def _what(request: Request) -> str:
    return f"{type(request.message).__name__} to {request.peer}"
