"""The command line: exit codes, the JSON object, what --out holds, and that a saved folder is judged again alike."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from small_file import SMALL

from protocol.history import Record, Restored
from protocol.judging import Judge, Violation
from rollproof import commands, finishing, running, showing, sweeping
from rollproof.cli import main
from rollproof.tokens import read_token

SWEEP_FIELDS = set(
    "scenario level seeds version events steps crash_points classes runs outcomes judged fired not_covered us_per_event "
    "verdict judges verdicts violations points_per_cpu_s distinct_runs_per_cpu_s wall_s peak_rss_mib history_hash".split()
)


class NeverRestored(Judge):
    """Nothing is ever restored from a snapshot."""

    invariant = "I99"
    needs = (Restored,)

    def on(self, record: Record) -> Iterator[Violation]:
        if isinstance(record.event, Restored) and record.event.sequence > 0:
            yield self.broken(f"snapshot {record.event.sequence} was restored", record)


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


@pytest.fixture
def broken_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (commands, finishing, running, showing, sweeping):
        monkeypatch.setattr(module, "JUDGES", (NeverRestored,))


def object_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    out = capsys.readouterr().out
    assert out.count("\n") == 1  # one object, nothing else
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_sweep_prints_one_object_with_every_promised_field(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["sweep", small, "--points", "25", "--json"])
    report = object_of(capsys)
    assert SWEEP_FIELDS <= set(report)
    assert report["judged"] == report["fired"] == 25 and report["not_covered"] == report["crash_points"] - 25
    assert set(report["verdicts"]) == {"held", "broken", "unknown"} and sum(report["verdicts"].values()) == 25
    assert set(report["us_per_event"]) == {"kernel", "core", "judges", "all"} and report["seeds"] == [0, 1]
    assert {"invariant", "held", "broken", "not_reached", "verdict"} <= set(report["judges"][0])
    assert code == {"HELD": 0, "BROKEN": 1, "UNKNOWN": 3}[report["verdict"]] != 1


def test_two_seeds_are_one_object_with_summed_counts(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["sweep", small, "--points", "10", "--seeds", "0:1", "--json"])
    first = object_of(capsys)
    main(["sweep", small, "--points", "10", "--seeds", "0:2", "--json"])
    both = object_of(capsys)
    assert both["seeds"] == [0, 2] and both["judged"] == 20
    assert both["events"] > first["events"] and both["history_hash"] != first["history_hash"]


def test_a_sweep_saves_life_1_one_row_a_class_and_a_page(small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, junit = tmp_path / "out", tmp_path / "junit.xml"
    main(["sweep", small, "--points", "20", "--json", "--out", str(out), "--junit", str(junit)])
    report = object_of(capsys)
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "seed-0", "sweep.json"]
    rows = (out / "seed-0" / "classes.jsonl").read_text().splitlines()
    assert len(rows) == report["classes"] and {"key", "history_hash", "verdict"} <= set(json.loads(rows[0]))
    assert len(ET.parse(junit).findall(".//testcase")) >= len(report["judges"])

    main(["judge", str(out), "--json"])
    again = object_of(capsys)
    assert (again["verdict"], again["history_hash"]) == (report["verdict"], report["history_hash"])
    assert again["classes_run"] == report["classes"]


def test_a_saved_class_whose_history_differs_is_unknown(small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    main(["sweep", small, "--points", "5", "--out", str(out)])
    classes = out / "seed-0" / "classes.jsonl"
    first, *rest = classes.read_text().splitlines()
    row = json.loads(first) | {"history_hash": "0" * 64}
    classes.write_text("\n".join([json.dumps(row), *rest]) + "\n")
    capsys.readouterr()
    assert main(["judge", str(out), "--json"]) == 3
    assert "1 histories are not the saved ones" in object_of(capsys)["messages"][-1]


def test_a_run_is_saved_and_judged_again_from_its_files_alone(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    code = main(["run", small, "--crash", "controller-SnapshotPublished-1-all", "--json", "--out", str(out)])
    report = object_of(capsys)
    assert code == 0 and report["verdict"] == "HELD" and [life["outcome"] for life in report["lives"]] == ["crashed", "ended"]
    assert (out / "life-2.history").is_file() and (out / "reference.history").is_file()
    (tmp_path / "small.toml").unlink()  # a judge needs nothing but the folder
    assert main(["judge", str(out), "--json"]) == 0
    again = object_of(capsys)
    assert (again["history_hash"], again["judges"]) == (report["history_hash"], report["judges"])


def test_a_token_replays_the_same_run_bit_for_bit(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", small, "--crash", "controller-SnapshotPublished-1+1-none~controller-Restored-1-all", "--json"])
    first = object_of(capsys)
    assert len(first["lives"]) == 3
    main(["replay", first["token"], "--scenario", small, "--json"])
    again = object_of(capsys)
    assert again["history_hash"] == first["history_hash"] and again["version_matches"] is True
    main(["run", small, "--crash", first["token"], "--json"])
    assert object_of(capsys)["history_hash"] == first["history_hash"]


def test_a_replay_says_its_plan_first_and_then_its_timeline(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", small, "--crash", "controller-SnapshotPublished-1-none", "--json"])
    token = object_of(capsys)["token"]
    main(["replay", token, "--scenario", small])
    shown = capsys.readouterr()
    assert shown.err.startswith("life 1: killed right after event SnapshotPublished number 1 of controller")
    assert "SnapshotPublished anchor=bootstrap sequence=1" in shown.out and "RunEnded" in shown.out


def test_another_code_version_is_a_warning_and_another_scenario_a_refusal(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", small, "--crash", "controller-SnapshotPublished-1-none", "--json"])
    token = read_token(object_of(capsys)["token"])
    older = msgspec.structs.replace(token, code_digest="00000000")
    assert main(["replay", str(older), "--scenario", small, "--json"]) == 0
    shown = capsys.readouterr()
    assert "warning: the token was made by code 00000000" in shown.err and json.loads(shown.out)["version_matches"] is False
    assert main(["replay", str(token), "--scenario", "sibling"]) == 2
    assert "the token was made for scenario digest" in capsys.readouterr().err


def test_an_address_that_does_not_fire_is_unknown(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", small, "--crash", "controller-StepCommitted-99-none", "--json"]) == 3
    assert object_of(capsys)["messages"] == ["life 1: its crash did not fire, it ended"]


def test_a_broken_run_shows_what_was_expected_and_ends_with_its_replay_command(
    small: str, broken_judge: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", small, "--crash", "controller-SnapshotPublished-1-all"]) == 1
    lines = capsys.readouterr().out.rstrip().splitlines()
    text = "\n".join(lines)
    assert "BROKEN I99" in text and "expected: Nothing is ever restored from a snapshot." in text
    assert "found:    snapshot 1 was restored" in text
    assert "last 30 events before the crash:" in text and "first 30 events of the next life:" in text
    command = lines[-1].strip().removeprefix("replay it: ")
    assert command.startswith("rollproof replay rp1.small.")
    assert main(command.split()[1:]) == 1


def test_a_broken_point_of_a_sweep_is_run_again_saved_whole_and_shown(
    small: str, broken_judge: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, junit = tmp_path / "out", tmp_path / "junit.xml"
    assert main(["sweep", small, "--points", "60", "--json", "--out", str(out), "--junit", str(junit)]) == 1
    report = object_of(capsys)
    (violation,) = report["violations"]
    assert violation["invariant"] == "I99" and violation["token"].startswith("rp1.small.") and violation["points"] > 0
    saved = out / "seed-0" / "failures" / "I99"
    assert main(["judge", str(saved), "--json"]) == 1
    assert object_of(capsys)["token"] == violation["token"]
    assert ET.parse(junit).find(".//failure") is not None
    page = (out / "report.html").read_text()
    assert violation["token"] in page and "Nothing is ever restored from a snapshot." in page


def test_the_page_is_made_again_from_the_saved_sweep(small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    main(["sweep", small, "--points", "5", "--out", str(out)])
    before = (out / "report.html").read_text()
    (out / "report.html").unlink()
    capsys.readouterr()
    assert main(["report", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out / "report.html") and (out / "report.html").read_text() == before


def test_tasks_and_config_of_others_are_laid_over_a_scenario(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks, config = tmp_path / "rows.jsonl", tmp_path / "grpo.yaml"
    tool = {"type": "function", "name": "calendar_delete_event"}
    rows = [
        {
            "id": index,
            "responses_create_params": {"input": [{"role": "user", "content": f"Drop event {index}."}], "tools": [tool]},
            "ground_truth": [{"name": "calendar_delete_event", "arguments": json.dumps({"event_id": str(index)})}],
        }
        for index in range(3)
    ]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config.write_text("grpo:\n  num_prompts_per_step: 1\nasync_rl:\n  diagnostics: false\ncheckpointing:\n  enabled: false\n")
    assert main(["run", small, "--tasks", str(tasks), "--config", str(config), "--json"]) == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert report["config"]["mapped"] == ["grpo.num_prompts_per_step"] and "checkpointing.enabled" in report["config"]["kept"]
    assert report["config"]["not_modelled"] == ["async_rl.diagnostics"]
    assert shown.err.count("warning:") == 1 and "checkpointing.enabled" in shown.err


def test_the_library_is_listed_shown_and_checked(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenarios", "list", "--json"]) == 0
    listed = {row["name"]: row for row in object_of(capsys)["scenarios"]}
    assert set(listed["workplace"]) == {"name", "tags", "source"}
    assert main(["scenarios", "show", "workplace"]) == 0
    assert 'name = "workplace"' in capsys.readouterr().out
    assert main(["scenarios", "check", small]) == 0
    assert "ok: small, level sibling, 8 tasks, 0 faults" in capsys.readouterr().out
    for name in listed:
        assert main(["scenarios", "check", name]) == 0


def test_the_doctor_says_where_the_packages_were_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = object_of(capsys)
    assert found["ok"] and found["rooms"]["sim"].endswith("/sim") and found["memory_mib"] > 0 and found["versions"]["simpy"]


def test_several_levels_are_one_table_and_one_object_coarse_to_fine(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["sweep", small, "--points", "12", "--levels", "turn,rollout", "--json"])
    report = object_of(capsys)
    assert [row["level"] for row in report["levels"]] == ["rollout", "turn"] and report["seeds"] == [0, 1]
    assert all(set(row) >= SWEEP_FIELDS and row["judged"] == row["lost_work"]["points"] == 12 for row in report["levels"])
    assert code == {"HELD": 0, "BROKEN": 1, "UNKNOWN": 3}[report["verdict"]]
    main(["sweep", small, "--points", "12", "--level", "all"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["rollout", "sibling", "turn"] and "tokens lost" in lines[1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--levels", "turn,fine"], "fine"),
        (["--levels", "turn", "--level", "turn"], "both given"),
        (["--levels", "all", "--out", "folder"], "--out holds one sweep"),
        (["--level", "all", "--junit", "file.xml"], "--junit holds one sweep"),
    ],
)
def test_levels_that_cannot_be_compared_are_refused(
    small: str, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", small, *options]) == 2
    assert says in capsys.readouterr().err


def test_a_saved_sweep_says_what_each_judged_point_lost(small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["sweep", small, "--points", "15", "--out", str(tmp_path / "out"), "--json"])
    report = object_of(capsys)
    lines = (tmp_path / "out" / "seed-0" / "lost_work.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 15 and all(len(row["address"]) == 4 for row in rows)
    assert max(row["tokens"] for row in rows) == report["lost_work"]["tokens"]["max"]
    assert "lost work a crash" in (tmp_path / "out" / "report.html").read_text()


def test_a_saved_run_has_the_figures_of_the_live_one(small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "out")
    main(["run", small, "--crash", "controller-GroupsClaimed-1-none", "--out", folder, "--json"])
    live = object_of(capsys)["figures"]
    main(["judge", folder, "--json"])
    assert object_of(capsys)["figures"] == live
    assert [life["life"] for life in live["lives"]] == [1, 2] and live["lost_work"][0]["done"]["tokens"] > 0
    main(["judge", folder])
    text = capsys.readouterr().out
    assert "figures of life 2" in text and "the crash of life 1 cost" in text
