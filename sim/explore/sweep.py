"""Sweep a scenario: every crash point of life 1, enumerated, run by class, judged, and the sharing verified."""

from __future__ import annotations

import hashlib
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from protocol.judging import Verdict
from protocol.parts import Factory
from scenarios.model import Scenario
from sim.explore.explorer import Explorer, Progress
from sim.explore.lives import Budget, CleanUp, Judges, Setting
from sim.explore.lost import Losses, as_plain, losses, lost_work_of
from sim.explore.partial import PartialCrashes, crash_partially
from sim.explore.result import SweepResult, Verified, class_row, failures, judge_rows, tally
from sim.explore.verify import verify_classes_afresh, verify_merged_points
from sim.faults import without_effect

OUTCOMES = ("none", "all")
UNREACHED = "reached nowhere:"  # how the message about judges begins
PartialWish = tuple[Sequence[str], str, float]  # processes, verb, seconds (scenarios.partial)


def unreached(judges: Sequence[str]) -> str:
    """Which judges were to be reached and were not, and where a scenario says which ones are to be."""
    return f"{UNREACHED} {', '.join(judges)} ([expect] judges in the scenario names those that must be)"


def sweep(
    scenario: Scenario,
    seed: int,
    judges: Judges,
    *,
    points: int | None = None,
    outcomes: Sequence[str] = OUTCOMES,
    schedule: str = "0",
    progress: Progress | None = None,
    timed: bool = True,
    verify: bool = True,
    fail_fast: bool = False,
    budget_s: float | None = None,
    shard: tuple[int, int] | None = None,
    partial: PartialWish | None = None,
    processes: Mapping[str, Factory] | None = None,
    clean_up: CleanUp | None = None,
) -> SweepResult:
    """Judge every crash point of life 1 (or ``points`` of them, spread over the protocol steps).

    ``outcomes`` are the disk outcomes each point is judged under. ``fail_fast`` stops at the first broken class,
    ``budget_s`` (wall seconds) before the next class once they are over; ``shard`` (i, n) runs every n-th class from the
    i-th (0-based). Where life 1 never ends, one class is run. What was not run is ``not_covered``. ``partial`` asks for
    partial crashes beside. ``processes`` and ``clean_up`` replace the core's own (tests).
    """
    started = time.perf_counter()
    cpu = time.process_time()
    setting = Setting(
        scenario=scenario,
        seed=seed,
        judges=tuple(judges),
        schedule=schedule,
        timed=timed,
        processes=processes,
        clean_up=clean_up,
        budget=Budget.of(scenario.job),
    )
    explorer = Explorer(setting, outcomes, progress)
    explorer.enumerate()
    every = range(len(explorer.points))
    drawn = every if points is None else explorer.points.stratified(points, every, f"{seed}/points")
    wanted = sorted({number for point in drawn for number, _ in explorer.classes.pairs[explorer.points.pair[point]]})
    if shard is not None:
        wanted = wanted[shard[0] :: shard[1]]
    stuck = explorer.life_1.status.outcome in ("steps", "time")  # its list of points has no end, and the verdict is known
    _drop_captures(explorer, wanted)
    for done, number in enumerate(wanted, start=1):
        explorer.run_class(number)
        explorer.progress("classes", done, len(wanted))
        if stuck or (fail_fast and explorer.classes.rows[number].verdict is Verdict.BROKEN):
            break
        if budget_s is not None and time.perf_counter() - started > budget_s:
            break
    rows = explorer.classes.rows
    judged = [p for p in drawn if all(rows[number].was_run for number, _ in explorer.classes.pairs[explorer.points.pair[p]])]
    lost = losses(explorer.points, judged, explorer.classes, explorer.life_1.history)
    explorer.effort.cpu_s = time.process_time() - cpu
    explorer.effort.wall_s = time.perf_counter() - started
    verified = Verified()
    if verify and not stuck:
        cpu = time.process_time()
        untimed = replace(explorer.setting, timed=False)
        life_1, references, classes = explorer.life_1, explorer.references, explorer.classes
        verify_merged_points(untimed, life_1.history, explorer.points, judged, classes, references, verified)
        explorer.progress("verify", 1, 2)
        verify_classes_afresh(untimed, life_1, classes, references, verified)
        explorer.progress("verify", 2, 2)
        verified.cpu_s = time.process_time() - cpu
    result = _result(explorer, judged, lost, verified, 0.0)
    if partial is not None and not stuck:
        untimed = replace(explorer.setting, timed=False)
        _take(result, crash_partially(untimed, explorer.life_1, *partial, explorer.progress))
    result.wall_s = round(time.perf_counter() - started, 3)
    return result


