"""Knobs that are fitted to a simulated history are the knobs that made it."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.history import CallEnded, Record, RunEnded
from real.recorder import Recorder
from rollproof.calibrate import FEWEST, fit, histories_at, pace_of, quantile, range_of, table_of
from rollproof.cli import main
from rollproof.knobs import knob_faults
from scenarios.files import load
from sim.explore.lives import Setting, run_life

KNOBS: dict[str, Any] = {
    "token_s": 0.03,
    "jitter_s": 0.02,
    "tokens_min": 10,
    "tokens_max": 30,
    "tool_min_s": 0.1,
    "tool_max_s": 0.3,
    "service_min_s": 0.05,
    "service_max_s": 0.1,
    "trainer": {"group_s": [0.2, 0.4], "finish_s": [0.5, 0.7], "save_s": [0.3, 0.5]},
    "data_plane": {"service_s": [0.02, 0.04]},
}
DEFAULTS: dict[str, Any] = {
    "token_s": 0.01,
    "jitter_s": 0.004,
    "tokens_min": 6,
    "tokens_max": 22,
    "tool_min_s": 0.01,
    "tool_max_s": 0.06,
}
SEEDS = 4


@cache
def lives(changed: bool) -> tuple[tuple[Record, ...], ...]:
    scenario = load("effects").scenario
    scenario = msgspec.structs.replace(scenario, profile={**scenario.profile, **(KNOBS if changed else DEFAULTS)})
    return tuple(
        tuple(run_life(Setting(scenario=scenario, seed=seed, judges=()), 1, {}, {}, None).history) for seed in range(SEEDS)
    )


def flat(profile: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in profile.items():
        found |= {f"{name}.{knob}": inner for knob, inner in value.items()} if isinstance(value, dict) else {name: value}
    return found


@pytest.mark.parametrize("changed", [False, True], ids=["defaults", "changed"])
def test_known_knobs_are_fitted_back(changed: bool) -> None:
    fitted = fit(lives(changed))
    found, wanted = flat(fitted.profile), flat(KNOBS if changed else DEFAULTS)
    for name, value in wanted.items():
        if isinstance(value, list):  # of a few draws the ends are not told: their middle is, and that they lie inside
            middle, width = sum(value) / 2, value[1] - value[0]
            assert sum(found[name]) / 2 == pytest.approx(middle, abs=0.25 * width), name
            assert value[0] - 0.3 * width <= found[name][0] <= found[name][1] <= value[1] + 0.3 * width, name
        else:
            assert found[name] == pytest.approx(value, rel=0.15, abs=0.0015 if name.endswith("_s") else 0), name
    assert fitted.samples["token_s"] > 50 and fitted.samples["trainer.group_s"] >= SEEDS


def test_a_slower_history_is_told_apart_from_a_quick_one() -> None:
    slow, quick = (flat(fit(lives(changed)).profile) for changed in (True, False))
    assert slow["token_s"] > 2 * quick["token_s"]
    assert slow["trainer.save_s"][0] > quick["trainer.save_s"][1]
    assert slow["data_plane.service_s"][0] > quick["data_plane.service_s"][1]


def test_outliers_of_a_busy_machine_move_no_range() -> None:
    even = [0.1 + 0.001 * step for step in range(201)]
    assert range_of(even) == pytest.approx((0.1, 0.3), abs=0.001)
    assert range_of([*even, *([9.0] * 12)])[1] == pytest.approx(0.3, abs=0.03)
    calls = [(count, 0.01 * (count + 0.25) + 0.002) for count in range(5, 60)]
    assert pace_of(calls) == pytest.approx((0.01, 0.002))
    assert pace_of([*calls, (7, 30.0), (50, 12.0), (11, 4.0)]) == pytest.approx((0.01, 0.002), rel=0.1)


def test_calls_of_one_length_say_a_pace_too() -> None:
    assert pace_of([(20, 0.2025), (20, 0.2025), (20, 0.25)]) == (0.01, 0.0)
    assert quantile([1.0], 0.9) == 1.0


def test_a_knob_that_too_few_samples_speak_of_is_left_out_and_named() -> None:
    records = lives(False)[0]
    ends = [index for index, record in enumerate(records) if isinstance(record.event, CallEnded)]
    few = fit([records[: ends[FEWEST - 2] + 1]])
    assert "token_s" in few.left_out and "token_s" not in few.profile
    assert fit([]).profile == {}


def test_the_table_is_a_scenarios_profile() -> None:
    fitted = fit(lives(True))
    table = tomllib.loads(table_of(fitted))["profile"]
    assert table == fitted.profile
    assert knob_faults(msgspec.structs.replace(load("effects").scenario, profile=table)) == []


# --- the command ----------------------------------------------------------------------------------------------------------


def test_a_saved_run_and_a_real_life_file_are_read_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert main(["run", "effects", "--seed", "3", "--out", str(folder)]) == 0
    capsys.readouterr()
    assert main(["calibrate", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["profile"]["token_s"] == pytest.approx(0.01, rel=0.15) and told["samples"]["token_s"] > 10
    recorder = Recorder(tmp_path / "life-1.jsonl", 1)
    for record in histories_at(folder)[0]:
        recorder.record(record.time, record.process, record.task, record.event)
    recorder.close()
    assert main(["calibrate", str(tmp_path / "life-1.jsonl"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == told
    assert main(["calibrate", str(next(folder.glob("*.history")))]) == 0
    assert tomllib.loads(capsys.readouterr().out)["profile"] == told["profile"]


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "cannot be read"), ("", "is no history"), ('{"format":1}\nx\n', "is no history"), ("folder", "holds neither")],
)
def test_what_is_no_history_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, text: str
) -> None:
    path = tmp_path / "life.jsonl"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_text(content)
    assert main(["calibrate", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("rollproof: error: ") and text in said and said.count("\n") == 1


def test_a_history_that_says_too_little_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(tmp_path / "life.jsonl", 1)
    recorder.record(0.0, "controller", "main", RunEnded(1))
    recorder.close()
    assert main(["calibrate", str(tmp_path / "life.jsonl")]) == 2
    assert f"no knob has {FEWEST} samples" in capsys.readouterr().err
