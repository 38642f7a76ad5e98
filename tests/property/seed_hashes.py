"""History hashes of many seeds: ``python seed_hashes.py SCENARIO FIRST STOP`` prints a JSON list.

Each seed is a small job killed once and restored, so that both kinds of lives are hashed.
"""

from __future__ import annotations

import json
import sys

import msgspec

from scenarios.files import load
from scenarios.model import Scenario
from sim.explore.lives import Setting, run_plan
from sim.explore.points import Plan, PlanItem

PLAN: Plan = (PlanItem("controller", "StepCommitted", 1, 0, "all"),)


def small(name: str) -> Scenario:
    scenario = load(name).scenario
    job = msgspec.structs.replace(scenario.job, num_prompts_per_step=2, num_generations_per_prompt=2, train_steps=2)
    return msgspec.structs.replace(scenario, job=job)


def hashes(name: str, seeds: range, schedule: str = "0") -> list[list[str]]:
    """For each seed, the hash of every life of the plan."""
    scenario = small(name)
    out: list[list[str]] = []
    for seed in seeds:
        setting = Setting(scenario=scenario, seed=seed, judges=(), schedule=schedule)
        out.append([life.digest for life in run_plan(setting, PLAN, {})])
    return out


if __name__ == "__main__":
    json.dump(hashes(sys.argv[1], range(int(sys.argv[2]), int(sys.argv[3]))), sys.stdout)
