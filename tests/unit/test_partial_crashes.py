"""One process fails alone at each of its addresses: a closed list, each one run and judged, its job restarted if it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import explore_toys as toys
import pytest
from small_file import NO_JUDGE_EXPECTED
from small_file import SMALL as SMALL_JOB
from toy import Ask

from invariants.liveness.every_run_progresses_or_ends_typed import EveryRunProgressesOrEndsTyped
from invariants.registry import JUDGES
from protocol.config import Job
from protocol.errors import Lost
from protocol.history import AnchorMade, CallBegun, LifeStarted, ProcessStarted, Record, RestoreChosen, RunEnded, RunFailed
from protocol.judging import Verdict
from protocol.runtime import Runtime
from rollproof.cli import main
from scenarios.files import load
from scenarios.model import InputError
from scenarios.partial import Partial
from sim.explore.lives import Setting, run_life
from sim.explore.partial import addresses, run_partials
from sim.explore.result import SweepResult
from sim.explore.sweep import sweep

ASKS = 5


async def answers(rt: Runtime) -> None:
    async def ask(message: Ask) -> int:
        rt.record(AnchorMade(f"asked {message.number}"))
        return message.number

    rt.serve({Ask: ask})


async def asks(rt: Runtime, peer: str, again: bool) -> None:
    rt.record(RestoreChosen("", 0))
    for number in range(ASKS):
        while True:
            try:
                await rt.call(peer, Ask(number))
                break
            except Lost as error:
                if not again:
                    rt.record(RunFailed("Lost", error.cause.value, str(error)))
                    raise
                await rt.sleep(0.1)
    await rt.files.write(f"asked-in-life-{rt.life}", b"")
    rt.record(RunEnded(toys.STEPS))


async def survives_a_worker(rt: Runtime) -> None:
    await asks(rt, "worker-0", True)


async def falls_with_a_worker(rt: Runtime) -> None:
    await asks(rt, "worker-0", False)


async def falls_with_the_trainer(rt: Runtime) -> None:
    await asks(rt, "trainer", False)


async def no_clean_up(rt: Runtime) -> None:
    return None


def swept(controller: Any, *wish: Any) -> SweepResult:
    processes = {"trainer": answers, "worker-0": answers, "controller": controller}
    return sweep(
        toys.scenario(),
        1,
        (EveryRunProgressesOrEndsTyped,),
        points=3,
        verify=False,
        partial=wish,
        processes=processes,
        clean_up=no_clean_up,
    )


def test_the_addresses_of_a_process_are_the_first_second_and_last_of_each_kind() -> None:
    def history() -> Iterator[Record]:
        events = [ProcessStarted(), CallBegun("a", 0), AnchorMade("x"), CallBegun("b", 0), AnchorMade("y"), CallBegun("c", 0)]
        yield Record(0, 0.0, "job", 1, "", LifeStarted(1))
        for number, event in enumerate(events, start=1):
            yield Record(number, 0.0, "worker-0", 1, "", event)
            yield Record(number, 0.0, "worker-1", 1, "", AnchorMade("another's"))

    assert addresses(list(history()), "worker-0") == [
        ("ProcessStarted", 1),
        ("CallBegun", 1),
        ("CallBegun", 2),
        ("CallBegun", 3),
        ("AnchorMade", 1),
        ("AnchorMade", 2),
    ]
    assert addresses(list(history()), "gym-0") == []


@pytest.mark.parametrize("verb", ["restart", "stall"])
def test_a_run_that_survives_its_workers_holds_at_every_address(verb: str) -> None:
    result = swept(survives_a_worker, ("worker-0", "trainer"), verb, 0.5)
    assert result.verdict is Verdict.HELD, result.messages
    assert result.partial is not None
    assert result.partial["addresses"] == result.partial["run"] == result.partial["held"] == 4 + 1
    assert (result.partial["broken"], result.partial["unknown"], result.partial["restarted_jobs"]) == (0, 0, 0)


def test_a_run_that_falls_with_a_worker_is_broken_and_says_where() -> None:
    result = swept(falls_with_a_worker, ("worker-0",), "restart", 0.5)
    assert result.verdict is Verdict.BROKEN
    assert result.partial is not None
    assert result.partial["run"] == result.partial["addresses"]
    assert result.partial["held"] + result.partial["broken"] == result.partial["run"]
    (failure,) = result.partial_failures
    assert (failure.invariant, failure.plan) == ("I67", ())
    assert failure.fail == "restart:worker-0:0.5@ProcessStarted-1"
    assert failure.points == result.partial["broken"] > 1


def test_a_run_that_falls_with_its_trainer_may_do_so_and_is_started_again_from_its_files() -> None:
    result = swept(falls_with_the_trainer, ("trainer",), "restart", 0.5)
    assert result.verdict is Verdict.HELD, result.messages
    assert result.partial is not None
    assert 1 < result.partial["restarted_jobs"] <= result.partial["run"]


def test_a_process_that_stays_dead_may_end_the_run_but_not_hang_it() -> None:
    assert swept(falls_with_a_worker, ("worker-0",), "kill", 0.0).verdict is Verdict.HELD
    result = swept(survives_a_worker, ("worker-0",), "kill", 0.0)  # it asks for ever
    assert result.verdict is Verdict.BROKEN


@pytest.mark.parametrize(
    ("text", "survived"),
    [
        ("stall:data-plane:59@FileIssued-1", True),
        ("stall:data-plane:60@FileIssued-1", False),
        ("stall:trainer:60@WeightsLoaded-1", True),
        ("stall:trainer:1800@WeightsLoaded-1", False),
        ("stall:gym-0:9999@ReplySent-1", True),
        ("restart:gym-0@ReplySent-1", True),
        ("restart:trainer@WeightsLoaded-1", False),
        ("kill:gym-0@ReplySent-1", False),
    ],
)
def test_a_run_survives_what_nobody_gives_up(text: str, survived: bool) -> None:
    assert Partial.parse(text, Job()).survived(Job()) is survived


def test_no_partial_crashes_are_asked_for_unless_they_are() -> None:
    processes = {"controller": toys.count}
    result = sweep(toys.scenario(), 1, toys.JUDGES, points=3, verify=False, processes=processes, clean_up=toys.clean_up)
    assert "partial" not in result.as_json()


def test_processes_that_record_nothing_prove_nothing() -> None:
    result = swept(survives_a_worker, ("gym-0",), "restart", 0.5)
    assert result.verdict is Verdict.UNKNOWN
    assert "no partial crash was run: the processes asked for record nothing" in result.messages


@pytest.mark.parametrize(
    "text", ["restart:gym-0@EpisodeAdmitted-2", "stall:worker-0:1.5@CallBegun-1", "kill:trainer@ProcessStarted-1"]
)
def test_a_partial_crash_is_read_as_it_is_written(text: str) -> None:
    assert str(Partial.parse(text, toys.scenario().job)) == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gym-0@EpisodeAdmitted-2", "it must be VERB:PROCESS[:SECONDS]@EVENT-N, as restart:gym-0@EpisodeAdmitted-2"),
        ("melt:gym-0@EpisodeAdmitted-2", "the verb is 'melt': it must be one of restart, kill, stall"),
        ("kill:controller@RunEnded-1", "the process is 'controller': it must be one of data-plane, trainer"),
        ("kill:gym-0@EpisodeAdmited-1", "did you mean 'EpisodeAdmitted'?"),
        ("kill:gym-0@EpisodeAdmitted-0", "they count from 1"),
        ("stall:gym-0:0@EpisodeAdmitted-1", "a stall of 0 seconds is none"),
        ("kill:gym-0:5@EpisodeAdmitted-1", "a kill has no seconds"),
        ("stall:gym-0:" + "9" * 400 + "@EpisodeAdmitted-1", "its seconds are more than 100000"),
    ],
)
def test_what_is_no_partial_crash_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(InputError) as refused:
        Partial.parse(text, toys.scenario().job)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


SMALL = SMALL_JOB + NO_JUDGE_EXPECTED


def command(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main([*words, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def test_a_sweep_counts_its_partial_crashes_and_each_failure_has_a_command_that_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    words = ["sweep", str(path), "--points", "2", "--partial", "trainer,finalizer-0", "--partial-do", "kill"]
    _, report = command([*words, "--out", str(tmp_path / "out")], capsys)
    partial = report["partial"]
    assert partial["processes"] == ["trainer", "finalizer-0"]
    assert partial["run"] == partial["addresses"] == partial["held"] + partial["broken"] + partial["unknown"] > 5
    for violation in partial["violations"]:
        shown = next(one for one in report["violations"] if f"--fail {violation['fail']}" in one["command"])
        _, run = command(shown["command"].split()[1:], capsys)
        assert violation["invariant"] in {one["invariant"] for one in run["violations"]}


def test_a_run_with_a_partial_crash_is_saved_and_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    out = tmp_path / "run"
    words = ["run", str(path), "--fail", "kill:trainer@OptimizerApplied-1"]
    code, first = command([*words, "--out", str(out)], capsys)
    _, second = command(["judge", str(out)], capsys)
    assert first["lives"][0]["outcome"] == "failed"
    assert len(first["lives"]) == 2, "the job is started again after its typed error"
    assert (first["verdict"], first["judges"], first["history_hash"]) == (
        second["verdict"],
        second["judges"],
        second["history_hash"],
    )
    assert code in (0, 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sweep", "--partial", "gym-9"], "--partial names 'gym-9': it must be all, or some of data-plane"),
        (["sweep", "--partial-do", "kill"], "--partial-do is given without --partial"),
        (["sweep", "--partial", "all", "--partial-do", "melt"], "--partial-do is 'melt': it must be one of restart, kill, stall"),
        (["run", "--fail", "kill:gym-0"], "it must be VERB:PROCESS[:SECONDS]@EVENT-N"),
        (
            ["run", "--fail", "kill:gym-0@ProcessStarted-1", "--crash", "controller-RunEnded-1-none"],
            "--fail and --crash are both",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([words[0], "workplace", *words[1:]]) == 2
    assert says in capsys.readouterr().err


def test_a_job_that_is_started_again_finds_the_outside_services_as_it_left_them() -> None:
    setting = Setting(scenario=load("effects").scenario, seed=0, judges=JUDGES)
    reference = run_life(setting, 1, {}, {}, None)
    first, second = run_partials(setting, (Partial("kill", "data-plane", "FileDone", 21, 0.0),), reference.panel.summaries())
    assert first.external[1].landed and second.external[0] == first.external[1]
    assert first.panel.violations == second.panel.violations == []
