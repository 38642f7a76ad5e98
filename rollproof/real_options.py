"""What a run in the real world is asked for, and what only the simulator can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rollproof.options import plan_fits
from rollproof.tokens import address_text, parse_plan, shown
from scenarios.files import Loaded
from scenarios.model import InputError
from sim.explore.points import Plan, PlanItem

KEPT = "all"  # SIGKILL takes no page cache with it: everything written is kept
DTYPES = ("float32", "bfloat16")
OWN_PARTS = "real.parts:equip"


class RealOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``parts`` equips the processes; ``options`` are for it. ``reference``: folder of a saved real run of the same scenario and
    seed, whose reference is used again. ``copies``: crash points that are copied while the reference runs."""

    parts: str = OWN_PARTS
    options: dict[str, Any] = {}
    ray: str = ""
    reference: str | None = None
    copies: Plan = ()


def plan_is_real(plan: Plan) -> None:
    """Refuse what only the simulator can do: a crash between two events, and a disk that forgets."""
    for number, item in enumerate(plan, start=1):
        near = f"{item.process}-{item.kind}-{item.n}-{KEPT}"
        if item.k:
            raise InputError(
                f"crash plan item {number}: {item.k} steps after its event only the simulator can stop: the nearest is {near}"
            )
        if item.outcome != KEPT:
            raise InputError(
                f"crash plan item {number}: has disk outcome {shown(item.outcome)}: SIGKILL loses no page cache, it is {near}"
            )


def real_options(world: str, **given: Any) -> RealOptions | None:
    """The options of the real world, None in the simulator. Raises InputError if they do not belong to ``world``."""
    if world == "sim":
        wrong = [name for name, value in given.items() if value is not None]
        if wrong:
            raise InputError(f"--{wrong[0].replace('_', '-')} is given without --world real: leave it out, or run the real world")
        return None
    if world != "real":
        raise InputError(f"--world is {shown(world)}: it must be sim or real")
    if given["dtype"] not in (None, *DTYPES):
        raise InputError(f"--dtype is {shown(given['dtype'])}: it must be {' or '.join(DTYPES)}")
    if given["tensor_parallel"] is not None and given["tensor_parallel"] < 1:
        raise InputError(f"--tensor-parallel is {given['tensor_parallel']}: it must be at least 1")
    names = ("model", "data_plane", "dtype", "tensor_parallel", "gym", "gym_python")
    options = {name: given[name] for name in names if given[name] is not None}
    if options.get("gym", "nemo-gym") != "nemo-gym" or ("gym" in options) is not ("gym_python" in options):
        raise InputError("--gym nemo-gym and --gym-python PATH go together, and there is no other Gym: PATH is its interpreter")
    real = RealOptions(options=options, ray=given["ray"] or "", reference=given["reference"])
    return real if given["parts"] is None else msgspec.structs.replace(real, parts=given["parts"])


def with_copies(real: RealOptions, given: Sequence[str], loaded: Loaded, out: str | None) -> RealOptions:
    """``--copy ADDRESS``, as often as it was given. Raises InputError if an address means nothing, or no copy could be made or
    kept."""
    if not given:
        return real
    if out is None:
        raise InputError("--copy is given without --out: name the folder that the copies are kept in")
    if real.reference is not None:
        raise InputError("--copy and --reference are both given: copies are made while the reference runs, leave one of them out")
    if loaded.scenario.contract.effects:
        raise InputError(
            f"--copy: scenario {loaded.scenario.name} has services outside of the job, which go on while the job stands still: "
            "no copy is what a kill leaves, leave --copy out"
        )
    copies: list[PlanItem] = []
    for text in given:
        try:
            plan = parse_plan(text)
            plan_fits(plan, loaded)
            plan_is_real(plan)
        except InputError as error:
            raise InputError(f"--copy {shown(text)}: {error}") from None
        if len(plan) != 1:
            raise InputError(f"--copy {shown(text)}: names {len(plan)} crashes: give --copy once for each point of life 1")
        if plan[0].process == "job":
            raise InputError(f"--copy {shown(text)}: the real world has triggers in processes of the job only: name one of them")
        if plan[0] in copies:
            raise InputError(f"--copy {address_text(plan[0].address)} is given twice: leave one out")
        copies += plan
    return msgspec.structs.replace(real, copies=tuple(copies))
