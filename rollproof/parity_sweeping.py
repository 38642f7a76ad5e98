"""``parity run --points``: every crash point of a simulated run, compared with the run that nothing interrupted.

Points of one class share their restored life, and classes share what is equal after its clean-up: each distinct restored life is
compared once. A life that was compared with nothing to show for it (no row had been restored yet) is counted, and says nothing;
the whole is UNKNOWN if that is all there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from parity.compare import Result, comparison_of, judge
from parity.profile import Profile
from parity.tables import Run
from parity.vacuity import of_one_point
from protocol.errors import ProtocolError
from protocol.history import OptimizerApplied
from protocol.judging import RunStatus, Verdict
from reports.parity.summary import comparison_junit
from reports.parity.swept import print_swept
from reports.parity.written import write_report
from rollproof import saving
from rollproof.command import Command
from rollproof.parity_reading import run_of_lives
from rollproof.parity_running import typed
from rollproof.parity_saving import About, pack_comparison, versions
from rollproof.running import token_of
from rollproof.showing import emit, reader_may_leave, stdout, warn
from scenarios.files import Loaded
from scenarios.model import InputError
from sim.explore.explorer import Explorer
from sim.explore.lives import Budget, Life, Setting
from sim.explore.points import Plan, PlanItem

FIRST = "first-failure"  # folder of the evidence of the first life that is not HELD
SUMS = ("restored_calls", "matched_outright", "other_weights", "excused")
SHARE = "other weights:"  # the gate of how many rows were not compared: over a sweep, of all rows of all lives
ORDER = (Verdict.BROKEN, Verdict.UNKNOWN, Verdict.HELD, Verdict.NOT_APPLICABLE)


class ComparedLife(msgspec.Struct, frozen=True, kw_only=True):
    """One distinct restored life against the reference. ``plan``: where its class was opened. ``verdict``: HELD, BROKEN, UNKNOWN
    (a gate knows nothing), or NOT_REACHED: nothing is wrong, and nothing was there to be compared (``why``)."""

    number: int  # of its class
    plan: Plan
    verdict: Verdict
    why: tuple[str, ...]
    report: dict[str, Any]


def sweep_and_compare(
    loaded: Loaded,
    command: Command,
    seed: int,
    profile: Profile,
    *,
    named: str,
    points: int | None,
    outcomes: tuple[str, ...],
    progress: Callable[[str, int, int], None],
    out: str | None,
    json: bool,
    junit: str | None,
) -> str:
    """The verdict over all points. Raises InputError if the reference does not reach its end."""
    with saving.out_folder(out) as folder:
        warn(loaded)
        swept = Swept(loaded, command, seed, profile, named, folder)
        swept.run(points, outcomes, progress)
        report = swept.report()
        if folder is not None:
            write_report(folder, report)
        with saving.out_file(junit, "--junit") as junit_file:
            if junit_file is not None:
                junit_file.write_bytes(comparison_junit(report))
    if json:
        emit(report)
    else:
        with reader_may_leave():
            print_swept(stdout(), report)
    return str(report["verdict"])


class Swept:
    """A sweep whose restored lives are compared as they are run."""

    def __init__(
        self, loaded: Loaded, command: Command, seed: int, profile: Profile, named: str, folder: Path | None = None
    ) -> None:
        self.loaded = loaded
        self.command = command
        self.seed = seed
        self.profile = profile
        self.named = named
        self.folder = folder
        self.compared: dict[int, ComparedLife] = {}  # by class
        self.judged: list[int] = []  # points
        self.explorer: Explorer
        self.reference: Run

    def run(self, points: int | None, outcomes: Sequence[str], progress: Callable[[str, int, int], None]) -> None:
        scenario = self.loaded.scenario
        setting = Setting(scenario=scenario, seed=self.seed, judges=(), budget=Budget.of(scenario.job))
        explorer = self.explorer = Explorer(setting, outcomes, progress, self._compare)
        explorer.enumerate()
        if not explorer.life_1.ended_rightly(scenario.contract):
            status = explorer.life_1.status
            raise InputError(
                f"{scenario.name}: the reference does not reach its end ({status.outcome} {status.error}): sweep says why"
            )
        self.reference = run_of_lives(scenario, [explorer.life_1], "reference")
        every = range(len(explorer.points))
        self.judged = list(every if points is None else explorer.points.stratified(points, every, f"{self.seed}/points"))
        wanted = sorted({number for point in self.judged for number, _ in self._pairs(point)})
        for done, number in enumerate(wanted, start=1):
            explorer.run_class(number)
            progress("classes", done, len(wanted))

    def _pairs(self, point: int) -> Sequence[tuple[int, str]]:
        return self.explorer.classes.pairs[self.explorer.points.pair[point]]

    def _compare(self, number: int, life: Life) -> None:
        """Life 1 up to the point that opened the class, then its restored life, against life 1 run to its end."""
        row = self.explorer.classes.rows[number]
        plan = (PlanItem.at(row.address, row.outcome),)
        first = cut_at(self.explorer.life_1, plan[0])
        restored = run_of_lives(self.loaded.scenario, [first, life], "crashed and restored")
        try:
            comparison = comparison_of(self.reference, restored, self.profile)
        except ProtocolError as error:
            raise InputError(f"{self._command(plan)}: {error}") from None
        except Exception as error:  # a fault of ours is never a verdict on the runs
            self.compared[number] = unmeasured_life(number, plan, f"measuring crashed: {type(error).__name__}: {error}")
            return
        found = compared_life(number, plan, judge(comparison))
        before = {one.verdict for one in self.compared.values()}
        self.compared[number] = found
        worse = found.verdict is Verdict.BROKEN and Verdict.BROKEN not in before
        if self.folder is not None and (
            worse or (found.verdict is Verdict.UNKNOWN and not before & {Verdict.BROKEN, Verdict.UNKNOWN})
        ):
            about = About(scenario=self.loaded.scenario.name, command=self._command(plan), token=self._token(plan))
            saving.write_packed(self.folder / FIRST, pack_comparison(comparison, about))
            write_report(self.folder / FIRST, {**found.report, "scenario": about.scenario, "command": about.command})

    def _command(self, plan: Plan) -> str:
        return typed(self.command, self.loaded, self.seed, plan, self.named, False)

    def _token(self, plan: Plan) -> str:
        return str(token_of(self.loaded, self.seed, plan))

    def of_class(self, number: int) -> ComparedLife:
        """What a class came to: its own life's comparison, or that of the life whose rest it shares."""
        shared = self.explorer.classes.rows[number].shared
        return self.compared[number if shared < 0 else shared]

    def report(self) -> dict[str, Any]:
        lives = [self.compared[number] for number in sorted(self.compared)]
        verdicts = Counter(self._of_point(point) for point in self.judged)
        by_life = Counter(life.verdict for life in lives)
        sums = {name: sum(life.report[name] for life in lives) for name in SUMS}
        vacuous = Counter(reason for life in lives if life.verdict is Verdict.NOT_REACHED for reason in life.why)
        reasons = Counter(reason for life in lives if life.verdict is Verdict.UNKNOWN for reason in life.why)
        unknown = [f"{reason} ({count} lives)" for reason, count in reasons.items()]
        if not sums["matched_outright"]:
            unknown.append("no restored row matched outright at any point: nothing that a restore brought over was compared")
        paired = sum(life.report["rows"].get("paired", 0) for life in lives)
        if sums["other_weights"] > self.profile.other_weights_max * paired:
            unknown.append(f"{sums['other_weights']} of {paired} rows are of other weights: too few are left to be compared")
        if by_life[Verdict.BROKEN]:
            verdict = Verdict.BROKEN
        else:
            verdict = Verdict.UNKNOWN if unknown else Verdict.HELD
        first = [life for wanted in (Verdict.BROKEN, Verdict.UNKNOWN) for life in lives if life.verdict is wanted]
        classes = {number for point in self.judged for number, _ in self._pairs(point)}
        return {
            "kind": "parity-sweep",
            "scenario": self.loaded.scenario.name,
            "level": self.loaded.scenario.job.target_level,
            "seed": self.seed,
            "verdict": verdict.value,
            "profile": msgspec.to_builtins(self.profile),
            "crash_points": len(self.explorer.points),
            "judged": len(self.judged),
            "classes": len(classes),
            "lives": len(lives),
            "points": _counts(verdicts),
            "compared": _counts(by_life),
            **sums,
            "excuses": dict(Counter(excuse["excuse"] for life in lives for excuse in life.report["excuses"])),
            "rows": dict(sum((Counter(life.report["rows"]) for life in lives), Counter())),
            "gates": gates_of(lives),
            "vacuous": dict(vacuous.most_common()),
            "unknown_because": unknown,
            "failures": [self._failure(life) for life in first],
            "versions": versions(),
        }

    def _of_point(self, point: int) -> Verdict:
        """The worst over the outcomes of the point; one that has nothing to show counts only where all do."""
        found = {self.of_class(number).verdict for number, _ in self._pairs(point)}
        order = (Verdict.BROKEN, Verdict.UNKNOWN, Verdict.HELD, Verdict.NOT_REACHED)
        return next(verdict for verdict in order if verdict in found)

    def _failure(self, life: ComparedLife) -> dict[str, Any]:
        sharing = {number for number, row in enumerate(self.explorer.classes.rows) if life.number in (number, row.shared)}
        points = sum(any(number in sharing for number, _ in self._pairs(point)) for point in self.judged)
        gates = [gate for gate in life.report["gates"] if gate["verdict"] == life.verdict.value]
        return {
            "verdict": life.verdict.value, "points": points, "token": self._token(life.plan), "command": self._command(life.plan),
            "words": life.plan[0].words(), "gates": gates, "why": list(life.why),
        }  # fmt: skip


