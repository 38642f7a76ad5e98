"""How one process of the job reaches another that is an operating system process of its own, and is reached.

A ``Link`` is the way to one peer: an actor call, or HTTP. ``Served`` is what stands behind a server: the handlers of this
process. Both speak the core's messages; how they look on the wire is the link's and the server's own affair.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import msgspec


class Sender(msgspec.Struct, frozen=True):
    """Who asks: a process of one start of the job. An older incarnation of a process that a newer one has been heard of is
    fenced: it is refused."""

    process: str
    life: int
    incarnation: int


class Link(Protocol):
    """The way to one peer. ``call`` and ``stream`` raise the typed ``ProtocolError`` that the peer answered with, ``PeerFailed``
    if it failed untyped, ``Lost`` if no answer can come any more. Cancelling the coroutine (or closing the iterator) gives up
    the answer and cancels the peer's handler."""

    async def call(self, message: Any) -> Any: ...

    def stream(self, message: Any) -> AsyncIterator[Any]: ...

    async def close(self) -> None: ...


class Served(Protocol):
    """The handlers of this process. A request that comes before the process serves waits. Raises what the handler raises, as a
    ``ProtocolError`` (anything else arrives as ``PeerFailed``). Cancelling it cancels the handler."""

    name: str

    async def answer(self, sender: Sender, message: Any) -> Any: ...

    async def answer_stream(self, sender: Sender, message: Any, send: Callable[[Any], None]) -> None: ...
