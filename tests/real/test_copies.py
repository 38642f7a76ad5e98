"""A reference that is stopped at an event, copied and continued: the copy is a first life that was killed there."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("psutil", reason="psutil is in the extra 'real'")

from real import lives
from real.recorder import Trigger
from rollproof.cli import main
from rollproof.saving import unpack_files, unpack_history

pytestmark = pytest.mark.real

HERE = Path(__file__).resolve().parent
AT = Trigger("controller", "SnapshotPublished", 1)
LATER = Trigger("gym-0", "AdmissionClosed", 2)
NEVER = Trigger("controller", "SnapshotPublished", 99)
SMALL = """
format = 1
name = "small"
[load]
groups = 2
siblings = 2
gym_instances = 1
[job]
target_level = "turn"
train_steps = 2
[job.rollout_checkpointing]
interval_s = 0.5
[real]
slack_s = 30.0
limit_s = 60.0
[expect]
judges = []
"""


def address(trigger: Trigger) -> str:
    return f"{trigger.process}-{trigger.kind}-{trigger.n}"


def without_ray(patch: pytest.MonkeyPatch) -> None:
    """Lives have the light driver, which is one process with the simulator's fakes."""
    patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    patch.setattr("real.preflight.check", lambda scenario, model: None)
    patch.setattr(lives, "World", partial(lives.World, driver="light_driver"))


