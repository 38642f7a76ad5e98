"""One scenario swept at several recovery levels, with one seed and as many points each: what each level saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from protocol.config import LEVELS
from protocol.judging import Verdict
from reports.failure import Evidence
from reports.summary import print_levels
from rollproof.command import Command
from rollproof.showing import emit, reader_may_leave, stdout
from rollproof.sweeping import Progress, sweep_seeds
from rollproof.tokens import shown
from scenarios.files import Loaded
from scenarios.model import InputError

ALL = "all"
WORST = (Verdict.BROKEN.value, Verdict.UNKNOWN.value, Verdict.HELD.value)


class LevelsSwept(msgspec.Struct, frozen=True, kw_only=True):
    """``report`` is what ``--json`` prints: ``scenario, seeds, verdict`` (the worst) and ``levels``, one sweep's report each."""

    report: dict[str, Any]
    evidence: list[Evidence]


def levels_of(level: str | None, levels: str | None) -> tuple[str, ...]:
    """``--levels A,B`` or ``--level all``, coarse to fine; empty where one level is swept."""
    if levels is not None and level is not None:
        raise InputError("--level and --levels are both given: use one of them")
    known = tuple(LEVELS)
    if level == ALL or levels == ALL:
        return known
    if levels is None:
        return ()
    names = levels.split(",")
    wrong = [name for name in names if name not in known]
    if wrong:
        raise InputError(f"--levels names {shown(', '.join(wrong))}: there are {', '.join(known)}, and {ALL}")
    return tuple(name for name in known if name in names)


def refuse_beside(out: str | None, junit: str | None) -> None:
    """A folder or a JUnit file holds one sweep."""
    for option, value in (("--out", out), ("--junit", junit)):
        if value is not None:
            raise InputError(f"{option} holds one sweep, and several levels are several: give one --level, or leave {option} out")


def sweep_levels(
    each: Sequence[tuple[Loaded, Command]],
    seeds: range,
    *,
    points: int | None,
    outcomes: tuple[str, ...],
    progress: Callable[[int], Progress] | None = None,
) -> LevelsSwept:
    """``each``: the scenario as it is loaded at each level."""
    reports: list[dict[str, Any]] = []
    evidence: list[Evidence] = []
    for loaded, command in each:
        finished = sweep_seeds(loaded, command, seeds, points=points, outcomes=outcomes, progress=progress)
        reports.append(finished.report)
        evidence += finished.evidence
    verdict = min((report["verdict"] for report in reports), key=WORST.index)
    first = reports[0]
    report = {"scenario": first["scenario"], "seeds": first["seeds"], "verdict": verdict, "levels": reports}
    return LevelsSwept(report=report, evidence=evidence)


def show_levels(swept: LevelsSwept, json: bool) -> None:
    if json:
        emit(swept.report)
        return
    with reader_may_leave():
        print_levels(stdout(), swept.report, swept.evidence)
