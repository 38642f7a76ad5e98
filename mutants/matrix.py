"""Runs mutants and says what became of each: the kill matrix (RULES 9).

A mutant runs in a fresh process on an edited copy of the tree, with the copy first on the import path, so that no installed
version of the project stands in front of it.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mutants import patch
from mutants.model import Mutant, Outcome, Row

TIMEOUT_S = 1800.0


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What one sweep process said. ``report`` is its JSON object, None if it said nothing that can be read."""

    report: dict[str, Any] | None
    returncode: int
    stderr: str
    marks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """``excluded``: rows of the catalogue that are on purpose no mutant here, with the reason."""

    rows: tuple[Row, ...]
    excluded: tuple[dict[str, Any], ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        caught = [row for row in self.rows if row.caught]
        return {
            "registered": len(self.rows),
            "reached": sum(row.outcome is not Outcome.NOT_REACHED and row.outcome is not Outcome.STALE for row in self.rows),
            "caught": len(caught),
            "caught_by_intended": sum(row.outcome is Outcome.CAUGHT for row in self.rows),
            "median_points": statistics.median([row.points for row in caught]) if caught else 0,
            "rows": [
                {
                    "number": row.number,
                    "name": row.name,
                    "outcome": row.outcome.value,
                    "judge": row.judge,
                    "points": row.points,
                    "token": row.token,
                    "detail": row.detail,
                }
                for row in self.rows
            ],
            "excluded": list(self.excluded),
        }


def run_matrix(
    mutants: Sequence[Mutant], *, points: str = "all", tell: Callable[[Row], None] = lambda row: None, root: Path = patch.ROOT
) -> Matrix:
    """Run every mutant; ``tell`` is called with each row as it is done. A clean sweep that is not HELD voids its mutants."""
    clean: dict[tuple[str, str, str], str] = {}
    rows = []
    for mutant in mutants:
        load = (mutant.scenario, mutant.level, mutant.faults)
        if load not in clean:
            clean[load] = why_clean_fails(mutant, points=points, root=root)
        if clean[load]:
            row = _row(mutant, Outcome.HARNESS_ERROR, detail=f"the same sweep without the edit: {clean[load]}")
        else:
            row = run_mutant(mutant, points=points, root=root)
        rows.append(row)
        tell(row)
    return Matrix(rows=tuple(rows))


def why_clean_fails(mutant: Mutant, *, points: str = "all", root: Path = patch.ROOT) -> str:
    """Why the mutant's own sweep is not HELD without its edit ('' if it is)."""
    with tempfile.TemporaryDirectory(prefix="rollproof-clean-") as folder:
        copy = Path(folder)
        patch.copy_tree(copy, root)
        swept = sweep(mutant, copy, points=points)
    if swept.report is None:
        return f"exit {swept.returncode}: {swept.stderr[-300:]}"
    if swept.report["verdict"] == "HELD":
        return ""
    return f"{swept.report['verdict']} {[violation['message'] for violation in swept.report['violations'][:1]]}"


def run_mutant(mutant: Mutant, *, points: str = "all", root: Path = patch.ROOT) -> Row:
    """Put one bug back and sweep its scenario. ``points``: 'all' or a number, as for ``sweep --points``."""
    with tempfile.TemporaryDirectory(prefix=f"rollproof-mutant-{mutant.number}-") as folder:
        copy = Path(folder)
        patch.copy_tree(copy, root)
        try:
            patch.apply(mutant.edits, copy, label=str(mutant.number))
        except patch.Stale as error:
            return _row(mutant, Outcome.STALE, detail=str(error))
        return judge(mutant, sweep(mutant, copy, points=points))


def judge(mutant: Mutant, swept: Swept) -> Row:
    """The row that a finished sweep of a mutated copy stands for."""
    if swept.report is None:
        return _row(mutant, Outcome.HARNESS_ERROR, detail=f"exit {swept.returncode}: {swept.stderr[-500:]}")
    points = int(swept.report["judged"])
    if not swept.marks:
        return _row(mutant, Outcome.NOT_REACHED, points=points, detail="the changed place was never run")
    violations = swept.report["violations"]  # beside them a sweep may say UNKNOWN: a bug can also upset the sharing of lives
    if not violations:
        return _row(mutant, Outcome.SURVIVED, points=points, detail=f"the sweep said {swept.report['verdict']}")
    intended = [violation for violation in violations if violation["invariant"] in mutant.judges]
    shown = max(intended or violations, key=lambda violation: violation.get("points", 1))
    return _row(
        mutant,
        Outcome.CAUGHT if intended else Outcome.CAUGHT_BY_OTHER,
        judge=shown["invariant"],
        points=math.ceil(points / max(shown.get("points", 1), 1)),
        token=shown["token"],
        detail=shown["message"],
    )


def sweep(mutant: Mutant, tree: Path, *, points: str = "all", timeout_s: float = TIMEOUT_S) -> Swept:
    """Sweep the mutant's scenario with the code of ``tree``, in a fresh process."""
    marks = tree / "marks"
    marks.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(tree), patch.MARKS_VARIABLE: str(marks), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "rollproof", "sweep", *_options(mutant, tree, points)],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return Swept(report=None, returncode=-1, stderr=f"no result after {timeout_s:.0f} s", marks=_found(marks))
    return Swept(report=_report(done.stdout), returncode=done.returncode, stderr=done.stderr, marks=_found(marks))


def _options(mutant: Mutant, tree: Path, points: str) -> Iterable[str]:
    yield from (mutant.scenario, "--json", "--points", points)
    if mutant.level:
        yield from ("--level", mutant.level)
    if mutant.faults:
        faults = tree / "faults.toml"
        faults.write_text(f"format = 1\n{mutant.faults}")
        yield from ("--faults", str(faults))


def _report(text: str) -> dict[str, Any] | None:
    try:
        report = json.loads(text)
    except json.JSONDecodeError:
        return None
    return report if isinstance(report, dict) and {"verdict", "violations", "judged"} <= report.keys() else None


def _found(marks: Path) -> tuple[str, ...]:
    return tuple(sorted(path.name for path in marks.iterdir()))


def _row(mutant: Mutant, outcome: Outcome, **more: Any) -> Row:
    return Row(number=mutant.number, name=mutant.name, outcome=outcome, **more)
