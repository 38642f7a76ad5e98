"""Which data plane a real job has, as its configuration and what is installed allow."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from protocol.errors import ConfigError
from protocol.runtime import Runtime
from real.data_plane.queue_service import TransferQueueSettings
from real.data_plane.queue_service import boot as boot_transfer_queue
from real.data_plane.serving import DataPlane
from real.data_plane.sqlite_plane import SqlitePlane
from real.data_plane.transfer_queue import TransferQueuePlane

AUTO, SQLITE, TRANSFER_QUEUE = "auto", "sqlite", "transfer-queue"
PACKAGE, RELEASE = "TransferQueue", "0.1.11"  # the release that was measured: its checkpoints are pickles of its own classes


Build = Callable[[Runtime, Path], DataPlane]  # the process's runtime, the run's folder


class Choice(NamedTuple):
    """``kind`` sqlite | transfer-queue, ``reason`` for whoever reads the run's report."""

    kind: str
    reason: str


def choose(asked: str = AUTO) -> Choice:
    """``asked`` auto | sqlite | transfer-queue. Raises ConfigError for what is not installed or not known."""
    if asked not in (AUTO, SQLITE, TRANSFER_QUEUE):
        raise ConfigError(f"data_plane = {asked!r}: it must be {AUTO}, {SQLITE} or {TRANSFER_QUEUE}")
    if asked == SQLITE:
        return Choice(SQLITE, "asked for")
    try:
        have = version(PACKAGE)
    except PackageNotFoundError:
        lacking = f"{PACKAGE} is not installed"
    else:
        if have == RELEASE:
            return Choice(TRANSFER_QUEUE, f"{PACKAGE} {have}")
        lacking = f"{PACKAGE} {have} is installed, {RELEASE} is the release that is known"
    if asked == TRANSFER_QUEUE:
        raise ConfigError(f"data_plane = {asked!r}: {lacking}; pip install {PACKAGE}=={RELEASE}, or ask for {SQLITE}")
    return Choice(SQLITE, f"{lacking}: rows are kept in SQLite")


async def boot(choice: Choice, incarnation: int = 1, settings: TransferQueueSettings | None = None) -> Build:
    """Start what the data plane needs, before the life begins that uses it. Raises ConfigError.

    A later incarnation has lost its rows, and needs nothing.
    """
    if choice.kind == SQLITE or incarnation > 1:
        return SqlitePlane
    settings = settings or TransferQueueSettings()
    service = await boot_transfer_queue(settings)
    return lambda rt, root: TransferQueuePlane(rt, root, settings, service)
