"""A real job is killed twenty times at random events, and restored each time: judged as a whole, and nothing of it is left."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from real import preflight

psutil = pytest.importorskip("psutil", reason="psutil is in the extra 'real'")

pytestmark = [pytest.mark.real, pytest.mark.nightly]
LACKING = preflight.package_faults()
KILLS = int(os.environ.get("ROLLPROOF_KILLS", "20"))
SEED = int(os.environ.get("ROLLPROOF_SOAK_SEED", "0"))
# Events that every life with work left records, and how often at least within its first seconds.
PLACES = (
    ("controller", "AttemptDispatched", 2),
    ("controller", "MutationEntered", 8),
    ("controller", "FileDone", 12),
    ("controller", "SnapshotStarted", 1),
    ("controller", "GymPhaseStarted", 1),
    ("controller", "CutTaken", 1),
    ("gym-0", "EpisodeAdmitted", 3),
    ("gym-0", "TurnCompleted", 3),
    ("gym-0", "AdmissionClosed", 1),
    ("worker-0", "CallBegun", 4),
    ("worker-0", "TokensGenerated", 3),
    ("worker-0", "RowStagedDone", 3),
    ("trainer", "WeightsLoaded", 1),
)


def plan_of(kills: int, seed: int) -> str:
    drawn = random.Random(seed)
    places = [drawn.choice(PLACES) for _ in range(kills)]
    return "~".join(f"{process}-{kind}-{drawn.randint(1, most)}-all" for process, kind, most in places)


def listening() -> set[int]:
    """Ports of loopback on which somebody listens."""
    return {entry.laddr.port for entry in psutil.net_connections("tcp") if entry.status == psutil.CONN_LISTEN}


@pytest.mark.skipif(bool(LACKING), reason="; ".join(LACKING))
def test_twenty_kills_lose_and_leave_nothing(tmp_path: Path) -> None:
    scenario = Path(__file__).with_name("soak.toml")
    ports = listening()
    temporary = Path(tempfile.mkdtemp(prefix="soak-"))  # short: names of Unix sockets are limited
    done = subprocess.run(
        [sys.executable, "-m", "rollproof", "run", str(scenario), "--world", "real", "--json", "--out", str(tmp_path / "soak"),
         "--crash", plan_of(KILLS, SEED)],
        capture_output=True, text=True, check=False, env={**os.environ, "TMPDIR": str(temporary)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    report = json.loads(done.stdout)
    assert report["verdict"] == "HELD"
    assert [life["outcome"] for life in report["lives"]] == ["crashed"] * KILLS + ["ended"]
    assert listening() <= ports
    temporary.rmdir()  # nothing is in it
    assert not [
        process for process in psutil.process_iter(["cmdline"]) if "real.cluster" in " ".join(process.info["cmdline"] or [])
    ]
