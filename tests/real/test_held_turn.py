"""The workload *turn* of PROTOCOL 9 for real: the rows of ``held-turn`` are held, restored after a kill and trained once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from turn_recovery import TwoLives, complaints

from real import preflight

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.nightly]
LACKING = preflight.package_faults()
LIMIT_S = 1_500.0


@pytest.mark.skipif(bool(LACKING), reason="; ".join(LACKING))
def test_each_held_row_goes_on_once_where_it_ran_and_the_whole_run_matches_its_reference(tmp_path: Path) -> None:
    folder = tmp_path / "held"
    done = subprocess.run(
        [sys.executable, "-m", "rollproof", "parity", "run", "held-turn", "--world", "real", "--json", "--out", str(folder)],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["verdict"] == "HELD" and report["matched_outright"] >= 1
    assert complaints(TwoLives.of(folder)) == []
