"""A resources server of a Gym instance, whatever it does: what all of its routes refuse, and the way to it.

All calls carry a bearer token that was made for this server. It ends with its client.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from protocol.errors import Lost, PeerFailed
from real.gym.bodies import TooLarge, failed, read_body, refusal, too_large
from real.gym.client import loopback_client
from real.gym.server import bearer
from real.gym.wire import BadBody, decode_message, error_of, read_fault
from real.listening import Listening

BODY_MAX = 4 << 20
SENT_MAX = 3  # times one call is sent: a server that does not answer costs its row, and no more than that
PAUSE_S = 0.05  # before it is sent again; doubling
ANSWER_S = 10.0  # for each time

Act = Callable[[Request, Any], Awaitable[Response]]


class Answering:
    """A server of these routes, each with the type of its body. ``address`` and ``token`` are what its clients need."""

    def __init__(self, listening: socket.socket, routes: Sequence[tuple[str, type, Act]]) -> None:
        self.token = secrets.token_hex(16)
        found = [Route(path, self._route(kind, act), methods=["POST"]) for path, kind, act in routes]
        app = FastAPI(routes=found, openapi_url=None, docs_url=None, redoc_url=None)
        self._listening = Listening(app, listening)
        self.address = self._listening.address

    async def close(self) -> None:
        await self._listening.close()

    def _route(self, kind: type, act: Act) -> Callable[[Request], Awaitable[Response]]:
        async def route(request: Request) -> Response:
            if not hmac.compare_digest(bearer(request), self.token.encode()):
                return refusal(f"{request.url.path}: this server's token is missing or another one", 401)
            try:
                return await act(request, decode_message(kind, await read_body(request, BODY_MAX)))
            except BadBody as error:
                return refusal(str(error), 422)
            except TooLarge:
                return too_large(request.url.path, BODY_MAX)
            except Exception as error:
                return failed(error)

        return route


class Asking:
    """``owner``: a server that ends with this client."""

    def __init__(self, address: str, token: str, owner: Answering | None = None) -> None:
        self.address = address
        self._owner = owner
        self._client = loopback_client(address)
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    async def close(self) -> None:
        await self._client.aclose()
        if self._owner is not None:
            await self._owner.close()

    async def _post(self, path: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
        """Sent again, as it is, where no answer comes. Raises Lost."""
        pause_s = PAUSE_S
        for sent in range(1, SENT_MAX + 1):
            try:
                return await self._client.post(path, content=body, headers=headers, timeout=ANSWER_S)
            except httpx.TransportError as error:
                if sent == SENT_MAX:
                    raise Lost(
                        f"the resources server at {self.address} does not answer: {type(error).__name__} {error}"
                    ) from error
            await asyncio.sleep(pause_s)
            pause_s *= 2
        raise AssertionError("the last failure is raised")

    def _checked(self, response: httpx.Response) -> bytes:
        if response.status_code == 200:
            return bytes(response.content)
        fault = read_fault(response.content)
        if fault is not None:
            raise error_of(fault)
        raise PeerFailed(f"the resources server at {self.address} answered with HTTP {response.status_code}")
