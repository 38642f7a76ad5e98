"""``rollproof mutants``: which bugs, its JSON object, its exit codes, and a change from outside against a library of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mutants.catalogue import catalogue
from mutants.matrix import Matrix
from mutants.model import Outcome, Row
from rollproof import commands, mutating
from rollproof.cli import main

FIELDS = {"registered", "reached", "caught", "caught_by_intended", "median_points", "rows", "excluded"}
ROW_FIELDS = {"number", "name", "outcome", "judge", "points", "token"}


def matrix(*outcomes: Outcome) -> Matrix:
    rows = [Row(number=number, name=f"bug-{number}", outcome=outcome, judge="I1", points=3, detail="why")
            for number, outcome in enumerate(outcomes)]  # fmt: skip
    return Matrix(rows=tuple(rows))


def test_bugs_are_chosen_by_name_number_and_area() -> None:
    first, second, *_ = catalogue()
    assert mutating.chosen([], None) == list(catalogue())
    assert mutating.chosen([first.name, f"{second.number:03d}", str(first.number)], None) == [first, second]
    area = [mutant for mutant in catalogue() if mutant.area == first.area]
    assert mutating.chosen([], first.area.lower()) == area


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ((Outcome.CAUGHT, Outcome.CAUGHT_BY_OTHER), 0),
        *(((Outcome.CAUGHT, outcome), 1) for outcome in Outcome if "CAUGHT" not in outcome.value),
    ],
)
def test_the_exit_code_says_whether_all_are_caught(
    outcomes: tuple[Outcome, ...], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "run_selected", lambda mutants, excluded, points, tell: matrix(*outcomes))
    assert main(["mutants", "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert FIELDS <= set(report) and ROW_FIELDS <= set(report["rows"][0])
    assert (report["registered"], len(report["rows"]), report["excluded"]) == (2, 2, [])
    assert main(["mutants"]) == code
    assert f"1 bug-1                                  {outcomes[1].value}" in capsys.readouterr().out


def test_one_bug_is_put_back_and_caught(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutants", "short-stream-free", "--points", "20", "--json"]) == 0
    shown = capsys.readouterr()
    (row,) = json.loads(shown.out)["rows"]
    assert (row["number"], row["outcome"], row["judge"]) == (27, "CAUGHT", "I6")
    assert shown.err.startswith("1 of 1: 27 short-stream-free: CAUGHT ")


@pytest.fixture
def library_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutating, "library", lambda: {"weight-fifo": Path()})


def trial(change: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    path = folder / "change"
    path.write_text(change)
    code = main(["mutants", "--patch", str(path), "--points", "12", "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def test_a_change_that_breaks_a_guarantee_is_caught(
    library_of_one: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (Path(mutating.__file__).parent.parent / "protocol" / "checkpoint" / "publish.py").read_text().splitlines()
    place = next(index for index, line in enumerate(source) if line.strip() == "await sync_tree(rt, temporary)" and index > 1
                 and "temporary_step" in source[index - 1])  # fmt: skip
    diff = "\n".join([
        "--- a/protocol/checkpoint/publish.py", "+++ b/protocol/checkpoint/publish.py", f"@@ -{place},3 +{place},2 @@",
        " " + source[place - 1], "-" + source[place], " " + source[place + 1], "",
    ])  # fmt: skip
    code, report = trial(diff, tmp_path, capsys)
    assert (code, report["verdict"], report["changed"]) == (1, "BROKEN", ["protocol/checkpoint/publish.py"])
    assert "weight-fifo I21" in report["caught_by"] and "is renamed to step_1 before" in report["scenarios"][0]["message"]


def test_a_change_of_no_consequence_is_held_and_one_that_does_not_apply_is_refused(
    library_of_one: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harmless = 'scope = "protocol.checkpoint.publish.publish_step"\nfind = "temporary = folders.temporary_step(step)"\n'
    code, report = trial(harmless + 'put = "temporary = folders.temporary_step(int(step))"\n', tmp_path, capsys)
    assert (code, report["verdict"], report["caught_by"]) == (0, "HELD", [])
    (tmp_path / "change").write_text(harmless.replace("temporary = ", "temporary = 1 + ") + 'put = ""\n')
    assert main(["mutants", "--patch", str(tmp_path / "change")]) == 2
    assert "does not apply: protocol.checkpoint.publish.publish_step: 0 matches" in capsys.readouterr().err


def test_a_bug_that_is_left_out_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutants", "71"]) == 2
    assert "bug 71 is left out: a fault of an in-process test client" in capsys.readouterr().err
