"""Changes from outside: unified diffs and edit files, applied to a copy whole or not at all."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from mutants.diff import apply_diff
from mutants.foreign import Trial, Tried, apply_change, read_edits, tried
from mutants.matrix import Swept
from mutants.model import Edit
from mutants.patch import Stale

BEFORE = "".join(f"line_{number} = {number}\n" for number in range(30)) + "same = 0\nsame = 0\n"
AFTER = BEFORE.replace("line_3 = 3\n", "").replace("line_20 = 20\n", "line_20 = -20\nmore = 1\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim" / "one.py").write_text(BEFORE)
    return tmp_path


def diff(before: str, after: str, old: str = "a/sim/one.py", new: str = "b/sim/one.py") -> str:
    return "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), old, new))


def test_a_diff_changes_what_it_says(tree: Path) -> None:
    assert apply_diff("From: somebody\n\n" + diff(BEFORE, AFTER), tree) == (["sim/one.py"], [])
    assert (tree / "sim" / "one.py").read_text() == AFTER


def test_a_hunk_is_found_where_its_lines_have_moved_to(tree: Path) -> None:
    (tree / "sim" / "one.py").write_text("first = 1\nsecond = 2\n" + BEFORE)
    apply_diff(diff(BEFORE, AFTER), tree)
    assert (tree / "sim" / "one.py").read_text() == "first = 1\nsecond = 2\n" + AFTER


def test_a_file_is_made_and_another_one_removed(tree: Path) -> None:
    text = diff("", "new = 1\n", "/dev/null", "b/sim/two.py") + diff(BEFORE, "", "a/sim/one.py", "/dev/null")
    assert apply_diff(text, tree)[0] == ["sim/two.py", "sim/one.py"]
    assert [(path.name, path.read_text()) for path in (tree / "sim").iterdir()] == [("two.py", "new = 1\n")]


def test_files_outside_of_the_packages_are_left_out(tree: Path) -> None:
    text = diff("a\n", "b\n", "a/docs/x.md", "b/docs/x.md") + diff(BEFORE, AFTER)
    assert apply_diff(text, tree) == (["sim/one.py"], ["docs/x.md"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "it changes no file of protocol"),
        ("no diff at all", "it changes no file of protocol"),
        (diff("a\n", "b\n", "a/docs/x.md", "b/docs/x.md"), "(only docs/x.md)"),
        (diff("a\n", "b\n", "a/sim/../../x.py", "b/sim/../../x.py"), "it changes no file of protocol"),
        (diff("a\n", "b\n", "/sim/one.py", "/sim/one.py"), "it changes no file of protocol"),
        (diff("a\n", "b\n", "a/sim/two.py", "b/sim/two.py"), "sim/two.py: there is no such file"),
        (diff("", "b\n", "/dev/null", "b/sim/one.py"), "sim/one.py: is there already"),
        (diff("other = 1\n", "other = 2\n"), "sim/one.py: hunk 1 (line 1) does not fit"),
        ("--- a/sim/one.py\n+++ b/sim/one.py\n@@ -5 +5 @@\n-same = 0\n+same = 1\n", "or more than once"),
        ("--- a/sim/one.py\n+++ b/sim/one.py\n@@ -1,2 +1,2 @@\n line_0 = 0\n", "the hunk of line 3 is cut"),
        ("--- a/sim/one.py\n+++ b/sim/one.py\n@@ -x +y @@\n", "line 3 is no head of a hunk"),
        ("@@ -1 +1 @@\n-line_0 = 0\n+line_0 = 1\n", "line 1 is a hunk without the names of its file"),
        ("Binary files a/sim/x and b/sim/x differ\n", "it holds a binary file"),
        (diff(BEFORE, BEFORE.replace("line_3 = 3", "line_3 = = 3")), "what it leaves is no Python"),
    ],
)
def test_a_diff_that_does_not_fit_changes_nothing(text: str, expected: str, tree: Path) -> None:
    with pytest.raises(Stale) as error:
        apply_diff(text, tree)
    assert expected in str(error.value) and (tree / "sim" / "one.py").read_text() == BEFORE


def test_an_edit_file_holds_one_edit_or_several(tree: Path) -> None:
    one = 'scope = "sim.one"\nfind = "line_3 = 3"\nput = "line_3 = 4"\n'
    assert read_edits(one) == [Edit(scope="sim.one", find="line_3 = 3", put="line_3 = 4")]
    several = "".join(f"[[edits]]\n{one.replace('3', number)}" for number in ("5", "6"))
    assert apply_change(several, tree) == (["sim/one.py"], [])
    assert "line_5 = 4" in (tree / "sim" / "one.py").read_text() and "line_6 = 4" in (tree / "sim" / "one.py").read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('scope = "sim.one"\nfind = "x"\n', "'put' is missing"),
        ('scope = "sim.one"\nfind = "x"\nput = 3\n', "'put' must be a string"),
        ('scope = "sim.one"\nfind = "x"\nput = "y"\nspam = "z"\n', "'spam' is not a known key"),
        ('scope = "sim.one"\nfind = "x"\nput = "y"\nalso = "import"\n', "'also' is no Python"),
        ("edits = []\n", "it must hold either one edit"),
        ("edits = [3]\n", "edit 1 is no table"),
        ('scope = "sim.one"\nfind = "nothing"\nput = ""\n', "0 matches of 'nothing'"),
        ('scope = "sim.one"\nfind = "= ="\nput = ""\n', "is no Python"),
        ('scope = "nowhere.one"\nfind = "x"\nput = ""\n', "no such module"),
    ],
)
def test_an_edit_file_that_does_not_fit_says_why(text: str, expected: str, tree: Path) -> None:
    with pytest.raises(Stale) as error:
        apply_change(text, tree)
    assert expected in str(error.value) and (tree / "sim" / "one.py").read_text() == BEFORE


def swept(verdict: str, *violations: tuple[str, int], messages: tuple[str, ...] = ()) -> Swept:
    found = [{"invariant": name, "token": f"t-{name}", "message": name, "points": points} for name, points in violations]
    report = {"verdict": verdict, "judged": 9, "violations": found, "messages": list(messages)}
    return Swept(report=report, returncode=0, stderr="", marks=())


def test_only_a_judge_catches_a_change() -> None:
    caught = tried("a", swept("BROKEN", ("I1", 2), ("I2", 5)))
    assert (caught.verdict, caught.judges, caught.points, caught.token) == ("BROKEN", ("I1", "I2"), 5, "t-I2")
    crashed = tried("b", Swept(report=None, returncode=1, stderr="ImportError: no", marks=()))
    assert crashed.verdict == "UNKNOWN" and "ImportError" in crashed.message
    assert tried("c", swept("UNKNOWN", messages=("reached nowhere",))).message == "reached nowhere"


def test_the_verdict_over_the_library_is_broken_before_unknown_before_held() -> None:
    def verdict(*words: str) -> str:
        rows = tuple(Tried(scenario=word, verdict=word) for word in words)
        return Trial(changed=(), left_out=(), rows=rows).verdict

    assert [verdict("HELD", "UNKNOWN", "BROKEN"), verdict("HELD", "UNKNOWN"), verdict("HELD")] == ["BROKEN", "UNKNOWN", "HELD"]
