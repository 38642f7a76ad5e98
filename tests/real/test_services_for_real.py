"""A job killed with SIGKILL cannot take back what a service outside of it has done; the next life repeats it by its key."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from job_child import small

from invariants.gym.effects_land_as_promised import EffectsLandAsPromised
from protocol.errors import Lost
from protocol.external import NOTHING, Service
from protocol.history import EffectDone, EffectDropped, EffectLanded, Record
from protocol.judging import Durable, Panel, RunStatus, Verdict
from protocol.messages import Effect, EffectAnswer
from real.files import files_below
from real.recorder import Trigger, read_history, read_status
from real.services import ServiceServer, _Door
from real.world import status_file

pytestmark = pytest.mark.real

CHILD = Path(__file__).with_name("job_child.py")
LIMIT_S = 60.0
MAILER = Service(service="mailer", tools=("email_",), idempotent=True)
PRINTER = Service(service="printer", tools=("print",))


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with a short name: the path of a socket has at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="rp-") as folder:
        yield Path(folder)


@pytest.fixture
def server(place: Path) -> Iterator[ServiceServer]:
    made = ServiceServer((MAILER, PRINTER), place / "services")
    yield made
    made.close()


def ask(path: Path, service: str, key: str) -> tuple[EffectAnswer, list[Any]]:
    """What a door answers, and what it records."""
    recorded: list[Any] = []
    rt: Any = SimpleNamespace(me=service, record=recorded.append)
    return asyncio.run(_Door(rt, path).answer(Effect(key, "p"))), recorded


def test_a_service_that_drops_repeats_does_one_thing_once_for_everybody_who_asks(server: ServiceServer) -> None:
    assert ask(server.socket, "mailer", "k")[0] == EffectAnswer(1, repeated=False)
    answer, recorded = ask(server.socket, "mailer", "k")
    assert (answer, recorded) == (EffectAnswer(1, repeated=True), [EffectDropped("k")])
    assert server.external().times("mailer", "k") == 1


def test_another_one_does_it_again_and_says_so(server: ServiceServer) -> None:
    ask(server.socket, "printer", "k")
    answer, (landed,) = ask(server.socket, "printer", "k")
    assert answer == EffectAnswer(2, repeated=True) and isinstance(landed, EffectLanded) and landed.times == 2
    assert server.external().times("printer", "k") == 2


def test_half_a_request_never_arrived_and_a_whole_one_that_nobody_waits_for_did(server: ServiceServer) -> None:
    for sent in (b'{"service":"printer","key":"half","payl', b'{"service":"printer","key":"whole","payload":"p"}\n'):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(server.socket))
            line.sendall(sent)
    assert ask(server.socket, "printer", "last")[0].number in (1, 2)  # the other one may still be on its way
    server.close()
    assert server.external().times("printer", "half") == 0


def test_a_server_that_is_gone_says_nothing(place: Path) -> None:
    with pytest.raises(Lost):
        ask(place / "nobody", "mailer", "k")


class LifeOutside:
    """One life of a job in a child process, with what the services held before and after it."""

    def __init__(self, scenario: str, folder: Path, server: ServiceServer, number: int, trigger: Trigger | None) -> None:
        root, history = folder / "run", folder / f"life-{number}.jsonl"
        self.scenario, self.number = scenario, number
        self.start = files_below(root) if root.exists() else {}
        self.before = server.external()
        asked = {
            "scenario": scenario, "root": str(root), "history": str(history), "life": number, "seed": 1, "time_scale": 0.5,
            "limit_s": LIMIT_S, "trigger": trigger, "services": str(server.socket),
        }  # fmt: skip
        job = folder / f"life-{number}.job.json"
        job.write_text(json.dumps(asked))
        done = subprocess.run([sys.executable, str(CHILD), str(job)], capture_output=True, text=True, timeout=2 * LIMIT_S)
        self.exit_code, self.output = done.returncode, done.stdout + done.stderr
        self.finish, self.after = files_below(root), server.external()
        self.records: list[Record] = read_history(history)
        self.status: RunStatus = read_status(status_file(history))

    def events(self, kind: type[Any]) -> list[Any]:
        return [record.event for record in self.records if isinstance(record.event, kind)]

    def verdict(self) -> Verdict:
        panel = Panel([EffectsLandAsPromised], small(self.scenario).terms)
        panel.begin(Durable(self.start), self.before)
        for record in self.records:
            panel.feed(record)
        if self.status.outcome != "crashed":
            panel.end(Durable(self.finish), self.after, self.status, None)
        assert (panel.crashed, [violation.message for violation in panel.violations]) == ({}, [])
        return panel.verdicts()["I66"]


LATE = 7  # of the first life's effects: by then its rollout lies in a snapshot


@pytest.mark.parametrize(("scenario", "times"), [("effects", 1), ("effects-repeated", 2)])
def test_what_a_killed_job_had_done_outside_stays_done(scenario: str, times: int, tmp_path: Path, place: Path) -> None:
    """It dies when an effect has landed, before the answer is in any record: no snapshot can hold that turn."""
    server = ServiceServer(small(scenario).contract.effects, place / "services")
    try:
        first = LifeOutside(scenario, tmp_path, server, 1, Trigger("mailer", "EffectLanded", LATE))
        assert first.exit_code == -signal.SIGKILL, f"UNKNOWN: it was not killed: {first.output}"
        second = LifeOutside(scenario, tmp_path, server, 2, None)
    finally:
        server.close()
    assert second.exit_code == 0, second.output
    assert (first.before, second.before) == (NOTHING, first.after)
    assert [first.verdict(), second.verdict()] == [Verdict.HELD, Verdict.HELD]
    last = first.events(EffectLanded)[-1].effect
    assert first.after.times("mailer", last) == 1
    assert last not in [done.effect for done in first.events(EffectDone)]
    again = [done for done in second.events(EffectDone) if done.effect == last]
    assert again, "UNKNOWN: the restored state did not hold its rollout"
    assert all(done.repeated for done in again)
    assert second.after.times("mailer", last) == times
