"""TransferQueue as a service of the job: how it is started, and calls of it that end.

It is started before the life that uses it (``boot``): importing torch takes seconds. TransferQueue has no bound for calls of its
controller, takes some of its own time-outs for success, and goes on listing what a dead storage unit held: so every call has a
bound here, and while it lasts the processes of TransferQueue are asked whether they live.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from protocol.errors import ConfigError
from real.data_plane import queue_processes
from real.data_plane.queue_processes import QueueProcess

T = TypeVar("T")
PATIENCE_S = 0.5  # after which whoever has not answered is asked whether it lives


class TransferQueueSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Seconds are real ones. ``answer_s`` bounds a request (shorter than the job's ``rpc_timeout_s``), ``save_s`` a checkpoint of
    TransferQueue, ``start_s`` its start."""

    storage_units: int = 1
    answer_s: float = 10.0
    save_s: float = 60.0
    start_s: float = 180.0


class Broken(Exception):
    """TransferQueue did not answer, one of its processes is dead, or it does not hold what it has acknowledged."""


class Service(NamedTuple):
    """``package`` is TransferQueue, connected; ``processes`` its controller and its storage units, by name."""

    package: Any
    processes: Mapping[str, QueueProcess]

    def stop(self) -> None:
        """No call may be under way. Rows that were not saved are gone."""
        queue_processes.disconnect()
        for process in self.processes.values():
            process.end()


async def boot(settings: TransferQueueSettings) -> Service:
    """Start TransferQueue, once in this process. Its processes end with the thread of this loop. Raises ConfigError."""
    package = await in_thread(lambda: load_transfer_queue(settings))
    processes = queue_processes.start(settings.storage_units)
    try:
        await within("its start", settings.start_s, in_thread(lambda: queue_processes.connect(processes)), {})
    except Broken as error:
        raise ConfigError(f"TransferQueue has not started: {error}") from None
    return Service(package, processes)


def load_transfer_queue(settings: TransferQueueSettings) -> Any:
    """Import it with time-outs behind our own. It reads them once, when it is imported.

    Raises ConfigError if it was imported before with others.
    """
    seconds = str(int(max(settings.save_s, settings.answer_s)) + 2)
    os.environ |= {
        "TQ_SIMPLE_STORAGE_SEND_RECV_TIMEOUT": seconds,
        "TQ_SIMPLE_STORAGE_MAX_ATTEMPTS": "1",
        "TQ_SIMPLE_STORAGE_PROBE_TIMEOUT": "1",
        "TQ_DATA_UPDATE_RESPONSE_TIMEOUT": seconds,
    }
    for name, value in (("TQ_LOGGING_LEVEL", "ERROR"), ("TQ_NUM_THREADS", "1"), ("TQ_CLIENT_ZMQ_IO_THREADS", "1")):
        os.environ.setdefault(name, value)
    package = importlib.import_module("transfer_queue")
    manager = importlib.import_module("transfer_queue.storage.managers.simple_storage_manager")
    if int(seconds) > manager.TQ_SIMPLE_STORAGE_SEND_RECV_TIMEOUT or manager.TQ_SIMPLE_STORAGE_MAX_ATTEMPTS != 1:
        raise ConfigError("TransferQueue was imported before its time-outs were set: build the data plane first")
    return package


async def within(what: str, limit_s: float, work: Coroutine[Any, Any, T], processes: Mapping[str, QueueProcess]) -> T:
    """The result of ``work``. Raises Broken after ``limit_s``, or earlier if one of the processes is dead."""
    clock = asyncio.get_running_loop().time
    until = clock() + limit_s
    task = asyncio.ensure_future(work)
    asked: list[asyncio.Future[Any]] = []
    try:
        await asyncio.wait([task], timeout=min(PATIENCE_S, limit_s))
        if not task.done() and processes:
            asked.append(asyncio.ensure_future(alive(processes)))
        while not task.done() and clock() < until:
            await asyncio.wait([task, *asked], timeout=until - clock(), return_when=asyncio.FIRST_COMPLETED)
            for answered in [each for each in asked if each.done()]:
                asked.remove(answered)
                answered.result()
        if not task.done():
            raise Broken(f"{what} took longer than {limit_s:g} s")
        return task.result()
    finally:
        for future in (task, *asked):
            future.cancel()


async def alive(processes: Mapping[str, QueueProcess]) -> None:
    """Ask every one. Raises Broken that names one that is dead; waits for one that does not answer."""
    for name, process in processes.items():
        if not await in_thread(process.answers):
            raise Broken(f"{name} is dead")


async def in_thread(function: Callable[[], T]) -> T:
    """Run it in a thread that keeps nobody from ending: a call of TransferQueue may never return."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(act: Callable[[], None]) -> None:
        if not outcome.done():
            act()

    def run() -> None:
        try:
            value = function()
        except Exception as error:
            failure = error
            _tell(loop, lambda: settle(lambda: outcome.set_exception(failure)))
        else:
            _tell(loop, lambda: settle(lambda: outcome.set_result(value)))

    threading.Thread(target=run, name="transfer-queue", daemon=True).start()
    return await outcome


def _tell(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(act)
