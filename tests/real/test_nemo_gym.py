"""A NeMo Gym of release 0.7's shapes plays episodes through the core's workers, and what it cannot do is said."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("fastapi", reason="fastapi of the extra 'real' is not installed")
pytest.importorskip("uvicorn", reason="uvicorn of the extra 'real' is not installed")
pytest.importorskip("httpx", reason="httpx of the extra 'real' is not installed")

from gym_reach import GYM, Kept, play_on_asyncio
from model_tokens import model_folder
from nemo_stub import AGENT, install

from protocol.config import Job, Level
from protocol.errors import ConfigError, NoResult
from protocol.history import EpisodeAdmitted, EpisodeEnded, ReplySent, RowStagedDone
from protocol.messages import Health, Probe, RowCompleted, RowFailed, RunRows, SetWeightVersion
from protocol.runtime import END
from protocol.worker.worker import GenerationWorker
from real.gym.nemo.instance import NemoGym, NemoInstance
from real.gym.nemo.release import CANNOT_RECOVER, NemoServers, NemoSettings, check_job, find
from real.gym.tokens import ModelTokens
from real.processes import RealTask
from sim.fake_data_plane import FakeDataPlane
from sim.fake_engine import FakeEngine
from tests.unit.gym_bench import key, row, task

pytestmark = pytest.mark.real

JOB = Job(generation_workers=1, max_turns=4, target_level="sibling")
Script = Callable[[Any, NemoGym], Coroutine[Any, Any, None]]


def rows(category: str, *given: Any) -> RunRows:
    asked = msgspec.structs.replace(task(), name=category)
    return RunRows("e0p5i1", 5, 0, asked, given or (row(0), row(1)))


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokens = ModelTokens(model_folder(folder / "model"))
        self.settings = NemoSettings(python=install(folder / "gym"), boot_s=60.0)
        self.kept = Kept()

    def run(self, script: Script, engine: dict[str, Any] | None = None) -> None:
        gym = NemoGym(self.settings, JOB, self.tokens, self.folder / "scratch")

        async def play(rt: Any) -> None:
            await rt.call("worker-0", SetWeightVersion(0))
            inner = rt.process.job.process(GYM)
            from real.runtime import AsyncioRuntime

            beside = AsyncioRuntime(rt.process.job, GYM, self.folder, seed=0)
            installed = await gym.boot(beside)
            assert installed.version == "0.7.0"
            try:
                RealTask(inner, NemoInstance(beside, gym).main(), "main")
                await script(rt, gym)
            finally:
                await gym.close()

        worker = {"tokens_min": 4, "tokens_max": 9, **(engine or {})}
        processes = {
            "data-plane": lambda rt: FakeDataPlane(rt).main(),
            "worker-0": lambda rt: GenerationWorker(rt, JOB, FakeEngine(rt, worker)).main(),
        }
        asyncio.run(play_on_asyncio(play, self.folder, processes, self.kept))

    def events(self, kind: type) -> list[Any]:
        return [record.event for record in self.kept.history if isinstance(record.event, kind)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def items(rt: Any, request: RunRows) -> list[Any]:
    stream, found = rt.stream(GYM, request), []
    while (item := await stream.next()) is not END:
        found.append(item)
    return sorted(found, key=lambda item: str(item.key))


def test_its_episodes_are_captured_call_by_call_as_one_chain(bench: Bench) -> None:
    found: list[Any] = []

    async def script(rt: Any, gym: NemoGym) -> None:
        assert await rt.call(GYM, Probe()) == Health(1)
        found.extend(await items(rt, rows("calendar", *(row(generation) for generation in range(6)))))

    bench.run(script)
    assert [item.key for item in found] == [key(generation) for generation in range(6)]
    assert [item for item in found if type(item) is not RowCompleted or item.run_s <= 0] == []
    staged = {event.call for event in bench.events(RowStagedDone)}
    for item in found:
        assert [call.key for call in item.calls] == [f"{item.key}/c{turn}" for turn in range(len(item.calls))]
        assert all(call.captured and call.key in staged for call in item.calls)
    assert {len(item.calls) for item in found} - {1}, "some episodes use tools"
    assert {item.reward for item in found} >= {1.0}
    assert len(bench.events(EpisodeAdmitted)) == len(bench.events(ReplySent)) == len(bench.events(EpisodeEnded)) == 6


def test_a_model_call_that_is_asked_again_is_answered_as_before(bench: Bench) -> None:
    """The release's client repeats what it had no answer to."""
    found: list[Any] = []

    async def script(rt: Any, gym: NemoGym) -> None:
        found.extend(await items(rt, rows("calendar")))
        again = msgspec.structs.replace(rows("repeats"), rows=(row(0, replaced=1), row(1, replaced=1)))
        found.extend(await items(rt, again))

    bench.run(script)
    once, repeated = found[:2], found[2:]
    assert [len(item.calls) for item in repeated] == [len(item.calls) for item in once]
    assert [item.reward for item in repeated] == [item.reward for item in once]


