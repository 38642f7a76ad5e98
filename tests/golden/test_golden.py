"""Golden lives: one short history per level, one event a line, reviewed as a diff.

After a change that is meant to move them: ``python tests/golden/test_golden.py`` writes them anew; read the diff.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from scenarios.files import load
from sim.disk import Disk
from sim.world import World

HERE = Path(__file__).parent
SCENARIOS = ("tiny-sibling", "tiny-turn")


def lines(name: str) -> list[str]:
    """Life 1, then the life that starts from its files after the step was trained, under the schedule ``fifo``."""
    scenario = load(str(HERE / f"{name}.toml")).scenario
    disk, out = Disk(), []
    for life in (1, 2):
        world = World(scenario, 0, life, disk, schedule="fifo")
        status = world.live()
        for record in world.history:
            fields = " ".join(f"{key}={_text(value)}" for key, value in msgspec.structs.asdict(record.event).items())
            out.append(f"{life} {record.time:.6f} {record.process}/{record.task} {type(record.event).__name__} {fields}".rstrip())
        out.append(f"{life} -- {status.outcome} {status.error}".rstrip())
        world.bury()
        disk = Disk.of(disk.surviving("all"))
    return out


def _text(value: object) -> str:
    """Digests are cut to eight characters, so that a line stays short and still tells two of them apart."""
    if isinstance(value, str) and len(value) in (32, 64) and all(character in "0123456789abcdef" for character in value):
        return value[:8]
    if isinstance(value, tuple):
        return "(" + ",".join(_text(one) for one in value) + ")"
    if isinstance(value, msgspec.Struct):
        return "{" + ",".join(_text(one) for one in msgspec.structs.astuple(value)) + "}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_history_is_the_reviewed_one(name: str) -> None:
    assert lines(name) == (HERE / f"{name}.log").read_text().splitlines()


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_same_lives_twice_give_the_same_lines(name: str) -> None:
    assert lines(name) == lines(name)


if __name__ == "__main__":
    for one in SCENARIOS:
        (HERE / f"{one}.log").write_text("\n".join(lines(one)) + "\n")
