"""What a scenario says of a run: its own crash plan, and its sizes in the real world."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.config import check
from rollproof.cli import main
from rollproof.tokens import parse_plan
from scenarios.files import library, load
from scenarios.model import InputError, RealSizes

BOTH_WORLDS = (
    "turn", "sibling", "prefix", "refusal", "lost-row", "gym-stall", "worker-kill", "data-plane-kill", "trainer-only",
    "second-crash", "multimodal",
)  # fmt: skip
SMALL = """
format = 1
name = "small"
crash = "controller-SnapshotPublished-1-all"

[load]
groups = 1
siblings = 2
gym_instances = 2

[job]
target_level = "turn"
train_steps = 1

[job.rollout_checkpointing]
interval_s = 0.2

[job.rollout_recovery]
gym_prepare_timeout_s = 2.0

[[faults]]
at = { process = "gym-0", event = "AdmissionClosed" }
do = { stall = { process = "gym-0", for_s = 0.1 } }

[real]
gym_instances = 1
"""


def written(tmp_path: Path, old: str = "", new: str = "") -> str:
    assert old in SMALL
    path = tmp_path / "small.toml"
    path.write_text(SMALL.replace(old, new) if old else SMALL + new)
    return str(path)


def refused(tmp_path: Path, old: str, new: str) -> str:
    with pytest.raises(InputError) as error:
        load(written(tmp_path, old, new))
    return str(error.value)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    main(["run", *words, "--json"])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


@pytest.mark.parametrize("name", BOTH_WORLDS)
def test_a_scenario_of_both_worlds_has_a_crash_plan_of_events_and_small_sizes_that_fit(name: str) -> None:
    scenario = load(name).scenario
    real = scenario.in_real()
    assert all(item.k == 0 for item in parse_plan(scenario.crash))
    assert check(real.job) == []
    rollouts = real.job.num_prompts_per_step * real.job.num_generations_per_prompt * real.job.train_steps
    assert rollouts <= 24 and real.faults == scenario.faults


@pytest.mark.parametrize("name", BOTH_WORLDS)
def test_a_scenario_of_both_worlds_crashes_is_restored_and_holds(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = run(capsys, name)
    assert report["verdict"] == "HELD"
    assert len(report["lives"]) == len(parse_plan(load(name).scenario.crash)) + 1


def test_a_dead_data_plane_ends_its_run_with_an_error_that_the_scenario_allows(capsys: pytest.CaptureFixture[str]) -> None:
    report = run(capsys, "data-plane-kill", "--crash", "none")
    assert report["verdict"] == "HELD" and [life["outcome"] for life in report["lives"]] == ["failed"]


def test_the_plan_of_the_file_is_that_of_a_run_which_names_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path)
    report = run(capsys, path)
    assert report["token"].split(".")[6] == "controller-SnapshotPublished-1-1" and len(report["lives"]) == 2
    assert run(capsys, path, "--crash", "controller-Restored-1-all")["token"] != report["token"]
    alone = run(capsys, path, "--crash", "none")
    assert alone["token"] == "" and len(alone["lives"]) == 1
    assert run(capsys, path, "--fail", "restart:gym-1@EpisodeAdmitted-1")["token"] == ""


def test_the_command_of_a_run_without_the_files_crash_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = written(tmp_path), tmp_path / "out"
    run(capsys, path, "--crash", "none", "--out", str(out))
    assert json.loads((out / "run.json").read_text())["command"].endswith("--crash none")


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("later", "crash: crash plan item 1 'later' has 1 parts"),
        ("controller-SnapshotPublishd-1-all", "did you mean 'SnapshotPublished'?"),
        ("gym-7-AdmissionClosed-1-all", "there is no process 'gym-7'"),
        ("controller-Restored-1+2-all", "only the simulator has steps"),
        ("a b", "it must be a crash plan"),
        ("a~", "it must be a crash plan"),
    ],
)
def test_a_wrong_crash_plan_is_one_clear_error(
    tmp_path: Path, plan: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", written(tmp_path, "controller-SnapshotPublished-1-all", plan)]) == 2
    assert expected in capsys.readouterr().err


def test_the_real_world_lays_its_sizes_over_the_job_and_one_token_means_the_same_in_both(tmp_path: Path) -> None:
    more = "workers = 2\ntrain_steps = 3\nmodel = 'moe'\ndata_plane = 'sqlite'\nlimit_s = 60.0\n[real.job]\nmax_new_tokens = 48\n"
    nested = "[real.job.watchdog]\nstall_timeout_s = 700.0\n"
    scenario = load(written(tmp_path, "", more + nested)).scenario
    real = scenario.in_real()
    assert (real.job.gym_instances, real.job.generation_workers, real.job.train_steps, real.job.max_new_tokens) == (1, 2, 3, 48)
    assert real.job.watchdog.stall_timeout_s == 700.0
    assert real.job.num_generations_per_prompt == scenario.job.num_generations_per_prompt
    assert (scenario.real.model, scenario.real.data_plane, scenario.real.limit_s) == ("moe", "sqlite", 60.0)
    assert real.digest == scenario.digest and real.in_real().job == real.job


def test_a_scenario_without_the_table_is_the_same_in_the_real_world() -> None:
    scenario = load("small").scenario
    assert scenario.real == RealSizes() and scenario.in_real().job == scenario.job


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ("groups = 0\n", "real.groups is 0"),
        ("colour = 'red'\n", "real.colour is not a known key"),
        ("data_plane = 'redis'\n", "it must be '', 'transfer-queue' or 'sqlite'"),
        ("profile = {}\n", "real.profile is not a known key"),
        ("[real.job]\ngym_instances = 2\n", "real.job.gym_instances is the load's: write it as real.gym_instances"),
        ("[real.job]\nmax_new_token = 2\n", "job.max_new_token is not a known key"),
        ("[real.job]\nmax_turns = 'two'\n", "job.max_turns is 'two'"),
        ("[real.job]\nwatchdog.stall_timeout_s = 31.0\n", "watchdog.stall_timeout_s is 31: it must outlast a Gym park"),
    ],
)
def test_a_wrong_table_for_the_real_world_is_one_clear_error(tmp_path: Path, new: str, expected: str) -> None:
    assert expected in refused(tmp_path, "", new)


def test_a_fault_must_befall_a_process_that_the_real_job_has_too(tmp_path: Path) -> None:
    text = refused(tmp_path, 'process = "gym-0", for_s', 'process = "gym-1", for_s')
    assert "scenario small with its table real laid over it: faults[0] names gym-1, and there the job has job, controller" in text


def test_what_lies_over_a_file_is_not_held_against_its_real_sizes(tmp_path: Path) -> None:
    """At another level, or under another's config, only a run of the real world must fit."""
    path = written(tmp_path, "", "[real.job]\nrollout_checkpointing.interval_s = 1.0\n")
    assert load(path, level="sibling").scenario.in_real().job.target_level == "sibling"


def test_every_scenario_of_the_library_fits_the_real_world() -> None:
    for name in library():
        scenario = load(name).scenario
        if not scenario.tables:
            assert check(scenario.in_real().job) == [], name
