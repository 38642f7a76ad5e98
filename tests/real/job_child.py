"""One life of the whole job in this operating system process: ``python job_child.py JOB.json``; exit 0 if it ended.

The core with the simulator's fakes, on asyncio and real files. The job file names the scenario, the folder, the life and,
if this life is to be killed, the trigger. With a ``model`` the trainer is a real one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from protocol.config import Job
from protocol.job import processes
from protocol.parts import Parts, Server
from protocol.runtime import Runtime
from real.recorder import Trigger
from real.services import doors
from real.world import run_one_life
from scenarios.files import load
from scenarios.model import Scenario
from sim.environments import environment, layout_of
from sim.fake_data_plane import FakeDataPlane
from sim.fake_engine import FakeEngine
from sim.fake_trainer import FakeTrainer

GROUPS = 2
TRAIN_STEPS = 2


def small(name: str) -> Scenario:
    """The library scenario with a load that takes seconds of real time."""
    scenario = load(name).scenario
    job = msgspec.structs.replace(scenario.job, num_prompts_per_step=GROUPS, train_steps=TRAIN_STEPS)
    faults = () if scenario.contract.effects else scenario.faults  # those of calls are the simulator's
    return msgspec.structs.replace(scenario, job=job, faults=faults)


def trained_by(rt: Runtime, job: Job, profile: Mapping[str, Any], asked: Mapping[str, Any]) -> Server:
    if not asked.get("model", ""):
        return FakeTrainer(rt, job, profile)
    from real.trainer.settings import TrainerSettings
    from real.trainer.torch_trainer import TorchTrainer

    settings = TrainerSettings(
        model=asked.get("model", ""), rows=asked["rows"], logprob_difference_max=None, same_routes_min=None
    )
    return TorchTrainer(rt, job, Path(asked["root"]), settings)


def main(path: Path) -> int:
    asked = json.loads(path.read_text())
    scenario = small(asked["scenario"])
    job, profile = scenario.job, scenario.profile
    parts = Parts(
        engine=lambda rt: FakeEngine(rt, profile),
        environment=lambda rt: environment(scenario.environment, rt, profile),
        data_plane=lambda rt: FakeDataPlane(rt),
        trainer=lambda rt: trained_by(rt, job, profile, asked),
        participants=lambda instance: layout_of(scenario.environment).participants,
        services=scenario.contract.effects,
    )
    outside = doors(scenario.contract.effects, Path(asked["services"])) if scenario.contract.effects else {}
    status = run_one_life(
        {**outside, **processes(job, scenario.tasks, parts)},
        Path(asked["root"]),
        Path(asked["history"]),
        asked["life"],
        seed=asked["seed"],
        time_scale=asked["time_scale"],
        limit_s=asked["limit_s"],
        faults=scenario.faults,
        trigger=Trigger(*asked["trigger"]) if asked["trigger"] else None,
    )
    print(status)
    return 0 if status.outcome == "ended" else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
