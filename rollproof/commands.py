"""The commands: each reads its options, calls the module that does the work, prints, and gives an exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from invariants.registry import JUDGES
from mutants.excluded import excluded_of
from protocol.judging import Verdict
from reports.junit import junit_xml
from rollproof import saving
from rollproof.asked import (
    NONE_GIVEN,
    ConfigOption,
    CopyOption,
    FaultsOption,
    JsonOption,
    LevelOption,
    RayOption,
    RealGiven,
    ScenarioArgument,
    StrictOption,
    TasksOption,
    WorldOption,
    asks_of_the_real_world,
)
from rollproof.bench import BENCHES, bench_table
from rollproof.calibrate import calibrate_command
from rollproof.compared import comparable
from rollproof.doctor import examine
from rollproof.finishing import EXIT, finish_run
from rollproof.judging import judge_saved
from rollproof.levels import levels_of, refuse_beside, show_levels, sweep_levels
from rollproof.loading import other_scenario, read_scenario
from rollproof.models_cli import models_app
from rollproof.mutating import chosen, run_selected, show_matrix, show_trial, try_file
from rollproof.options import (
    later,
    outcomes_of,
    partial_of,
    plan_fits,
    plan_of_option,
    plan_of_run,
    points_of,
    seeds_of,
    spare_inputs,
)
from rollproof.parity_cli import parity_app
from rollproof.plausible import read_saved
from rollproof.real_options import plan_is_real, real_options, with_copies
from rollproof.running import evidence_of, names_of
from rollproof.saving import SavedRun, SavedSweep
from rollproof.scenarios_cli import scenarios_app
from rollproof.showing import (
    emit,
    guarantees,
    page_of,
    progress_bar,
    run_report,
    show_run,
    show_sweep,
    warn,
)
from rollproof.sweeping import FinishedSweep, judge_sweep, sweep_seeds
from rollproof.tokens import DEFAULT_SCHEDULE, code_digest, read_token
from scenarios.model import InputError

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Proves that asynchronous RL rollouts survive crashes: every crash point of a run is enumerated, restored and judged.",
)
app.add_typer(scenarios_app, name="scenarios")
app.add_typer(models_app, name="models")
app.add_typer(parity_app, name="parity")

LevelsOption = Annotated[
    str | None, typer.Option("--levels", metavar="A,B|all", help="Sweep several levels and compare what each one loses.")
]
OutOption = Annotated[
    str | None,
    typer.Option(
        "--out", help="A new folder for everything that can be judged again; an earlier one of rollproof's is replaced."
    ),
]
JunitOption = Annotated[str | None, typer.Option("--junit", help="A JUnit file, one case a judge.")]


@app.command("sweep")
def sweep_command(
    scenario: ScenarioArgument,
    level: LevelOption = None,
    levels: LevelsOption = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Default 0.")] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", metavar="A:B", help="Seeds A to B, B not included.")] = None,
    points: Annotated[
        str, typer.Option("--points", metavar="all|N", help="Judge all crash points, or N spread over them.")
    ] = "all",
    tasks: TasksOption = None,
    config: ConfigOption = None,
    config_strict: StrictOption = False,
    faults: FaultsOption = None,
    disk: Annotated[str | None, typer.Option("--disk", help="none, all, or both when left out.")] = None,
    partial: Annotated[
        str | None,
        typer.Option(
            "--partial", metavar="PROCESS,..|all", help="Also let these processes fail alone, at each address of theirs."
        ),
    ] = None,
    partial_do: Annotated[
        str | None,
        typer.Option("--partial-do", metavar="VERB[:SECONDS]", help="restart (when left out), kill or stall."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="At level prefix: show what levels turn and sibling lose beside it.")
    ] = True,
    world: WorldOption = "sim",
    out: OutOption = None,
    json: JsonOption = False,
    junit: JunitOption = None,
    second_crashes: Annotated[str | None, typer.Option("--second-crashes", hidden=True)] = None,
    schedules: Annotated[str | None, typer.Option("--schedules", hidden=True)] = None,
    workers: Annotated[str | None, typer.Option("--workers", hidden=True)] = None,
    ray: RayOption = None,
    budget: Annotated[str | None, typer.Option("--budget", hidden=True)] = None,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", hidden=True)] = False,
    shard: Annotated[str | None, typer.Option("--shard", hidden=True)] = None,
) -> None:
    """Crash a scenario at every step it can take, restore, and judge."""
    later("--second-crashes", second_crashes)
    later("--schedules", schedules)
    later("--workers", workers)
    later("--ray", ray)
    later("--budget", budget)
    later("--fail-fast", fail_fast)
    later("--shard", shard)
    _only_simulated(world)
    wanted = seeds_of(seed, seeds)
    count, outcomes = points_of(points), outcomes_of(disk)
    spare_inputs(junit, scenario, tasks, config, faults)
    several = levels_of(level, levels)
    if several:
        refuse_beside(out, junit)
        if partial is not None:
            raise InputError("--partial is given with several levels: give one --level")
        each = [read_scenario(scenario, name, tasks, config, config_strict, faults) for name in several]
        warn(each[0][0])
        with progress_bar() as progress:
            swept = sweep_levels(each, wanted, points=count, outcomes=outcomes, progress=progress)
        show_levels(swept, json)
        raise typer.Exit(EXIT[swept.report["verdict"]])
    loaded, command = read_scenario(scenario, level, tasks, config, config_strict, faults)
    others = comparable(loaded.scenario.job.target_level) if compare else ()
    coarser = [read_scenario(scenario, name, tasks, config, config_strict, faults)[0].scenario for name in others]
    wish = partial_of(partial, partial_do, loaded.scenario.job)
    with saving.out_folder(out) as folder, saving.out_file(junit, "--junit") as junit_file:
        warn(loaded)
        with progress_bar() as progress:
            finished = sweep_seeds(
                loaded, command, wanted, points=count, outcomes=outcomes, partial=wish, progress=progress, folder=folder,
                coarser=coarser,
            )  # fmt: skip
        if junit_file is not None:
            junit_file.write_bytes(junit_xml(finished.report, finished.evidence, guarantees()))
        if folder is not None:
            found = saving.read_folder(folder)
            assert isinstance(found, SavedSweep)  # it was just written
            (folder / saving.REPORT_FILE).write_text(page_of(found), encoding="utf-8")
    show_sweep(finished, json)
    raise typer.Exit(EXIT[finished.report["verdict"]])


@app.command("run")
@asks_of_the_real_world
def run_command(
    scenario: ScenarioArgument,
    level: LevelOption = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Default 0, or the token's.")] = None,
    crash: Annotated[
        str | None,
        typer.Option(
            "--crash", metavar="TOKEN|PLAN|none", help="A crash token, or its plan alone; none: not even the scenario's own plan."
        ),
    ] = None,
    fail: Annotated[
        list[str] | None,
        typer.Option("--fail", metavar="VERB:PROCESS[:SECONDS]@EVENT-N", help="One process fails alone there in life 1."),
    ] = None,
    tasks: TasksOption = None,
    config: ConfigOption = None,
    config_strict: StrictOption = False,
    faults: FaultsOption = None,
    world: WorldOption = "sim",
    given: RealGiven = NONE_GIVEN,
    copy: CopyOption = None,
    out: OutOption = None,
    json: JsonOption = False,
    junit: JunitOption = None,
) -> None:
    """One run, with the crashes of a plan or none."""
    real = real_options(world, **given, copy=copy or None)
    if seed is not None:
        seeds_of(seed, None)
    spare_inputs(junit, scenario, tasks, config, faults)
    plan, token = plan_of_option(crash, seed, level)
    if token is not None:
        seed, level = token.seed, token.level
    loaded, command = read_scenario(scenario, level, tasks, config, config_strict, faults)
    if token is not None and token.scenario_digest != loaded.scenario.digest:
        raise InputError(other_scenario(token.scenario_digest, loaded))
    plan = plan_of_run(plan, crash, fail or (), loaded)
    command = msgspec.structs.replace(command, fail=tuple(fail or ()))
    if real is not None:
        if fail:
            raise InputError("--fail is given with --world real: write it as a fault of the scenario")
        plan_is_real(plan)
        real = with_copies(real, copy or (), loaded, out)
    schedule = token.schedule if token else DEFAULT_SCHEDULE
    finish_run(loaded, command, seed or 0, plan, out, json, junit, schedule=schedule, extra={}, real=real)


@app.command("replay")
def replay_command(
    token: Annotated[str, typer.Argument(help="A crash token, or a file that holds one.", metavar="TOKEN|FILE")],
    scenario: Annotated[
        str | None, typer.Option("--scenario", help="The scenario's file, if the library does not have it.")
    ] = None,
    tasks: TasksOption = None,
    config: ConfigOption = None,
    config_strict: StrictOption = False,
    faults: FaultsOption = None,
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """The same run again, bit for bit, with its timeline."""
    parsed = read_token(token)
    loaded, command = read_scenario(scenario or parsed.scenario, parsed.level, tasks, config, config_strict, faults)
    if parsed.scenario_digest != loaded.scenario.digest:
        raise InputError(other_scenario(parsed.scenario_digest, loaded))
    plan_fits(parsed.plan, loaded)
    stderr = Console(stderr=True)
    for line in parsed.words():
        stderr.print(line, highlight=False, markup=False, soft_wrap=True)
    if not parsed.version_matches:
        stderr.print(f"warning: the token was made by code {parsed.code_digest}, this is {code_digest()}: the run may differ",
                     style="yellow", highlight=False, soft_wrap=True)  # fmt: skip
    extra: dict[str, Any] = {"version_matches": parsed.version_matches}
    finish_run(loaded, command, parsed.seed, parsed.plan, out, json, None, schedule=parsed.schedule, extra=extra, timeline=True)


@app.command("judge")
def judge_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that run --out or sweep --out wrote.")],
    json: JsonOption = False,
    junit: JunitOption = None,
) -> None:
    """Judge a saved history again."""
    saved = read_saved(folder)
    if isinstance(saved, SavedRun):
        packed = saving.read_packed(folder, names_of(saved))
        judged = judge_saved(saved, packed, JUDGES, folder)
        evidence = evidence_of(saved, judged)
        report = run_report(saved, judged, evidence) | {"classes_run": 0}
        show_run(report, evidence, json, junit)
        raise typer.Exit(EXIT[report["verdict"]])
    if saved.code_digest != code_digest():
        Console(stderr=True).print(f"warning: the sweep was made by code {saved.code_digest}, this is {code_digest()}: "
                                   "its histories may differ", style="yellow", highlight=False, soft_wrap=True)  # fmt: skip
    with progress_bar() as progress:
        again = judge_sweep(folder, saved, progress)
    report = again.report | {"classes_run": again.classes_run}
    report["messages"] = [*report["messages"], f"{again.classes_run} classes were run again"] if not json else report["messages"]
    if again.differing:
        report["messages"] = [
            *report["messages"],
            f"{len(again.differing)} histories are not the saved ones, first {again.differing[0]}",
        ]
        report["verdict"] = Verdict.UNKNOWN.value if report["verdict"] == Verdict.HELD.value else report["verdict"]
    with saving.out_file(junit, "--junit") as junit_file:
        if junit_file is not None:
            junit_file.write_bytes(junit_xml(report, again.evidence, guarantees()))
    show_sweep(FinishedSweep(report=report, results=[], evidence=again.evidence), json)
    raise typer.Exit(EXIT[report["verdict"]])


@app.command("report")
def report_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that sweep --out wrote.")],
    json: JsonOption = False,
) -> None:
    """Write the page of a saved sweep."""
    saved = read_saved(folder)
    if not isinstance(saved, SavedSweep):
        raise InputError(f"{folder}: holds a run: a page is made of a sweep, one that sweep --out wrote")
    page = folder / saving.REPORT_FILE
    with saving.out_file(str(page), "report") as file:
        assert file is not None  # a path was given
        file.write_text(page_of(saved), encoding="utf-8")
    emit({"report": str(page), "verdict": saved.result["verdict"]} if json else str(page))


@app.command("doctor")
def doctor_command(json: JsonOption = False) -> None:
    """Where the packages were found, versions, memory, disk and ports."""
    found = examine()
    if json:
        emit(found)
    else:
        for name, value in found.items():
            lines = [f"{key} {inner}" for key, inner in value.items()] if isinstance(value, dict) else value
            for line in lines if isinstance(lines, list) else [lines]:
                emit(f"{name:14s} {line}")
    raise typer.Exit(0 if found["ok"] else 2)


@app.command("mutants")
def mutants_command(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME ...]", help="Names or numbers of registered bugs; all when left out.")
    ] = None,
    area: Annotated[str | None, typer.Option("--area", metavar="A", help="A section of the catalogue: one letter.")] = None,
    patch: Annotated[
        str | None,
        typer.Option("--patch", metavar="FILE", help="A unified diff, or a TOML edit file (scope, find, put; or [[edits]])."),
    ] = None,
    points: Annotated[str, typer.Option("--points", metavar="N|all", help="Crash points of each sweep.")] = "150",
    json: JsonOption = False,
) -> None:
    """Put known bugs back, one at a time, and print which judge catches each.

    A bug is put back in a copy of the tree, and its scenario is swept in a fresh process. Exit 0 if every one that was asked
    for is caught, else 1.

    With --patch a change of your own is applied to a copy of the tree instead, and the whole scenario library is swept with
    it: exit 1 if a judge says BROKEN (it is caught), 0 if every scenario is HELD, 3 if neither, 2 if the change does not
    apply. What a diff changes outside of the packages is left out.
    """
    points_of(points)
    if patch is not None and (names or area):
        raise InputError("--patch is given with a name or --area: it is a bug of your own, leave them out")
    tell = Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print
    if patch is not None:
        trial = try_file(patch, points, tell)
        show_trial(trial, patch, json)
        raise typer.Exit(EXIT[trial.verdict])
    matrix = run_selected(chosen(names or [], area), excluded_of(names or [], area), points, tell)
    show_matrix(matrix, json)
    raise typer.Exit(0 if all(row.caught for row in matrix.rows) else 1)


@app.command("bench")
def bench_command(
    name: Annotated[
        str,
        typer.Argument(
            help="ledger: a drain check against a full scan. prefix-io: what cuts and restores ask of the data plane. "
            "routes: route reads of a cut, call by call and grouped; real-routes: on this host's vLLM. parity-rows: large runs.",
            metavar="NAME",
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Measure something that no judge judges."""
    if name not in BENCHES:
        raise InputError(f"unknown measurement {name!r}: there are {', '.join(BENCHES)}")
    report = BENCHES[name]()
    emit(report if json else bench_table(report))


app.command("calibrate")(calibrate_command)


def _later_command(name: str) -> None:
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}

    @app.command(name, hidden=True, context_settings=settings, add_help_option=False)
    def refuse() -> None:
        raise InputError(f"the command {name!r} comes with a later step of this project")


_later_command("shrink")


# --- what the commands share -------------------------------------------------------------------------------------------


def _only_simulated(world: str) -> None:
    if world == "real":
        raise InputError("--world real: points are enumerated in the simulator; run --world real --crash PLAN does one for real")
    if world != "sim":
        raise InputError(f"--world is {world!r}: it must be sim")
