"""A TransferQueue of a test's own."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest

from real.data_plane.queue_service import Service, TransferQueueSettings, boot


def start_queue() -> Service:
    """Whoever starts it stops it. Skips where TransferQueue is not installed."""
    for package in ("ray", "transfer_queue"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install rollproof[real]")
    return asyncio.run(boot(TransferQueueSettings()))


def forget_rows() -> None:
    import transfer_queue

    for partition, keys in transfer_queue.kv_list().items():
        if keys:
            transfer_queue.kv_clear(list(keys), partition)
