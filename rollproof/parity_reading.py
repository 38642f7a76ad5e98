"""Runs of this tool as the comparators of ``parity`` see them: what was saved, or what was just run, joined to its scenario.

Imported by the parity commands alone: it pulls in pandas and pyarrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parity.sources.lineage import LifeTold
from parity.sources.saved import run_of_rows, saved_run
from parity.tables import Facts, Run
from protocol.errors import ConfigError
from protocol.judging import BY_CHANCE, BY_VERSION
from protocol.messages import Sampling
from rollproof.saving import SavedLife, SavedRun, life_files, read_folder, read_packed, unpack_files, unpack_history
from scenarios.model import RELATIVE, WITH_MEDIA, InputError, Scenario
from sim.explore.lives import Life
from sim.trained_rows import life_rows

REFERENCE, CRASHED = "reference", "crashed"  # names of a run's folders below ``rows``


def saved_pair(folder: Path) -> tuple[Run, Run]:
    """(reference, restored run) of a folder that ``run --out`` wrote. Raises InputError if there is no reference in it."""
    saved = _saved(folder)
    if saved.reference is None:
        raise InputError(f"{folder}: is a run without a crash, so it has no reference beside it: give a second folder to compare")
    return _run(folder, saved, (saved.reference,), REFERENCE), _run(folder, saved, saved.lives, CRASHED)


def saved_reference(folder: Path) -> Run:
    """The uninterrupted run of a folder: its reference, or the run itself. Raises InputError."""
    saved = _saved(folder)
    if saved.reference is not None:
        return _run(folder, saved, (saved.reference,), REFERENCE)
    if len(saved.lives) > 1 or saved.plan:
        raise InputError(f"{folder}: its run was interrupted, and has no reference: give the folder of an uninterrupted run")
    return _run(folder, saved, saved.lives, CRASHED)


def saved_restored(folder: Path) -> Run:
    """The run of a folder, all its lives. Raises InputError."""
    saved = _saved(folder)
    return _run(folder, saved, saved.lives, CRASHED)


def pair_of_lives(scenario: Scenario, reference: Life, lives: Sequence[Life]) -> tuple[Run, Run]:
    """Of simulated lives that are still in memory. Raises InputError."""
    return run_of_lives(scenario, (reference,), REFERENCE), run_of_lives(scenario, lives, CRASHED)


def run_of_lives(scenario: Scenario, lives: Sequence[Life], name: str) -> Run:
    told = [
        LifeTold(number=life.number, records=life.history, files=life.files, crashed_at=str(life.address) if life.address else "")
        for life in lives
    ]
    rows = {
        (life.number, step): found
        for life in lives
        for step, found in life_rows(life.number, life.trained, scenario.profile).items()
    }
    ended = lives[-1].status.outcome == "ended"
    facts = facts_of(scenario, name=name, source=f"{scenario.name} ({name})", crashed=len(lives) > 1, ended=ended)
    try:
        return run_of_rows(facts, told, rows)
    except ConfigError as error:
        raise InputError(str(error)) from None


def facts_of(
    scenario: Scenario, *, name: str, source: str, crashed: bool, ended: bool, setup: Mapping[str, str] | None = None
) -> Facts:
    job = scenario.job
    sampler = job.sampler
    in_order = sampler.name == "in_order"
    variance = 0.0 if scenario.laid_over else float(scenario.profile.get("batch_variance") or 0.0)
    return Facts(
        name=name,
        source=source,
        in_order=in_order,
        fixed_order=scenario.contract.fixed_order,
        may_drop=scenario.contract.may_drop,
        siblings=job.num_generations_per_prompt,
        train_steps=job.train_steps,
        max_staleness=sampler.max_lookahead_versions if in_order else sampler.max_staleness_versions,
        router_replay=job.router_replay.enabled,
        media=scenario.environment in WITH_MEDIA,
        relative_rewards=scenario.environment in RELATIVE,
        recovers=job.target_level if crashed else "",
        draws=draws_of(scenario),
        ended=ended,
        setup={**(setup or {}), **({"batch_variance": f"{variance:g}"} if variance else {})},
    )


def draws_of(scenario: Scenario) -> str:
    """What fixes the tokens of a call, as ``Facts.draws``: greedy where every call asks for temperature 0. Fakes draw by the
    version's number, those with batch variance too: a row that differs changes no row of later weights."""
    if scenario.drawn_by in (BY_VERSION, BY_CHANCE):
        return scenario.drawn_by
    rules: Sequence[Mapping[str, Any]] = scenario.profile.get("sampling") or ()
    everywhere = [rule for rule in rules if not {"ordinal", "generation", "turn"} & set(rule)]
    greedy = any(rule.get("temperature") == 0 for rule in everywhere) and Sampling().temperature > 0
    return "greedy" if greedy and all(rule.get("temperature", 0) == 0 for rule in rules) else "seeded"


def _saved(folder: Path) -> SavedRun:
    saved = read_folder(folder)
    if not isinstance(saved, SavedRun):
        raise InputError(f"{folder}: holds a sweep: a folder that run --out wrote was expected")
    return saved


def _run(folder: Path, saved: SavedRun, lives: Sequence[SavedLife], name: str) -> Run:
    told = [_life(folder, life) for life in lives]
    facts = facts_of(
        saved.scenario,
        name=name,
        source=str(folder),
        crashed=len(lives) > 1,
        ended=lives[-1].status.outcome == "ended",
        setup={
            **saved.versions,
            **saved.setup,
            "world": saved.world,
            "scenario": saved.scenario.name,
            "digest": saved.scenario_digest,
        },
    )
    try:
        return saved_run(facts, told, folder / "rows" / name)
    except ConfigError as error:
        raise InputError(str(error)) from None


def _life(folder: Path, life: SavedLife) -> LifeTold:
    history, _, end = life_files(life.name)
    packed = read_packed(folder, (history, end))
    return LifeTold(
        number=life.number,
        records=unpack_history(packed[history], str(folder / history)),
        files=unpack_files(packed[end], str(folder / end)),
        crashed_at="-".join(map(str, life.address)) if life.address else "",
    )
