"""The style that a machine can hold: names, sizes, and what the core must never say."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("protocol", "scenarios", "sim", "real", "invariants", "parity", "mutants", "reports", "rollproof")
CODE = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
TEXT = [
    *CODE,
    *sorted((ROOT / "tests").rglob("*.py")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "README.md",
    ROOT / "Makefile",
]
LINES_MAX = 450  # a file is one idea
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
UNFINISHED = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", CODE, ids=named)
def test_a_module_says_what_it_is_and_stays_one_idea(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert path.stem not in VAGUE
    assert not text.strip() or ast.get_docstring(ast.parse(text)), "a module begins with its docstring"
    assert text.count("\n") <= LINES_MAX


@pytest.mark.parametrize("path", TEXT, ids=named)
def test_nothing_unfinished_or_of_one_machine_is_left(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert UNFINISHED.findall(text) == []
    assert re.findall(r"(?<![\w.])/(?:home|root|tmp|mnt)/\w+", text) == []


@pytest.mark.parametrize("path", [path for path in CODE if path.parts[len(ROOT.parts)] == "protocol"], ids=named)
def test_the_core_catches_no_base_exception_and_has_no_async_generator(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type is not None else "everything"
            assert not re.search(r"\b(BaseException|Cancelled|Fenced|everything)\b", caught), (
                f"line {node.lineno} catches {caught}"
            )
        if isinstance(node, ast.AsyncFunctionDef):
            inner = [child for statement in node.body for child in ast.walk(statement)]
            assert not [child for child in inner if isinstance(child, ast.Yield | ast.YieldFrom)], (
                f"line {node.lineno}: an async generator"
            )


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("test_*.py")), ids=named)
def test_every_test_can_fail(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            text = ast.unparse(node)
            assert re.search(r"\bassert\b|raises\(|\.fail\(|_holds\(|_is_|expect", text), f"{node.name} asserts nothing"


def test_no_two_test_files_share_a_name() -> None:
    """Without packages pytest imports each by its bare name: the second one would not be collected."""
    names = [path.name for path in sorted((ROOT / "tests").rglob("*.py"))]
    assert sorted({name for name in names if names.count(name) > 1}) == []
