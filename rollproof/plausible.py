"""What a saved folder must say beyond the types of its fields: a file that was edited, cut or mixed up is refused.

A saved run that is not what it claims to be could be judged HELD and mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from protocol import config
from protocol.history import KINDS, RENAMED, Record
from protocol.judging import Verdict
from rollproof.saving import RUN_FILE, SWEEP_FILE, SavedLife, SavedRun, SavedSweep, read_folder
from rollproof.tokens import LENGTH_MAX, OUTCOMES, is_outcome, parse_token, shown
from scenarios.model import InputError, Scenario
from scenarios.partial import Partial

ENDS = ("ended", "failed", "idle", "steps", "time", "crashed")


class _Microseconds(msgspec.Struct):
    kernel: float
    core: float
    judges: float
    all: float


class _Verdicts(msgspec.Struct):
    held: int
    broken: int
    unknown: int


class _JudgeRow(msgspec.Struct):
    invariant: str
    held: int
    broken: int
    not_reached: int
    verdict: Verdict


class _Fresh(msgspec.Struct):
    classes: int
    agreed: int


class _Verified(msgspec.Struct):
    reruns: int
    agreed: int
    fresh_process: _Fresh


class _SweepReport(msgspec.Struct):
    """What the terminal, the page and JUnit read of a sweep's report."""

    scenario: str
    level: str
    seeds: tuple[int, int]
    events: int
    steps: int
    crash_points: int
    judged: int
    fired: int
    not_covered: int
    outcomes: int
    classes: int
    runs: int
    us_per_event: _Microseconds
    verdict: Verdict
    verdicts: _Verdicts
    judges: list[_JudgeRow]
    points_per_cpu_s: float
    distinct_runs_per_cpu_s: float
    wall_s: float
    peak_rss_mib: float
    history_hash: str
    verified: _Verified
    messages: list[str]
    carries: dict[str, int]


def read_saved(folder: Path) -> SavedRun | SavedSweep:
    """As ``saving.read_folder``, and plausible. Raises InputError that names the file and every fault of it."""
    saved = read_folder(folder)
    name, wrong = (RUN_FILE, run_faults(saved)) if isinstance(saved, SavedRun) else (SWEEP_FILE, sweep_faults(saved))
    if wrong:
        raise InputError.of(str(folder / name), wrong)
    return saved


def run_faults(run: SavedRun) -> list[str]:
    """What is wrong with a ``run.json``, each fault with its key (empty: nothing)."""
    wrong = list(_common(run, "run"))
    wrong += _scenario_faults(run.scenario)
    if run.seed < 0:
        wrong.append(f"seed is {run.seed}: it must be 0 or more")
    if run.level != run.scenario.job.target_level:
        wrong.append(f"level is {shown(run.level)}: the scenario's is {shown(run.scenario.job.target_level)}")
    wrong += _plan_faults(run)
    wrong += _fail_faults(run)
    wrong += _lives_faults(run)
    return wrong


def sweep_faults(sweep: SavedSweep) -> list[str]:
    """What is wrong with a ``sweep.json``, each fault with its key (empty: nothing)."""
    wrong = list(_common(sweep, "sweep"))
    wrong += _scenario_faults(sweep.scenario)
    first, last = sweep.seeds
    if not 0 <= first < last:
        wrong.append(f"seeds are {first} to {last}, the last one not included: they must be 0 or more and rise")
    if sweep.points is not None and sweep.points < 1:
        wrong.append(f"points is {sweep.points}: it must be null or above 0")
    if not sweep.outcomes or any(name not in OUTCOMES for name in sweep.outcomes) or len({*sweep.outcomes}) < len(sweep.outcomes):
        wrong.append(f"outcomes is {shown(', '.join(sweep.outcomes))}: it must be some of {', '.join(OUTCOMES)}, each once")
    try:
        report = msgspec.convert(sweep.result, _SweepReport)
    except msgspec.ValidationError as error:
        return [*wrong, f"result is no report of a sweep ({error})"]
    if report.seeds != sweep.seeds:
        wrong.append(f"result.seeds is {report.seeds}: seeds is {sweep.seeds}")
    if report.verdict not in (Verdict.HELD, Verdict.BROKEN, Verdict.UNKNOWN):
        wrong.append(f"result.verdict is {report.verdict.value!r}: it must be HELD, BROKEN or UNKNOWN")
    return wrong


def records_fit(records: Sequence[Record], life: int, events: int | None, where: str) -> None:
    """Raises InputError unless ``records`` are those of one whole life: none missing, none out of its place.

    ``events`` is how many there must be, None where that is not known.
    """
    if not records or (events is not None and len(records) != events):
        right = "at least 1" if events is None else str(events)
        raise InputError(f"{where}: holds {len(records)} records: it must hold {right}")
    for place, record in enumerate(records):
        if record.sequence != place:
            raise InputError(f"{where}: record {place} has the sequence number {record.sequence}: a record is missing or moved")
        if record.life != life:
            raise InputError(f"{where}: record {place} is of life {record.life}: this is the history of life {life}")


