"""A change from outside, tried on the whole scenario library: which scenario, and which judge, finds it out (RULES 9)."""

from __future__ import annotations

import ast
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mutants import patch
from mutants.diff import apply_diff
from mutants.matrix import Swept, sweep
from mutants.model import Edit, Mutant
from mutants.patch import Stale

EDIT_KEYS = ("scope", "find", "put", "also")


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One scenario under the change. ``judges`` that broke; ``points``, ``token``, ``message`` of the first of them."""

    scenario: str
    verdict: str  # HELD | BROKEN | UNKNOWN
    judges: tuple[str, ...] = ()
    points: int = 0
    token: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """``changed`` files, those ``left_out`` since they are no part of the packages, and one row a scenario."""

    changed: tuple[str, ...]
    left_out: tuple[str, ...]
    rows: tuple[Tried, ...]

    @property
    def verdict(self) -> str:
        """BROKEN: some scenario finds the change out. UNKNOWN: none does, and not every one is HELD."""
        verdicts = {row.verdict for row in self.rows}
        return next((name for name in ("BROKEN", "UNKNOWN") if name in verdicts), "HELD")

    def as_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "caught": self.verdict == "BROKEN",
            "caught_by": [f"{row.scenario} {name}" for row in self.rows for name in row.judges],
            "changed": list(self.changed),
            "left_out": list(self.left_out),
            "scenarios": [asdict(row) | {"judges": list(row.judges)} for row in self.rows],
        }


def try_change(
    text: str,
    scenarios: Sequence[str],
    *,
    points: str = "all",
    tell: Callable[[Tried], None] = lambda row: None,
    root: Path = patch.ROOT,
) -> Trial:
    """Apply ``text`` (a unified diff, or the TOML of one edit or several) to a copy, and sweep every scenario with it.

    Raises Stale if it does not apply. A scenario that is BROKEN without the change too says nothing about it.
    """
    rows: list[Tried] = []
    with tempfile.TemporaryDirectory(prefix="rollproof-patch-") as folder, tempfile.TemporaryDirectory() as clean:
        tree, untouched = Path(folder), Path(clean)
        patch.copy_tree(tree, root)
        changed, left_out = apply_change(text, tree)
        patch.copy_tree(untouched, root)
        for name in scenarios:
            row = tried(name, sweep(_scenario(name), tree, points=points))
            if row.verdict == "BROKEN" and tried(name, sweep(_scenario(name), untouched, points=points)).verdict == "BROKEN":
                row = Tried(scenario=name, verdict="UNKNOWN", message="it is BROKEN without the change too")
            rows.append(row)
            tell(row)
    return Trial(changed=tuple(changed), left_out=tuple(left_out), rows=tuple(rows))


def apply_change(text: str, tree: Path) -> tuple[list[str], list[str]]:
    """Changed files and those left out. Raises Stale."""
    edits = read_edits(text)
    if edits is None:
        return apply_diff(text, tree)
    paths = patch.apply(edits, tree, label="patch")
    return [path.relative_to(tree).as_posix() for path in paths], []


def read_edits(text: str) -> list[Edit] | None:
    """The edits of a TOML file: ``scope``, ``find``, ``put`` (and ``also``) of one, or ``[[edits]]`` of them. None if it is
    no TOML, and so perhaps a diff. Raises Stale."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    if not found:
        raise Stale("it is empty: a unified diff or an edit file (scope, find, put) was expected")
    entries = found.pop("edits") if "edits" in found else [found]
    if not isinstance(entries, list) or not entries or (found and entries != [found]):
        raise Stale("it must hold either one edit (scope, find, put) or [[edits]], and nothing else")
    return [_edit(entry, number) for number, entry in enumerate(entries, start=1)]


def _edit(entry: object, number: int) -> Edit:
    if not isinstance(entry, dict):
        raise Stale(f"edit {number} is no table")
    wrong = [f"{key!r} is not a known key" for key in entry if key not in EDIT_KEYS]
    wrong += [f"{key!r} is missing" for key in EDIT_KEYS[:3] if key not in entry]
    wrong += [f"{key!r} must be a string" for key in EDIT_KEYS if not isinstance(entry.get(key, ""), str)]
    if wrong:
        raise Stale(f"edit {number}: {', '.join(wrong)}: it has {', '.join(EDIT_KEYS)} (the last one may be left out)")
    try:
        ast.parse(entry.get("also", ""))
    except SyntaxError as error:
        raise Stale(f"edit {number}: 'also' is no Python ({error})") from None
    return Edit(**entry)


def tried(scenario: str, swept: Swept) -> Tried:
    """The row that a finished sweep stands for. Only a judge's BROKEN is one; whatever else went wrong is UNKNOWN."""
    if swept.report is None:
        return Tried(scenario=scenario, verdict="UNKNOWN", message=f"exit {swept.returncode}: {swept.stderr[-300:]}")
    violations = swept.report["violations"]
    if violations:
        shown = max(violations, key=lambda violation: int(violation.get("points", 1)))
        names = tuple(violation["invariant"] for violation in violations)
        return Tried(scenario=scenario, verdict="BROKEN", judges=names, points=int(shown.get("points", 1)),
                     token=shown["token"], message=shown["message"])  # fmt: skip
    verdict = "HELD" if swept.report["verdict"] == "HELD" else "UNKNOWN"
    return Tried(scenario=scenario, verdict=verdict, message="" if verdict == "HELD" else "; ".join(_messages(swept)))


def _messages(swept: Swept) -> list[str]:
    messages = swept.report.get("messages", []) if swept.report is not None else []
    return [str(message) for message in messages][:3]


def _scenario(name: str) -> Mutant:
    return Mutant(number=0, name="patch", area="", fault="", edits=(), scenario=name, judges=())
