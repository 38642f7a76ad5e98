"""What one life of a real job is told: a file of JSON that the driver reads, and each of its actors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from real.recorder import Trigger
from scenarios.model import Scenario

MARK = "ROLLPROOF_JOB"  # environment variable: every process of a job has the job's mark in it


class LifeSetting(msgspec.Struct, frozen=True, kw_only=True):
    """``parts`` names the function that equips a process, ``module:function`` (``real.cluster.host.Equip``); ``options`` are for
    it. ``time_scale``: real seconds a second of the core. ``limit_s``: real seconds that the life may take after its processes
    have booted, ``boot_s`` those before. ``ray``: address of a cluster to use ('': one of its own). ``secret``: minted for this
    life, in its control tokens; whoever can read this file can steer the job. ``copies``: events at which the job is stopped,
    what it has on disk copied below the folder ``copies_to``, and the job continued. ``driver``: module that runs the life."""

    scenario: Scenario
    root: str
    history: str
    life: int
    seed: int
    parts: str
    control: str
    mark: str
    scratch: str
    secret: str = ""
    crash: Trigger | None = None
    copies: tuple[Trigger, ...] = ()
    copies_to: str = ""
    time_scale: float = 1.0
    limit_s: float = 300.0
    boot_s: float = 240.0
    ray: str = ""
    driver: str = "real.cluster.driver"
    options: dict[str, Any] = msgspec.field(default_factory=dict)

    def write(self, path: Path) -> None:
        path.write_bytes(msgspec.json.encode(self))


def read_setting(content: bytes) -> LifeSetting:
    return msgspec.json.decode(content, type=LifeSetting)
