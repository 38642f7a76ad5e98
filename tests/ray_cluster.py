"""A small Ray cluster of a test's own, with TransferQueue in it, of which nothing is left afterwards."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from real.data_plane.queue_service import TransferQueueSettings, boot

CPUS = 8  # logical ones: a controller and each storage unit take one
GONE_S = 20.0


@contextmanager
def cluster() -> Iterator[None]:
    """Skips where Ray or TransferQueue is not installed."""
    for package in ("ray", "transfer_queue", "psutil"):
        if not _installed(package):
            pytest.skip(f"{package} is not installed: pip install rollproof[real]")
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    import psutil
    import ray
    from ray._private import services

    addresses = services.resolve_ip_for_localhost, services.get_node_ip_address
    services.resolve_ip_for_localhost, services.get_node_ip_address = (lambda host: host), (lambda *_, **__: "127.0.0.1")
    folder = tempfile.mkdtemp(prefix="rp-")
    try:
        _start(folder)
        yield
    finally:
        born = psutil.Process().children(recursive=True)
        if _imported("transfer_queue"):
            stop_transfer_queue()
        ray.shutdown()
        services.resolve_ip_for_localhost, services.get_node_ip_address = addresses
        shutil.rmtree(folder, ignore_errors=True)
    left = psutil.wait_procs(born, timeout=GONE_S)[1]
    assert left == [], "processes of the cluster are left"


def _start(folder: str) -> None:
    """Ray gives its own processes 30 s to come up: a machine that is busy with other things may need a second try."""
    import ray

    for left in (1, 0):
        try:
            ray.init(
                address="local", _node_ip_address="127.0.0.1", num_cpus=CPUS, include_dashboard=False, log_to_driver=False,
                object_store_memory=80 << 20, _temp_dir=folder,
            )  # fmt: skip
        except Exception as error:
            ray.shutdown()
            if not left or "timed out during startup" not in str(error):
                raise
        else:
            return


def stop_transfer_queue() -> None:
    import transfer_queue

    transfer_queue.close()


def empty_queue() -> None:
    """TransferQueue runs, and holds nothing."""
    asyncio.run(boot(TransferQueueSettings()))
    forget_rows()


def forget_rows() -> None:
    import transfer_queue

    for partition, keys in transfer_queue.kv_list().items():
        if keys:
            transfer_queue.kv_clear(list(keys), partition)


def storage_units() -> list[Any]:
    """The processes of the storage units."""
    import psutil

    return [each for each in psutil.Process().children(recursive=True) if each.cmdline()[:1] == ["ray::SimpleStorageUnit"]]


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _imported(package: str) -> bool:
    return package in sys.modules
