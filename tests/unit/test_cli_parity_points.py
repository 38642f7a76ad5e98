"""``parity run --points``: what is kept of many comparisons can be judged again, whole or one by one, to the same bytes."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from small_file import SMALL

from parity.profiles import NAMED
from protocol.judging import Verdict
from rollproof import parity_finishing, parity_points, parity_reading, parity_running, parity_sweeping
from rollproof.asked import OF_REAL
from rollproof.cli import main
from rollproof.parity_archive import ARCHIVE, archive_of, read_archive
from rollproof.parity_points import JudgedLife, SavedCompared, SavedPoint, SavedPoints, report_of
from rollproof.parity_saving import About
from scenarios.model import InputError

NEEDED = ("verdict", "profile", "restored_calls", "matched_outright", "other_weights", "excused", "gates")


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


@pytest.fixture(autouse=True)
def pages_of_lives_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing figures takes a second a life, and is tested where they are drawn."""
    monkeypatch.setattr(parity_finishing, "write_pictures", lambda folder, *_: (folder / "parity.html").write_text("drawn"))


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What 25 points of a run that nothing is wrong with left. Tests copy it."""
    folder = tmp_path_factory.mktemp("held")
    (folder / "small.toml").write_text(SMALL)
    assert main(["parity", "run", str(folder / "small.toml"), "--points", "25", "--out", str(folder / "out")]) == 0
    return folder / "out"


@pytest.fixture
def out(held: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(held, tmp_path / "out"))


def spoilt(run: Any) -> Any:
    """The same run with another reward in each row."""
    column = run.rows.table.schema.get_field_index("reward")
    rewards = [reward + 1 for reward in run.rows.table.column("reward").to_pylist()]
    table = run.rows.table.set_column(column, "reward", [rewards])
    return parity_finishing.replace(run, rows=type(run.rows)(table))


@pytest.fixture
def restored_runs_are_spoilt(monkeypatch: pytest.MonkeyPatch) -> None:
    real, pairs = parity_reading.run_of_lives, parity_reading.saved_pair

    def run_of_lives(scenario: Any, lives: Any, name: str) -> Any:
        return spoilt(real(scenario, lives, name)) if len(lives) > 1 else real(scenario, lives, name)

    monkeypatch.setattr(parity_sweeping, "run_of_lives", run_of_lives)
    monkeypatch.setattr(parity_running, "saved_pair", lambda folder: (pairs(folder)[0], spoilt(pairs(folder)[1])))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_points_are_compared_by_distinct_life_and_judged_again_to_the_same_bytes(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = json.loads((out / "parity-report.json").read_text())
    assert (report["verdict"], report["failures"]) == ("HELD", [])
    assert report["judged"] == 25 == sum(report["points"].values()) and report["lives"] == sum(report["compared"].values())
    assert 0 < report["lives"] <= report["classes"] and set(NEEDED) <= set(report)
    assert report["compared"]["vacuous"] > 0 < report["matched_outright"]  # counted, and not the verdict of the whole
    assert {life for point in report["of_points"] for life in point["lives"]} <= {life["life"] for life in report["of_lives"]}

    before = files(out)
    assert set(before) == {"parity.json", ARCHIVE, "parity-report.json", "parity.html"}
    assert before["parity.html"].decode().count('<tr><td class="number">') == 25
    assert len(before[ARCHIVE]) < 10_000 * report["lives"]  # apart, a life takes ten times that
    for name in ("parity-report.json", "parity.html"):
        (out / name).unlink()
    assert main(["parity", "judge", str(out), "--json"]) == 0
    assert {"format": 1, **printed(capsys)} == report and files(out) == before


def test_a_point_that_is_not_held_leads_to_its_own_page_and_to_the_command_that_shows_it(
    small: str, restored_runs_are_spoilt: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["parity", "run", small, "--points", "3", "--out", str(out)]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"  show it: rollproof parity run {small} --seed 0 --crash rp1.small.")
    before = files(out)
    report = json.loads(before["parity-report.json"])
    broken = [point for point in report["of_points"] if point["verdict"] == "BROKEN"]
    assert len(broken) == report["points"]["broken"] > 0
    for life in {life for point in broken for life in point["lives"]}:
        assert f'href="lives/{life}/parity.html"' in before["parity.html"].decode() and f"lives/{life}/parity.html" in before
        assert json.loads(before[f"lives/{life}/parity-report.json"])["verdict"] == "BROKEN"
    (out / "lives" / str(life) / "parity.html").unlink()
    assert main(["parity", "judge", str(out)]) == 1
    assert files(out) == before
    assert main(["parity", "judge", str(out / "lives" / str(life))]) == 1
    assert main(last.split(" rollproof ")[1].split()) == 1


def test_the_evidence_of_one_life_can_be_unpacked_and_judged_alone(out: Path, tmp_path: Path) -> None:
    report = json.loads((out / "parity-report.json").read_text())
    (held, *_) = [life["life"] for life in report["of_lives"] if life["verdict"] == "HELD"]
    with pa.CompressedInputStream(str(out / ARCHIVE), "zstd") as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        archive.extractall(tmp_path / "apart")  # of our own making; its filter is not in every Python 3.11
    assert main(["parity", "judge", str(tmp_path / "apart" / str(held))]) == 0


def test_what_was_measured_stays_when_judging_is_cut_off_or_fails(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"

    def judging_that(raises: BaseException, words: list[str]) -> int:
        def fall(*_: Any, **__: Any) -> Any:
            raise raises

        with monkeypatch.context() as broken:
            broken.setattr(parity_points, "judge", fall)
            return main(words)

    assert judging_that(KeyboardInterrupt(), ["parity", "run", small, "--points", "6", "--out", str(out)]) == 2
    report = json.loads((out / "parity-report.json").read_text())
    assert report["verdict"] == "UNKNOWN" and "it was not judged to its end" in report["unknown_because"][0]
    assert report["points"]["unknown"] == report["judged"] == 6
    capsys.readouterr()
    assert judging_that(RuntimeError("the gates fell over"), ["parity", "judge", str(out), "--json"]) == 3
    assert printed(capsys)["unknown_because"][0].startswith("judging crashed: RuntimeError: the gates fell over (")
    assert main(["parity", "judge", str(out), "--json"]) == 0
    assert printed(capsys)["verdict"] == "HELD" and not (out / "lives").exists()


def test_evidence_that_was_changed_is_named_and_the_report_is_kept(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, whole = (out / "parity-report.json").read_bytes(), (out / ARCHIVE).read_bytes()
    told = json.loads((out / "parity.json").read_text())

    def refused(text: str) -> None:
        capsys.readouterr()
        assert main(["parity", "judge", str(out)]) == 2
        error = capsys.readouterr().err
        assert text in error and error.count("\n") == 1 and (out / "parity-report.json").read_bytes() == report

    for content in (whole[: len(whole) // 2], b"no archive", b""):
        (out / ARCHIVE).write_bytes(content)
        refused(f"{ARCHIVE}: cannot be read")
    (out / ARCHIVE).unlink()
    refused(f"{ARCHIVE}: cannot be read")
    (out / ARCHIVE).write_bytes(whole)
    (out / "parity.json").write_text(json.dumps({**told, "lives": told["lives"][1:]}))
    refused("of which parity.json knows nothing")
    (out / "parity.json").write_text(json.dumps({**told, "points": 3}))
    refused("parity.json: cannot be read")
    (out / "parity.json").write_text(json.dumps({**told, "kind": "something"}))
    refused("parity.json: cannot be read")


def test_earlier_runs_are_of_one_comparison(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", "judge", str(out), "--earlier", str(out)]) == 2
    assert f"--earlier is given and {out} is of many points" in capsys.readouterr().err
    assert main(["parity", "compare", ".", ".", "--earlier", str(out)]) == 2
    assert f"--earlier {out}: is of many crash points" in capsys.readouterr().err


def test_an_archive_gives_back_what_was_put_into_it_and_is_the_same_each_time(tmp_path: Path) -> None:
    comparisons = {"7": {"parity.json": b"{}", "evidence/pairs.parquet": b"x" * 70_000}, "12": {"parity.json": b""}}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with archive_of(tmp_path / name) as add:
            for number, packed in comparisons.items():
                add(number, packed)
    assert dict(read_archive(tmp_path / "one")) == comparisons
    assert (tmp_path / "one" / ARCHIVE).read_bytes() == (tmp_path / "two" / ARCHIVE).read_bytes()
    with pytest.raises(InputError, match="cannot be read"):
        list(read_archive(tmp_path))


# --- what the points come to together --------------------------------------------------------------------------------


@pytest.fixture
def whole() -> Callable[..., dict[str, Any]]:
    """The report over two points whose lives came to this: number -> (verdict, counts)."""

    def report(*lives: tuple[Verdict, dict[str, int]]) -> dict[str, Any]:
        found = {}
        for number, (verdict, counts) in enumerate(lives):
            sums = {"restored_calls": 2, "matched_outright": 1, "other_weights": 0, "excused": 0, **counts}
            rows = {"paired": 100, "compared": 100 - sums["other_weights"]}
            plain = {**sums, "rows": rows, "gates": [], "excuses": [{"excuse": "near_tie"}] * sums["excused"]}
            found[number] = JudgedLife(verdict=verdict, why=(f"because of {number}",), report=plain)
        saved = SavedPoints(
            scenario="s", command="c", level="prefix", seed=0, profile=NAMED["bf16"], versions={}, crash_points=9, classes=2,
            points=tuple(SavedPoint(number=n, at=f"a-B-{n}", lives={"none": n, "all": 0}) for n in range(len(lives))),
            lives=tuple(SavedCompared(number=n, about=About(scenario="s", command=f"c{n}")) for n in range(len(lives))),
        )  # fmt: skip
        return report_of(saved, found)

    return report


def test_the_whole_is_as_bad_as_its_worst_life(whole: Callable[..., dict[str, Any]]) -> None:
    held, broken, unknown = ((verdict, {}) for verdict in (Verdict.HELD, Verdict.BROKEN, Verdict.UNKNOWN))
    assert whole(held, held)["verdict"] == "HELD"
    assert whole(held, unknown)["verdict"] == "UNKNOWN"
    both = whole(unknown, broken)
    assert both["verdict"] == "BROKEN" and [life["life"] for life in both["failures"]] == [1, 0]
    assert [(point["verdict"], point["lives"]) for point in both["of_points"]] == [("UNKNOWN", [0]), ("BROKEN", [1])]
    assert [life["points"] for life in both["of_lives"]] == [2, 1]


def test_shares_of_rows_are_judged_over_all_lives_together(whole: Callable[..., dict[str, Any]]) -> None:
    """bf16 excuses 5 % of the rows, and compares at least half."""
    held, vacuous = Verdict.HELD, Verdict.NOT_REACHED
    assert whole((held, {"excused": 1}), (vacuous, {"excused": 9}))["verdict"] == "HELD"
    many = whole((held, {"excused": 1}), (vacuous, {"excused": 10}))
    assert many["verdict"] == "UNKNOWN"
    assert many["unknown_because"] == ["11 of 200 compared rows are excused, more than 5.0%: too few are left to trust"]
    assert whole((held, {"other_weights": 1}), (vacuous, {"other_weights": 99}))["verdict"] == "HELD"
    assert whole((held, {"other_weights": 2}), (vacuous, {"other_weights": 99}))["verdict"] == "UNKNOWN"


def test_where_no_restored_row_matched_outright_nothing_is_proven(whole: Callable[..., dict[str, Any]]) -> None:
    assert whole((Verdict.NOT_REACHED, {"matched_outright": 0}))["verdict"] == "UNKNOWN"


def test_the_commands_that_run_the_real_world_take_the_same_options(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = {f"--{name.replace('_', '-')}" for name in OF_REAL}
    for words in (["run"], ["parity", "run"]):
        assert main([*words, "--help"]) == 0
        assert wanted <= set(capsys.readouterr().out.split())
        for option in sorted(wanted):
            assert main([*words, "turn", option, "1"]) == 2
            assert f"{option} is given without --world real" in capsys.readouterr().err
