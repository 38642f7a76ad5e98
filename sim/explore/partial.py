"""Partial crashes: one process fails alone, at each address of a closed list (RULES 3).

The survivors keep their volatile state, so nothing is shared: each address is a run of its own. The list is, of each
process, every kind of event that it records in life 1, at its first, second and last occurrence there. A run that ends
with a typed error is started again from its files, as the job's scheduler would, and that life is judged too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from protocol.history import ProcessKilled, ProcessStalled, Record
from protocol.judging import Verdict, Violation
from protocol.work import Work, done_again
from scenarios.partial import Partial, first_life, with_partials
from sim.explore.lives import Life, Setting, run_life
from sim.explore.lost import as_plain, lost_work_of
from sim.explore.result import Failure, worst

RUNS_SHOWN = 20  # messages about runs that are UNKNOWN


@dataclass(frozen=True, kw_only=True)
class PartialRun:
    """One address: ``lives`` is how many there were (2: the first ended with a typed error), ``why`` what is unknown, ``again``
    what the run did more than once."""

    partial: Partial
    verdict: Verdict
    lives: int
    ended: str
    why: str
    violations: tuple[Violation, ...]
    again: Work = Work()


@dataclass(kw_only=True)
class PartialCrashes:
    processes: tuple[str, ...]
    addresses: int
    runs: list[PartialRun] = field(default_factory=list)

    def count(self, verdict: Verdict) -> int:
        return sum(run.verdict is verdict for run in self.runs)

    @property
    def failures(self) -> list[Failure]:
        """One entry per broken guarantee, with the first address at which it shows."""
        found: dict[str, tuple[Violation, Partial, int]] = {}
        for run in self.runs:
            for violation in {violation.invariant: violation for violation in reversed(run.violations)}.values():
                first = found.get(violation.invariant, (violation, run.partial, 0))
                found[violation.invariant] = (*first[:2], first[2] + 1)
        return [
            Failure(invariant=name, message=violation.message, plan=(), points=count, fail=str(partial))
            for name, (violation, partial, count) in found.items()
        ]

    @property
    def losses(self) -> list[Work]:
        """What each run that came to its end did more than once."""
        return [run.again for run in self.runs if run.ended == "ended"]

    @property
    def messages(self) -> list[str]:
        unknown = [f"{run.partial}: {run.why}" for run in self.runs if run.why]
        left = len(unknown) - RUNS_SHOWN
        return unknown[:RUNS_SHOWN] + ([f"and {left} more partial crashes that are unknown"] if left > 0 else [])

    def as_json(self) -> dict[str, Any]:
        return {
            "processes": list(self.processes),
            "addresses": self.addresses,
            "run": len(self.runs),
            "restarted_jobs": sum(run.lives > 1 for run in self.runs),
            "held": self.count(Verdict.HELD),
            "broken": self.count(Verdict.BROKEN),
            "unknown": self.count(Verdict.UNKNOWN),
            "lost_work": as_plain(lost_work_of(self.losses)),
            "violations": [
                {"invariant": one.invariant, "fail": one.fail, "message": one.message, "points": one.points}
                for one in self.failures
            ],
        }


def addresses(history: Sequence[Record], process: str) -> list[tuple[str, int]]:
    """Event kinds of ``process`` in the order they first came, each with its first, second and last occurrence."""
    counts: dict[str, int] = {}
    for record in history:
        if record.process == process:
            kind = type(record.event).__name__
            counts[kind] = counts.get(kind, 0) + 1
    return [(kind, n) for kind, count in counts.items() for n in sorted({1, min(2, count), count})]


def run_partials(setting: Setting, partials: Sequence[Partial], references: Any) -> list[Life]:
    """Life 1 of ``setting``'s scenario with ``partials``; a second life from its files if it ended with a typed error."""
    scenario = with_partials(setting.scenario, partials)
    first_scenario = first_life(scenario, partials)
    first = run_life(replace(setting, scenario=first_scenario, memory={}), 1, {}, {}, None)
    lives = [first]
    if first.status.outcome == "failed" and first.ended_rightly(first_scenario.contract):
        again = replace(setting, scenario=scenario)
        lives.append(run_life(again, 2, first.files, first.scratch, references, external=first.external[1]))
    return lives


def crash_partially(
    setting: Setting, life_1: Life, processes: Sequence[str], verb: str, seconds: float, progress: Callable[[str, int, int], None]
) -> PartialCrashes:
    """``life_1`` is that of ``setting``'s scenario as it is: its addresses, and the reference of every second life."""
    wanted = [Partial(verb, process, *place, seconds) for process in processes for place in addresses(life_1.history, process)]
    out = PartialCrashes(processes=tuple(processes), addresses=len(wanted))
    references = life_1.panel.summaries()
    for done, partial in enumerate(wanted, start=1):
        lives = run_partials(setting, (partial,), references)
        out.runs.append(_judged(partial, lives))
        progress("partial", done, len(wanted))
    return out


def _judged(partial: Partial, lives: Sequence[Life]) -> PartialRun:
    violations = tuple(violation for life in lives for violation in life.panel.violations)
    crashed = {name: text for life in lives for name, text in life.panel.crashed.items()}
    why = ", ".join(f"judge {name} crashed: {text}" for name, text in crashed.items())
    if not any(_befell(record, partial.process) for record in lives[0].history):
        why = f"it did not take effect: {partial.event} number {partial.occurrence} did not come"
    verdict = Verdict.BROKEN if violations else Verdict.UNKNOWN if why else Verdict.HELD
    return PartialRun(
        partial=partial,
        verdict=worst([verdict, *(kind for life in lives for kind in life.panel.verdicts().values() if kind is Verdict.UNKNOWN)]),
        lives=len(lives),
        ended=lives[-1].status.outcome,
        why=why,
        violations=violations,
        again=done_again(life.history for life in lives),
    )


def _befell(record: Record, process: str) -> bool:
    return isinstance(record.event, ProcessKilled | ProcessStalled) and record.event.process == process
