"""One process of the core in an operating system process of its own: its tasks, its servers, its ways to the others."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from protocol import identity
from protocol.checkpoint.restore import clean_up as job_clean_up
from protocol.errors import ConfigError
from protocol.history import ProcessStarted
from protocol.job import processes
from protocol.judging import RunStatus
from protocol.parts import Factory, Parts
from real.cluster.setting import LifeSetting
from real.fault_links import LinkFaults
from real.faults import acts_of, bends_messages
from real.killer.control import Control
from real.outside import LocalServed
from real.processes import Job, RealTask
from real.recorder import Recorder, counts_of
from real.remote import Link, Sender, Served
from real.runtime import AsyncioRuntime


@dataclass(frozen=True, kw_only=True)
class Equipment:
    """What a process is given before its life starts, all of it loaded and listening.

    ``beside``: processes that live in the same operating system process (doors to services). ``instead`` of the core's main this
    one runs. ``open`` starts its servers (the runtime is for what they record) and returns the address at which others reach it
    ('': by actor calls). ``link``: the way to a peer that has an address. Nothing is closed: it ends with its process.
    """

    parts: Parts
    beside: Mapping[str, Factory] = field(default_factory=dict)
    instead: Factory | None = None
    open: Callable[[Served, AsyncioRuntime], Awaitable[str]] | None = None
    link: Callable[[str, str, Sender], Link] | None = None


Equip = Callable[[LifeSetting, str, int], Awaitable[Equipment]]  # setting, process, incarnation


def equip_of(name: str) -> Equip:
    """The function ``module:function``. Raises ConfigError if there is none."""
    module, _, function = name.partition(":")
    try:
        found: Equip = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"parts {name!r} cannot be loaded: {error}") from error
    return found


class Host:
    """``actor_link`` makes the way to a peer that is reached by actor calls."""

    def __init__(self, setting: LifeSetting, name: str, incarnation: int, actor_link: Callable[[str, Sender], Link]) -> None:
        self.setting = setting
        self.name = name
        self.sender = Sender(name, setting.life, incarnation)
        self.actor_link = actor_link
        self.links: dict[str, Link] = {}
        self.addresses: dict[str, tuple[str, int]] = {}
        history = Path(setting.history)
        before = counts_of(history, name) if incarnation > 1 else {}
        self.faults = LinkFaults(Control(setting.control).ask, lambda event: self.job.record(name, event), setting.time_scale)
        self.bent = bends_messages(setting.scenario, name)
        self.recorder = Recorder(history, setting.life, acts=acts_of(setting, name, self.faults), counts=before)
        self.job = self._job()
        local = LocalServed(self.job.process(name))
        self.served: Served = self.faults.door(local) if self.bent else local
        self.equipment: Equipment | None = None

    def _job(self) -> Job:
        setting = self.setting
        return Job(
            setting.life, self.recorder, setting.time_scale, incarnation=self.sender.incarnation, links=self.links
        )  # fmt: skip

    async def boot(self) -> str:
        """Load everything and listen; returns the address."""
        self.equipment = await equip_of(self.setting.parts)(self.setting, self.name, self.sender.incarnation)
        if self.equipment.open is None:
            return ""
        runtime = AsyncioRuntime(self.job, self.name, Path(self.setting.root), self.setting.seed)
        return await self.equipment.open(self.served, runtime)

    async def meet(self, book: Mapping[str, tuple[str, int]]) -> None:
        """Where the others are: address and incarnation, by name."""
        assert self.equipment is not None
        for name, entry in book.items():
            if name == self.name or self.addresses.get(name) == entry:
                continue
            self.addresses[name] = entry
            address, _ = entry
            old = self.links.pop(name, None)
            if address:
                assert self.equipment.link is not None
                link = self.equipment.link(name, address, self.sender)
            else:
                link = self.actor_link(name, self.sender)
            self.links[name] = self._with_faults(name, link)
            if old is not None:
                await old.close()

    def _with_faults(self, peer: str, link: Link) -> Link:
        return self.faults.link(peer, link) if self.bent else link

    async def clean_up(self, began: float) -> RunStatus:
        """The first stage of a life, in the name of this process."""
        first = self._job()
        first.began = began
        runtime = AsyncioRuntime(first, self.name, Path(self.setting.root), self.setting.seed)
        first.main = RealTask(runtime.process, job_clean_up(runtime), "clean-up")
        await first.over.wait()
        await first.stop()
        return status_of(first)

    def start(self, began: float) -> None:
        """The second stage: the process's main, and those beside it."""
        assert self.equipment is not None
        setting, job = self.setting, self.job
        job.began = began
        scenario = setting.scenario
        made = processes(scenario.tables or scenario.job, scenario.tasks, self.equipment.parts)
        own = self.equipment.instead or made[self.name]
        for name, factory in {**self.equipment.beside, self.name: own}.items():
            runtime = AsyncioRuntime(job, name, Path(setting.root), setting.seed)
            task = RealTask(runtime.process, _main(runtime, factory), "main")
            if name == identity.CONTROLLER:
                job.main = task

    async def over(self) -> RunStatus:
        """How this process ended: the controller's main, or a failure that nobody joined."""
        await self.job.over.wait()
        return status_of(self.job)


def status_of(job: Job) -> RunStatus:
    at_s = job.now()
    if job.failure is not None:
        error = job.failure[2]
        return RunStatus("failed", error=f"{type(error).__name__}: {error}", at_s=at_s)
    return RunStatus("ended", at_s=at_s)


async def _main(runtime: AsyncioRuntime, factory: Factory) -> None:
    runtime.record(ProcessStarted(runtime.incarnation))
    await factory(runtime)
