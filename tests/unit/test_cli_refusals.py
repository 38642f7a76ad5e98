"""Bad input: exit 2, one line that says what would be right, no traceback, nothing half-written left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rollproof import finishing
from rollproof.cli import main


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("sweep workplce", "unknown scenario 'workplce' (did you mean workplace?)"),
        ("sweep workplace --seeds 5:2", "--seeds is '5:2': it holds no seed"),
        ("sweep workplace --seeds 5", "it must be A:B"),
        ("sweep workplace --seed 1 --seeds 0:2", "--seed and --seeds are both given"),
        ("sweep workplace --seed -1", "--seed is -1: it must be 0 or more"),
        ("sweep workplace --points 0", "--points is '0': it must be all or a number above 0"),
        ("sweep workplace --disk every", "--disk every comes with a later step"),
        ("sweep workplace --disk some", "--disk is 'some': it must be none"),
        ("sweep workplace --level turns", "--level is 'turns': it must be one of"),
        ("sweep workplace --world real", "points are enumerated in the simulator"),
        ("sweep workplace --second-crashes 3", "--second-crashes comes with a later step"),
        ("sweep workplace --schedules 3", "--schedules comes with a later step"),
        ("sweep workplace --workers 2", "--workers comes with a later step"),
        ("sweep workplace --ray auto", "--ray comes with a later step"),
        ("sweep workplace --budget 3", "--budget comes with a later step"),
        ("sweep workplace --fail-fast", "--fail-fast comes with a later step"),
        ("sweep workplace --shard 0/2", "--shard comes with a later step"),
        ("sweep workplace --tasks none.jsonl", "none.jsonl: there is no such tasks file"),
        ("sweep workplace --config none.yaml", "none.yaml: there is no such config file"),
        ("sweep workplace --faults none.toml", "none.toml: there is no such file"),
        ("sweep workplace --junit none/junit.xml", "--junit none/junit.xml: cannot be written"),
        ("sweep workplace --nonsense", "--nonsense"),
        ("sweep", "SCENARIO"),
        ("run workplace --crash controller-Restored", "crash plan item 1 'controller-Restored' has 2 parts"),
        ("run workplace --crash rp1.x", "has 2 parts: it must have 8"),
        ("replay rp1.x", "has 2 parts: it must have 8"),
        ("replay no-such-file", "is neither a crash token"),
        ("judge no-such-folder", "no-such-folder: is no folder"),
        ("judge .", "holds neither run.json nor sweep.json"),
        ("report .", "holds neither run.json nor sweep.json"),
        ("scenarios show nothing", "unknown scenario 'nothing'"),
        ("scenarios check nothing.toml", "nothing.toml: there is no such scenario file"),
        ("mutants --area gym", "--area is 'gym': it must be one of"),
        ("mutants short-stream-fre", "unknown bug 'short-stream-fre' (did you mean short-stream-free?)"),
        ("mutants 99999", "unknown bug '99999' (there are "),
        ("mutants 27 --patch none.diff", "--patch is given with a name or --area"),
        ("mutants --patch none.diff", "--patch 'none.diff': cannot be read"),
        ("mutants 27 --points 0", "--points is '0': it must be all or a number above 0"),
        ("bench kernel", "unknown measurement 'kernel': there are ledger"),
        ("shrink rp1.x", "the command 'shrink' comes with a later step"),
        ("nonsense", "nonsense"),
        ("sweep workplace --config-strict", "--config-strict is given without --config"),
        ("sweep workplace --points 99999999999999999999", "it must be all or a number above 0"),
        ("sweep workplace --seeds 0:99999999999999", "two numbers of at most 12 digits"),
        ("sweep workplace --seed 9999999999999", "--seed has 13 digits"),
        ("run workplace --crash controler-StepCommitted-1-0", "there is no process 'controler': this job has job, controller"),
        ("run workplace --crash gym-7-LifeStarted-1-0", "there is no process 'gym-7'"),
        ("judge", "rollproof judge --help lists what there is"),
    ],
)
def test_wrong_usage_and_input_is_one_line_and_exit_2(
    words: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("rollproof: error: ") and shown.err.count("\n") == 1
    assert expected in shown.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["file", "file/below", "full"])
def test_an_output_folder_that_cannot_be_written_is_refused_before_anything_runs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert main(["run", "sibling", "--out", str(tmp_path / name)]) == 2
    assert f"--out {tmp_path / name}: " in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_run_that_dies_leaves_no_half_written_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object, **__: object) -> None:
        raise RuntimeError("the machine went away")

    monkeypatch.setattr(finishing, "run_and_save", die)
    with pytest.raises(RuntimeError, match="the machine went away"):
        main(["run", "sibling", "--out", str(tmp_path / "a" / "b")])
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_history_folder_is_named_by_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["run", "weight-fifo", "--out", str(out)]) in (0, 3)
    (out / "life-1.history").write_bytes(b"\x00nonsense")
    assert main(["judge", str(out)]) == 2
    assert "life-1.history: is no saved history" in capsys.readouterr().err
    (out / "life-1.history").unlink()
    assert main(["judge", str(out)]) == 2
    assert "life-1.history: cannot be read" in capsys.readouterr().err
    (out / "run.json").write_text("{")
    assert main(["judge", str(out)]) == 2
    assert "run.json: cannot be read" in capsys.readouterr().err


def test_a_saved_sweep_without_its_classes_is_named_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    main(["sweep", "weight-fifo", "--points", "3", "--out", str(out)])
    classes = out / "seed-0" / "classes.jsonl"
    classes.write_text("[]\n")
    assert main(["judge", str(out)]) == 2
    assert "classes.jsonl: holds a row that is no class" in capsys.readouterr().err
    classes.unlink()
    assert main(["judge", str(out)]) == 2
    assert "classes.jsonl: cannot be read" in capsys.readouterr().err


def test_an_unknown_knob_or_participant_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "knobs.toml"
    path.write_text(
        'format = 1\nname = "knobs"\n[job]\ntarget_level = "sibling"\n[profile]\nspred = 1.0\ntokens_min = "few"\n'
        '[[faults]]\nat = { process = "job", event = "LifeStarted" }\n'
        'do = { config = { drop_participant = "agnt", instance = "gym-0" } }\n'
    )
    assert main(["scenarios", "check", str(path)]) == 2
    message = capsys.readouterr().err
    for part in ("profile.spred is not a known key", "profile.tokens_min is 'few'", "config.drop_participant is 'agnt'"):
        assert part in message


def test_a_stranger_with_the_name_of_a_room_is_refused(tmp_path: Path) -> None:
    stranger = tmp_path / "sim"
    stranger.mkdir()
    (stranger / "__init__.py").write_text("")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    finished = subprocess.run(
        [sys.executable, "-m", "rollproof", "scenarios", "list"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 2
    assert f"the package 'sim' was found in {stranger}" in finished.stderr and "Traceback" not in finished.stderr


def test_a_command_that_needs_another_word_shows_its_help_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("Usage: rollproof") and "\n  sweep " in shown.err


@pytest.mark.parametrize("option", ["--tasks", "--config", "--faults"])
def test_an_empty_file_name_is_named_by_its_option(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "sibling", option, ""]) == 2
    assert f"{option} is empty: name a file" in capsys.readouterr().err


def test_junit_never_replaces_an_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text("mine")
    assert main(["run", str(mine), "--junit", str(mine)]) == 2
    assert "is one of the inputs: name another file" in capsys.readouterr().err and mine.read_text() == "mine"


def test_a_reader_that_goes_away_leaves_the_verdicts_exit_code() -> None:
    job = subprocess.Popen(
        [sys.executable, "-m", "rollproof", "scenarios", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert job.stdout is not None and job.stderr is not None
    job.stdout.close()
    assert job.stderr.read() == "" and job.wait() == 0
    job.stderr.close()


@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ("tokens_min = -5", "profile.tokens_min is -5: it must be 0 or more"),
        ("token_s = nan", "profile.token_s is nan: it must be 0 or more"),
        ("tokens_min = 9\ntokens_max = 3", "profile.tokens_min is 9 and profile.tokens_max is 3"),
        ("[profile.trainer]\ngroup_s = [0.2, 0.1]", "profile.trainer.group_s is [0.2, 0.1]: its first number"),
        ("[[profile.sampling]]\nsead = 1", "unknown field `sead`"),
        ("[[profile.sampling]]\nordinal = [0, 0]", "expected `int` >= 1"),
        ("[[profile.sampling]]\nmax_tokens = 0", "expected `int` >= 1"),
        ("[profile.trainer]\nspam = 1", "profile.trainer.spam is not a known key; known are finish_s"),
    ],
)
def test_a_knob_out_of_its_range_is_refused(
    knobs: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "knobs.toml"
    path.write_text(f'format = 1\nname = "knobs"\n[job]\ntarget_level = "sibling"\n[profile]\n{knobs}\n')
    assert main(["scenarios", "check", str(path)]) == 2
    assert expected in capsys.readouterr().err
