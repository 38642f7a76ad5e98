"""Calls that end: nobody waits for a peer without a bound."""

from __future__ import annotations

from typing import Any

from protocol.errors import Lost
from protocol.messages import Message
from protocol.runtime import Call, Runtime


async def answer_within(rt: Runtime, call: Call, what: str, timeout_s: float) -> Any:
    """The reply of ``call``. Raises what the peer raised, or Lost once ``timeout_s`` has passed: it may have happened."""
    if await rt.first_of(call, timeout_s=timeout_s) is None:
        call.cancel()
        raise Lost(f"no answer of {what} in {timeout_s:g} s")
    return await call


async def ask(rt: Runtime, peer: str, message: Message, timeout_s: float) -> Any:
    """One bounded call."""
    return await answer_within(rt, rt.call(peer, message), f"{peer} to {type(message).__name__}", timeout_s)