def _take(result: SweepResult, partial: PartialCrashes) -> None:
    """What partial crashes came to counts in the sweep's verdict."""
    result.partial = partial.as_json()
    result.partial_failures = partial.failures
    result.losses = replace(result.losses, partial=partial.losses)
    result.messages += partial.messages
    if not partial.runs:
        result.messages.append("no partial crash was run: the processes asked for record nothing")
    if result.verified.disagreements:
        return
    if partial.failures:
        result.verdict = Verdict.BROKEN
    elif result.verdict is Verdict.HELD and (partial.count(Verdict.UNKNOWN) or not partial.runs):
        result.verdict = Verdict.UNKNOWN


def _drop_captures(explorer: Explorer, wanted: Sequence[int]) -> None:
    kept = set(wanted)
    for number, row in enumerate(explorer.classes.rows):
        if number not in kept:
            row.capture = None


def _vacuous_faults(explorer: Explorer) -> list[str]:
    """Faults that were never seen to happen: those of life 1 in it, all others in some restored life (RULES 5)."""
    faults = explorer.setting.scenario.faults
    first = {number: why for number, why in explorer.life_1.effects.items() if faults[number].life == 1}
    return without_effect(faults, (first, explorer.restored_effects))


def _result(explorer: Explorer, judged: Sequence[int], lost: Losses, verified: Verified, wall_s: float) -> SweepResult:
    points, classes, life_1, effort = explorer.points, explorer.classes, explorer.life_1, explorer.effort
    scenario, seed = explorer.setting.scenario, explorer.setting.seed
    counted = tally(points, judged, classes, explorer.prefix, life_1.panel)
    by_judge = judge_rows(scenario, explorer.setting.judges, counted.judges, life_1.panel.verdicts())
    broken = failures(points, judged, classes, counted.first, life_1.panel)
    ran = [row for row in classes.rows if row.was_run]
    verdicts = {name: counted.points[Verdict[name.upper()]] for name in ("held", "broken", "unknown")}
    messages = [f"harness: {text}" for text in verified.disagreements]
    messages += [f"judge {name} crashed: {text}" for name, text in sorted(explorer.errors().items())]
    unfired = len(judged) - counted.fired
    if unfired:
        messages.append(f"{unfired} points without proof that their crash was followed by a restore")
    if not life_1.ended_rightly(scenario.contract):
        messages.append(f"life 1, the reference, did not reach its end: {life_1.status.outcome} {life_1.status.error}".rstrip())
    if not judged:
        messages.append("no point was judged")
    messages += _vacuous_faults(explorer)
    not_reached = [row["invariant"] for row in by_judge if row["verdict"] == Verdict.UNKNOWN.value]
    if not_reached:
        messages.append(unreached(not_reached))
    if verified.disagreements:
        verdict = Verdict.UNKNOWN  # what the harness says cannot be trusted either way
    elif broken:
        verdict = Verdict.BROKEN
    else:
        verdict = Verdict.UNKNOWN if messages or verdicts["unknown"] else Verdict.HELD
    history = hashlib.sha256(bytes.fromhex(life_1.digest))
    for row in ran:
        history.update(row.key)
        history.update(bytes.fromhex(row.history_hash))
    cpu_s = max(effort.cpu_s, 1e-9)
    return SweepResult(
        scenario=scenario.name,
        level=scenario.job.target_level,
        seeds=(seed, seed + 1),
        schedule=explorer.setting.schedule,
        events=life_1.events,
        steps=life_1.steps,
        crash_points=len(points),
        classes=len(ran),
        runs=effort.runs,
        outcomes=counted.outcomes,
        judged=len(judged),
        fired=counted.fired,
        not_covered=len(points) - len(judged),
        us_per_event=effort.us_per_event(),
        verdict=verdict,
        judges=by_judge,
        verdicts=verdicts,
        violations=broken,
        points_per_cpu_s=round(len(judged) / cpu_s, 1),
        distinct_runs_per_cpu_s=round(effort.runs / cpu_s, 1),
        cpu_s=round(effort.cpu_s, 3),
        wall_s=round(wall_s, 3),
        peak_rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        history_hash=history.hexdigest(),
        repeated_work={
            "points": counted.repeating,
            "effects": sum(row.effects_again for row in ran),
            "most": max((row.effects_again for row in ran), default=0),
        },
        rows=[class_row(row, lost.classes.get(number, ())) for number, row in enumerate(classes.rows) if row.was_run],
        carries=classes.carries(),
        verified=verified,
        messages=messages,
        kinds_seen=tuple(sorted(explorer.kinds)),
        life_1=life_1,
        lost_work={"level": scenario.job.target_level, **as_plain(lost_work_of(lost.points.values()))},
        losses=lost,
    )
