"""The way to a Gym instance over HTTP: a ``real.remote.Link``.

It has no deadline of its own except that of the connection itself: the core bounds each call, and cancels it. A cancelled
call closes its connection, and so its handler is cancelled. What cannot be answered any more is ``Lost``: a refused
connection at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx

from protocol.errors import ConfigError, Lost, PeerFailed, ProtocolError
from protocol.messages import Control, Probe
from real.gym.wire import (
    BODY_MAX,
    decode_reply,
    encode_message,
    error_of,
    headers_of,
    read_fault,
    read_line,
    route_of,
    route_of_kind,
)
from real.remote import Sender

CONNECT_S = 5.0
IDLE_S = 30.0  # how long a connection is kept for the next call: less than the server keeps it


def loopback_client(address: str = "") -> httpx.AsyncClient:
    """For servers of this host: no proxy of the environment, no certificates to read, as many connections as there are calls."""
    return httpx.AsyncClient(
        base_url=address,
        trust_env=False,
        verify=False,
        follow_redirects=False,
        timeout=httpx.Timeout(None, connect=CONNECT_S),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=IDLE_S),
    )


class GymLink:
    """``peer`` is the instance's name, for the texts of errors; ``sender`` is who asks."""

    def __init__(self, address: str, peer: str, sender: Sender) -> None:
        self.address = address
        self.peer = peer
        self._headers = {**headers_of(sender), "content-type": "application/json"}
        self._client = loopback_client(address)

    async def call(self, message: Any) -> Any:
        kind = type(message)
        try:
            if kind is Probe:
                response = await self._client.get(route_of(message), headers=self._headers)
            else:
                response = await self._client.post(
                    route_of(message), content=encode_message(message), headers=self._headers_of(message)
                )
        except httpx.RequestError as error:
            raise self._lost(kind, error) from error
        if response.status_code != 200:
            raise self._failure(kind, response.status_code, response.content)
        return decode_reply(kind, response.content)

    async def stream(self, message: Any) -> AsyncIterator[Any]:
        kind = type(message)
        try:
            async with self._client.stream(
                "POST", route_of(message), content=encode_message(message), headers=self._headers_of(message)
            ) as response:
                if response.status_code != 200:
                    raise self._failure(kind, response.status_code, await response.aread())
                async for line in lines_of(response):
                    item = read_line(line)
                    if item is None:
                        return
                    yield item
        except httpx.RequestError as error:
            raise self._lost(kind, error) from error
        raise Lost(f"the stream of {kind.__name__} from {self.peer} broke off before its end")

    async def close(self) -> None:
        await self._client.aclose()

    def _headers_of(self, message: Any) -> dict[str, str]:
        if isinstance(message, Control):
            return {**self._headers, "authorization": f"Bearer {message.token}"}
        return self._headers

    def _lost(self, kind: type, error: Exception) -> Lost:
        return Lost(f"{kind.__name__} to {self.peer} at {self.address}: {type(error).__name__} {error}".rstrip())

    def _failure(self, kind: type, status: int, body: bytes) -> ProtocolError:
        fault = read_fault(body)
        if fault is not None:
            return error_of(fault)
        where = f"{self.peer} at {self.address}"
        if status in (404, 405) and issubclass(kind, Control):
            return ConfigError(
                f"{where} is not a participant: it has no {route_of_kind(kind)} (HTTP {status}). "
                "Start a Gym server with checkpoint routes there, or ask for target_level rollout or sibling"
            )
        if status in (404, 405):
            return ConfigError(f"{where} is no Gym environment server: it does not know {kind.__name__} (HTTP {status})")
        return PeerFailed(f"{where} answered {kind.__name__} with HTTP {status}: {body[:200].decode('utf-8', 'replace')}")


async def lines_of(response: httpx.Response) -> AsyncIterator[bytes]:
    """Only a line feed ends a line: a text may hold other separators (U+2028) that a reader of text would cut at."""
    rest = b""
    async for part in response.aiter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > BODY_MAX:
            raise PeerFailed(f"a line of the stream is longer than {BODY_MAX} bytes")
