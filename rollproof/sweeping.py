"""A sweep over one seed or several: the engine's results as one object, with the evidence of what broke."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from invariants.registry import JUDGES
from protocol.judging import Verdict
from reports.failure import Evidence
from rollproof.command import Command
from rollproof.compared import work_saved
from rollproof.options import partial_text
from rollproof.plausible import records_fit
from rollproof.running import evidence_of, run_once, token_of
from rollproof.saving import (
    CLASSES_FILE,
    LOST_WORK_FILE,
    SWEEP_FILE,
    SavedSweep,
    life_files,
    pack_life,
    read_packed,
    unpack_history,
    versions,
    write_packed,
)
from rollproof.tokens import code_digest
from scenarios.files import Loaded
from scenarios.model import InputError, Scenario
from sim.explore.lost import as_plain, lost_work_of
from sim.explore.points import Plan, PlanItem
from sim.explore.result import SweepResult
from sim.explore.sweep import UNREACHED, PartialWish, sweep, unreached

Progress = Callable[[str, int, int], None]
SUMMED = ("events", "steps", "crash_points", "classes", "runs", "outcomes", "judged", "fired", "not_covered", "cpu_s", "wall_s")


class FinishedSweep(msgspec.Struct, frozen=True, kw_only=True):
    """``report`` is what ``--json`` prints; ``results`` are the engine's, one a seed."""

    report: dict[str, Any]
    results: list[SweepResult]
    evidence: list[Evidence]


def sweep_seeds(
    loaded: Loaded,
    command: Command,
    seeds: range,
    *,
    points: int | None,
    outcomes: tuple[str, ...],
    partial: PartialWish | None = None,
    progress: Callable[[int], Progress] | None = None,
    folder: Path | None = None,
    coarser: Sequence[Scenario] = (),
) -> FinishedSweep:
    """Sweep each seed, run every failure again whole and judge it from what was saved (RULES 8).

    ``coarser``: the scenario at the levels whose lost work is shown beside, at the first seed.
    """
    found = Findings(loaded, command)
    for seed in seeds:
        watch = progress(seed) if progress is not None else None
        result = sweep(loaded.scenario, seed, JUDGES, points=points, outcomes=outcomes, partial=partial, progress=watch)
        found.add(seed, result, folder)
        if folder is not None:
            _save_seed(folder / f"seed-{seed}", result)
        result.forget_life_1()
    report = found.report()
    if coarser:
        watch = progress(seeds.start) if progress is not None else None
        mean = found.results[0].lost_work["tokens"]["mean"]
        report["work_saved"] = work_saved(coarser, seeds.start, mean, points, outcomes, watch)
    if folder is not None:
        saved = SavedSweep(
            scenario=loaded.scenario,
            scenario_digest=loaded.scenario.digest,
            code_digest=code_digest(),
            command=command.sweep(seeds, points, outcomes, partial_text(partial)),
            versions=versions(),
            seeds=(seeds.start, seeds.stop),
            points=points,
            outcomes=outcomes,
            result=report,
            evidence=found.evidence,
            options=command,
        )
        (folder / SWEEP_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(saved), indent=1))
    return FinishedSweep(report=report, results=found.results, evidence=found.evidence)


class Findings:
    """The results of one seed after another, with what could be shown again of their failures."""

    def __init__(self, loaded: Loaded, command: Command) -> None:
        self.loaded = loaded
        self.command = command
        self.results: list[SweepResult] = []
        self.evidence: list[Evidence] = []
        self.messages: list[str] = []

    def add(self, seed: int, result: SweepResult, folder: Path | None) -> None:
        """Every failure is run again whole; below ``folder`` it is saved too."""
        evidence, messages = _failures_again(self.loaded, self.command, seed, result, folder)
        self.results.append(result)
        self.evidence += evidence
        self.messages += messages

    def report(self) -> dict[str, Any]:
        """The object that ``--json`` prints."""
        report = merge(self.results)
        report["version"] = code_digest()
        report["messages"] = [*report["messages"], *self.messages]
        if self.messages and report["verdict"] != Verdict.BROKEN.value:
            report["verdict"] = Verdict.UNKNOWN.value
        if self.loaded.config is not None:
            report["config"] = self.loaded.config.as_json()
        report["violations"] = [
            {"invariant": item.invariant, "token": item.token, "message": item.message,
             "points": item.points, "command": item.command}
            for item in self.evidence
        ]  # fmt: skip
        return report