def test_a_reply_that_is_no_result_fails_its_row(bench: Bench) -> None:
    expected = {
        "fails": (NoResult.DISCONNECTED.value, True),
        "garbage": (NoResult.MALFORMED.value, False),
        "quick": (NoResult.MALFORMED.value, False),  # a reward without a single model call: nothing to train on
        "masked": ("", True),
        "dies": (NoResult.SERVER_DIED.value, True),  # the release would answer with reward 0
    }
    found: dict[str, Any] = {}

    async def script(rt: Any, gym: NemoGym) -> None:
        for number, category in enumerate(expected):
            (found[category],) = await items(rt, rows(category, row(number)))

    bench.run(script)
    assert {category: (item.no_result, item.transport) for category, item in found.items()} == expected
    assert {type(item) for item in found.values()} == {RowFailed}
    assert [event.outcome for event in bench.events(EpisodeEnded)] == ["failed"] * len(expected)


def test_a_stream_that_is_given_up_ends_its_rollouts_and_their_agents_are_refused(bench: Bench) -> None:
    async def script(rt: Any, gym: NemoGym) -> None:
        stream = rt.stream(GYM, rows("calendar"))
        while len(bench.events(EpisodeAdmitted)) < 2:
            await rt.sleep(0.01)
        stream.cancel()
        while len(bench.events(EpisodeEnded)) < 2:
            await rt.sleep(0.01)
        assert gym.policy is not None and gym.policy.chains == {}

    bench.run(script, {"token_s": 1.0})
    assert {event.outcome for event in bench.events(EpisodeEnded)} == {"cancelled"}


def test_its_processes_end_with_the_instance(bench: Bench) -> None:
    seen: list[int] = []

    async def script(rt: Any, gym: NemoGym) -> None:
        seen.extend(process.pid for process in gym.servers._running.values())
        for process in seen:
            os.kill(process, 0)

    bench.run(script)
    assert len(seen) == 2
    for process in seen:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


@pytest.mark.parametrize("level", [level.name.lower() for level in Level])
def test_levels_that_need_a_checkpoint_are_refused_and_the_others_are_not(level: str) -> None:
    job = Job(target_level=level)
    if Level.named(level) < Level.TURN:
        check_job(job)
        return
    with pytest.raises(ConfigError, match=f"target_level is {level}.*not participants.*sibling"):
        check_job(job)


def test_what_it_cannot_recover_is_said() -> None:
    assert any("resources server" in text for text in CANNOT_RECOVER) and any("idempotency" in text for text in CANNOT_RECOVER)


def test_an_interpreter_without_nemo_gym_is_one_clear_error(tmp_path: Path, bench: Bench) -> None:
    bare = tmp_path / "bare-python"
    bare.write_text("#!/bin/sh\necho 'ModuleNotFoundError: no nemo_gym' >&2; exit 1\n")
    bare.chmod(0o755)
    for python, says in ((str(tmp_path / "nowhere"), "cannot be run"), (str(bare), "has no NeMo Gym")):
        with pytest.raises(ConfigError, match=says) as caught:
            asyncio.run(find(NemoSettings(python=python)))
        assert python in str(caught.value)
    with pytest.raises(ConfigError, match="has no .*resources_servers/elsewhere/app.py"):
        asyncio.run(find(msgspec.structs.replace(bench.settings, resources="elsewhere")))


@pytest.mark.parametrize(
    ("agent", "boot_s", "says"),
    [
        ("print('no such option'); raise SystemExit(4)", 30.0, "ended with 4.*no such option"),
        ("import time; time.sleep(60)", 2.0, "does not answer after 2 s"),
        (AGENT.replace("(404, b", "(401, b"), 30.0, "has checkpoint routes"),
    ],
    ids=["dies", "hangs", "another release"],
)
def test_a_server_that_does_not_boot_is_one_clear_error_and_nothing_is_left(
    tmp_path: Path, agent: str, boot_s: float, says: str
) -> None:
    servers = NemoServers(NemoSettings(python=install(tmp_path, agent), boot_s=boot_s), tmp_path / "scratch")

    async def boot() -> None:
        with pytest.raises(ConfigError, match=f"(?s){says}"):
            await servers.start("http://127.0.0.1:9", 4)
        assert servers._running == {}

    asyncio.run(boot())
