"""A process that was started for another one does not outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux's")]

FRONT = """
import multiprocessing, sys, time
from real.plugins.orphans import register

def core(told):
    register() if told else None
    print("core", flush=True)
    time.sleep(60)

if __name__ == "__main__":
    register()
    child = multiprocessing.get_context("spawn").Process(target=core, args=(sys.argv[1] == "told",))
    child.start()
    print(child.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("told", ["told", "untold"])
def test_a_core_dies_with_its_front_end_because_it_asked_to(tmp_path: Path, told: str) -> None:
    script = tmp_path / "front.py"
    script.write_text(FRONT)
    root = str(Path(__file__).resolve().parents[2])
    with subprocess.Popen(
        [sys.executable, str(script), told], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root}
    ) as front:
        assert front.stdout is not None
        core = int(front.stdout.readline())
        assert front.stdout.readline() == "core\n"
        front.kill()
        front.wait()
    until = time.monotonic() + 10
    while alive(core) and time.monotonic() < until:
        time.sleep(0.01)
        if told == "untold":
            break
    try:
        assert alive(core) == (told == "untold")
    finally:
        if alive(core):
            os.kill(core, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Not gone, and no zombie that nobody has buried yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