def _failures_again(
    loaded: Loaded, command: Command, seed: int, result: SweepResult, folder: Path | None
) -> tuple[list[Evidence], list[str]]:
    """Each failure run alone, saved whole, and judged from its files; also what could not be shown again."""
    found: list[Evidence] = []
    messages: list[str] = []
    whole = command
    for failure in (*result.violations, *result.partial_failures):
        command = msgspec.structs.replace(whole, fail=(failure.fail,)) if failure.fail else whole
        name = f"partial-{failure.invariant}" if failure.fail else failure.invariant
        place = None if folder is None else folder / f"seed-{seed}" / "failures" / name
        needed = failure.plan or failure.fail
        finished = run_once(loaded, command, seed, failure.plan, reference=result.reference if needed else None, folder=place)
        shown = [item for item in evidence_of(finished.saved, finished.judged) if item.invariant == failure.invariant]
        if shown:
            found.append(msgspec.structs.replace(shown[0], points=failure.points))
            continue
        message = (
            f"{failure.invariant} broke in the sweep and not when it was run again alone: sharing or determinism is at fault"
        )
        messages.append(f"harness: {message}")
        token = token_of(loaded, seed, failure.plan)
        found.append(
            Evidence(
                invariant=failure.invariant,
                expected=failure.message,
                found=message,
                token=str(token) if failure.plan else "",
                words=(),
                at="",
                around=(),
                before=(),
                after=(),
                command=command.replay(token) if failure.plan else command.run(seed),
                points=failure.points,
            )
        )
    unknown = next((row for row in result.rows if row.verdict == Verdict.UNKNOWN.value), None)
    if unknown is not None and folder is not None:
        plan: Plan = (PlanItem(*unknown.address, unknown.outcome),)
        place = folder / f"seed-{seed}" / "failures" / "unknown"
        run_once(loaded, whole, seed, plan, reference=result.reference, folder=place)
    return found, messages


def _save_seed(folder: Path, result: SweepResult) -> None:
    """Life 1 (the reference), one row a class, and what each judged point lost."""
    write_packed(folder, pack_life("life-1", result.reference))
    encode = msgspec.json.Encoder().encode
    (folder / CLASSES_FILE).write_bytes(b"".join(encode(row) + b"\n" for row in result.rows))
    lost = ({"address": address, **msgspec.structs.asdict(work)} for address, work in result.losses.points.items())
    (folder / LOST_WORK_FILE).write_bytes(b"".join(encode(row) + b"\n" for row in lost))


def merge(results: list[SweepResult]) -> dict[str, Any]:
    """One JSON object for all seeds. Counts are summed, rates weighted by their CPU, the verdict is the worst."""
    reports = [result.as_json() for result in results]
    if len(reports) == 1:
        return reports[0]
    out = dict(reports[0])
    for name in SUMMED:
        total = sum(report[name] for report in reports)
        out[name] = round(total, 3) if isinstance(total, float) else total
    out["seeds"] = [reports[0]["seeds"][0], reports[-1]["seeds"][1]]
    weights = [report["cpu_s"] / report["us_per_event"]["all"] if report["us_per_event"]["all"] else 0.0 for report in reports]
    out["us_per_event"] = {
        name: round(sum(w * r["us_per_event"][name] for w, r in zip(weights, reports, strict=True)) / (sum(weights) or 1.0), 2)
        for name in reports[0]["us_per_event"]
    }
    cpu_s = out["cpu_s"] or 1e-9
    for name in ("points_per_cpu_s", "distinct_runs_per_cpu_s"):
        out[name] = round(sum(report[name] * report["cpu_s"] for report in reports) / cpu_s, 1)
    out["peak_rss_mib"] = max(report["peak_rss_mib"] for report in reports)
    out["verdicts"] = {name: sum(report["verdicts"][name] for report in reports) for name in reports[0]["verdicts"]}
    out["carries"] = {name: sum(report["carries"][name] for report in reports) for name in reports[0]["carries"]}
    out["repeated_work"] = {
        name: (max if name == "most" else sum)(report["repeated_work"][name] for report in reports)
        for name in reports[0]["repeated_work"]
    }
    everywhere = lost_work_of(work for result in results for work in result.losses.points.values())
    out["lost_work"] = {"level": out["level"], **as_plain(everywhere)}
    if "partial" in out:
        lost = lost_work_of(work for result in results for work in result.losses.partial)
        out["partial"] = {**_partial(reports), "lost_work": as_plain(lost)}
    out["judges"] = _judges(reports)
    out["violations"] = [violation for report in reports for violation in report["violations"]]
    out["verified"] = _verified(reports)
    out["messages"] = [
        f"seed {report['seeds'][0]}: {text}"
        for report in reports
        for text in report["messages"]
        if not text.startswith(UNREACHED)
    ]
    missing = [row["invariant"] for row in out["judges"] if row["verdict"] == Verdict.UNKNOWN.value]
    if missing:
        out["messages"].append(unreached(missing))
    out["history_hash"] = hashlib.sha256("".join(report["history_hash"] for report in reports).encode()).hexdigest()
    if any(report["verdict"] == Verdict.BROKEN.value for report in reports):
        out["verdict"] = Verdict.BROKEN.value
    else:
        out["verdict"] = Verdict.UNKNOWN.value if out["messages"] or out["verdicts"]["unknown"] else Verdict.HELD.value
    return out


