"""Ctrl-C: one line, exit 2, nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_sweep_says_so_and_nothing_else(number: signal.Signals, tmp_path: Path) -> None:
    job = subprocess.Popen(
        [sys.executable, "-m", "rollproof", "sweep", "workplace", "--seeds", "0:99", "--out", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.iterdir()) and time.monotonic() < deadline:  # the folder is made when the sweep begins
        time.sleep(0.02)
    time.sleep(0.3)
    job.send_signal(number)
    out, error = job.communicate(timeout=60)
    assert (job.returncode, out, error) == (2, "", "rollproof: error: interrupted\n")
    assert list(tmp_path.iterdir()) == []