def _common(saved: SavedRun | SavedSweep, kind: str) -> Iterator[str]:
    if saved.kind != kind:
        yield f"kind is {shown(saved.kind)}: it must be {kind!r}"


def _scenario_faults(scenario: Scenario) -> Iterator[str]:
    if not scenario.contract.refused:  # else to be refused is what the run is about
        for text in config.check(scenario.job):
            yield f"scenario.job.{text}"
    if not scenario.tasks:
        yield "scenario.tasks is empty: it must have at least one task"


def _plan_faults(run: SavedRun) -> Iterator[str]:
    for number, (_, kind, n, k, outcome) in enumerate(run.plan, start=1):
        if RENAMED.get(kind, kind) not in KINDS:
            yield f"plan item {number} names the event {shown(kind)}, which is none"
        if n < 1 or k < 0 or not is_outcome(outcome):
            yield f"plan item {number} is {n}+{k} {shown(outcome)}: n is from 1, k from 0, the outcome {' or '.join(OUTCOMES)}"
    if not run.plan:
        if run.token:
            yield f"token is {shown(run.token)}: a run without a plan has none"
        return
    if run.reference is None:
        yield "reference is missing: a run with a crash is compared with the run without one"
    try:
        if tuple(tuple(item) for item in parse_token(run.token).plan) != run.plan:
            yield "token names another plan"
    except InputError as error:
        yield f"token is wrong: {str(error)[:LENGTH_MAX]}"


def _fail_faults(run: SavedRun) -> Iterator[str]:
    try:
        partials = tuple(Partial.parse(text, run.scenario.job) for text in run.fail)
    except InputError as error:
        yield f"fail is wrong: {str(error)[:LENGTH_MAX]}"
        return
    last = run.scenario.faults[len(run.scenario.faults) - len(partials) :]
    if last != tuple(partial.fault() for partial in partials):
        yield "fail names partial crashes that are not the last faults of the scenario"
    if partials and (run.plan or run.reference is None):
        yield "fail goes with a reference and without a plan"


def _lives_faults(run: SavedRun) -> Iterator[str]:
    if not run.lives:
        yield "lives is empty: a run has at least one"
        return
    if len(run.lives) > len(run.plan) + 1 + bool(run.fail):
        yield f"lives has {len(run.lives)} entries: a plan of {len(run.plan)} crashes makes at most {len(run.plan) + 1}"
    for number, life in enumerate(run.lives, start=1):
        last = number == len(run.lives)
        if (life.name, life.number) != (f"life-{number}", number):
            yield f"lives[{number - 1}] is {shown(life.name)}, number {life.number}: it must be life-{number}"
        asked = number <= len(run.plan)
        if (life.fired is not None) is not asked:
            yield f"life-{number}.fired is {life.fired}: a crash was {'' if asked else 'not '}asked for"
        elif asked and not last and not life.fired:
            yield f"life-{number}.fired is false, and there is a life after it"
        elif asked and last and life.fired:
            yield f"life-{number} crashed, and the life after it is missing"
        if life.copied and (run.world != "real" or number > 1 or not life.fired):
            yield f"life-{number} says that it was copied: only a crashed life 1 of a real run can be"
        if number > 1 and life.external[0] != run.lives[number - 2].external[1]:
            yield f"life-{number}.external does not begin with what the life before it left outside the job"
        if (life.status.outcome == "crashed") is not bool(life.fired):
            yield f"life-{number}.status.outcome is {shown(life.status.outcome)} and fired is {life.fired}"
        yield from _life_faults(run, life)
    if run.reference is not None:
        if (run.reference.name, run.reference.number, run.reference.fired) != ("reference", 1, None):
            yield f"reference is {shown(run.reference.name)}, number {run.reference.number}: it must be life 1 without a crash"
        yield from _life_faults(run, run.reference)


def _life_faults(run: SavedRun, life: SavedLife) -> Iterator[str]:
    where = shown(life.name)
    if life.status.outcome not in ENDS:
        yield f"{where} status.outcome is {shown(life.status.outcome)}: it must be one of {', '.join(ENDS)}"
    known = {service.service for service in run.scenario.contract.effects}
    named = {held.service for external in life.external for held in external.landed}
    named |= {held.service for external in life.external for held in external.values}
    if not named <= known:
        yield f"{where} external speaks of {', '.join(sorted(named - known))}: the scenario declares {sorted(known)}"
    if life.events < 1 or life.steps < 0 or life.time_s < 0:
        yield f"{where} has {life.events} events, {life.steps} steps and {life.time_s} s: that is no life"
    ran = run.scenario.faults[: -len(run.fail)] if run.fail and life.name == "reference" else run.scenario.faults
    right = {number for number, fault in enumerate(ran) if fault.life in (0, life.number)}
    if {*life.effects} != right:
        yield f"{where} effects speaks of the faults {sorted(life.effects)}: life {life.number} has {sorted(right)}"
