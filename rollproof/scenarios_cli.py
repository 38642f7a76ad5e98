"""``rollproof scenarios``: what the library holds, and whether a file is right."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from rollproof.asked import JsonOption, ScenarioArgument
from rollproof.loading import read_scenario
from rollproof.showing import emit
from scenarios.files import find, library, load

scenarios_app = typer.Typer(no_args_is_help=True, help="The scenarios that come with rollproof, and checks of your own.")


@scenarios_app.command("list")
def scenarios_list(json: JsonOption = False) -> None:
    """Name, tags and source of each scenario of the library."""
    loaded = [load(name).scenario for name in library()]
    if json:
        rows = [{"name": each.name, "tags": list(each.tags), "source": each.source} for each in loaded]
        emit({"scenarios": rows})
        return
    columns = [(each.name, ", ".join(each.tags), each.source) for each in loaded]
    names, tags = (max(len(row[column]) for row in columns) for column in (0, 1))
    for name, tagged, source in columns:
        emit(f"{name:{names}s}  {tagged:{tags}s}  {source}")


@scenarios_app.command("show")
def scenarios_show(name: ScenarioArgument, json: JsonOption = False) -> None:
    """The scenario's file; with --json the whole scenario as it is run."""
    loaded = load(name)
    if json:
        emit({**msgspec.to_builtins(loaded.scenario), "digest": loaded.scenario.digest})
        return
    emit(find(name).read_text(encoding="utf-8").rstrip())


@scenarios_app.command("check")
def scenarios_check(file: Annotated[str, typer.Argument(metavar="FILE")], json: JsonOption = False) -> None:
    """Whether a scenario file is right; every fault is named at once."""
    loaded, _ = read_scenario(file, None, None, None, False, None)
    scenario = loaded.scenario
    if json:
        emit({"ok": True, "name": scenario.name, "digest": scenario.digest})
        return
    load_text = f"level {scenario.job.target_level}, {len(scenario.tasks)} tasks, {len(scenario.faults)} faults"
    emit(f"{file}: ok: {scenario.name}, {load_text}")
