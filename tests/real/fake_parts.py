"""Equipment of a real job whose parts are the simulator's fakes: real processes, actors, files and kills, and nothing heavy."""

from __future__ import annotations

from protocol.parts import Parts
from real.cluster.host import Equipment
from real.cluster.setting import LifeSetting
from sim.environments import environment, layout_of
from sim.fake_data_plane import FakeDataPlane
from sim.fake_engine import FakeEngine
from sim.fake_trainer import FakeTrainer


async def equip(setting: LifeSetting, process: str, incarnation: int) -> Equipment:
    scenario = setting.scenario
    job, profile = scenario.job, scenario.profile
    return Equipment(
        parts=Parts(
            engine=lambda rt: FakeEngine(rt, profile),
            environment=lambda rt: environment(scenario.environment, rt, profile),
            data_plane=lambda rt: FakeDataPlane(rt),
            trainer=lambda rt: FakeTrainer(rt, job, profile),
            participants=lambda instance: layout_of(scenario.environment).participants,
            services=scenario.contract.effects,
        )
    )
