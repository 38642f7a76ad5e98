"""Reading a request and answering it: bodies of bounded size, answers as JSON, and whether anybody still listens."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from protocol.errors import Cause, Refusal
from real.gym.wire import BODY_MAX, Fault, fault_of, status_of

JSON = "application/json"


class TooLarge(Exception):
    """A body has more bytes than its route takes."""


async def read_body(request: Request, bytes_max: int = BODY_MAX) -> bytes:
    """Raises TooLarge as soon as that is known, with nothing more read."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > bytes_max:
        raise TooLarge
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > bytes_max:
            raise TooLarge
        parts.append(part)
    return b"".join(parts)


def answer(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type=JSON)


def refusal(text: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """What the caller sent cannot be answered by anybody: it is BROKEN, and asking again would not help."""
    fault = fault_of(Refusal(text, Cause.BROKEN))
    return Response(msgspec.json.encode(fault), status_code=status, media_type=JSON, headers=headers)


def too_large(what: str, bytes_max: int = BODY_MAX) -> Response:
    return refusal(f"{what}: the body is larger than {bytes_max} bytes", 413)


def failed(error: Exception) -> Response:
    fault: Fault = fault_of(error)
    return answer(fault, status_of(fault))


async def hung_up(request: Request) -> None:
    """Until whoever sent this request has closed the connection. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def while_heard(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """What ``work`` returns or raises. It is cancelled, and ClientDisconnect raised, if nobody waits for it any more."""
    loop = asyncio.get_running_loop()
    working, gone = loop.create_task(work), loop.create_task(hung_up(request))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        gone.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait([working])
