"""Names of a scenario that only the simulated world knows: the fakes' knobs and the participants of a Gym instance.

``scenarios`` does not know the worlds, so these are checked here, before anything runs.
"""

from __future__ import annotations

from typing import Any

import msgspec

from scenarios.model import Scenario
from sim.fake_data_plane import DataPlaneProfile
from sim.fake_engine import EngineProfile
from sim.fake_gym import WorkplaceProfile
from sim.fake_trainer import TrainerProfile
from sim.world import PARTICIPANTS

FLAT = (EngineProfile, WorkplaceProfile)  # their knobs lie in [profile] itself


def knob_faults(scenario: Scenario) -> list[str]:
    """Unknown or ill-typed knobs of ``[profile]``, and participants that no Gym instance has."""
    kinds: dict[str, Any] = {field.name: field.type for profile in FLAT for field in msgspec.structs.fields(profile)}
    wrong = _wrong(scenario.profile, {**kinds, "trainer": TrainerProfile, "data_plane": DataPlaneProfile}, "profile")
    for fault in scenario.faults:
        name = fault.arguments.get("drop_participant")
        if name is not None and name not in PARTICIPANTS:
            wrong.append(f"config.drop_participant is {name!r}: a Gym instance has {', '.join(PARTICIPANTS)}")
    return wrong


def _wrong(values: dict[str, Any], kinds: dict[str, Any], where: str) -> list[str]:
    wrong: list[str] = []
    for name, value in values.items():
        if name not in kinds:
            wrong.append(f"{where}.{name} is not a known key; known are {', '.join(sorted(kinds))}")
            continue
        try:
            msgspec.convert(value, kinds[name])
        except msgspec.ValidationError as error:
            wrong.append(f"{where}.{name} is {value!r}: {str(error)[0].lower()}{str(error)[1:]}")
    return wrong
