"""A history recorded on asyncio, real files and the wall clock is one that the simulator's model accepts."""

from __future__ import annotations

import json
from pathlib import Path

import job_child
import pytest
from job_child import small

from protocol.history import Record
from real.recorder import read_history
from rollproof.conformance import Model, conforms
from rollproof.conformance.simulated import simulated

pytestmark = pytest.mark.real


def recorded(folder: Path, scenario: str) -> list[Record]:
    """One life, run to its end in this process."""
    job = folder / "job.json"
    history = folder / "life-1.jsonl"
    asked = {
        "scenario": scenario, "root": str(folder / "run"), "history": str(history), "life": 1, "seed": 1, "time_scale": 1.0,
        "limit_s": 60.0, "trigger": None, "model": "",
    }  # fmt: skip
    job.write_text(json.dumps(asked))
    assert job_child.main(job) == 0
    return read_history(history)


@pytest.mark.parametrize("scenario", ["workplace", "sibling"])
def test_a_real_life_is_a_path_of_the_simulators_model(tmp_path: Path, scenario: str) -> None:
    model = Model.learn(simulated(small(scenario), range(3), points=(0.5,), paces=(0.5, 1.0, 2.0, 4.0)))
    assert [str(complaint) for complaint in conforms(recorded(tmp_path, scenario), model)] == []
