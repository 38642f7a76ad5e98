"""Processes of a job on Ray, each an actor of its own, are killed from outside; nothing is left, and the next life restores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("ray", reason="Ray is in the extra 'real'")
pytest.importorskip("uvicorn", reason="uvicorn is in the extra 'real'")

from invariants.registry import JUDGES
from protocol.external import NOTHING
from protocol.history import FaultInjected, ProcessKilled, ProcessStarted, Restored, RunEnded
from protocol.judging import Durable, Panel
from real.cluster.setting import LifeSetting
from real.killer.copies import LINES, TREE, copy_tree
from real.killer.family import marked
from real.lives import RealLife, World, environment
from real.recorder import Trigger, read_history
from scenarios.faults import Fault
from scenarios.files import load
from scenarios.model import Scenario

pytestmark = [pytest.mark.real, pytest.mark.slow]
HERE = Path(__file__).resolve().parent


@pytest.fixture(autouse=True)
def parts_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path: names of Unix sockets are limited."""
    with tempfile.TemporaryDirectory(prefix="rollproof-") as folder:
        yield Path(folder)


def small(*faults: Fault) -> Scenario:
    scenario = load("workplace").scenario
    job = msgspec.structs.replace(scenario.job, num_prompts_per_step=2, train_steps=2)
    return msgspec.structs.replace(scenario, job=job, faults=faults)


def world(folder: Path, scenario: Scenario) -> World:
    return World(scenario=scenario, seed=1, folder=folder, parts="fake_parts:equip", options={}, limit_s=120.0)


def judged(life: RealLife, scenario: Scenario) -> Panel:
    terms = msgspec.structs.replace(scenario.terms, slack_s=10.0)
    panel = Panel(JUDGES, terms)
    panel.begin(Durable(life.start))
    for record in life.records:
        panel.feed(record)
    if life.status.outcome != "crashed":
        panel.end(Durable(life.finish), NOTHING, life.status, None)
    return panel


def last(life: RealLife) -> str:
    return f"{life.status} after {type(life.records[-1].event).__name__}"


def test_a_job_that_is_killed_leaves_nobody_and_the_next_life_restores(
    tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(short))
    monkeypatch.setattr(tempfile, "tempdir", None)
    scenario = small()
    lives = world(tmp_path, scenario)
    first = lives.life(1, Trigger("controller", "SnapshotPublished", 2))
    assert first.status.outcome == "crashed" and first.fired and first.outcome.killed > 8
    place = len(first.records) - first.window - 1
    assert type(first.records[place].event).__name__ == "SnapshotPublished"
    second = lives.life(2, None)
    assert second.start == first.finish
    assert second.status.outcome == "ended", last(second)
    assert any(isinstance(record.event, Restored) for record in second.records)
    assert any(isinstance(record.event, RunEnded) for record in second.records)
    for life in (first, second):
        assert [violation.message for violation in judged(life, scenario).violations] == []
    assert list(short.iterdir()) == []


def test_a_job_that_is_stopped_and_copied_goes_on_and_its_copy_is_restored(tmp_path: Path) -> None:
    scenario, at = small(), Trigger("gym-0", "AdmissionClosed", 2)
    lives = world(tmp_path / "reference", scenario)
    whole = lives.life(1, None, [at])
    assert whole.status.outcome == "ended", last(whole)
    assert whole.outcome.copies[0].wrong == "" and whole.outcome.copies[0].stood_s < 10.0
    copied = read_history(lives.copies / "0" / LINES)
    assert copied == whole.records[: len(copied)] and len(copied) < len(whole.records)
    own = [type(record.event).__name__ for record in copied if record.process == at.process]
    assert own[-1] == at.kind and own.count(at.kind) == at.n
    restoring = world(tmp_path / "restored", scenario)
    restoring.folder.mkdir()
    copy_tree(lives.copies / "0" / TREE, restoring.root)
    second = restoring.life(2, None)
    assert second.status.outcome == "ended", last(second)
    assert any(isinstance(record.event, Restored) for record in second.records)
    for life in (whole, second):
        assert [violation.message for violation in judged(life, scenario).violations] == []


def test_a_process_that_is_killed_alone_starts_again_and_counts_on(tmp_path: Path) -> None:
    fault = Fault(
        process="worker-0", event="CallBegun", occurrence=3, edge="after", life=1, verb="restart",
        arguments={"process": "worker-0", "after_s": 0.2},
    )  # fmt: skip
    scenario = small(fault)
    rules = msgspec.structs.replace(scenario.job.rollout_failure, backoff_base_s=3.0, max_backoff_s=20.0)
    scenario = msgspec.structs.replace(scenario, job=msgspec.structs.replace(scenario.job, rollout_failure=rules))
    life = world(tmp_path, scenario).life(1, None)
    assert life.status.outcome == "ended", last(life)
    assert life.outcome.effects == {0: ""}
    kinds = Counter(type(record.event) for record in life.records)
    assert kinds[ProcessKilled] == 1 and kinds[FaultInjected] == 1
    again = [record.event for record in life.records if isinstance(record.event, ProcessStarted) and record.process == "worker-0"]
    assert [event.incarnation for event in again] == [1, 2]
    assert [violation.message for violation in judged(life, scenario).violations] == []


def test_a_job_ends_with_whoever_started_its_supervisor(tmp_path: Path, short: Path) -> None:
    setting = LifeSetting(
        scenario=small(), root=str(tmp_path / "run"), history=str(tmp_path / "life-1.jsonl"), life=1, seed=1,
        parts="fake_parts:equip",
        control=str(short / "control"), mark=f"rollproof-test-{os.getpid()}", scratch=str(short),
    )  # fmt: skip
    (tmp_path / "run").mkdir()
    setting.write(tmp_path / "setting.json")
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "real.killer.supervisor", str(tmp_path / "setting.json")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while len(marked(setting.mark)) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(marked(setting.mark)) >= 3
    assert supervisor.stdin is not None
    supervisor.stdin.close()
    assert supervisor.wait(30) == 0
    assert marked(setting.mark) == []
    assert supervisor.returncode != -signal.SIGKILL