def run(*words: str) -> int:
    return main(["run", *words, "--world", "real", "--parts", "light_driver:none"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a scenario and its reference, which was copied at two events; a third one never came."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "small.toml").write_text(SMALL)
    with pytest.MonkeyPatch.context() as patch:
        without_ray(patch)
        wanted = [word for trigger in (AT, LATER, NEVER) for word in ("--copy", f"{address(trigger)}-all")]
        assert run(str(folder / "small.toml"), *wanted, "--out", str(folder / "reference")) == 0
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_ray(monkeypatch)
    return Path(shutil.copytree(made, tmp_path / "made"))


def again(folder: Path, trigger: Trigger, *words: str) -> int:
    """A run that is killed at ``trigger``, with the reference of ``folder``."""
    at = f"{address(trigger)}-all"
    return run(str(folder / "small.toml"), "--reference", str(folder / "reference"), "--crash", at, *words)


def test_the_stopped_job_goes_on_to_its_end_and_what_never_came_is_absent(made: Path) -> None:
    saved = json.loads((made / "reference" / "run.json").read_text())
    assert [life["status"]["outcome"] for life in saved["lives"]] == ["ended"]
    assert sorted(path.name for path in (made / "reference" / "copies").iterdir()) == sorted([address(AT), address(LATER)])


def test_a_copy_is_the_beginning_of_the_reference_up_to_its_event(made: Path) -> None:
    whole = unpack_history((made / "reference" / "life-1.history").read_bytes(), "")
    for trigger in (AT, LATER):
        records = unpack_history((made / "reference" / "copies" / address(trigger) / "life.history").read_bytes(), "")
        assert records == whole[: len(records)] and len(records) < len(whole)
        own = [type(record.event).__name__ for record in records if record.process == trigger.process]
        assert own[-1] == trigger.kind and own.count(trigger.kind) == trigger.n


def test_copies_are_kept_of_a_reference_that_fails_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_ray(monkeypatch)
    (tmp_path / "small.toml").write_text(SMALL.replace("limit_s = 60.0", "limit_s = 1.5"))
    early = Trigger("controller", "Restored", 1)
    assert run(str(tmp_path / "small.toml"), "--copy", f"{address(early)}-all", "--out", str(tmp_path / "out"), "--json") != 0
    assert [life["outcome"] for life in json.loads(capsys.readouterr().out)["lives"]] == ["time"]
    assert (tmp_path / "out" / "copies" / address(early) / "copy.json").is_file()


def test_a_run_from_a_copy_takes_only_the_restored_life_and_holds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "out"
    assert again(folder, AT, "--out", str(out), "--json") == 0
    shown = capsys.readouterr()
    assert f"life-1: the copy that was made of the reference at {address(AT)}" in shown.err and "killed" not in shown.err
    report = json.loads(shown.out)
    assert report["verdict"] == "HELD"
    assert [(life["outcome"], life["copied"], life["fired"]) for life in report["lives"]] == [
        ("crashed", True, True), ("ended", False, None),
    ]  # fmt: skip
    left, found = ((out / name).read_bytes() for name in ("life-1.end.msgpack", "life-2.start.msgpack"))
    assert left == found and unpack_files(left, "")
    restored = [type(record.event).__name__ for record in unpack_history((out / "life-2.history").read_bytes(), "")]
    assert "Restored" in restored and "RunEnded" in restored
    assert main(["judge", str(out)]) == 0
    assert "stopped and copied there, not killed" in " ".join(capsys.readouterr().out.split())


def test_a_run_is_compared_with_no_reference_whose_engine_drew_by_chance(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "reference" / "run.json"
    saved = json.loads(path.read_text())
    saved["scenario"]["drawn_by"] = "chance"
    path.write_text(json.dumps(saved))
    assert again(folder, AT, "--out", str(folder / "out")) == 0
    assert "what this one says is not compared with it" in capsys.readouterr().err
    assert json.loads((folder / "out" / "run.json").read_text())["scenario"]["drawn_by"] == "chance"


@pytest.mark.parametrize(("name", "theirs"), [("model sha256", "f00d"), ("device", "a GPU"), ("dtype", "bfloat16")])
def test_a_reference_of_another_engine_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, theirs: str
) -> None:
    path = folder / "reference" / "run.json"
    saved = json.loads(path.read_text())
    saved["setup"][name] = theirs
    path.write_text(json.dumps(saved))
    assert again(folder, AT) == 2
    assert f"was run with {name} {theirs}, this run with" in " ".join(capsys.readouterr().err.split())


def test_a_copy_holds_what_a_kill_at_its_event_leaves(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copied, killed = folder / "copied", folder / "killed"
    assert again(folder, AT, "--out", str(copied)) == 0
    shutil.rmtree(folder / "reference" / "copies")
    capsys.readouterr()
    assert again(folder, AT, "--out", str(killed)) == 0
    assert "life-1: killed at SnapshotPublished number 1 of controller" in capsys.readouterr().err
    left = [unpack_files((out / "life-1.end.msgpack").read_bytes(), "") for out in (copied, killed)]
    assert kinds(left[0]) == kinds(left[1]) and len(left[0]) > 3
    lives_1 = [json.loads((out / "run.json").read_text())["lives"][0] for out in (copied, killed)]
    assert [life.pop("copied") for life in lives_1] == [True, False]
    assert {**lives_1[0], "events": 0, "time_s": 0} == {**lives_1[1], "events": 0, "time_s": 0}


def kinds(files: dict[str, bytes]) -> set[str]:
    """Names without what differs from run to run: digests, and counts from 1."""
    return {re.sub(r"[0-9a-f]{8,}|[0-9]+", "*", name) for name in files}


def test_a_second_crash_goes_on_from_the_copy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = f"{address(AT)}-all~controller-FileRead-3-all"
    assert run(str(folder / "small.toml"), "--reference", str(folder / "reference"), "--crash", plan, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert [(life["outcome"], life["copied"]) for life in report["lives"]] == [
        ("crashed", True), ("crashed", False), ("ended", False),
    ]  # fmt: skip


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], Path]:
    def act(place: Path) -> Path:
        path = place / "copy.json"
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
        return path

    return act


def a_file(place: Path) -> Path:
    return next(path for path in sorted((place / "run").rglob("*")) if path.is_file() and path.stat().st_size)


def changed(place: Path) -> Path:
    path = a_file(place)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    return path


def gone(place: Path) -> Path:
    path = a_file(place)
    path.unlink()
    return path


def put(place: Path) -> Path:
    path = place / "run" / "more"
    path.write_bytes(b"")
    return path


def no_description(place: Path) -> Path:
    (place / "copy.json").unlink()
    return place / "copy.json"


def another_history(place: Path) -> Path:
    """Of the same length, told by the description as its own: only the reference says otherwise."""
    path = place / "life.history"
    number, rows = msgspec.msgpack.decode(path.read_bytes())
    rows[3][1] += 1.0
    path.write_bytes(msgspec.msgpack.encode([number, rows]))
    edit(lambda copy: copy["files"].update({"life.history": digest(path)}))(place)
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (changed, "is not what was copied"),
        (gone, "is missing: the copy is not whole"),
        (put, "is no part of the copy"),
        (no_description, "cannot be read"),
        (another_history, "is not how the reference in"),
        (edit(lambda copy: copy.update(seed=7)), "and seed 7, this run is of"),
        (edit(lambda copy: copy.update(scenario_digest="0" * 8)), "is of scenario digest 00000000"),
        (edit(lambda copy: copy["life"].update(address=["gym-0", "AdmissionClosed", 1, 0])), "life.address is"),
        (edit(lambda copy: copy["life"].update(copied=False)), "it must be a crashed life 1, copied"),
        (edit(lambda copy: copy["made_by"].update(data_plane="sqlite")), "give it the same"),
        (edit(lambda copy: copy["life"].update(events=1)), "records: it must hold 1"),
        (edit(lambda copy: copy.update(spam=1)), "unknown field `spam`"),
    ],
)
def test_a_torn_or_tampered_copy_is_refused_by_name_before_anything_is_installed(
    spoil: Callable[[Path], Path], expected: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = folder / "reference" / "copies" / address(AT)
    named = spoil(place)
    if expected.startswith("records"):
        named = place / "life.history"
    capsys.readouterr()
    assert again(folder, AT, "--out", str(folder / "out")) == 2
    shown = capsys.readouterr()
    errors = [line for line in shown.err.splitlines() if "error" in line]
    assert len(errors) == 1 and f"rollproof: error: {named}: " in errors[0] and expected in errors[0]
    assert shown.out == "" and not (folder / "out").exists()


def test_only_a_crashed_first_life_can_say_that_it_was_copied(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "reference" / "run.json"
    saved = json.loads(path.read_text())
    saved["lives"][0]["copied"] = True
    path.write_text(json.dumps(saved))
    assert main(["judge", str(folder / "reference")]) == 2
    assert "life-1 says that it was copied" in capsys.readouterr().err
