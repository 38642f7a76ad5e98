"""``rollproof parity``: what is refused, what is written before anything is judged, and exit codes that are verdicts."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parity_samples import Pair, clean_pair
from small_file import SMALL

from rollproof import parity_finishing, parity_inputs
from rollproof.cli import main
from rollproof.parity_saving import evidence_files, pack_table, unpack_table
from scenarios.model import InputError

NEEDED = ("verdict", "profile", "restored_calls", "matched_outright", "other_weights", "excused", "gates")
EXAMPLES = Path(__file__).parents[2] / "examples" / "parity"
DUMPS = [str(EXAMPLES / f"{name}.jsonl") for name in ("reference", "restored")]
AT_PLAN = "controller-SnapshotPublished-2-all"


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return str(path)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pair:
    """``compare A B`` reads these two runs, whatever A and B hold."""
    found = clean_pair(routes=False)

    def read(reference: Path, restored: Path, mapping: str | None) -> Any:
        return tuple(
            parity_finishing.renamed(side.run(), str(path))
            for side, path in ((found.reference, reference), (found.restored, restored))
        )

    monkeypatch.setattr(parity_inputs, "read_pair", read)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    return found


@pytest.fixture
def compare(pair: Pair, tmp_path: Path) -> Callable[..., int]:
    """``parity compare`` of the pair with these further words; the exit code."""
    return lambda *words: main(["parity", "compare", str(tmp_path / "a"), str(tmp_path / "b"), *words])


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_an_equal_pair_is_held_and_everything_is_written(
    compare: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, junit = tmp_path / "out", tmp_path / "junit.xml"
    assert compare("--profile", "exact", "--json", "--out", str(out), "--junit", str(junit)) == 0
    report = printed(capsys)
    assert set(NEEDED) <= set(report) and report["verdict"] == "HELD" and report["restored_calls"] == 4
    assert all({"name", "verdict", "value", "limit"} <= set(gate) for gate in report["gates"])
    assert json.loads((out / "parity-report.json").read_text()) == report
    assert {"parity.json", "parity-report.json", "parity.html", "figures", "evidence"} == {path.name for path in out.iterdir()}
    assert b'failures="0"' in junit.read_bytes()


def test_a_dropped_token_is_broken_and_the_report_is_written_all_the_same(
    compare: Callable[..., int], pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.restored.row(3, 1)["tokens"][-1] += 1
    assert compare("--profile", "exact", "--out", str(tmp_path / "out")) == 1
    assert "BROKEN token ids" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "parity-report.json").read_text())["verdict"] == "BROKEN"
    assert "BROKEN" in (tmp_path / "out" / "parity.html").read_text()


def test_constant_rewards_are_unknown(compare: Callable[..., int], pair: Pair, tmp_path: Path) -> None:
    for side in (pair.reference, pair.restored):
        for row in side.rows:
            row["reward"] = 1.0
    assert compare("--profile", "exact", "--out", str(tmp_path / "out")) == 3
    report = json.loads((tmp_path / "out" / "parity-report.json").read_text())
    assert any("all rewards are 1" in reason for reason in report["unknown_because"])


def test_what_was_measured_stays_when_judging_fails_and_can_be_judged_later(
    compare: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"

    def fall(*_: Any, **__: Any) -> Any:
        assert (out / "parity.json").is_file() and all((out / name).is_file() for name in evidence_files())
        raise RuntimeError("the gates fell over")

    with monkeypatch.context() as broken:
        broken.setattr(parity_finishing, "judge", fall)
        assert compare("--profile", "exact", "--out", str(out), "--json") == 3
    report = printed(capsys)
    assert report["verdict"] == "UNKNOWN" and report["unknown_because"] == ["judging crashed: RuntimeError: the gates fell over"]
    assert json.loads((out / "parity-report.json").read_text()) == report
    assert main(["parity", "judge", str(out), "--json"]) == 0
    assert printed(capsys)["verdict"] == "HELD"


def test_a_saved_comparison_is_judged_again_to_the_same_bytes(compare: Callable[..., int], pair: Pair, tmp_path: Path) -> None:
    pair.restored.row(3, 1)["generation_logprobs"][-1] -= 0.6
    assert compare("--profile", "fp32", "--out", str(tmp_path / "out")) == 1
    before = {path: path.read_bytes() for path in sorted((tmp_path / "out").rglob("*")) if path.is_file()}
    assert main(["parity", "judge", str(tmp_path / "out")]) == 1
    assert {path: path.read_bytes() for path in before} == before


def test_a_page_that_cannot_be_drawn_changes_no_verdict(
    compare: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fall(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no ink")

    monkeypatch.setattr(parity_finishing, "write_pictures", fall)
    assert compare("--profile", "exact", "--out", str(tmp_path / "out")) == 0
    assert "the page could not be made (RuntimeError: no ink)" in capsys.readouterr().err
    assert (tmp_path / "out" / "parity-report.json").is_file()


def test_earlier_runs_of_the_workload_are_on_the_page(compare: Callable[..., int], tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert compare("--profile", "exact", "--out", str(first)) == 0
    assert compare("--profile", "exact", "--out", str(second), "--earlier", str(first)) == 0
    text = (second / "parity.html").read_text()
    assert "Earlier runs of this workload" in text and (second / "figures" / "over-runs.png").is_file()
    assert "Earlier runs" not in (first / "parity.html").read_text()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["compare", "nowhere", "nowhere"], "A is 'nowhere': there is no such file or folder"),
        (["compare", ".", "nowhere"], "B is 'nowhere'"),
        (["compare", ".", ".", "--map", "nowhere.toml"], "nowhere.toml: cannot be read"),
        (["compare", ".", ".", "--profile", "exactly"], "did you mean exact?"),
        (["compare", ".", ".", "--earlier", "nowhere"], "--earlier nowhere: parity-report.json cannot be read"),
        (["run", "turn", "--world", "moon"], "--world is 'moon': it must be sim or real"),
        (["run", "turn", "--points", "0"], "--points is '0': it must be all or a number above 0"),
        (["run", "turn", "--points", "3", "--crash", AT_PLAN], "--points and --crash are both given"),
        (["run", "turn", "--points", "3", "--world", "real"], "--points and --world real are both given"),
        (["run", "turn", "--crash", "none"], "--crash is none: without a crash there is no restored run"),
        (["run", "turn", "--disk", "all"], "--disk is given without --points"),
        (["run", "turn", "--crash", "controller-Snap-1-all"], "'Snap' is no event"),
        (["run", "fixed-order"], "fixed-order: names no crash of its own: give --crash PLAN, or --points all"),
        (["run", "turn", "--profile", "odd"], "--profile: profile odd: neither a profile"),
        (["judge", "nowhere"], "nowhere: is no folder: a folder that parity compare --out"),
        (["judge", "."], "holds no parity.json"),
        (["run", "turn", "--points", "3", "--earlier", "."], "--earlier is given and --points too: it is for one comparison"),
        (["compare", *DUMPS], "no row has 'ordinal', which the mapping rollproof reads ordinal from: if another trainer wrote"),
        (["compare", *DUMPS], "--map FILE says which of its columns is which of ours (docs/parity-format.md says how"),
        (["run", "near-tie"], "unknown scenario 'near-tie' (did you mean near-ties?): rollproof scenarios list names the"),
    ],
)
def test_wrong_words_are_named_in_one_line(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", *words]) == 2
    error = capsys.readouterr().err
    assert text in error and error.count("\n") == 1


def test_a_comparison_whose_files_were_changed_names_the_file(
    compare: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert compare("--profile", "exact", "--out", str(out)) == 0
    table = out / "evidence" / "pairs.parquet"
    whole = table.read_bytes()
    table.write_bytes(whole[:-20])
    assert main(["parity", "judge", str(out)]) == 2
    table.unlink()
    assert main(["parity", "judge", str(out)]) == 2
    table.write_bytes(whole)
    (out / "parity.json").write_text('{"format": 9}')
    assert main(["parity", "judge", str(out)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "evidence/pairs.parquet: is no table" in lines[-3] and "evidence/pairs.parquet: cannot be read" in lines[-2]
    assert "parity.json: has format 9: this version reads format 1" in lines[-1]


def test_rows_that_cannot_be_read_leave_nothing_behind(
    compare: Callable[..., int], pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del pair.restored.row(3, 1)["token_mask"][-1]
    assert compare("--profile", "exact", "--out", str(tmp_path / "out")) == 2
    assert "token_mask" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_one_simulated_crash_is_run_saved_and_compared(small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    code = main(["parity", "run", small, "--crash", AT_PLAN, "--out", str(out), "--json"])
    report = printed(capsys)
    assert (code, report["verdict"]) == (0, "HELD") and report["matched_outright"] > 0 and report["profile"]["name"] == "exact"
    assert report["command"].startswith(f"rollproof parity run {small} --seed 0 --crash rp1.small.")
    assert main(["judge", str(out)]) in (0, 3)  # the run itself is there for its own judges
    assert main(["parity", "judge", str(out)]) == 0


def test_a_crash_that_does_not_fire_is_unknown(small: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", "run", small, "--crash", "controller-SnapshotPublished-900-all", "--json"]) == 3
    assert "life 1: its crash did not fire, it ended" in printed(capsys)["unknown_because"]


def test_tables_come_back_as_they_were_kept() -> None:
    import numpy as np

    frame = pd.DataFrame({
        "number": np.array([1, 2, 3], np.int32),
        "real": [0.5, float("nan"), float("inf")],
        "text": ["a", "", "ö"],
        "none": pd.Series([None, 1, 2], dtype=object),
        "lists": pd.Series([[1.5], [], None], dtype=object),
        "mixed": pd.Series([1, "a", None], dtype=object),
        "flag": [True, False, True],
    })  # fmt: skip
    again = unpack_table(pack_table(frame), "here")
    assert again.dtypes.to_dict() == frame.dtypes.to_dict()
    assert repr(again.to_dict("list")) == repr(frame.to_dict("list"))
    empty = unpack_table(pack_table(frame.iloc[:0]), "here")
    assert list(empty.columns) == list(frame.columns) and empty.dtypes.to_dict() == frame.dtypes.to_dict() and len(empty) == 0


def test_no_command_that_compares_nothing_reads_what_is_heavy() -> None:
    words = "import sys; from rollproof.cli import main; main(['parity', 'run', '--help']); main(['scenarios', 'show', 'turn'])"
    heavy = "print(sorted({'pandas', 'pyarrow', 'scipy', 'matplotlib', 'numpy', 'torch'} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", f"{words}; {heavy}"], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.drop_columns(["kind"]), "lacks column kind, which it was written with"),
        (lambda table: table.set_column(1, "gap", pa.array(["x", "y"])), "column gap holds string or nothing in places, it was"),
        (lambda table: table.set_column(1, "gap", pa.array([[1.0], [2.0]])), "column gap holds list<.*: double> or nothing"),
        (
            lambda table: table.set_column(0, "step", pa.nulls(2, pa.int64())),
            "column step holds int64 or nothing in places, it was",
        ),
        (lambda table: table.append_column("more", pa.array([1, 2])), "column more holds int64 .* written with no such column"),
    ],
)
def test_a_saved_table_that_was_changed_since_is_refused(change: Callable[[pa.Table], pa.Table], said: str) -> None:
    packed = pack_table(pd.DataFrame({"step": [1, 2], "gap": [0.5, float("nan")], "kind": pd.Series(["a", None], dtype="str")}))
    assert unpack_table(packed, "here")["gap"].isna().tolist() == [False, True]
    written = io.BytesIO()
    pq.write_table(change(pq.read_table(io.BytesIO(packed))), written)
    with pytest.raises(InputError, match=f"here: {said}"):
        unpack_table(written.getvalue(), "here")


def test_a_saved_run_is_compared_with_another_of_its_scenario_and_seed_alone(
    small: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crashed, plain, other = (str(tmp_path / name) for name in ("crashed", "plain", "other"))
    assert main(["run", small, "--crash", AT_PLAN, "--out", crashed]) in (0, 3)
    assert main(["run", small, "--out", plain]) in (0, 3)
    assert main(["run", small, "--seed", "1", "--out", other]) in (0, 3)
    assert main(["parity", "compare", plain, crashed, "--profile", "exact"]) == 0
    assert main(["parity", "compare", crashed, crashed, "--profile", "exact"]) == 0  # with the reference that lies beside it
    assert main(["parity", "compare", plain, plain, "--profile", "exact"]) == 3
    assert main(["parity", "compare", plain, plain, "--profile", "exact", "--no-restore"]) == 3
    capsys.readouterr()
    assert main(["parity", "compare", other, crashed]) == 2
    assert "seed 1, B is of scenario small" in capsys.readouterr().err


def test_a_measure_that_crashes_is_unknown_and_never_a_verdict_on_the_runs(
    compare: Callable[..., int], small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rollproof import parity_sweeping

    def fall(*_: Any, **__: Any) -> Any:
        raise IndexError("out of rows")

    for module in (parity_finishing, parity_sweeping):
        monkeypatch.setattr(module, "comparison_of", fall)
    assert compare("--profile", "exact", "--json", "--out", str(tmp_path / "out")) == 3
    assert printed(capsys)["unknown_because"] == ["measuring crashed: IndexError: out of rows"]
    assert json.loads((tmp_path / "out" / "parity-report.json").read_text())["verdict"] == "UNKNOWN"
    assert main(["parity", "run", small, "--points", "3", "--json"]) == 3
    assert any(reason.startswith("measuring crashed: IndexError") for reason in printed(capsys)["unknown_because"])