def _verified(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """One object: counts are summed, each disagreement says its seed."""
    each = [report["verified"] for report in reports]
    return {
        "reruns": sum(one["reruns"] for one in each),
        "agreed": sum(one["agreed"] for one in each),
        "fresh_process": {name: sum(one["fresh_process"][name] for one in each) for name in each[0]["fresh_process"]},
        "cpu_s": round(sum(one["cpu_s"] for one in each), 3),
        "disagreements": [
            f"seed {report['seeds'][0]}: {text}" for report in reports for text in report["verified"]["disagreements"]
        ],
    }


def _partial(reports: list[dict[str, Any]]) -> dict[str, Any]:
    each = [report["partial"] for report in reports if "partial" in report]
    out = dict(each[0])
    for name, value in out.items():
        if isinstance(value, int):
            out[name] = sum(one[name] for one in each)
    out["violations"] = [violation for one in each for violation in one["violations"]]
    return out


def _judges(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Judge rows over all seeds: the worst verdict of any seed; a seed in which a judge was not reached says nothing
    where another seed reached it (RULES 6: NOT_REACHED in *every* life is UNKNOWN)."""
    order = [kind.value for kind in (Verdict.BROKEN, Verdict.UNKNOWN, Verdict.HELD, Verdict.NOT_APPLICABLE)]
    rows = []
    for alike in zip(*(report["judges"] for report in reports), strict=True):
        row = dict(alike[0])
        for name in ("held", "broken", "not_reached"):
            row[name] = sum(one[name] for one in alike)
        judged = [(one, report["judged"]) for one, report in zip(alike, reports, strict=True)]
        said = [one["verdict"] for one, points in judged if one["not_reached"] < points] or [one["verdict"] for one in alike]
        row["verdict"] = min(said, key=order.index)
        rows.append(row)
    return rows


class SweptAgain(msgspec.Struct, frozen=True, kw_only=True):
    """A saved sweep judged again: how many classes had to be run, and those whose history is not the saved one."""

    report: dict[str, Any]
    evidence: list[Evidence]
    classes_run: int
    differing: list[str]


def judge_sweep(folder: Path, saved: SavedSweep, progress: Callable[[int], Progress] | None = None) -> SweptAgain:
    """Run every class of a saved sweep again with today's judges and compare its history with the saved hash."""
    seeds = range(*saved.seeds)
    before = {seed: _saved_hashes(folder / f"seed-{seed}") for seed in seeds}  # what is missing is said before anything runs
    events = sum(_saved_events(folder / f"seed-{seed}") for seed in seeds)
    if events != saved.result["events"]:
        says = saved.result["events"]
        raise InputError(f"{folder / SWEEP_FILE}: says {says} events, its seeds' life-1.history files hold {events} records")
    found = Findings(Loaded(scenario=saved.scenario), saved.options or Command(scenario=saved.scenario.name))
    differing: list[str] = []
    for seed in seeds:
        watch = progress(seed) if progress is not None else None
        result = sweep(saved.scenario, seed, JUDGES, points=saved.points, outcomes=saved.outcomes, progress=watch, verify=False)
        found.add(seed, result, None)
        result.forget_life_1()
        now = {row.key: row.history_hash for row in result.rows}
        differing += [f"seed {seed} class {key}" for key in {**before[seed], **now} if before[seed].get(key) != now.get(key)]
    classes = sum(len(result.rows) for result in found.results)
    return SweptAgain(report=found.report(), evidence=found.evidence, classes_run=classes, differing=differing)


def _saved_events(folder: Path) -> int:
    """How many events life 1 of a saved seed has."""
    name, _, _ = life_files("life-1")
    records = unpack_history(read_packed(folder, [name])[name], str(folder / name))
    records_fit(records, 1, None, str(folder / name))
    return len(records)


def _saved_hashes(folder: Path) -> dict[str, str]:
    """Class key -> history hash of a saved seed."""
    content = read_packed(folder, [CLASSES_FILE])[CLASSES_FILE]
    try:
        rows = [msgspec.json.decode(line) for line in content.splitlines()]
        return {row["key"]: row["history_hash"] for row in rows}
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise InputError(f"{folder / CLASSES_FILE}: holds a row that is no class ({error})") from None
