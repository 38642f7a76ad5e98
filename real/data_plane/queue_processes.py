"""TransferQueue's controller and its storage units: forks of the process that has imported it, which is also its client.

TransferQueue starts them as Ray actors, and speaks to them by ZeroMQ alone ("only for initialization purposes", its units say of
that). The same classes run here, unchanged; that each is no interpreter of its own saves 12 s of CPU in every life (``forked``).
They listen on loopback, and end with their parent.
"""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from protocol.errors import ConfigError
from real import forked

LOOPBACK = "127.0.0.1"
CONTROLLER, UNIT = "TransferQueueController", "TransferQueueStorageUnit#{}"


class QueueProcess:
    """One of them. ``info``: where it listens, as TransferQueue says it."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        """Call it on a thread that stays: the process ends with it."""
        self.name = name
        self.info: Any = None
        context = forked.context()
        asked, self._asks = context.Pipe(duplex=False)
        self._told, tells = context.Pipe(duplex=False)
        self._one = threading.Lock()
        self._process = context.Process(target=serve, args=(make, asked, tells), name=name, daemon=True)
        self._process.start()
        asked.close()
        tells.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Raises ConfigError if it has died."""
        try:
            self.info = self._told.recv()
        except EOFError:
            raise ConfigError(f"{self.name} has died while it started: what it said stands in the log of its process") from None

    def answers(self) -> bool:
        """False if it is dead. One that stands still is waited for, without end."""
        try:
            with self._one:
                self._asks.send_bytes(b"?")
                return bool(self._told.recv_bytes())
        except (EOFError, OSError):
            return False

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._asks.close()
        self._told.close()


def serve(make: Callable[[], Any], asked: Connection, tells: Connection) -> None:
    """In the fork: TransferQueue's own threads do the work, this one says that it lives."""
    import ray.util
    import torch

    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a Ray worker's handler speaks to Ray
    torch.set_num_threads(1)
    ray.util.get_node_ip_address = lambda: LOOPBACK  # what TransferQueue asks where to listen
    part = make()
    tells.send(part.get_zmq_server_info())
    while asked.recv_bytes():
        tells.send_bytes(b"!")


def start(units: int) -> dict[str, QueueProcess]:
    """A controller and its storage units, by name. TransferQueue is imported, and this process has computed nothing yet."""
    controller = plain_class("transfer_queue.controller", "TransferQueueController")
    unit = plain_class("transfer_queue.storage.simple_storage", "SimpleStorageUnit")
    config = {"num_data_storage_units": units}
    made = {CONTROLLER: QueueProcess(CONTROLLER, controller)}
    for number in range(units):
        made[UNIT.format(number)] = QueueProcess(UNIT.format(number), lambda: unit(config))
    return made


def plain_class(module: str, name: str) -> Any:
    """The class that TransferQueue has decorated as an actor. A private name of Ray 2.60, which is the one that is pinned."""
    return getattr(importlib.import_module(module), name).__ray_metadata__.modified_class


def connect(processes: Mapping[str, QueueProcess]) -> None:
    """Make this process TransferQueue's client, as its ``init`` does once the actors are there. Private names of its release
    0.1.11, the only one that is taken. Raises ConfigError."""
    from omegaconf import OmegaConf

    interface: Any = importlib.import_module("transfer_queue.interface")
    for process in processes.values():
        process.wait_until_ready()
    infos = {name: process.info for name, process in processes.items()}
    conf: Any = OmegaConf.create({}, flags={"allow_objects": True})
    conf = OmegaConf.merge(conf, OmegaConf.load(Path(interface.__file__).with_name("config.yaml")))
    conf.controller.zmq_info = infos.pop(CONTROLLER)
    conf.backend.SimpleStorage.num_data_storage_units = len(infos)
    conf.backend.SimpleStorage.zmq_info = infos
    assert interface._TQ_CLIENT is None, "it runs already"
    interface._TQ_CONTROLLER = processes[CONTROLLER]  # a save and a load ask whether there is one
    interface._maybe_create_tq_client(conf)


def disconnect() -> None:
    interface: Any = importlib.import_module("transfer_queue.interface")
    interface._TQ_CONTROLLER = None  # its ``close`` would have Ray kill it
    interface.close()
