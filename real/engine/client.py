"""The way to a generation worker of another operating system process: ``real.remote.Link`` over HTTP.

No time-out here but for connecting: how long an answer may take is decided by the core, which cancels what it gives up; that
closes the connection, and the worker's handler is cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec

from protocol.errors import Cause, Lost, PeerFailed, Refusal
from protocol.messages import Generate
from real.engine import wire
from real.remote import Sender

CONNECT_S = 10.0
IDLE_S = 60.0  # an unused connection is closed here, long before the server would

_encode = msgspec.json.encode
_answer = msgspec.json.Decoder(wire.Answer).decode
_ROUTES = {control.asks: (control.path, msgspec.json.Decoder(control.answers).decode) for control in wire.CONTROLS}


class ModelLink:
    """``peer`` is the worker at ``url``; ``sender`` whoever asks; ``token`` this run's control token."""

    def __init__(self, peer: str, url: str, sender: Sender, token: str, model: str = wire.MODEL) -> None:
        self.peer = peer
        self.model = model
        self.client = httpx.AsyncClient(
            base_url=url,
            headers={"authorization": f"Bearer {token}", wire.SENDER: wire.sender_text(sender)},
            timeout=httpx.Timeout(None, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=IDLE_S),
            trust_env=False,
        )

    async def call(self, message: Any) -> Any:
        if isinstance(message, Generate):
            return wire.generated_of(await self._post(wire.COMPLETIONS, wire.body_of(message, self.model), _answer))
        route = _ROUTES.get(type(message))
        if route is None:
            raise PeerFailed(f"{self.peer} serves no {type(message).__name__}")
        return await self._post(route[0], message, route[1])

    def stream(self, message: Any) -> AsyncIterator[Any]:
        return _no_stream(self.peer, message)

    async def close(self) -> None:
        await self.client.aclose()

    async def _post(self, path: str, body: Any, decode: Any) -> Any:
        try:
            content = _encode(body)
        except (UnicodeEncodeError, OverflowError) as error:
            raise Refusal(f"{type(body).__name__} to {self.peer} cannot be said in JSON: {error}", Cause.DATA) from None
        try:
            reply = await self.client.post(path, content=content, headers={"content-type": "application/json"})
        except httpx.TransportError as error:
            raise Lost(f"{path} of {self.peer}: {type(error).__name__}: {error}") from error
        if reply.status_code != 200:
            raise wire.error_of(self.peer, reply.status_code, reply.content)
        try:
            return decode(reply.content)
        except msgspec.DecodeError as error:
            raise PeerFailed(f"{self.peer} answered {path} with what is no answer: {error}") from None


async def _no_stream(peer: str, message: Any) -> AsyncIterator[Any]:
    raise PeerFailed(f"{peer} serves no stream of {type(message).__name__}")
    yield  # makes it an iterator
