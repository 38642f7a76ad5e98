"""One run: life after life as a plan says, saved whole, then judged from what was saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from invariants.registry import JUDGES
from protocol.history import Record
from protocol.judging import Violation
from reports.failure import Evidence
from rollproof.command import TOKEN_FILE, Command
from rollproof.judging import JudgedRun, judge_saved
from rollproof.saving import Packed, SavedRun, life_files, pack_life, saved_life, versions, write_packed
from rollproof.tokens import DEFAULT_SCHEDULE, LENGTH_MAX, Token, code_digest
from scenarios.files import Loaded
from scenarios.model import Scenario
from scenarios.partial import Partial, with_partials
from sim.explore.lives import Life, Setting, run_life, run_plan
from sim.explore.partial import run_partials
from sim.explore.points import Plan, PlanItem
from sim.trained_rows import packed_rows

REFERENCE = "reference"
RUNS_MAX = 200  # violations shown of one run


class FinishedRun(msgspec.Struct, frozen=True, kw_only=True):
    saved: SavedRun
    packed: Packed
    judged: JudgedRun


def token_of(loaded: Loaded, seed: int, plan: Plan, schedule: str = DEFAULT_SCHEDULE) -> Token:
    return Token(
        scenario=loaded.scenario.name,
        scenario_digest=loaded.scenario.digest,
        seed=seed,
        schedule=schedule,
        level=loaded.scenario.job.target_level,
        code_digest=code_digest(),
        plan=plan,
    )


def run_once(
    loaded: Loaded,
    command: Command,
    seed: int,
    plan: Plan,
    schedule: str = DEFAULT_SCHEDULE,
    *,
    reference: Life | None = None,
    folder: Path | None = None,
) -> FinishedRun:
    """Run ``plan``, save it (below ``folder``, if there is one), then judge what was saved (RULES 8).

    ``reference`` is life 1 run to its end, if that is at hand already.
    """
    saved, packed = run_and_save(loaded, command, seed, plan, schedule, reference=reference, folder=folder)
    return FinishedRun(saved=saved, packed=packed, judged=judge_saved(saved, packed, JUDGES))


def run_and_save(
    loaded: Loaded,
    command: Command,
    seed: int,
    plan: Plan,
    schedule: str = DEFAULT_SCHEDULE,
    *,
    reference: Life | None = None,
    folder: Path | None = None,
) -> tuple[SavedRun, Packed]:
    """Everything that ``judge_saved`` needs, on disk before any verdict is asked for."""
    partials = tuple(Partial.parse(text, loaded.scenario.job) for text in command.fail)
    setting = Setting(scenario=loaded.scenario, seed=seed, judges=JUDGES, schedule=schedule)
    if (plan or partials) and reference is None:
        reference = run_life(setting, 1, {}, {}, None)
    if reference is not None:
        setting = setting.after(reference)  # as a sweep does: else a livelock would replay longer
    references = reference.panel.summaries() if reference is not None else None
    if partials:
        assert not plan, "a partial crash takes the place of a plan"
        lives = run_partials(setting, partials, references)
        loaded = msgspec.structs.replace(loaded, scenario=with_partials(loaded.scenario, partials))
    else:
        lives = run_plan(setting, plan, references)
    saved, packed = save(loaded, command, seed, plan, schedule, lives, reference)
    if folder is not None:
        write_packed(folder, {**packed, **trained_on(loaded.scenario, lives, reference)})
    return saved, packed


def trained_on(scenario: Scenario, lives: Sequence[Life], reference: Life | None) -> Packed:
    """The rows of these lives, in the folders where a real run leaves them."""
    packed: Packed = {}
    for life in lives:
        packed.update(packed_rows("crashed", life.number, life.trained, scenario.profile))
    if reference is not None:
        packed.update(packed_rows(REFERENCE, reference.number, reference.trained, scenario.profile))
    return packed


def save(
    loaded: Loaded, command: Command, seed: int, plan: Plan, schedule: str, lives: Sequence[Life], reference: Life | None
) -> tuple[SavedRun, Packed]:
    """Everything a later judge needs, as file contents."""
    token = token_of(loaded, seed, plan, schedule)
    packed: Packed = {}
    for life in lives:
        packed.update(pack_life(f"life-{life.number}", life))
    if reference is not None:
        packed.update(pack_life(REFERENCE, reference))
    if plan and len(str(token)) > LENGTH_MAX:
        packed[TOKEN_FILE] = str(token).encode()
    saved = SavedRun(
        scenario=loaded.scenario,
        scenario_digest=loaded.scenario.digest,
        code_digest=code_digest(),
        seed=seed,
        schedule=schedule,
        level=loaded.scenario.job.target_level,
        plan=tuple((item.process, item.kind, item.n, item.k, item.outcome) for item in plan),
        token=str(token) if plan else "",
        command=command.replay(token) if plan else command.run(seed),
        versions=versions(),
        lives=tuple(saved_life(f"life-{life.number}", life) for life in lives),
        reference=saved_life(REFERENCE, reference) if reference is not None else None,
        fail=command.fail,
    )
    packed["run.json"] = msgspec.json.format(msgspec.json.encode(saved), indent=1)
    return saved, packed


def names_of(saved: SavedRun) -> list[str]:
    """The files of a saved run that a judge reads."""
    lives = (*saved.lives, *([saved.reference] if saved.reference is not None else []))
    return [name for life in lives for name in life_files(life.name)]


def evidence_of(saved: SavedRun, judged: JudgedRun) -> list[Evidence]:
    """What is shown of each violated guarantee: its first violation, with the events around the crash."""
    first: dict[str, Violation] = {}
    for violation in judged.violations[:RUNS_MAX]:
        first.setdefault(violation.invariant, violation)
    return [evidence(saved, judged.histories, violation) for violation in first.values()]


def evidence(saved: SavedRun, histories: Sequence[Sequence[Record]], violation: Violation) -> Evidence:
    words = Token(
        scenario=saved.scenario.name,
        scenario_digest=saved.scenario_digest,
        seed=saved.seed,
        schedule=saved.schedule,
        level=saved.level,
        code_digest=saved.code_digest,
        plan=plan_of(saved),
    ).words()
    return Evidence.of(violation, token=saved.token, words=words, histories=histories, command=saved.command)


def plan_of(saved: SavedRun) -> Plan:
    return tuple(PlanItem(*item) for item in saved.plan)
