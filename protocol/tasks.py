"""Tasks that belong together: none of them outlives whoever started them (I37)."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.runtime import Runtime, Task


async def cancel_all(rt: Runtime, tasks: Iterable[Task]) -> None:
    """Cancel what still runs, and wait until none of it does."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        if not task.done:
            await rt.first_of(task.join())


async def join_all(rt: Runtime, tasks: list[Task]) -> None:
    """Wait for all; as soon as one fails, or this is cancelled, the others are cancelled and awaited."""
    try:
        waiting = list(tasks)
        while waiting:
            over = await rt.first_of(*[task.join() for task in waiting])
            assert over is not None, "no time-out was asked for"
            await waiting.pop(over).join()
    finally:
        await cancel_all(rt, tasks)
