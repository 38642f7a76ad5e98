"""``rollproof parity``: a restored run against an uninterrupted one. What is heavy is imported when a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rollproof import saving
from rollproof.asked import (
    NONE_GIVEN,
    ConfigOption,
    FaultsOption,
    JsonOption,
    LevelOption,
    RealGiven,
    StrictOption,
    TasksOption,
    WorldOption,
    asks_of_the_real_world,
)
from rollproof.loading import other_scenario, read_scenario
from rollproof.options import NO_CRASH, outcomes_of, plan_of_option, plan_of_run, points_of, seeds_of, spare_inputs
from rollproof.real_options import plan_is_real, real_options
from rollproof.showing import progress_bar
from rollproof.tokens import DEFAULT_SCHEDULE, shown
from scenarios.model import InputError

EXIT = {"HELD": 0, "BROKEN": 1, "UNKNOWN": 3}
SIMULATED, REAL = "exact", "fp32"  # profiles when none is named: fakes give the same every time

parity_app = typer.Typer(no_args_is_help=True, help="Compare what a restored run trained on with an uninterrupted run.")

PROFILES = "exact, fp32, bf16, gpu-qwen3-1.7b, or a TOML file of your own"
ProfileOption = Annotated[
    str | None, typer.Option("--profile", metavar="NAME|FILE", help=f"{PROFILES}; left out: exact for sim, fp32 for real.")
]
ProfileOfTwoOption = Annotated[
    str, typer.Option("--profile", metavar="NAME|FILE", help=f"{PROFILES}: how far the two runs may be apart.")
]
OutOption = Annotated[
    str | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="A new folder: evidence, report, figures, page; parity judge reads it. An earlier one is replaced.",
    ),
]
JunitOption = Annotated[str | None, typer.Option("--junit", metavar="FILE", help="A JUnit file, one case a gate.")]
EarlierOption = Annotated[
    list[str] | None,
    typer.Option("--earlier", metavar="DIR", help="What --out wrote earlier, oldest first: the page shows how values moved."),
]


@parity_app.command("compare")
def compare_command(
    reference: Annotated[str, typer.Argument(metavar="A", help="The uninterrupted run: a saved run, rows, or a dump.")],
    restored: Annotated[str, typer.Argument(metavar="B", help="The restored run.")],
    profile: ProfileOfTwoOption = REAL,
    mapping: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="FILE|NAME",
            help="Rows of another trainer: which of their columns is which of ours. A TOML file, or nemo-rl.",
        ),
    ] = None,
    no_restore: Annotated[
        bool, typer.Option("--no-restore", help="B was not restored either: compare two uninterrupted runs.")
    ] = False,
    out: OutOption = None,
    json: JsonOption = False,
    junit: JunitOption = None,
    earlier: EarlierOption = None,
) -> None:
    """Compare two runs that are there: what rollproof saved, or rows of others."""
    spare_inputs(junit, reference, restored, mapping)
    for name, value in (("A", reference), ("B", restored)):
        if not value or not Path(value).exists():
            raise InputError(f"{name} is {shown(value)}: there is no such file or folder")
    from rollproof.parity_finishing import earlier_reports, finish, measured, read_profile

    numbers, before = read_profile(profile), earlier_reports(earlier or ())
    from rollproof.parity_inputs import read_pair
    from rollproof.parity_saving import About

    with saving.out_folder(out) as folder:
        runs = read_pair(Path(reference), Path(restored), mapping)
        names = dict.fromkeys(run.facts.setup.get("scenario") or "two runs" for run in runs)
        options = "".join((f" --map {mapping}" if mapping else "", f" --profile {profile}", " --no-restore" * no_restore))
        about = About(
            scenario=" and ".join(names),
            command=f"rollproof parity compare {reference} {restored}{options}",
            expects_restore=not no_restore,
        )
        packed = measured(runs[0], runs[1], numbers, about)
        if folder is not None and isinstance(packed, dict):
            saving.write_packed(folder, packed)
    raise typer.Exit(EXIT[finish(packed, None if out is None else Path(out), json, junit, before)])


@parity_app.command("run")
@asks_of_the_real_world
def run_command(
    scenario: Annotated[str, typer.Argument(help="A name of the library, or a TOML file.", metavar="SCENARIO")],
    world: WorldOption = "sim",
    profile: ProfileOption = None,
    level: LevelOption = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Default 0, or the token's.")] = None,
    crash: Annotated[
        str | None,
        typer.Option("--crash", metavar="TOKEN|PLAN", help="A crash token, or its plan; the scenario's own if left out."),
    ] = None,
    points: Annotated[
        str | None,
        typer.Option("--points", metavar="all|N", help="Compare at all crash points of a sweep, or N spread over them."),
    ] = None,
    disk: Annotated[str | None, typer.Option("--disk", help="With --points: none, all, or both when left out.")] = None,
    tasks: TasksOption = None,
    config: ConfigOption = None,
    config_strict: StrictOption = False,
    faults: FaultsOption = None,
    given: RealGiven = NONE_GIVEN,
    out: OutOption = None,
    json: JsonOption = False,
    junit: JunitOption = None,
    earlier: EarlierOption = None,
) -> None:
    """Run the reference, the crash and the restore, and compare; with --points at every crash point of a simulated run."""
    real = real_options(world, **given)
    if seed is not None:
        seeds_of(seed, None)
    spare_inputs(junit, scenario, tasks, config, faults)
    if points is None and disk is not None:
        raise InputError("--disk is given without --points: a plan names its own disk outcome, leave it out")
    if points is not None and (crash is not None or real is not None):
        other = "--crash" if crash is not None else "--world real"
        raise InputError(f"--points and {other} are both given: all points of a simulated run are compared, or one, use one")
    if crash == NO_CRASH:
        raise InputError("--crash is none: without a crash there is no restored run to compare: name a plan")
    if points is not None:
        alone("--earlier", earlier, "--points too")
    count, outcomes = points_of(points or "all"), outcomes_of(disk)
    plan, token = plan_of_option(crash, seed, level)
    if token is not None:
        seed, level = token.seed, token.level
    loaded, command = read_scenario(scenario, level, tasks, config, config_strict, faults)
    if token is not None and token.scenario_digest != loaded.scenario.digest:
        raise InputError(other_scenario(token.scenario_digest, loaded))
    named = profile or (SIMULATED if real is None else REAL)
    from rollproof.parity_finishing import earlier_reports, read_profile

    numbers, before = read_profile(named), earlier_reports(earlier or ())
    if points is not None:
        from rollproof.parity_sweeping import sweep_and_compare

        with progress_bar() as progress:
            verdict = sweep_and_compare(
                loaded, command, seed or 0, numbers, named=named, points=count, outcomes=outcomes,
                progress=progress(seed or 0), out=out, json=json, junit=junit,
            )  # fmt: skip
        raise typer.Exit(EXIT[verdict])
    plan = plan_of_run(plan, crash, (), loaded)
    if not plan:
        raise InputError(f"{scenario}: names no crash of its own: give --crash PLAN, or --points all for every one")
    if real is not None:
        plan_is_real(plan)
    from rollproof.parity_running import run_and_compare

    schedule = token.schedule if token else DEFAULT_SCHEDULE
    verdict = run_and_compare(
        loaded, command, seed or 0, plan, numbers, named=named, schedule=schedule, real=real, out=out, json=json, junit=junit,
        earlier=before,
    )  # fmt: skip
    raise typer.Exit(EXIT[verdict])


@parity_app.command("judge")
def judge_command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="What --out of parity compare or parity run wrote, with --points too.")
    ],
    json: JsonOption = False,
    junit: JunitOption = None,
    earlier: EarlierOption = None,
) -> None:
    """Judge a saved comparison again, or those of many points: reports, figures and pages are written anew."""
    from rollproof.parity_saving import Kind, kind_of, read_comparison

    if kind_of(folder) is Kind.POINTS:
        from rollproof.parity_points import finish_points

        alone("--earlier", earlier, f"{folder} is of many points")
        raise typer.Exit(EXIT[finish_points(folder, json, junit)])
    from rollproof.parity_finishing import earlier_reports, finish

    before = earlier_reports(earlier or ())
    raise typer.Exit(EXIT[finish(read_comparison(folder), folder, json, junit, before)])


def alone(option: str, value: object, why: str) -> None:
    """Refuse an option that only one comparison takes."""
    if value:
        raise InputError(f"{option} is given and {why}: it is for one comparison, leave it out")