def cut_at(life: Life, item: PlanItem) -> Life:
    """The life as a crash there would have left its history and what it trained."""
    kind = [(record.process, type(record.event).__name__) == (item.process, item.kind) for record in life.history]
    end = [place for place, same in enumerate(kind, start=1) if same][item.n - 1] if item.n else 0
    history = life.history[:end]
    applied = sum(type(record.event) is OptimizerApplied for record in history)
    return replace(
        life, history=history, trained=life.trained[:applied], status=RunStatus("crashed"), fired=True, address=item.address,
        now=history[-1].time if history else 0.0,
    )  # fmt: skip


def compared_life(number: int, plan: Plan, result: Result) -> ComparedLife:
    """The verdict of one life, where what this crash point alone could not show is no reason for UNKNOWN."""
    verdict = result.verdict
    unknown = [*result.unknown_because]
    unknown += [f"{gate.name}: {gate.why}" for gate in result.gates if gate.verdict is Verdict.UNKNOWN]
    of_all = [reason for reason in unknown if not of_one_point(reason) and not reason.startswith(SHARE)]
    why = of_all or unknown
    if verdict is Verdict.BROKEN:
        why = [f"{gate.name}: {gate.why}" for gate in result.gates if gate.verdict is Verdict.BROKEN]
    elif verdict is Verdict.UNKNOWN and not of_all:
        verdict = Verdict.NOT_REACHED
    return ComparedLife(number=number, plan=plan, verdict=verdict, why=tuple(why), report=result.as_json())


