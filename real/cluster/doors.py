"""Servers of a job's processes, and the ways to them: HTTP for Gym instances and for workers; the others are asked as actors."""

from __future__ import annotations

import hashlib
from typing import Any

from protocol import identity
from protocol.run import fingerprint_of
from real.cluster.setting import LifeSetting
from real.remote import Link, Sender, Served
from real.runtime import AsyncioRuntime

GYM, WORKER = "gym-", "worker-"


def gym_token(setting: LifeSetting) -> str:
    """What the core's control calls to Gym carry in this start of the job."""
    scenario = setting.scenario
    return identity.control_token(fingerprint_of(scenario.job, scenario.tasks), setting.life, setting.secret)


def model_token(setting: LifeSetting) -> str:
    """Of the control calls to this start's model servers."""
    return hashlib.sha256(f"model-server/{setting.life}/{setting.secret}".encode()).hexdigest()[:32]


class Doors:
    """Of one process. ``outside`` answers a worker's clients that are no process of the job (``real.engine.server.Outside``)."""

    def __init__(self, setting: LifeSetting, process: str, outside: Any = None) -> None:
        self.setting = setting
        self.process = process
        self.outside = outside
        self._listening: Any = None  # a loop alone keeps no server

    async def open(self, served: Served, rt: AsyncioRuntime) -> str:
        """Start this process's server, if it has one; its address, '' if not."""
        if self.process.startswith(GYM):
            from real.gym.server import serve_gym

            listening = self._listening = await serve_gym(served, gym_token(self.setting), rt.record)
            return listening.address
        if self.process.startswith(WORKER):
            from real.engine.server import ModelServer
            from real.outside import in_background

            server = ModelServer(rt, served, token=model_token(self.setting), outside=self.outside)
            address = server.listen()
            in_background(server.serve(), f"server of {self.process}")
            return address
        return ""

    def link(self, peer: str, address: str, sender: Sender) -> Link:
        if peer.startswith(GYM):
            from real.gym.client import GymLink

            return GymLink(address, peer, sender)
        from real.engine.client import ModelLink

        return ModelLink(peer, address, sender, model_token(self.setting))
