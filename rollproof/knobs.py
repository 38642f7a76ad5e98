"""Names of a scenario that only the simulated world knows: the fakes' knobs and the participants of a Gym instance.

``scenarios`` does not know the worlds, so these are checked here, before anything runs.
"""

from __future__ import annotations

import math
from typing import Any, get_args

import msgspec

from scenarios.model import WORKPLACE, Scenario
from sim.environments import layout_of
from sim.environments.profile import OF_THE_WORKPLACE, EnvironmentProfile
from sim.fake_data_plane import DataPlaneProfile
from sim.fake_engine import EngineProfile
from sim.fake_trainer import TrainerProfile
from sim.media import MediaProfile
from sim.services import ServiceProfile

FLAT = (EngineProfile, EnvironmentProfile, ServiceProfile, MediaProfile)  # their knobs lie in [profile] itself


def knob_faults(scenario: Scenario) -> list[str]:
    """Unknown or ill-typed knobs of ``[profile]``, and participants that no Gym instance has."""
    kinds: dict[str, Any] = {field.name: field.type for profile in FLAT for field in msgspec.structs.fields(profile)}
    wrong = _wrong(scenario.profile, {**kinds, "trainer": TrainerProfile, "data_plane": DataPlaneProfile}, "profile")
    if not wrong:
        wrong += _crossed(scenario.profile)
        wrong += [
            f"profile.{name} is a knob of the environment {WORKPLACE}, and this is {scenario.environment}: leave it out"
            for name in OF_THE_WORKPLACE
            if name in scenario.profile and scenario.environment != WORKPLACE
        ]
    participants = layout_of(scenario.environment).participants
    for fault in scenario.faults:
        name = fault.arguments.get("drop_participant")
        if name is not None and name not in participants:
            wrong.append(f"config.drop_participant is {name!r}: a Gym instance has {', '.join(participants)}")
    return wrong


def _wrong(values: dict[str, Any], kinds: dict[str, Any], where: str) -> list[str]:
    wrong: list[str] = []
    for name, value in values.items():
        if name not in kinds:
            wrong.append(f"{where}.{name} is not a known key; known are {', '.join(sorted(kinds))}")
            continue
        kind = kinds[name]
        struct = next(
            (each for each in (kind, *get_args(kind)) if isinstance(each, type) and issubclass(each, msgspec.Struct)), None
        )
        found = []
        if struct is not None and isinstance(value, dict):
            inner = {field.name: field.type for field in msgspec.structs.fields(struct)}
            found = _wrong(value, inner, f"{where}.{name}")
        if found:
            wrong += found
            continue
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            wrong.append(f"{where}.{name} is {value!r}: {str(error)[0].lower()}{str(error)[1:]}")
            continue
        numbers = value if isinstance(value, list) else [value]
        if any(isinstance(number, int | float) and not 0 <= number < math.inf for number in numbers):
            wrong.append(f"{where}.{name} is {value!r}: it must be 0 or more")
        elif name.endswith("_s") and isinstance(value, list) and value[0] > value[1]:
            wrong.append(f"{where}.{name} is {value!r}: its first number must not be above its second")
    return wrong


def _crossed(profile: dict[str, Any]) -> list[str]:
    """``_min`` above ``_max``, with the defaults of what is not given."""
    known = {field.name: field.default for kind in FLAT for field in msgspec.structs.fields(kind)} | profile
    return [
        f"profile.{low} is {known[low]} and profile.{high} is {known[high]}: the first must not be above the second"
        for low, high in (
            ("tokens_min", "tokens_max"),
            ("tool_min_s", "tool_max_s"),
            ("service_min_s", "service_max_s"),
            ("media_min_s", "media_max_s"),
        )
        if known[low] > known[high]
    ]
