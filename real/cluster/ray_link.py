"""The way to a peer that is an actor: one actor call a message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from protocol.errors import Lost, PeerFailed
from real.remote import Sender

NAMESPACE = "rollproof"


class RayLink:
    """``mark`` makes the names of one job's actors its own."""

    def __init__(self, mark: str, peer: str, sender: Sender) -> None:
        self.peer = peer
        self.sender = sender
        self.name = actor_name(mark, peer)
        self._handle: Any = None

    @property
    def handle(self) -> Any:
        """Raises ValueError if no actor of that name lives."""
        if self._handle is None:
            self._handle = ray.get_actor(self.name, namespace=NAMESPACE)
        return self._handle

    async def call(self, message: Any) -> Any:
        kind = type(message).__name__
        try:
            asked = self.handle.ask.remote(self.sender, message)
        except (ValueError, RayActorError) as error:
            self._handle = None
            raise Lost(f"{kind} to {self.peer}: no actor of that name lives ({error})") from None
        try:
            value, failure = await asked
        except asyncio.CancelledError:
            ray.cancel(asked, force=False)
            raise
        except RayActorError as error:
            self._handle = None
            raise Lost(f"{kind} to {self.peer}: its actor died ({type(error).__name__})") from None
        except RayError as error:
            raise PeerFailed(f"{kind} to {self.peer}: {type(error).__name__}: {error}") from None
        if failure is not None:
            raise failure
        return value

    async def stream(self, message: Any) -> AsyncIterator[Any]:
        kind = type(message).__name__
        items: Any = None
        try:
            items = self.handle.ask_stream.options(num_returns="streaming").remote(self.sender, message)
            async for reference in items:
                value, failure = await reference
                if failure is not None:
                    raise failure
                yield value
        except (ValueError, RayActorError) as error:
            self._handle = None
            raise Lost(f"{kind} to {self.peer}: its actor died ({type(error).__name__})") from None
        finally:
            if items is not None:
                ray.cancel(items)

    async def close(self) -> None:
        self._handle = None


def actor_name(mark: str, process: str) -> str:
    return f"{mark}/{process}"
