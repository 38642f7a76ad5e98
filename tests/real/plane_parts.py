"""As ``fake_parts``, with the data plane that the options name: booted before the life begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fake_parts

from protocol.identity import DATA_PLANE
from real.cluster.host import Equipment
from real.cluster.setting import LifeSetting
from real.data_plane.choose import boot, choose


async def equip(setting: LifeSetting, process: str, incarnation: int) -> Equipment:
    equipment = await fake_parts.equip(setting, process, incarnation)
    if process != DATA_PLANE:
        return equipment
    build = await boot(choose(setting.options["data_plane"]), incarnation)
    return replace(equipment, parts=replace(equipment.parts, data_plane=lambda rt: build(rt, Path(setting.root))))
