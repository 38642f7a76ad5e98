"""One run: life after life as a plan says, saved whole, then judged from what was saved."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from invariants.registry import JUDGES
from protocol.history import Record
from protocol.judging import Violation
from reports.failure import Evidence
from rollproof.judging import JudgedRun, judge_saved
from rollproof.saving import Packed, SavedRun, life_files, pack_life, saved_life, versions
from rollproof.tokens import DEFAULT_SCHEDULE, LENGTH_MAX, Token, code_digest
from scenarios.files import Loaded
from sim.explore.lives import Life, Setting, run_life, run_plan
from sim.explore.points import Plan, PlanItem

RUNS_MAX = 200  # violations shown of one run


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """The options that lay something over a scenario, as a user would type them again."""

    scenario: str
    level: str | None = None
    tasks: str | None = None
    config: str | None = None
    config_strict: bool = False
    faults: str | None = None

    def overlays(self, level: bool = True) -> str:
        parts = [f" --level {self.level}"] if self.level and level else []
        parts += [f" --{name} {value}" for name in ("tasks", "config", "faults") if (value := getattr(self, name))]
        return "".join(parts) + (" --config-strict" if self.config_strict else "")

    def replay(self, token: str) -> str:
        """Replay ``token`` under the same overlays; the level is in the token, the scenario too if the library has it."""
        scenario = f" --scenario {self.scenario}" if self.scenario.endswith(".toml") else ""
        return f"rollproof replay {token}{scenario}{self.overlays(level=False)}"

    def run(self, seed: int) -> str:
        return f"rollproof run {self.scenario} --seed {seed}{self.overlays()}"


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
    loaded: Loaded, command: Command, seed: int, plan: Plan, schedule: str = DEFAULT_SCHEDULE, reference: Life | None = None
) -> FinishedRun:
    """Run ``plan``, save it, judge it. ``reference`` is life 1 run to its end, if that is at hand already."""
    setting = Setting(scenario=loaded.scenario, seed=seed, judges=JUDGES, schedule=schedule)
    if plan and reference is None:
        reference = run_life(setting, 1, {}, {}, None)
    lives = run_plan(setting, plan, reference.panel.summaries() if reference is not None else None)
    saved, packed = save(loaded, command, seed, plan, schedule, lives, reference)
    return FinishedRun(saved=saved, packed=packed, judged=judge_saved(saved, packed, JUDGES))


def save(
    loaded: Loaded, command: Command, seed: int, plan: Plan, schedule: str, lives: Sequence[Life], reference: Life | None
) -> tuple[SavedRun, Packed]:
    """Everything a later judge needs, as file contents."""
    token = str(token_of(loaded, seed, plan, schedule)) if plan else ""
    packed: Packed = {}
    for life in lives:
        packed.update(pack_life(f"life-{life.number}", life))
    if reference is not None:
        packed.update(pack_life("reference", reference))
    if len(token) > LENGTH_MAX:
        packed["plan.token"] = token.encode()
    saved = SavedRun(
        scenario=loaded.scenario,
        scenario_digest=loaded.scenario.digest,
        code_digest=code_digest(),
        seed=seed,
        schedule=schedule,
        level=loaded.scenario.job.target_level,
        plan=tuple((item.process, item.kind, item.n, item.k, item.outcome) for item in plan),
        token=token,
        command=command.replay(token) if plan else command.run(seed),
        versions=versions(),
        lives=tuple(saved_life(f"life-{life.number}", life) for life in lives),
        reference=saved_life("reference", reference) if reference is not None else None,
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
