"""A job in a Ray cluster that somebody else has started (``--ray``): killed and restored there, and the cluster lives on."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("ray", reason="Ray is in the extra 'real'")
pytest.importorskip("psutil", reason="psutil is in the extra 'real'")
pytest.importorskip("uvicorn", reason="uvicorn is in the extra 'real'")

import psutil
import ray

from protocol.history import Restored, RunEnded
from real import preflight
from real.lives import World
from real.recorder import Trigger
from scenarios.files import load

pytestmark = [pytest.mark.real, pytest.mark.nightly]
HERE = Path(__file__).resolve().parent
UP_S = 60.0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster of this test's own, which has never heard of a job, with an actor of a stranger in it."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    address, folder = f"127.0.0.1:{free_port()}", tempfile.mkdtemp(prefix="rp-")
    ray_start = [
        sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={address.rpartition(':')[2]}",
        "--node-ip-address=127.0.0.1", f"--temp-dir={folder}", "--num-cpus=2", f"--object-store-memory={80 << 20}",
        "--include-dashboard=false", "--include-log-monitor=false", f"--ray-client-server-port={free_port()}",
        f"--dashboard-agent-listen-port={free_port()}",
    ]  # fmt: skip
    head = subprocess.Popen(ray_start, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        until = time.monotonic() + UP_S
        while preflight.cluster_faults(address):
            assert head.poll() is None and time.monotonic() < until, "the cluster did not start"
            time.sleep(0.2)
        ray.init(address=address, namespace="strangers", log_to_driver=False, configure_logging=False)
        yield address
    finally:
        ray.shutdown()
        born = [psutil.Process(head.pid), *psutil.Process(head.pid).children(recursive=True)]
        head.send_signal(signal.SIGTERM)
        for process in psutil.wait_procs(born, timeout=UP_S)[1]:
            process.kill()
        head.wait()
        shutil.rmtree(folder, ignore_errors=True)


class Stranger:
    def pid(self) -> int:
        return os.getpid()


def actors_alive() -> list[str]:
    """The names of all in the cluster."""
    from ray._private.state import actors

    found: dict[str, dict[str, Any]] = actors()
    return sorted(each["Name"] for each in found.values() if each["State"] != "DEAD")


def test_two_lives_with_a_kill_leave_a_strangers_cluster_as_it_was(cluster: str, tmp_path: Path) -> None:
    stranger = ray.remote(num_cpus=0, name="stranger")(Stranger).remote()
    pid = ray.get(stranger.pid.remote())
    raylets = {process.pid for process in psutil.process_iter(["name"]) if process.info["name"] == "raylet"}
    scenario = load("workplace").scenario
    job = msgspec.structs.replace(scenario.job, num_prompts_per_step=2, train_steps=2)
    scenario = msgspec.structs.replace(scenario, job=job, faults=())
    lives = World(scenario=scenario, seed=1, folder=tmp_path, parts="fake_parts:equip", options={}, limit_s=120.0, ray=cluster)
    first = lives.life(1, Trigger("controller", "SnapshotPublished", 2))
    assert first.status.outcome == "crashed" and first.fired
    assert first.outcome.killed > 6  # the actors too, which are no children of the job's driver
    second = lives.life(2, None)
    assert second.status.outcome == "ended", second.status
    assert [kind for kind in (Restored, RunEnded) if not any(isinstance(r.event, kind) for r in second.records)] == []
    assert ray.get(stranger.pid.remote(), timeout=UP_S) == pid
    assert {process.pid for process in psutil.process_iter(["name"]) if process.info["name"] == "raylet"} >= raylets
    until = time.monotonic() + UP_S
    while actors_alive() != ["stranger"] and time.monotonic() < until:
        time.sleep(0.2)
    assert actors_alive() == ["stranger"]
    assert ray.util.placement_group_table() == {}
