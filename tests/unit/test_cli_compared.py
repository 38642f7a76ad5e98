"""What a sweep at level prefix says that it saves, against levels turn and sibling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_file import SMALL

from reports.summary import sweep_figures
from rollproof import compared
from rollproof.cli import main

LONG = "[profile]\ntokens_min = 30\ntokens_max = 60\n"


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(SMALL + LONG)
    return str(path)


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_sweep_at_level_prefix_shows_what_coarser_levels_lose(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["sweep", small, "--level", "prefix", "--points", "12", "--seeds", "1:2", "--json"])
    report = printed(capsys)
    saved = report["work_saved"]
    assert saved["seed"] == 1 and [row["level"] for row in saved["levels"]] == ["turn", "sibling"]
    for row in saved["levels"]:
        assert row["points"] == 12 and row["tokens"]["mean"] > 0 < row["tokens"]["p95"] <= row["tokens"]["max"]
        assert row["share"] == round(1 - report["lost_work"]["tokens"]["mean"] / row["tokens"]["mean"], 4)
    main(["sweep", small, "--level", "turn", "--points", "12", "--seeds", "1:2", "--json"])
    alone = printed(capsys)
    assert "work_saved" not in alone  # there is nothing finer to show
    names = ("level", "points", "tokens", "turns", "rollouts")
    assert {name: saved["levels"][0][name] for name in names} == alone["lost_work"]
    lines = dict(sweep_figures(report))
    assert (
        f"{saved['levels'][0]['tokens']['mean']:,.1f} tokens (95 % {saved['levels'][0]['tokens']['p95']:,}"
        in lines["at level turn"]
    )
    assert "% of the tokens saved (12 points of seed 1)" in lines["at level sibling"]


def test_the_comparison_is_of_two_hundred_points_at_most_and_can_be_left_out(
    small: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared.POINTS == 200
    monkeypatch.setattr(compared, "POINTS", 5)
    main(["sweep", small, "--level", "prefix", "--points", "9", "--json"])
    report = printed(capsys)
    assert report["judged"] == 9 and [row["points"] for row in report["work_saved"]["levels"]] == [5, 5]
    main(["sweep", small, "--level", "prefix", "--points", "9", "--no-compare", "--json"])
    without = printed(capsys)
    assert "work_saved" not in without and without["history_hash"] == report["history_hash"]


def test_a_level_whose_runs_never_end_has_no_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "refused.toml"
    overrides = '[job.rollout_recovery.level_overrides]\nworkplace = "rollout"\n'
    path.write_text(f'{SMALL}{overrides}[contract]\nrefused = ["rollout_recovery.level_overrides"]\n')
    main(["sweep", str(path), "--level", "prefix", "--points", "3", "--json"])
    report = printed(capsys)
    assert [row["points"] for row in report["work_saved"]["levels"]] == [0, 0]
    assert not any(name.startswith("at level") for name, _ in sweep_figures(report))


def test_only_level_prefix_is_compared() -> None:
    assert compared.comparable("prefix") == ("turn", "sibling")
    assert [compared.comparable(level) for level in ("rollout", "sibling", "turn")] == [(), (), ()]
