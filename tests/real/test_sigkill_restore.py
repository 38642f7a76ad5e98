"""The core on asyncio and real files is killed with SIGKILL at an event of its protocol, started again, and judged.

Every life is one child process over one folder. The recorder kills it inside ``record``; the next life starts from the
files that are there. Histories and folders are then judged by the very judges that judge simulated runs.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from job_child import small

from invariants.registry import JUDGES
from protocol.history import Record, RestoreChosen, RunEnded, StepCommitted
from protocol.judging import Durable, Panel, RunStatus, Terms, Verdict, judge_life
from real.files import files_below
from real.recorder import Trigger, read_history, read_status
from real.world import status_file
from rollproof.tokens import Token, code_digest, parse_token
from sim.explore.lives import Setting, run_plan
from sim.explore.points import PlanItem

pytestmark = pytest.mark.real

SCENARIO = "workplace"
TIME_SCALE = 0.5  # real seconds for each second of the core: time-outs stay far above what a busy machine adds
LIMIT_S = 60.0
BUSY_S = 30.0  # seconds of the core
CHILD = Path(__file__).with_name("job_child.py")


@dataclass
class RealLife:
    """One life that is over. ``start`` and ``finish`` are what lay in the folder before and after it."""

    number: int
    exit_code: int
    start: Mapping[str, bytes]
    finish: Mapping[str, bytes]
    records: list[Record]
    status: RunStatus
    output: str

    def kinds(self) -> set[str]:
        return {type(record.event).__name__ for record in self.records}

    def judge(self, references: Mapping[str, Any] | None) -> Panel:
        """A killed life has no end to judge: what was open at the crash fell with it."""
        if self.status.outcome == "crashed":
            panel = Panel(JUDGES, judged_terms())
            panel.begin(Durable(self.start))
            for record in self.records:
                panel.feed(record)
            return panel
        return judge_life(JUDGES, judged_terms(), self.start, self.records, self.finish, self.status, references)


def judged_terms() -> Terms:
    """A busy machine puts seconds between two events, and a judge of the simulator allows for none of them."""
    return msgspec.structs.replace(small(SCENARIO).terms, slack_s=BUSY_S)


def run_life(folder: Path, number: int, trigger: Trigger | None, model: Path | None = None) -> RealLife:
    """``model``: of a torch trainer; the fake one trains without."""
    limit_s = LIMIT_S if model is None else 5 * LIMIT_S  # torch is imported beside everything else that starts
    root = folder / "run"
    history = folder / f"life-{number}.jsonl"
    start = files_below(root) if root.exists() else {}
    asked = {
        "scenario": SCENARIO,
        "root": str(root),
        "history": str(history),
        "life": number,
        "seed": 1,
        "time_scale": TIME_SCALE,
        "limit_s": limit_s,
        "trigger": trigger,
        "model": str(model or ""),
        "rows": str(folder / "rows"),
    }
    job = folder / f"life-{number}.job.json"
    job.write_text(json.dumps(asked))
    done = subprocess.run(
        [sys.executable, str(CHILD), str(job)], capture_output=True, text=True, timeout=2 * limit_s, check=False
    )
    return RealLife(
        number=number,
        exit_code=done.returncode,
        start=start,
        finish=files_below(root),
        records=read_history(history),
        status=read_status(status_file(history)),
        output=done.stdout + done.stderr,
    )


def killed_at(folder: Path, number: int, trigger: Trigger, model: Path | None = None) -> RealLife:
    """A life killed by its trigger. One that did not fire proves nothing: the run is UNKNOWN and the test fails."""
    life = run_life(folder, number, trigger, model)
    assert life.exit_code == -signal.SIGKILL, f"UNKNOWN: {trigger} did not fire, exit {life.exit_code}: {life.output}"
    last = life.records[-1]
    assert (last.process, type(last.event).__name__) == trigger[:2], "the kill came before record returned"
    return life


def assert_held(life: RealLife, references: Mapping[str, Any] | None) -> Panel:
    panel = life.judge(references)
    assert [violation.message for violation in panel.violations] == []
    assert panel.crashed == {}
    verdicts = set(panel.verdicts().values())
    assert verdicts <= {Verdict.HELD, Verdict.NOT_REACHED}
    assert Verdict.HELD in verdicts
    return panel


def committed(life: RealLife) -> list[int]:
    return [record.event.step for record in life.records if isinstance(record.event, StepCommitted)]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> RealLife:
    """A run that never crashed."""
    life = run_life(tmp_path_factory.mktemp("reference"), 1, None)
    assert life.exit_code == 0, life.output
    return life


def test_a_run_that_is_not_killed_holds(reference: RealLife) -> None:
    panel = assert_held(reference, None)
    assert isinstance(reference.records[-1].event, RunEnded)
    reached = {name for name, verdict in panel.verdicts().items() if verdict is Verdict.HELD}
    assert {"I13", "I21", "I67"} <= reached


@pytest.mark.parametrize(
    ("trigger", "restores"),
    [
        pytest.param(Trigger("controller", "SnapshotStarted", 1), "", id="before-any-snapshot"),
        pytest.param(Trigger("controller", "CutTaken", 2), None, id="between-a-cut-and-its-rename"),
        pytest.param(Trigger("controller", "TrainerCheckpointDurable", 1), "step_1", id="after-a-durable-trainer-checkpoint"),
        pytest.param(Trigger("gym-1", "AdmissionClosed", 2), None, id="inside-a-gym-phase"),
    ],
)
def test_a_killed_run_restores_and_holds(tmp_path: Path, reference: RealLife, trigger: Trigger, restores: str | None) -> None:
    """``restores``: the anchor that life 2 must choose, where the place fixes it."""
    references = assert_held(reference, None).summaries()
    first = killed_at(tmp_path, 1, trigger)
    second = run_life(tmp_path, 2, None)
    assert second.exit_code == 0, second.output
    assert second.start == first.finish
    (chosen,) = [record.event for record in second.records if isinstance(record.event, RestoreChosen)]
    if restores is not None:
        assert chosen.anchor == restores
    assert_held(first, references)
    assert_held(second, references)
    assert committed(second)[-1] == committed(reference)[-1]


def test_a_crash_token_names_the_same_event_in_both_worlds(tmp_path: Path, reference: RealLife) -> None:
    scenario = small(SCENARIO)
    plan = (PlanItem("controller", "SnapshotPublished", 1, 0, "all"),)
    token = Token(
        scenario=scenario.name, scenario_digest=scenario.digest, seed=1, level="turn", code_digest=code_digest(), plan=plan
    )
    (item,) = parse_token(str(token)).plan
    simulated = run_plan(Setting(scenario=scenario, seed=1, judges=JUDGES), (item,))
    real = [killed_at(tmp_path, 1, Trigger(item.process, item.kind, item.n)), run_life(tmp_path, 2, None)]
    assert [life.status.outcome for life in simulated] == ["crashed", "ended"]
    assert (real[0].exit_code, real[1].exit_code) == (-signal.SIGKILL, 0), real[1].output
    for killed in (simulated[0].history, real[0].records):
        counted = [record for record in killed if (record.process, type(record.event).__name__) == (item.process, item.kind)]
        assert len(counted) == item.n and counted[-1] is killed[-1]
    references = assert_held(reference, None).summaries()
    for life in real:
        assert_held(life, references)
    assert all(not life.panel.violations for life in simulated)


def test_a_run_killed_again_inside_its_restore_holds(tmp_path: Path, reference: RealLife) -> None:
    references = assert_held(reference, None).summaries()
    first = killed_at(tmp_path, 1, Trigger("controller", "TrainerCheckpointDurable", 1))
    second = killed_at(tmp_path, 2, Trigger("controller", "FileRead", 3))
    third = run_life(tmp_path, 3, None)
    assert third.exit_code == 0, third.output
    assert "Restored" not in second.kinds() and "Restored" in third.kinds()
    for life in (first, second, third):
        assert_held(life, references)
    assert committed(third)[-1] == committed(reference)[-1]


def test_a_trigger_that_does_not_fire_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="UNKNOWN"):
        killed_at(tmp_path, 1, Trigger("controller", "TrainerCheckpointDurable", 99))
