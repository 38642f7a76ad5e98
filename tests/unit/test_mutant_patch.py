"""Edits are matched as syntax trees, exactly once, and leave a mark where they changed something."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap

import pytest

from mutants.matrix import Swept, judge
from mutants.model import Edit, Mutant, Outcome
from mutants.patch import MARKS_VARIABLE, Stale, apply, why_stale

SOURCE = '''
"""A module."""

from __future__ import annotations

LEGAL = {1: 2}


def plain(x: Later) -> int:
    if x > 1:  # a comment is no part of the tree
        return x + 1
    return 0


def twice(x):
    return (x + 1) * (x + 1)


class Thing:
    def method(self, x):
        self.seen = [y
                     for y in x if y > 0]
        return self.seen

    async def waits(self, gate):
        await gate.wait()
        return "after"
'''


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "module.py").write_text(textwrap.dedent(SOURCE).lstrip())
    return tmp_path


def changed(tree, *edits, marks=None, monkeypatch=None):
    apply(edits, tree)
    names: dict[str, object] = {}
    exec(compile((tree / "package" / "module.py").read_text(), "module.py", "exec"), names)
    return names


def edit(scope, find, put, **more):
    return Edit(scope=f"package.module{scope}", find=find, put=put, **more)


def test_an_expression_is_replaced_whatever_its_layout(tree):
    names = changed(tree, edit(".Thing.method", "[y for y in x if y > 0]", "list(x)"))
    assert names["Thing"]().method([0, 1]) == [0, 1]


def test_a_statement_is_replaced_by_several(tree):
    names = changed(tree, edit(".plain", "return x + 1", "x = 10\nreturn x"))
    assert names["plain"](5) == 10


def test_a_statement_is_taken_out(tree):
    names = changed(tree, edit(".plain", "if x > 1:\n    return x + 1", ""))
    assert names["plain"](5) == 0


def test_an_await_is_taken_out_of_an_async_method(tree):
    names = changed(tree, edit(".Thing.waits", "await gate.wait()", ""))
    assert asyncio.run(names["Thing"]().waits(None)) == "after"


def test_an_awaited_expression_keeps_its_await(tree):
    class Gate:
        async def wait(self):
            return 1

        async def pass_by(self):
            return 2

    names = changed(tree, edit(".Thing.waits", "gate.wait", "gate.pass_by"))
    assert asyncio.run(names["Thing"]().waits(Gate())) == "after"


def test_a_modules_own_table_can_be_edited(tree):
    assert changed(tree, edit("", "{1: 2}", "{1: 3}"))["LEGAL"] == {1: 3}


def test_the_imports_of_the_future_stay_first(tree):
    names = changed(tree, edit(".plain", "x > 1", "x > 100", also="import math"))
    assert names["__doc__"] == "A module."
    assert names["math"].pi > 3
    assert names["plain"](5) == 0


def test_two_edits_of_one_file_share_one_marking_function(tree):
    names = changed(tree, edit(".plain", "return 0", "return 7"), edit(".twice", "(x + 1) * (x + 1)", "0"))
    assert (names["plain"](0), names["twice"](5)) == (7, 0)
    assert (tree / "package" / "module.py").read_text().count("def _rollproof_mark(") == 1


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (edit(".twice", "x + 1", "x"), "2 matches"),
        (edit(".plain", "x + 2", "x"), "0 matches"),
        (edit(".nobody", "x + 1", "x"), "0 definitions of nobody"),
        (Edit(scope="package.gone.f", find="x", put="y"), "0 definitions of gone"),
        (Edit(scope="elsewhere.f", find="x", put="y"), "no such module"),
        (edit(".plain", "x = 1\ny = 2", ""), "2 statements"),
        (edit(".plain", "x > 1", "pass"), "put must be one expression"),
        (edit(".plain", "x >", "y"), "is no Python"),
    ],
)
def test_what_does_not_match_exactly_once_is_stale_and_changes_nothing(tree, one, why):
    before = (tree / "package" / "module.py").read_text()
    assert why in why_stale([one], tree)[0]
    with pytest.raises(Stale):
        apply([one], tree)
    assert (tree / "package" / "module.py").read_text() == before


@pytest.mark.parametrize(("value", "marks"), [("5", ["edit-0"]), ("0", [])])
def test_only_a_place_that_ran_leaves_a_mark(tree, tmp_path, value, marks):
    apply([edit(".plain", "x + 1", "x")], tree)
    folder = tmp_path / "marks"
    folder.mkdir()
    code = f"from package.module import plain; plain({value}); plain({value})"
    subprocess.run([sys.executable, "-c", code], cwd=tree, env={MARKS_VARIABLE: str(folder)}, check=True)
    assert [path.name for path in folder.iterdir()] == marks


MUTANT = Mutant(number=1, name="a-bug", area="A", fault="", edits=(), scenario="s", judges=("I5",))


def swept(verdict, *invariants, marks=("1-0",)):
    violations = [{"invariant": name, "token": f"token of {name}", "message": "m"} for name in invariants]
    report = {"verdict": verdict, "violations": violations, "judged": 9}
    return Swept(report=report, returncode=0, stderr="", marks=marks)


@pytest.mark.parametrize(
    ("result", "outcome", "by"),
    [
        (swept("BROKEN", "I1", "I5"), Outcome.CAUGHT, "I5"),
        (swept("BROKEN", "I1"), Outcome.CAUGHT_BY_OTHER, "I1"),
        (swept("UNKNOWN", "I5"), Outcome.CAUGHT, "I5"),
        (swept("HELD"), Outcome.SURVIVED, ""),
        (swept("UNKNOWN"), Outcome.SURVIVED, ""),
        (swept("BROKEN", "I5", marks=()), Outcome.NOT_REACHED, ""),
        (Swept(report=None, returncode=1, stderr="ImportError", marks=("1-0",)), Outcome.HARNESS_ERROR, ""),
    ],
)
def test_only_a_judges_finding_at_a_reached_place_catches_a_mutant(result, outcome, by):
    row = judge(MUTANT, result)
    assert (row.outcome, row.judge) == (outcome, by)
