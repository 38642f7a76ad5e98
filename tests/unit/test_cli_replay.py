"""What is printed can be typed again: tokens, plans and commands, and what a saved folder gives back."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_cli import SMALL, NeverRestored, object_of

from protocol.history import FORMAT, ProcessStarted
from rollproof import commands, finishing, running, saving, showing, sweeping
from rollproof.cli import main
from rollproof.command import TOKEN_FILE, Command
from rollproof.tokens import LENGTH_MAX, parse_token

PUBLISHED = "controller-SnapshotPublished-1-all"
FAULTS = """
format = 1
[[faults]]
at = { process = "controller", event = "RowsSubmitted", occurrence = 1 }
do = { break_stream = { rows = 1, instance = "gym-0" } }
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "my scenarios" / "small.toml"  # a space: what is printed must be quoted
    path.parent.mkdir()
    path.write_text(SMALL)
    return str(path)


def break_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (commands, finishing, running, showing, sweeping):
        monkeypatch.setattr(module, "JUDGES", (NeverRestored,))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main([*words, "--json"])
    return code, object_of(capsys)


def last_line(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return shlex.split(capsys.readouterr().out.rstrip().splitlines()[-1].strip().removeprefix("replay it: rollproof "))


def test_the_last_line_of_a_broken_sweep_is_a_command_that_shows_the_same_violation(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_judges(monkeypatch)
    faults = tmp_path / "my faults.toml"
    faults.write_text(FAULTS)
    assert main(["sweep", small, "--points", "60", "--faults", str(faults)]) == 1
    words = last_line(capsys)
    assert words[0] == "replay" and str(faults) in words
    code, report = run(capsys, *words)
    assert code == 1 and [violation["invariant"] for violation in report["violations"]] == ["I99"]
    assert main([word for word in words if word not in ("--faults", str(faults))]) == 2
    assert "the token was made for scenario digest" in capsys.readouterr().err


def test_a_plan_too_long_for_a_token_is_printed_as_a_plan_and_saved_as_a_file(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_judges(monkeypatch)
    plan = "~".join([PUBLISHED, *["controller-RestoreChosen-1+2-all"] * 5])
    out = tmp_path / "out"
    code, report = run(capsys, "run", small, "--crash", plan, "--out", str(out))
    assert code == 1 and len(report["token"]) > LENGTH_MAX and len(report["lives"]) == 7
    words = shlex.split(report["violations"][0]["command"])
    assert words[1] == "run" and "--crash" in words
    for again in (words[1:], ["replay", str(out / TOKEN_FILE), "--scenario", small]):
        assert run(capsys, *again)[1]["history_hash"] == report["history_hash"]


def test_three_lives_with_a_crash_inside_a_clean_up_and_one_at_the_very_end(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inside = "controller-FileDone-1-none"  # the second life's first file is the removal of an unfinished snapshot
    plan = f"controller-FileIssued-9-all~{inside}~controller-RunEnded-1-all"
    out = tmp_path / "out"
    code, report = run(capsys, "run", small, "--crash", plan, "--out", str(out))
    assert code == 0 and [life["outcome"] for life in report["lives"]] == ["crashed", "crashed", "crashed", "ended"]
    assert report["lives"][1]["address"][:3] == ["controller", "FileDone", 1]
    second = saving.unpack_history((out / "life-2.history").read_bytes(), "life-2")
    assert not any(isinstance(record.event, ProcessStarted) for record in second), "killed before a process started"
    last = parse_token(report["token"])
    assert last.plan[2][:4] == ("controller", "RunEnded", 1, 0)
    code, again = run(capsys, "replay", report["token"], "--scenario", small)
    assert (code, again["history_hash"]) == (0, report["history_hash"])


def test_a_step_after_the_end_of_a_life_does_not_fire(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = run(capsys, "run", small, "--crash", f"{PUBLISHED}~controller-RunEnded-1+1-none")
    assert code == 3 and report["verdict"] == "UNKNOWN"
    assert report["messages"] == ["life 2: its crash did not fire, it ended"]


def test_a_replay_names_the_canonical_address_and_it_is_the_same_run(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = run(capsys, "run", small, "--crash", "job-LifeStarted-1+30-none")[1]
    process, kind, n, k = first["lives"][0]["address"]
    canonical = f"{process}-{kind}-{n}+{k}" if k else f"{process}-{kind}-{n}"
    main(["replay", first["token"], "--scenario", small])
    shown = capsys.readouterr()
    assert f"life 1: the canonical address of this point is {canonical}" in shown.out.splitlines()
    assert run(capsys, "run", small, "--crash", f"{canonical}-none")[1]["history_hash"] == first["history_hash"]


def test_the_schedule_of_a_token_is_replayed_and_stays_in_it(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    plain = run(capsys, "run", small, "--crash", PUBLISHED)[1]
    token = msgspec.structs.replace(parse_token(plain["token"]), schedule="fifo")
    code, fifo = run(capsys, "replay", str(token), "--scenario", small)
    assert code == 0 and fifo["token"] == str(token) and ".0+fifo." in str(token)
    assert fifo["history_hash"] != plain["history_hash"]
    assert run(capsys, "run", small, "--crash", str(token))[1]["history_hash"] == fifo["history_hash"]


def test_a_run_is_on_disk_before_it_is_judged(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(finishing, "judge_saved", die)
        assert main(["run", small, "--crash", PUBLISHED, "--out", str(out)]) == 2
    assert "interrupted" in capsys.readouterr().err
    assert run(capsys, "judge", str(out))[1]["verdict"] == "HELD"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_interrupted_sweep_leaves_what_was_there_and_nothing_else(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, junit = tmp_path / "out", tmp_path / "junit.xml"
    main(["run", small, "--out", str(out)])
    before = contents(out)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeping, "merge", interrupted)
    assert main(["sweep", small, "--points", "5", "--out", str(out), "--junit", str(junit)]) == 2
    assert contents(out) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my scenarios", "out"]


def test_a_saved_folder_is_replaced_as_a_whole(small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    main(["run", small, "--crash", PUBLISHED, "--out", str(out)])
    assert "replaced" not in capsys.readouterr().err
    main(["run", small, "--out", str(out)])
    assert f"rollproof: --out {out}: what was there is replaced\n" in capsys.readouterr().err
    assert sorted(path.name for path in out.iterdir()) == [
        "life-1.end.msgpack",
        "life-1.history",
        "life-1.start.msgpack",
        "rows",
        "run.json",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my scenarios", "out"]


def test_what_a_later_judge_finds_in_a_saved_sweep_can_be_replayed(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["sweep", small, "--points", "60", "--out", str(out)]) != 1
    break_judges(monkeypatch)
    capsys.readouterr()
    assert main(["judge", str(out)]) == 1
    code, report = run(capsys, *last_line(capsys))
    assert code == 1 and report["violations"][0]["invariant"] == "I99"


def test_the_saved_command_of_a_sweep_makes_the_same_sweep(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    _, first = run(capsys, "sweep", small, "--points", "7", "--disk", "none", "--seeds", "1:3", "--out", str(out))
    words = shlex.split(json.loads((out / "sweep.json").read_bytes())["command"])
    _, again = run(capsys, *words[1:])
    assert (again["judged"], again["outcomes"], again["history_hash"]) == (14, 14, first["history_hash"])
    assert again["verified"]["fresh_process"]["classes"] == again["verified"]["fresh_process"]["agreed"] > 0
    assert set(again["verified"]) == {"reruns", "agreed", "fresh_process", "cpu_s", "disagreements"}


def test_a_truncated_or_foreign_file_of_a_run_is_one_message(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    main(["run", small, "--out", str(out)])
    capsys.readouterr()
    encode = msgspec.msgpack.encode
    history, files, index = (out / name for name in ("life-1.history", "life-1.end.msgpack", "run.json"))
    whole = {path: path.read_bytes() for path in (history, files, index)}
    number, rows = msgspec.msgpack.decode(whole[history])
    assert number == FORMAT, "a history begins with its format number"
    table = json.loads(whole[index])
    cases = [
        *[(history, whole[history][:cut]) for cut in (0, 1, 2, len(whole[history]) // 2, len(whole[history]) - 1)],
        (history, encode((number + 1, rows))),
        (history, encode((number, [[0, 0.0, "job", 1, "", {"type": "NoSuchEvent"}]]))),
        (history, encode({"format": number})),
        (history, b"PK\x03\x04 another kind of file"),
        (files, whole[files][:-1]),
        (files, encode([1, 2])),
        (index, whole[index][:-9]),
        (index, b"\xff\xfe"),
        (index, json.dumps({**table, "format": 99, "lives": "of another shape"}).encode()),
        (index, json.dumps({"format": 1}).encode()),
    ]
    for path, content in cases:
        path.write_bytes(content)
        assert main(["judge", str(out)]) == 2, (path, content[:40])
        shown = capsys.readouterr()
        assert shown.out == "" and shown.err.count("\n") == 1 and path.name in shown.err
        path.write_bytes(whole[path])
    assert main(["judge", str(out)]) == 0


def test_a_saved_sweep_that_is_not_one_is_one_message(small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    main(["sweep", small, "--points", "5", "--out", str(out)])
    index = out / "sweep.json"
    table = json.loads(index.read_bytes())
    capsys.readouterr()
    contents: list[Any] = [{**table, "evidence": [{"invariant": 1}]}, {**table, "format": 0}, {"format": 1}, []]
    for content in contents:
        index.write_text(json.dumps(content))
        for command in ("judge", "report"):
            assert main([command, str(out)]) == 2
            shown = capsys.readouterr()
            assert shown.out == "" and shown.err.count("\n") == 1 and "sweep.json" in shown.err


def test_a_number_that_no_run_has_is_refused_and_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "sibling", "--crash", f"controller-Restored-{'9' * 5000}-none"]) == 2
    assert "is no count" in capsys.readouterr().err


def test_a_library_name_needs_no_scenario_option_and_a_file_does() -> None:
    assert Command(scenario="sibling", faults="a b.toml").overlays() == " --faults 'a b.toml'"
    assert Command(scenario="./sibling.toml").sweep(range(0, 2), None, ("none", "all")) == (
        "rollproof sweep ./sibling.toml --seeds 0:2"
    )
