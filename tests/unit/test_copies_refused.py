"""``run --copy`` that means nothing: exit 2 and one line that says what would be right, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollproof.cli import main

GOOD = "controller-SnapshotPublished-2-all"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (f"turn --copy {GOOD} --out DIR", "--copy is given without --world real"),
        (f"turn --world real --copy {GOOD}", "--copy is given without --out"),
        (f"turn --world real --copy {GOOD} --copy controller-SnapshotPublished-2-1 --out DIR", "is given twice"),
        (f"turn --world real --copy {GOOD} --reference DIR --out DIR", "--copy and --reference are both given"),
        (f"effects --world real --copy {GOOD} --out DIR", "scenario effects has services outside of the job"),
        ("turn --world real --copy later --out DIR", "--copy 'later': crash plan item 1 'later' has 1 parts"),
        ("turn --world real --copy controller-Snapshot-2-all --out DIR", "is no event"),
        ("turn --world real --copy controller-SnapshotPublished-2+1-all --out DIR", "only the simulator can stop"),
        ("turn --world real --copy controller-SnapshotPublished-2-none --out DIR", "SIGKILL loses no page cache"),
        ("turn --world real --copy gym-9-AdmissionClosed-1-all --out DIR", "there is no process 'gym-9'"),
        ("turn --world real --copy job-LifeStarted-1-all --out DIR", "triggers in processes of the job only"),
        (f"turn --world real --copy {GOOD}~{GOOD} --out DIR", "names 2 crashes: give --copy once for each point"),
    ],
)
def test_a_copy_that_cannot_be_made_is_one_clear_error(
    words: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["run", *words.replace("DIR", str(out)).split()]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and shown.err.startswith("rollproof: error: --copy")
    assert expected in shown.err and not out.exists()
