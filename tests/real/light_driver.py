"""A driver of one life without Ray: ``python -m light_driver SETTING.json``. The whole job with the simulator's fakes in this one
operating system process, over real files, and what its records set off asks the killer, as in a real life."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from protocol.job import processes
from protocol.parts import Parts
from real.cluster.setting import read_setting
from real.data_plane.sqlite_plane import SqlitePlane
from real.faults import acts_of
from real.killer.control import Booted, Control
from real.recorder import Recorder, save_status
from real.world import live, status_file
from sim.environments import environment, layout_of
from sim.fake_engine import FakeEngine
from sim.fake_trainer import FakeTrainer


def main(path: Path) -> None:
    setting = read_setting(path.read_bytes())
    scenario, root = setting.scenario, Path(setting.root)
    job, profile = scenario.job, scenario.profile
    parts = Parts(
        engine=lambda rt: FakeEngine(rt, profile),
        environment=lambda rt: environment(scenario.environment, rt, profile),
        data_plane=lambda rt: SqlitePlane(rt, root),
        trainer=lambda rt: FakeTrainer(rt, job, profile),
        participants=lambda instance: layout_of(scenario.environment).participants,
    )
    made = processes(job, scenario.tasks, parts)
    recorder = Recorder(Path(setting.history), setting.life)
    for name in made:
        recorder.acts.update(acts_of(setting, name))
    Control(setting.control).ask(Booted({name: os.getpid() for name in made}))
    status = asyncio.run(live(made, root, recorder, seed=setting.seed, time_scale=setting.time_scale, limit_s=setting.limit_s))
    save_status(status_file(Path(setting.history)), status)
    os._exit(0 if status.outcome == "ended" else 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
