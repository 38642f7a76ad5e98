"""A scenario as the command line is asked for it: with what only the command line can check, and what was typed."""

from __future__ import annotations

from invariants.registry import JUDGES
from rollproof.command import Command
from rollproof.knobs import knob_faults
from rollproof.options import own_plan
from scenarios.files import Loaded, load
from scenarios.model import InputError


def read_scenario(
    scenario: str, level: str | None, tasks: str | None, config: str | None, strict: bool, faults: str | None
) -> tuple[Loaded, Command]:
    """The scenario after all overlays, and what was typed. Raises one InputError."""
    for option, value in (("--tasks", tasks), ("--config", config), ("--faults", faults)):
        if value == "":
            raise InputError(f"{option} is empty: name a file, or leave it out")
    if strict and config is None:
        raise InputError("--config-strict is given without --config: name the config file, or leave it out")
    loaded = load(scenario, level=level, tasks=tasks, config=config, config_strict=strict, faults=faults)
    known = {judge.invariant for judge in JUDGES}
    unknown = [name for name in loaded.scenario.expect.judges or () if name not in known]
    if unknown:
        raise InputError(f"{scenario}: expect.judges names {', '.join(unknown)}: there are {', '.join(sorted(known))}")
    wrong = knob_faults(loaded.scenario)
    if wrong:
        raise InputError.of(scenario, wrong)
    command = Command(
        scenario=scenario, level=level, tasks=tasks, config=config, config_strict=strict, faults=faults,
        planned=bool(own_plan(loaded)),
    )  # fmt: skip
    return loaded, command


def other_scenario(digest: str, loaded: Loaded) -> str:
    """Why a token that was made for another scenario is refused."""
    return (
        f"the token was made for scenario digest {digest}, and {loaded.scenario.name} with these options has "
        f"{loaded.scenario.digest}: give the same --tasks, --config and --faults, or the code that made it"
    )
