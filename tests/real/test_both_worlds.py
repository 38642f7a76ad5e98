"""The same scenario file is run in the simulator and for real, and the verdicts agree.

Three of the files are run here, all ten by ``make nightly``. A real run is the reference, the lives of its plan, and the judges.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from real import preflight
from rollproof.conformance import Model, conforms
from rollproof.conformance.simulated import simulated
from rollproof.saving import SavedRun, read_folder, unpack_history
from scenarios.files import load

pytestmark = [pytest.mark.real, pytest.mark.slow]
LACKING = preflight.package_faults()
CI = ("turn", "prefix", "second-crash")
NIGHTLY = ("sibling", "refusal", "lost-row", "gym-stall", "worker-kill", "data-plane-kill", "trainer-only")
LIMIT_S = 1_500.0
PACES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.5, 7.0)  # of a machine that nothing else uses, and of one at work
RACES = (
    "refusal",
    "open-door",
    "failed-resend",
    "busy-discards",
)  # what a real run of `turn` may meet by chance, and these always


def run(name: str, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "rollproof", "run", name, "--json", *options],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1, 3), done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.skipif(bool(LACKING), reason="; ".join(LACKING))
@pytest.mark.parametrize(
    "name", [*CI, *(pytest.param(name, marks=pytest.mark.nightly) for name in NIGHTLY)]
)  # fmt: skip
def test_the_verdicts_of_both_worlds_agree(name: str, tmp_path: Path) -> None:
    simulated, real = run(name), run(name, "--world", "real", "--out", str(tmp_path / "real"))
    assert real["verdict"] == simulated["verdict"] == "HELD", (real["violations"], real["messages"])
    assert [life["outcome"] for life in real["lives"]] == [life["outcome"] for life in simulated["lives"]]
    assert [life["address"] for life in real["lives"]] == [life["address"] for life in simulated["lives"]]
    verdicts = {row["invariant"]: row["verdict"] for row in real["judges"]}
    reached = {row["invariant"] for row in simulated["judges"] if row["verdict"] == "HELD"}
    assert {name: verdicts[name] for name in reached if verdicts[name] not in ("HELD", "N/A")} == {}
    if name == CI[0]:
        assert strangers(tmp_path / "real") == []
    if name == "prefix":
        assert compared(tmp_path / "real")["verdict"] == "HELD"


def compared(folder: Path) -> dict[str, Any]:
    """What a saved run's restored lives trained on, against its reference."""
    done = subprocess.run(
        [sys.executable, "-m", "rollproof", "parity", "compare", str(folder), str(folder), "--profile", "fp32", "--json"],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1, 3), done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def strangers(folder: Path) -> list[str]:
    """What of the real histories the simulator's model does not have, learned from runs of the same job, and of its races."""
    saved = read_folder(folder)
    assert isinstance(saved, SavedRun)
    same = simulated(saved.scenario, range(4), points=(0.5,), paces=PACES)
    races = [simulated(load(name).scenario, range(4), points=(0.5,), paces=(1.0, 2.0)) for name in RACES]
    model = Model.learn(chain(same, *races))
    found = []
    for life in saved.lives:
        history = unpack_history((folder / f"{life.name}.history").read_bytes(), life.name)
        found += [f"{life.name}: {complaint}" for complaint in conforms(history, model)]
    return found
