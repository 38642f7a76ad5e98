"""Edits as syntax trees, applied to a copy of the source tree (RULES 9).

``find`` must match exactly once inside its scope: a refactoring that moves the code makes the mutant STALE, never silently
void. A mark is left at the changed place: the first time it runs, it creates a file in the folder ``ROLLPROOF_MARKS`` names.
"""

from __future__ import annotations

import ast
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from mutants.model import Edit

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("protocol", "scenarios", "sim", "real", "invariants", "parity", "mutants", "reports", "rollproof")
MARKS_VARIABLE = "ROLLPROOF_MARKS"
MARK = "_rollproof_mark"

# Runs in the mutated copy only. `_seen` keeps a hot place from touching the disk more than once a process.
MARK_SOURCE = f'''
def {MARK}(name, _seen=[]):
    if name not in _seen:
        _seen.append(name)
        import os
        if os.environ.get("{MARKS_VARIABLE}"):
            open(os.path.join(os.environ["{MARKS_VARIABLE}"], name), "a").close()
    return True
'''

Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Stale(Exception):
    """An edit does not fit the tree any more; the text says which one and why."""


def copy_tree(into: Path, root: Path = ROOT) -> None:
    """Copy every package of the project below ``into``."""
    for name in PACKAGES:
        if (root / name).is_dir():
            shutil.copytree(root / name, into / name, ignore=shutil.ignore_patterns("__pycache__"))


def apply(edits: Sequence[Edit], root: Path, label: str = "edit") -> list[Path]:
    """Change the files below ``root`` in place; mark k is named ``<label>-<k>``. Returns the changed files. Raises Stale."""
    changed: dict[Path, str] = {}
    for index, edit in enumerate(edits):
        path, names = locate(edit.scope, root)
        source = changed.get(path) or path.read_text()
        changed[path] = edited(source, names, edit, f"{label}-{index}")
    for path, source in changed.items():
        path.write_text(source)
    return list(changed)


def why_stale(edits: Sequence[Edit], root: Path = ROOT) -> list[str]:
    """What does not match any more (empty: every edit matches exactly once). Nothing is written."""
    wrong: list[str] = []
    sources: dict[Path, str] = {}
    for index, edit in enumerate(edits):
        try:
            path, names = locate(edit.scope, root)
            sources[path] = edited(sources.get(path) or path.read_text(), names, edit, f"edit-{index}")
        except Stale as error:
            wrong.append(str(error))
    return wrong


def locate(scope: str, root: Path) -> tuple[Path, list[str]]:
    """File of the longest module prefix of a dotted name, and the names inside it. Raises Stale."""
    parts = scope.split(".")
    for length in range(len(parts), 0, -1):
        module = root.joinpath(*parts[:length])
        for path in (module.with_suffix(".py"), module / "__init__.py"):
            if path.is_file():
                return path, parts[length:]
    raise Stale(f"{scope}: no such module below {root.name}")


def edited(source: str, names: Sequence[str], edit: Edit, mark: str) -> str:
    """The module's source with ``edit`` applied once. Raises Stale."""
    module = ast.parse(source)
    find = _statements(edit.find, edit.scope)
    if len(find) != 1:
        raise Stale(f"{edit.scope}: find holds {len(find)} statements, it must be one statement or expression")
    editor = _Editor(find[0], _statements(edit.put, edit.scope), mark)
    editor.visit(_scope(module, names, edit.scope))
    if editor.hits != 1:
        raise Stale(f"{edit.scope}: {editor.hits} matches of {edit.find.strip()!r}, it must be exactly 1")
    if editor.needs_expression:
        raise Stale(f"{edit.scope}: {edit.find.strip()!r} is part of an expression, so put must be one expression")
    _insert_after_imports_of_the_future(
        module, ast.parse(edit.also).body + ([] if MARK + "(name" in source else ast.parse(MARK_SOURCE).body)
    )
    return ast.unparse(ast.fix_missing_locations(module)) + "\n"


def _statements(text: str, where: str) -> list[ast.stmt]:
    """Statements of ``text``, as they would stand inside an async function. Raises Stale if it does not parse."""
    try:
        wrapper = ast.parse("async def _():\n" + textwrap.indent(textwrap.dedent(text).strip() or "pass", "    ")).body[0]
    except SyntaxError as error:
        raise Stale(f"{where}: {text.strip()!r} is no Python: {error.msg}") from None
    assert isinstance(wrapper, ast.AsyncFunctionDef)
    return wrapper.body if text.strip() else []


def _scope(module: ast.Module, names: Iterable[str], dotted: str) -> Scope:
    scope: Scope = module
    for name in names:
        found = [node for node in scope.body if isinstance(node, DEFINITIONS) and node.name == name]
        if len(found) != 1:
            raise Stale(f"{dotted}: {len(found)} definitions of {name}, it must be exactly 1")
        scope = found[0]
    return scope


def _insert_after_imports_of_the_future(module: ast.Module, statements: list[ast.stmt]) -> None:
    place = 0
    for index, node in enumerate(module.body):
        docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            place = index + 1
    module.body[place:place] = statements


class _Editor(ast.NodeTransformer):
    """Replaces every match of ``find`` and counts the matches; the caller accepts exactly one."""

    def __init__(self, find: ast.stmt, put: list[ast.stmt], mark: str) -> None:
        self.hits = 0
        self.needs_expression = False
        self.put = put
        self.mark = mark
        self.expression = ast.dump(find.value) if isinstance(find, ast.Expr) else ""
        self.statement = ast.dump(find)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                value[:] = [new for old in value for new in self._visited(old)]
            elif isinstance(value, ast.AST):
                setattr(node, field, self._visited(value)[0])
        return node

    def _visited(self, node: object) -> list[object]:
        if isinstance(node, ast.stmt) and ast.dump(node) == self.statement:
            self.hits += 1
            return [ast.Expr(self._mark()), *self.put]
        if self.expression and isinstance(node, ast.expr) and ast.dump(node) == self.expression:
            self.hits += 1
            return [self._expression()]
        return [self.generic_visit(node) if isinstance(node, ast.AST) else node]

    def _mark(self) -> ast.Call:
        return ast.Call(ast.Name(MARK, ast.Load()), [ast.Constant(self.mark)], [])

    def _expression(self) -> ast.expr:
        """``mark(...) and put``: the mark is true, so the value is that of ``put``."""
        if len(self.put) != 1 or not isinstance(self.put[0], ast.Expr):
            self.needs_expression = True
            return ast.Constant(None)
        return ast.BoolOp(ast.And(), [self._mark(), self.put[0].value])
