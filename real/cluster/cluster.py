"""A Ray cluster of one job: on loopback, in a temporary folder of its own, with nothing left behind; or one that is there."""

from __future__ import annotations

import os
from typing import Any

import ray

ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",  # token auth is on by default, and asks for a token that a local cluster does not have
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_METRICS_EXPORT_INTERVAL_MS": "3600000",
    "RAY_enable_metrics_collection": "0",
    "RAY_event_stats": "0",
    "RAY_prestart_worker_first_driver": "0",  # one idle worker a logical CPU, else
}
CPUS = 16  # logical ones: Ray starts as many workers at once; no actor of a job asks for one
OBJECT_STORE_BYTES = 80 << 20


def on_loopback() -> None:
    """Every listener of a local cluster on 127.0.0.1. Private API of Ray 2.60: it has no public switch for it."""
    from ray._private import services

    services.resolve_ip_for_localhost = lambda host: host
    services.get_node_ip_address = lambda *args, **kwargs: "127.0.0.1"


def lean() -> None:
    """A cluster of one short job needs no autoscaler, no dashboard, and nobody who carries logs to a driver that does not listen:
    5 s of CPU at every start, of 9.5 (measured). Private API of Ray 2.60 as well."""
    from ray._private.node import Node

    def no_dashboard(node: Any, **_: Any) -> None:
        node._webui_url = ""

    Node.start_api_server = no_dashboard
    Node.start_monitor = Node.start_log_monitor = lambda node: None


def start(address: str, folder: str) -> None:
    """``address`` '': a cluster of its own below ``folder`` (a short path: its sockets' names are limited)."""
    if address:  # whether it wants a token, and where that lies, is the business of whoever started it
        ray.init(address=address, namespace="rollproof", log_to_driver=False, configure_logging=False)
        return
    os.environ.update(ENVIRONMENT)
    on_loopback()
    lean()
    for last in (False, True):
        try:
            return _start_own(folder)
        except Exception:  # a busy machine: Ray gives its own node 30 s, and says so by no type of its own
            if last:
                raise
            ray.shutdown()


def _start_own(folder: str) -> None:
    ray.init(
        address="local",  # without it Ray attaches to whatever old cluster it finds
        namespace="rollproof",
        _node_ip_address="127.0.0.1",
        num_cpus=CPUS,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        _temp_dir=folder,
        log_to_driver=False,
        configure_logging=False,
    )


def here() -> Any:
    """Scheduling: on the driver's own node, where the run's files and the killer are."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
