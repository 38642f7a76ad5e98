"""What a sweep found, and how points and classes become verdicts (RULES 6).

Life 1 is judged once, up to each point: its violations so far count for every later point. Each class is judged by its
restored run. A point's verdict is the worst of the two, over all its outcomes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from protocol.judging import Judge, Panel, Verdict, Violation
from protocol.work import Work
from scenarios.model import Scenario
from sim.explore.classes import Classes, CrashClass
from sim.explore.lives import Life
from sim.explore.lost import Losses, as_plain, lost_work_of
from sim.explore.points import Address, Plan, PlanItem, Points

NOT_PRINTED = ("rows", "life_1", "kinds_seen", "losses", "partial_failures")
WORST = (Verdict.BROKEN, Verdict.UNKNOWN, Verdict.HELD, Verdict.NOT_REACHED)


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    return min(verdicts, key=WORST.index, default=Verdict.NOT_REACHED)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One broken guarantee: the smallest plan that shows it, and at how many judged points it shows.

    An empty ``plan`` means life 1 breaks it without any crash; ``fail`` is then the partial crash that does it, if one does.
    """

    invariant: str
    message: str
    plan: Plan
    points: int
    class_key: str = ""
    token: str = ""
    fail: str = ""


@dataclass(frozen=True, kw_only=True)
class ClassRow:
    """What is saved of a class (RULES 8): ``points`` are the judged ones that lie in it under some outcome, and
    ``lost_work`` is what they lose in it (a ``LostWork`` as plain data).

    Its history is made again from ``address`` and ``outcome`` on demand.
    """

    key: str
    points: int
    address: Address
    outcome: str
    verdict: str
    verdicts: dict[str, str]
    status: str
    proof: str
    history_hash: str
    events: int
    steps: int
    shared: int
    effects_again: int = 0
    lost_work: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class Verified:
    """Merged points run again on their own, and classes run again in a fresh process; the CPU it took."""

    reruns: int = 0
    agreed: int = 0
    fresh_process: dict[str, int] = field(default_factory=lambda: {"classes": 0, "agreed": 0})
    cpu_s: float = 0.0
    disagreements: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class SweepResult:
    """The object that ``sweep --json`` prints (``as_json``), and what the front door needs beside it.

    ``events``, ``steps`` and ``crash_points`` are life 1's; ``runs`` counts simulated lives (a clean-up whose rest is
    shared is not one). ``points_per_cpu_s`` is judged points over the CPU of all lives; verification is not in it.
    ``history_hash`` is RULES 8's. ``lost_work`` is a ``LostWork`` over ``losses``, as plain data. ``repeated_work`` counts
    effects on outside services that were asked for again: ``points`` after which some were, ``effects`` over all classes, and
    the ``most`` of one class.
    """

    scenario: str
    level: str
    seeds: tuple[int, int]
    schedule: str
    version: str = ""
    events: int
    steps: int
    crash_points: int
    classes: int
    runs: int
    outcomes: int
    judged: int
    fired: int
    not_covered: int
    us_per_event: dict[str, float]
    verdict: Verdict
    judges: list[dict[str, Any]]
    verdicts: dict[str, int]
    violations: list[Failure]
    points_per_cpu_s: float
    distinct_runs_per_cpu_s: float
    cpu_s: float
    wall_s: float
    peak_rss_mib: float
    history_hash: str
    repeated_work: dict[str, int]
    rows: list[ClassRow]
    carries: dict[str, int]
    verified: Verified
    messages: list[str]
    kinds_seen: tuple[str, ...]
    life_1: Life | None
    lost_work: dict[str, Any] = field(default_factory=dict)
    losses: Losses = field(default_factory=Losses)
    partial: dict[str, Any] | None = None  # ``PartialCrashes.as_json``; None: none were asked for
    partial_failures: list[Failure] = field(default_factory=list)

    @property
    def reference(self) -> Life:
        """Life 1, before it was let go."""
        assert self.life_1 is not None, "life 1 was let go with forget_life_1"
        return self.life_1

    def forget_life_1(self) -> None:
        """Let go of its history and files, and of what is saved by class: over many seeds they would pile up."""
        self.life_1 = None
        self.losses = replace(self.losses, classes={})

    def as_json(self) -> dict[str, Any]:
        """Plain data. Class rows and life 1 are saved on their own, not printed."""
        out = {name: value for name, value in vars(self).items() if name not in NOT_PRINTED}
        out["seeds"] = list(self.seeds)
        out["verdict"] = self.verdict.value
        out["violations"] = [asdict(failure) for failure in self.violations]
        out["verified"] = asdict(self.verified)
        if self.partial is None:
            del out["partial"]
        return out


def failing(result: SweepResult) -> list[Failure]:
    """What the front door runs again, saves whole and makes tokens of: one per broken guarantee, smallest plan."""
    return result.violations


@dataclass(kw_only=True)
class Prefix:
    """What life 1 had come to by each point: when each judge was first reached or crashed."""

    reached: dict[str, int] = field(default_factory=dict)
    crashed: dict[str, int] = field(default_factory=dict)
    _kinds: int = -1

    def note(self, panel: Panel, point: int) -> None:
        if len(panel.seen) != self._kinds:
            self._kinds = len(panel.seen)
            for judge in panel.judges:
                if judge.invariant not in self.reached and panel.reached(judge):
                    self.reached[judge.invariant] = point
        if len(panel.crashed) != len(self.crashed):
            for invariant in panel.crashed:
                self.crashed.setdefault(invariant, point)


