"""The environment server of one Gym instance: rows are run behind it, and its control plane answers (PROTOCOL 5.7).

    POST /ng-control/v1/checkpoint/{status,prepare,renew,commit,resume,restore,retire,forget}    bearer token of this run
    POST /run        rows in, lines out: one a row, then the end
    GET  /healthz    whether the process serves, and its incarnation

All participants of an instance share this door: one control call leads the core's ``ControlPlane`` through them in their
order. A caller who hangs up has his handler cancelled. What is sent is data: nothing of it is run, or becomes a name.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from protocol.history import ControlRefused, Event
from protocol.identity import token_name
from protocol.messages import Control, Probe, RunRows
from real.gym.bodies import TooLarge, answer, failed, hung_up, read_body, refusal, too_large, while_heard
from real.gym.wire import (
    CONTROL,
    END_LINE,
    HEALTH,
    PREFIX,
    PROCESS_HEADER,
    RUN,
    BadBody,
    decode_message,
    error_line,
    item_line,
    sender_of,
)
from real.listening import Listening, listen
from real.remote import Served

STRANGER_BODY_MAX = 1 << 16  # bytes read of a call without the right token, to know what it was about
NAMED_MAX = 120  # characters of a stranger's checkpoint id that are recorded

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


async def serve_gym(served: Served, token: str, record: Callable[[Event], None], port: int = 0) -> Listening:
    """The server of this instance, listening: its ``address`` may be told. ``record`` is the process's own.

    Raises ConfigError that names the port if it is in use.
    """
    listening = listen(f"the server of {served.name}", port)
    return Listening(app_of(served, token, record), listening)


def app_of(served: Served, token: str, record: Callable[[Event], None]) -> FastAPI:
    door = Door(served, token, record)
    routes = [Route(f"{PREFIX}/{name}", door.control(kind), methods=["POST"]) for kind, name in CONTROL.items()]
    routes += [Route(RUN, RunStream(served), methods=["POST"]), Route(HEALTH, door.health, methods=["GET"])]
    return FastAPI(routes=routes, openapi_url=None, docs_url=None, redoc_url=None)


class Door:
    def __init__(self, served: Served, token: str, record: Callable[[Event], None]) -> None:
        self.served = served
        self.record = record
        self._token = token.encode()

    def control(self, kind: type[Control]) -> Callable[[Request], Awaitable[Response]]:
        """The route of one control call. The token is looked at before anything else is."""
        operation = kind.__name__.lower()

        async def call(request: Request) -> Response:
            carried = bearer(request)
            if not hmac.compare_digest(carried, self._token):
                return await self.turned_away(request, operation, carried)
            try:
                sender = sender_of(request.headers)
                message = decode_message(kind, await read_body(request), token=carried.decode())
            except BadBody as error:
                return refusal(str(error), 422)
            except TooLarge:
                return too_large(operation)
            try:
                return answer(await while_heard(request, self.served.answer(sender, message)))
            except ClientDisconnect:
                return Response(status_code=499)  # nobody reads it
            except Exception as error:
                return failed(error)

        return call

    async def turned_away(self, request: Request, operation: str, carried: bytes) -> Response:
        """A wrong, missing or old token: refused and recorded, and the process behind never hears of it."""
        checkpoint = ""
        try:
            found = decode_checkpoint(await read_body(request, STRANGER_BODY_MAX))
            checkpoint = found[:NAMED_MAX]
        except TooLarge:
            pass
        self.record(ControlRefused(operation, checkpoint, token_name(carried.decode("latin-1")) if carried else ""))
        if not carried:
            return refusal(f"{operation}: the call carries no control token", 401, {"www-authenticate": "Bearer"})
        return refusal(f"{operation}: the call carries the control token of another run", 403)

    async def health(self, request: Request) -> Response:
        if PROCESS_HEADER not in request.headers:  # a person, who wants to know whether anybody is there
            return answer({"instance": self.served.name})
        try:
            sender = sender_of(request.headers)
        except BadBody as error:
            return refusal(str(error), 422)
        try:
            return answer(await while_heard(request, self.served.answer(sender, Probe())))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            return failed(error)


class Named(msgspec.Struct, frozen=True):
    """What is read of a stranger's body."""

    checkpoint: str = ""


def bearer(request: Request) -> bytes:
    """The token that a request carries, b"" for none. A header's bytes, whatever they are."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return bytes(token.strip().encode("latin-1")) if scheme.lower() == "bearer" else b""


def decode_checkpoint(body: bytes) -> str:
    """The checkpoint id that a stranger's body names, '' if it names none."""
    try:
        return msgspec.json.decode(body, type=Named).checkpoint
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


class RunStream:
    """``POST /run`` as an ASGI application: lines leave as their rows are answered."""

    def __init__(self, served: Served) -> None:
        self.served = served

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            sender = sender_of(request.headers)
            message = decode_message(RunRows, await read_body(request))
        except BadBody as error:
            await refusal(str(error), 422)(scope, receive, send)
            return
        except TooLarge:
            await too_large("run")(scope, receive, send)
            return
        except ClientDisconnect:
            return
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()  # None: look who is done
        running = loop.create_task(
            self.served.answer_stream(sender, message, lambda item: lines.put_nowait(item_line(item))),
            name=f"run-{message.group}",
        )
        gone = loop.create_task(hung_up(request))
        for task in (running, gone):
            task.add_done_callback(lambda _: lines.put_nowait(None))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/x-ndjson")]})
            while (line := await lines.get()) is not None:
                await send({"type": "http.response.body", "body": line, "more_body": True})
            if running.done() and not running.cancelled():
                raised = running.exception()
                if raised is None or isinstance(raised, Exception):
                    last = END_LINE if raised is None else error_line(raised)
                    await send({"type": "http.response.body", "body": last})
            # Otherwise the stream breaks off before its end line: whoever still reads it knows no more than that.
        finally:
            gone.cancel()
            if not running.done():
                running.cancel()
                await asyncio.wait([running])
