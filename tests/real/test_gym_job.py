"""A whole job whose Gym instances are real, HTTP before them and SQL behind: it is cut off, and goes on in a next life."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("fastapi", reason="fastapi of the extra 'real' is not installed")
pytest.importorskip("uvicorn", reason="uvicorn of the extra 'real' is not installed")
pytest.importorskip("httpx", reason="httpx of the extra 'real' is not installed")

from gym_reach import ME, Kept
from job_child import small
from model_tokens import model_folder

from invariants.registry import JUDGES
from protocol.history import (
    ControlDone,
    EpisodeExported,
    EpisodeInstalled,
    Event,
    ReplySent,
    Restored,
    RunEnded,
    SnapshotPublished,
)
from protocol.identity import GymCheckpointEpisode, control_token, gym_name
from protocol.job import processes
from protocol.judging import Durable, Panel, RunStatus, judge_life
from protocol.parts import Parts
from protocol.run import fingerprint_of
from real.files import files_below
from real.gym.client import GymLink
from real.gym.equipment import WorkplaceEquipment
from real.gym.server import serve_gym
from real.gym.workplace import LAYOUT
from real.listening import Listening
from real.outside import LocalServed
from real.processes import Job, RealTask
from real.remote import Link
from real.runtime import AsyncioRuntime
from sim.fake_data_plane import FakeDataPlane
from sim.fake_engine import FakeEngine
from sim.fake_trainer import FakeTrainer

pytestmark = pytest.mark.real

TIME_SCALE = 0.5  # real seconds for each of the core's: time-outs stay far above what a busy machine adds
BUSY_S = 30.0  # of the core, that a busy machine may put between two events
SECRET = "minted for this job"


class CutOff(Kept):
    """Ends the life where the n-th event of a kind is recorded: no task gets another turn that could do anything."""

    def __init__(self, life: int, kind: type[Event], nth: int) -> None:
        super().__init__(life)
        self.kind = kind
        self.left = nth
        self.job: Job | None = None

    def record(self, time_s: float, process: str, task: str, event: Event) -> None:
        super().record(time_s, process, task, event)
        if isinstance(event, self.kind):
            self.left -= 1
            if self.left == 0 and self.job is not None:
                self.job.end()


async def live(scenario: Any, root: Path, model: Path, kept: CutOff) -> RunStatus:
    """One life on one loop; only the controller's calls to Gym leave it, over HTTP."""
    job, profile = scenario.job, {**scenario.profile, "unsavable": 24, "hold_first_boundary": True, "hold_most_s": 5.0}
    links: dict[str, Link] = {}
    equipped: dict[str, WorkplaceEquipment] = {}
    servers: list[Listening] = []
    parts = Parts(
        engine=lambda rt: FakeEngine(rt, profile),
        environment=lambda rt: equipped[rt.me].environment(rt),
        data_plane=FakeDataPlane,
        trainer=lambda rt: FakeTrainer(rt, job, profile),
        participants=lambda instance: LAYOUT.participants,
        secret=SECRET,
    )
    life = kept.job = Job(kept.life, kept, TIME_SCALE, links=links)  # type: ignore[arg-type]
    token = control_token(fingerprint_of(job, scenario.tasks), kept.life, SECRET)
    runtimes = {name: AsyncioRuntime(life, name, root, seed=1) for name in processes(job, scenario.tasks, parts)}
    for name in map(gym_name, range(job.gym_instances)):
        equipped[name] = WorkplaceEquipment(root=root, life=kept.life, process=name, model=model, profile=profile)
        server = await serve_gym(LocalServed(life.process(name)), token, runtimes[name].record)
        servers.append(server)
        links[name] = GymLink(server.address, name, msgspec.structs.replace(ME, life=kept.life))
    try:
        for name, factory in processes(job, scenario.tasks, parts).items():
            task = RealTask(runtimes[name].process, factory(runtimes[name]), "main")
            if name == ME.process:
                life.main = task
        async with asyncio.timeout(60):
            await life.over.wait()
    finally:
        await life.stop()
        for closing in (*links.values(), *servers, *equipped.values()):
            await closing.close()
    if life.failure is not None:
        return RunStatus("failed", error=repr(life.failure))
    return RunStatus("ended" if life.main is not None and life.main.done and kept.left > 0 else "crashed")


def violations(
    scenario: Any, start: Mapping[str, bytes], kept: Kept, finish: Mapping[str, bytes], status: RunStatus
) -> list[str]:
    terms = scenario.terms
    rules = terms.job.rollout_checkpointing
    late = msgspec.structs.replace(rules, interval_s=(rules.interval_s or 0.0) + BUSY_S)
    terms = msgspec.structs.replace(terms, job=msgspec.structs.replace(terms.job, rollout_checkpointing=late))
    if status.outcome != "crashed":
        panel = judge_life(JUDGES, terms, start, kept.history, finish, status, None)
    else:  # what was open at the crash fell with it
        panel = Panel(JUDGES, terms)
        panel.begin(Durable(start))
        for record in kept.history:
            panel.feed(record)
    assert panel.crashed == {}
    return [violation.message for violation in panel.violations]


def patient(scenario: Any) -> Any:
    """The same job, with more time for a prepare than a busy machine takes."""
    recovery = msgspec.structs.replace(scenario.job.rollout_recovery, gym_prepare_timeout_s=20.0)
    return msgspec.structs.replace(scenario, job=msgspec.structs.replace(scenario.job, rollout_recovery=recovery))


def test_a_job_with_real_gym_instances_is_cut_off_and_goes_on_where_its_episodes_were_saved(tmp_path: Path) -> None:
    scenario, root, model = patient(small("workplace")), tmp_path / "run", model_folder(tmp_path / "model")
    root.mkdir()
    first, second = CutOff(1, SnapshotPublished, 1), CutOff(2, RunEnded, 2)
    histories = {}
    for kept, outcome in ((first, "crashed"), (second, "ended")):
        start = files_below(root)
        status = asyncio.run(live(scenario, root, model, kept))
        assert status.outcome == outcome, status
        assert violations(scenario, start, kept, files_below(root), status) == []
        histories[kept.life] = [record.event for record in kept.history]
    exported = [event for event in histories[1] if isinstance(event, EpisodeExported)]
    assert any(event.turn >= 1 for event in exported), "the hold leaves something in mid-episode for each snapshot"
    installed = {event.key: event.turn for event in histories[2] if isinstance(event, EpisodeInstalled)}
    assert any(turn >= 1 for turn in installed.values())
    assert [event for event in histories[2] if isinstance(event, Restored)]
    replied = Counter(event.key for event in histories[2] if isinstance(event, ReplySent))
    assert set(replied.values()) == {1} and set(replied) & set(installed)
    assert all(GymCheckpointEpisode.of(key).attempt > 0 for key in installed)
    outcomes = Counter(event.outcome for event in histories[2] if isinstance(event, ControlDone))
    assert set(outcomes) == {"ok"}, outcomes
