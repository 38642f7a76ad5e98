"""What ``rollproof mutants`` does between its options and the rooms: which bugs, how they are told of, what is printed."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.text import Text

from mutants.catalogue import catalogue
from mutants.excluded import EXCLUDED
from mutants.foreign import Trial, Tried, try_change
from mutants.matrix import Matrix, run_matrix
from mutants.model import Mutant, Row
from mutants.patch import Stale
from reports.summary import coloured
from rollproof.showing import emit, reader_may_leave, stdout
from rollproof.tokens import shown
from scenarios.files import library
from scenarios.model import InputError

Tell = Callable[[str], None]
PATCH_MAX = 10_000_000  # bytes: no change of this code is longer


def chosen(names: Sequence[str], area: str | None) -> list[Mutant]:
    """The registered bugs of these names or numbers, and of this area. Raises InputError for what is not there."""
    registered = catalogue()
    areas = sorted({mutant.area for mutant in registered})
    if area is not None and area.upper() not in areas:
        raise InputError(f"--area is {shown(area)}: it must be one of {', '.join(areas)}")
    found = [_named(name, registered) for name in names] if names else list(registered)
    out = [mutant for mutant in dict.fromkeys(found) if area is None or mutant.area == area.upper()]
    if not out:
        raise InputError(f"none of these bugs is of the area {area}: leave one of the two out")
    return out


def _named(name: str, registered: Sequence[Mutant]) -> Mutant:
    for mutant in registered:
        if name == mutant.name or (name.isdecimal() and len(name) <= 6 and int(name) == mutant.number):
            return mutant
    for row in EXCLUDED:
        if name.isdecimal() and len(name) <= 6 and int(name) == row.number:
            raise InputError(f"bug {name} is left out: {row.reason}")
    names = [mutant.name for mutant in registered]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(f'{one.number} {one.name}' for one in registered)}"
    raise InputError(f"unknown bug {shown(name)} ({hint})")


def run_selected(mutants: Sequence[Mutant], excluded: tuple[dict[str, Any], ...], points: str, tell: Tell) -> Matrix:
    done = 0

    def told(row: Row) -> None:
        nonlocal done
        done += 1
        tell(f"{done} of {len(mutants)}: {row.number} {row.name}: {row.outcome.value} {row.judge}".rstrip())

    return replace(run_matrix(mutants, points=points, tell=told), excluded=excluded)


def show_matrix(matrix: Matrix, json: bool) -> None:
    """The kill matrix, a line a bug; what was not caught says why."""
    report = matrix.as_json()
    if json:
        emit(report)
        return
    with reader_may_leave():
        console = stdout()
        console.print(Text(f"{'bug':40s} {'outcome':16s} {'judge':10s} {'points':>6s}", "dim"), soft_wrap=True)
        for row in matrix.rows:
            style = "green" if row.caught else "bold red"
            line = Text.assemble(f"{f'{row.number} {row.name}':40s} ", (f"{row.outcome.value:16s}", style))
            console.print(Text.assemble(line, f" {row.judge:10s} {row.points:6,}"), soft_wrap=True)
            if not row.caught:
                console.print(Text(f"    {row.detail}", "yellow"), soft_wrap=True)
        console.print(
            f"{report['registered']} bugs, {report['reached']} reached, {report['caught']} caught, {report['caught_by_intended']}"
            f" by a judge that was meant to, one point in {report['median_points']:g} shows it (median)",
            soft_wrap=True,
        )
        for left_out in report["excluded"]:
            console.print(Text(f"left out: {left_out['number']}: {left_out['reason']}", "dim"), soft_wrap=True)


def try_file(path: str, points: str, tell: Tell) -> Trial:
    """Sweep the whole library with the change in ``path``. Raises InputError if it cannot be read or does not apply."""
    names = list(library())
    done = 0

    def told(row: Tried) -> None:
        nonlocal done
        done += 1
        tell(f"{done} of {len(names)}: {row.scenario}: {row.verdict} {' '.join(row.judges)}".rstrip())

    try:
        return try_change(_read(path), names, points=points, tell=told)
    except Stale as error:
        raise InputError(f"--patch {path}: does not apply: {str(error)[:500]}") from None


def _read(path: str) -> str:
    try:
        content = Path(path).read_bytes()
        if len(content) > PATCH_MAX:
            raise InputError(f"--patch {shown(path)}: has {len(content)} bytes: it may have {PATCH_MAX}")
        return content.decode()
    except OSError as error:
        raise InputError(f"--patch {shown(path)}: cannot be read ({error.strerror}): name a diff or an edit file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"--patch {shown(path)}: is no text ({error.reason})") from None


def show_trial(trial: Trial, path: str, json: bool) -> None:
    """A line a scenario, then what caught the change."""
    report = {"patch": path, **trial.as_json()}
    if json:
        emit(report)
        return
    with reader_may_leave():
        console = stdout()
        for name in trial.left_out:
            console.print(Text(f"! {name} is no part of the packages: left out", "yellow"), soft_wrap=True)
        for row in trial.rows:
            judges = " ".join(row.judges)
            verdict = Text.assemble(f"{row.scenario:22s} ", coloured(row.verdict), f" {judges}" if judges else "")
            console.print(verdict, soft_wrap=True)
            if row.message:
                console.print(Text(f"    {row.message}", "dim"), soft_wrap=True)
        found = f"caught by {', '.join(report['caught_by'])}" if report["caught"] else "not caught"
        console.print(Text.assemble(f"{', '.join(trial.changed)}: ", coloured(trial.verdict), f", {found}"), soft_wrap=True)
