"""Equipment of a real job whose engine, environment and trainer are the simulator's fakes, and nothing heavy: real processes,
actors, servers, files and kills."""

from __future__ import annotations

import tempfile
from pathlib import Path

from protocol.parts import Parts
from real.cluster.doors import Doors
from real.cluster.host import Equipment
from real.cluster.setting import LifeSetting
from real.data_plane.sqlite_plane import SqlitePlane
from sim import environments
from sim.fake_engine import FakeEngine
from sim.fake_trainer import FakeTrainer


async def equip(setting: LifeSetting, process: str, incarnation: int) -> Equipment:
    tempfile.mkstemp(prefix=f"{process}-")  # a killed process takes none away
    scenario, doors = setting.scenario, Doors(setting, process)
    job, profile = scenario.job, scenario.profile
    return Equipment(
        parts=Parts(
            engine=lambda rt: FakeEngine(rt, profile),
            environment=lambda rt: environments.environment(scenario.environment, rt, profile),
            data_plane=lambda rt: SqlitePlane(rt, Path(setting.root)),
            trainer=lambda rt: FakeTrainer(rt, job, profile),
            participants=lambda instance: environments.layout_of(scenario.environment).participants,
            services=scenario.contract.effects,
            secret=setting.secret,
        ),
        open=doors.open,
        link=doors.link,
    )