def unmeasured_life(number: int, plan: Plan, reason: str) -> ComparedLife:
    report: dict[str, Any] = {**dict.fromkeys(SUMS, 0), "rows": {}, "gates": [], "excuses": []}
    return ComparedLife(number=number, plan=plan, verdict=Verdict.UNKNOWN, why=(reason,), report=report)


def gates_of(lives: Sequence[ComparedLife]) -> list[dict[str, Any]]:
    """One row a gate over all lives: ``value`` counts the lives in which it broke."""
    names = list(dict.fromkeys(gate["name"] for life in lives for gate in life.report["gates"]))
    rows = []
    for name in names:
        found = [gate for life in lives for gate in life.report["gates"] if gate["name"] == name]
        counts = Counter(gate["verdict"] for gate in found)
        verdict = next(each for each in ORDER if counts[each.value])
        shown_first = next((gate for gate in found if gate["verdict"] == verdict.value), found[0])
        trouble = verdict in (Verdict.BROKEN, Verdict.UNKNOWN)
        rows.append({
            "name": name, "verdict": verdict.value, "value": counts["BROKEN"], "limit": 0, "held": counts["HELD"],
            "broken": counts["BROKEN"], "unknown": counts["UNKNOWN"], "not_applicable": counts["N/A"],
            "why": shown_first["why"] if trouble else "", "findings": shown_first["findings"] if trouble else [],
            "found": shown_first["found"] if trouble else 0, "reported": all(gate["reported"] for gate in found), "figures": {},
        })  # fmt: skip
    return rows


def _counts(verdicts: Mapping[Verdict, int]) -> dict[str, int]:
    names = {"held": Verdict.HELD, "broken": Verdict.BROKEN, "unknown": Verdict.UNKNOWN, "vacuous": Verdict.NOT_REACHED}
    return {name: verdicts.get(verdict, 0) for name, verdict in names.items()}
