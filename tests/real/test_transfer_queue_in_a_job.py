"""A job whose rows lie in TransferQueue is killed whole; the next life loads TransferQueue's own checkpoint, and is judged."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("ray", reason="Ray is in the extra 'real'")
if find_spec("transfer_queue") is None:  # not imported here: it reads its time-outs once, and the data plane sets them
    pytest.skip("TransferQueue is in the extra 'real'", allow_module_level=True)
pytest.importorskip("uvicorn", reason="uvicorn is in the extra 'real'")

from invariants.registry import JUDGES
from protocol.external import NOTHING
from protocol.history import FileRead, Restored, RunEnded
from protocol.judging import Durable, Panel, Verdict
from real.lives import RealLife, World
from real.recorder import Trigger
from scenarios.files import load
from scenarios.model import Scenario

pytestmark = [pytest.mark.real, pytest.mark.slow]
HERE = Path(__file__).resolve().parent
DURABILITY = {"I13", "I21"}


@pytest.fixture(autouse=True)
def parts_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))


def small() -> Scenario:
    scenario = load("workplace").scenario
    job = msgspec.structs.replace(scenario.job, num_prompts_per_step=2, train_steps=2)
    return msgspec.structs.replace(scenario, job=job, faults=())


def judged(life: RealLife) -> Panel:
    panel = Panel(JUDGES, msgspec.structs.replace(small().terms, slack_s=10.0))
    panel.begin(Durable(life.start))
    for record in life.records:
        panel.feed(record)
    if life.status.outcome != "crashed":
        panel.end(Durable(life.finish), NOTHING, life.status, None)
    assert panel.crashed == {}
    return panel


def test_a_killed_job_goes_on_from_the_checkpoint_that_transfer_queue_wrote(tmp_path: Path) -> None:
    options = {"data_plane": "transfer-queue"}
    lives = World(scenario=small(), seed=1, folder=tmp_path, parts="plane_parts:equip", options=options, limit_s=120.0)
    first = lives.life(1, Trigger("controller", "SnapshotPublished", 2))
    assert first.status.outcome == "crashed" and first.fired
    second = lives.life(2, None)
    assert second.status.outcome == "ended", second.status
    assert any(isinstance(record.event, RunEnded) for record in second.records)
    (restored,) = [number for number, record in enumerate(second.records) if isinstance(record.event, Restored)]
    read = {record.event.path for record in second.records[:restored] if isinstance(record.event, FileRead)}
    assert any("/data_plane/tq/simple_storage/" in path for path in read)
    for life in (first, second):
        panel = judged(life)
        assert [violation.message for violation in panel.violations] == []
    assert {name for name, verdict in panel.verdicts().items() if verdict is Verdict.HELD} >= DURABILITY
