"""Saved folders that were edited, cut or mixed up: exit 2, named by file and key, never a verdict and never a traceback."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from small_file import NO_JUDGE_EXPECTED
from small_file import SMALL as SMALL_JOB

from rollproof.cli import main

SMALL = SMALL_JOB + NO_JUDGE_EXPECTED


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    (folder / "small.toml").write_text(SMALL)
    small = str(folder / "small.toml")
    assert main(["run", small, "--crash", "controller-SnapshotPublished-1-all", "--out", str(folder / "run")]) == 0
    assert main(["run", small, "--out", str(folder / "plain")]) == 0
    assert main(["sweep", small, "--points", "3", "--out", str(folder / "sweep")]) == 0
    return folder


@pytest.fixture
def saved(originals: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals, tmp_path / "saved"))


def refused(folder: Path, capsys: pytest.CaptureFixture[str], command: str = "judge") -> str:
    capsys.readouterr()
    assert main([command, str(folder)]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and shown.err.startswith(f"rollproof: error: {folder}/")
    return shown.err


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_what_was_saved_is_accepted_as_it_is(saved: Path) -> None:
    assert [main(["judge", str(saved / name)]) for name in ("run", "plain", "sweep")] == [0, 0, 0]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda run: run.update(lives=[]), "lives is empty: a run has at least one"),
        (lambda run: run.update(lives=run["lives"][:1]), "life-1 crashed, and the life after it is missing"),
        (lambda run: run["lives"].reverse(), "it must be life-1"),
        (lambda run: run.update(kind="sweep"), "kind is 'sweep': it must be 'run'"),
        (lambda run: run.update(level="turn"), "level is 'turn': the scenario's is 'sibling'"),
        (lambda run: run.update(spam=1), "unknown field `spam`"),
        (lambda run: run["scenario"]["job"].update(target_level="spam"), "scenario.job.target_level is 'spam'"),
        (lambda run: run["scenario"].update(tasks=[]), "scenario.tasks is empty"),
        (lambda run: run.update(seed=-1), "seed is -1"),
        (lambda run: run.update(plan=[["controller", "Spam", 1, 0, "all"]]), "names the event 'Spam', which is none"),
        (lambda run: run.update(reference=None), "reference is missing"),
        (lambda run: run.update(token="rp1.x"), "token is wrong"),
        (lambda run: run["lives"][0].update(fired=None), "life-1.fired is None: a crash was asked for"),
        (lambda run: run["lives"][1]["status"].update(outcome="spam"), "status.outcome is 'spam'"),
        (lambda run: run["lives"][0].update(name="../x"), "lives[0] is '../x'"),
        (lambda run: run["lives"][0].update(events=0), "0 events"),
        (lambda run: run["lives"][0].update(effects={"7": ""}), "speaks of the faults [7]"),
    ],
)  # fmt: skip
def test_a_run_that_is_not_what_it_says_is_refused(
    change: Callable[[dict[str, Any]], object], expected: str, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(saved / "run" / "run.json", change)
    assert expected in refused(saved / "run", capsys)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda rows: [], "holds 0 records"),
        (lambda rows: rows[:-1], "records: it must hold"),
        (lambda rows: rows[1:], "records: it must hold"),
        (lambda rows: [rows[1], rows[0], *rows[2:]], "record 0 has the sequence number 1: a record is missing or moved"),
        (lambda rows: [[*rows[0][:3], 2, *rows[0][4:]], *rows[1:]], "record 0 is of life 2"),
    ],
)
def test_a_cut_empty_or_reordered_history_is_refused(
    change: Callable[[list[Any]], list[Any]], expected: str, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (saved / "plain", saved / "sweep" / "seed-0"):
        path = folder / "life-1.history"
        number, rows = msgspec.msgpack.decode(path.read_bytes())
        path.write_bytes(msgspec.msgpack.encode([number, change(rows)]))
    message = refused(saved / "plain", capsys)
    assert expected in message and f"{saved / 'plain' / 'life-1.history'}: " in message
    refused(saved / "sweep", capsys)


@pytest.mark.parametrize("name", ["life-1.history", "life-1.start.msgpack", "life-1.end.msgpack"])
def test_a_file_that_is_none_is_named_with_its_folder(name: str, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (saved / "plain" / name).write_bytes(b"")
    assert f"{saved / 'plain' / name}: is no saved" in refused(saved / "plain", capsys)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda sweep: sweep.update(seeds=[3, 1]), "seeds are 3 to 1"),
        (lambda sweep: sweep.update(seeds=[-1, 1]), "seeds are -1 to 1"),
        (lambda sweep: sweep.update(points=-1), "points is -1: it must be null or above 0"),
        (lambda sweep: sweep.update(outcomes=["spam"]), "outcomes is 'spam': it must be some of none, all"),
        (lambda sweep: sweep.update(outcomes=[]), "outcomes is ''"),
        (lambda sweep: sweep.update(result={}), "result is no report of a sweep"),
        (lambda sweep: sweep["result"].update(verdict="FINE"), "result is no report of a sweep"),
        (lambda sweep: sweep["result"].update(seeds=[0, 9]), "result.seeds is (0, 9)"),
        (lambda sweep: sweep.update(kind="run"), "kind is 'run': it must be 'sweep'"),
        (lambda sweep: sweep.update(spam=1), "unknown field `spam`"),
        (lambda sweep: sweep["scenario"]["job"].update(target_level="spam"), "scenario.job.target_level is 'spam'"),
    ],
)  # fmt: skip
def test_a_sweep_that_is_not_what_it_says_is_neither_judged_nor_reported(
    change: Callable[[dict[str, Any]], object], expected: str, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(saved / "sweep" / "sweep.json", change)
    for command in ("judge", "report"):
        assert expected in refused(saved / "sweep", capsys, command)


def test_a_name_too_long_or_a_link_to_nowhere_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "at-all")
    for option, name, expected in (
        ("--out", "x" * 300, "cannot be written (File name too long): name a folder that can"),
        ("--junit", "x" * 300, "cannot be written (File name too long): name a file that can"),
        ("--out", "link", "is a link that leads nowhere: name a folder"),
        ("--junit", "link", "is a link that leads nowhere: name a file"),
    ):
        assert main(["run", "workplace", option, str(tmp_path / name)]) == 2
        assert expected in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_the_longest_name_a_folder_may_have_can_be_written_twice(originals: Path, tmp_path: Path) -> None:
    out = tmp_path / ("x" * 255)
    for _ in range(2):
        assert main(["run", str(originals / "small.toml"), "--out", str(out)]) == 0
    assert (out / "run.json").is_file() and [path.name for path in tmp_path.iterdir()] == [out.name]


def test_a_link_to_a_folder_of_ours_keeps_leading_there(originals: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert main(["run", str(originals / "small.toml"), "--out", str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / "run.json").is_file()