@dataclass(kw_only=True)
class Tally:
    """Verdicts of judged points and of judges over them."""

    points: Counter[Verdict] = field(default_factory=Counter)
    judges: dict[str, Counter[Verdict]] = field(default_factory=dict)
    fired: int = 0
    outcomes: int = 0
    repeating: int = 0  # points after which an effect was asked for again
    first: dict[int, tuple[int, str]] = field(default_factory=dict)  # class -> its first judged point, with the outcome


def tally(points: Points, judged: Sequence[int], classes: Classes, prefix: Prefix, life_1: Panel) -> Tally:
    """Judge every point of ``judged``. Points alike in class pair and in life 1's state so far are done together."""
    out = Tally(judges={judge.invariant: Counter() for judge in life_1.judges})
    groups: Counter[tuple[int, int, frozenset[str], frozenset[str]]] = Counter()
    reached: frozenset[str] = frozenset()
    crashed: frozenset[str] = frozenset()
    events = sorted({*prefix.reached.values(), *prefix.crashed.values()}, reverse=True)
    for point in judged:
        while events and events[-1] <= point:
            at = events.pop()
            reached |= {name for name, first in prefix.reached.items() if first <= at}
            crashed |= {name for name, first in prefix.crashed.items() if first <= at}
        pair = points.pair[point]
        groups[(pair, points.violations[point], reached, crashed)] += 1
        for number, outcome in classes.pairs[pair]:
            out.first.setdefault(number, (point, outcome))
            classes.rows[number].points += 1
    for (pair, violations, reached, crashed), count in groups.items():
        rows = [classes.rows[number] for number, _ in classes.pairs[pair]]
        broken = {violation.invariant for violation in life_1.violations[:violations]}
        verdicts = [row.verdict for row in rows]
        verdicts.extend([Verdict.BROKEN] if broken else [])
        verdicts.extend([Verdict.UNKNOWN] if crashed else [])
        out.points[worst(verdicts)] += count
        out.outcomes += count * len(rows)
        if all(row.proof for row in rows):
            out.fired += count
        if any(row.effects_again for row in rows):
            out.repeating += count
        for invariant, counter in out.judges.items():
            here = [row.verdicts.get(invariant, Verdict.NOT_REACHED) for row in rows]
            here.extend([Verdict.BROKEN] if invariant in broken else [])
            here.extend([Verdict.UNKNOWN] if invariant in crashed else [])
            here.extend([Verdict.HELD] if invariant in reached else [])
            counter[worst(here)] += count
    return out


def judge_rows(
    scenario: Scenario, judges: Sequence[type[Judge]], counted: Mapping[str, Counter[Verdict]], life_1: Mapping[str, Verdict]
) -> list[dict[str, Any]]:
    """One row a judge. Reached nowhere is UNKNOWN if the scenario expects it, else N/A (RULES 6)."""
    expected = scenario.expect.judges
    out: list[dict[str, Any]] = []
    for judge in judges:
        name = judge.invariant
        counts = counted.get(name, Counter())
        everywhere = {kind for kind, count in counts.items() if count} | {life_1.get(name, Verdict.NOT_REACHED)}
        verdict = worst(sorted(everywhere, key=WORST.index))
        if name not in counted:
            verdict = Verdict.NOT_APPLICABLE
        elif verdict is Verdict.NOT_REACHED:
            verdict = Verdict.UNKNOWN if expected is None or name in expected else Verdict.NOT_APPLICABLE
        out.append(
            {
                "invariant": name,
                "held": counts[Verdict.HELD],
                "broken": counts[Verdict.BROKEN],
                "not_reached": counts[Verdict.NOT_REACHED],
                "verdict": verdict.value,
            }
        )
    return out


def failures(
    points: Points, judged: Sequence[int], classes: Classes, first: Mapping[int, tuple[int, str]], life_1: Panel
) -> list[Failure]:
    """One entry per broken guarantee, with its earliest point; life 1's own come first and need no crash."""
    found: dict[str, tuple[int, Violation, Plan, str]] = {}
    for violation in life_1.violations:
        found.setdefault(violation.invariant, (-1, violation, (), ""))
    for number, (point, outcome) in first.items():
        row = classes.rows[number]
        for violation in row.violations:
            best = found.get(violation.invariant)
            if best is None or point < best[0]:
                plan = (PlanItem.at(points.address(point), outcome),)
                found[violation.invariant] = (point, violation, plan, row.key.hex())
    counts: Counter[str] = Counter()
    names = [{violation.invariant for violation in row.violations} for row in classes.rows]
    per_state: Counter[tuple[int, int]] = Counter((points.pair[point], points.violations[point]) for point in judged)
    for (pair, violations), count in per_state.items():
        broken = {violation.invariant for violation in life_1.violations[:violations]}
        for number, _ in classes.pairs[pair]:
            broken |= names[number]
        for invariant in broken:
            counts[invariant] += count
    return [
        Failure(invariant=invariant, message=violation.message, plan=plan, points=counts[invariant], class_key=key)
        for invariant, (_, violation, plan, key) in sorted(found.items(), key=lambda entry: (entry[1][0], entry[0]))
    ]


def class_row(row: CrashClass, lost: Sequence[Work]) -> ClassRow:
    """``lost``: what each of its judged points loses in it."""
    return ClassRow(
        key=row.key.hex(),
        points=row.points,
        address=row.address,
        outcome=row.outcome,
        verdict=row.verdict.value,
        verdicts={name: verdict.value for name, verdict in row.verdicts.items()},
        status=row.status,
        proof=row.proof,
        history_hash=row.history_hash,
        events=row.events,
        steps=row.steps,
        shared=row.shared,
        effects_again=row.effects_again,
        lost_work=as_plain(lost_work_of(lost)),
    )
