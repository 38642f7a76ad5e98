"""Live rollouts are counted where they are kept: once a section, whoever looks at them and for whatever reason."""

from __future__ import annotations

from typing import Any

import pytest
from ledger_samples import RecordingRuntime
from small_world import SmallScenario

from protocol.config import Job
from protocol.history import SectionVisited
from protocol.identity import CONTROLLER
from protocol.runtime import Runtime
from protocol.visits import ROLLOUTS_A_SECTION, LiveRecords, Visits
from sim.disk import Disk
from sim.world import World


class Sections(RecordingRuntime):
    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def section(self) -> int:
        return self.number


def kept(count: int, each: int = 8) -> tuple[LiveRecords[int], Sections]:
    """``count`` groups of ``each`` rollouts, put there one a section."""
    rt = Sections()
    runtime: Any = rt
    records: LiveRecords[int] = LiveRecords(Visits(runtime), lambda rollouts: rollouts)
    for index in range(count):
        rt.number += 1
        records[f"g{index}"] = each
    rt.number += 1
    return records, rt


WALKS = {
    "values": lambda records: list(records.values()),
    "items": lambda records: list(records.items()),
    "one by one": lambda records: [records[name] for name in records],
    "get": lambda records: [records.get(name) for name in records],
    "written": lambda records: records.update({}) or [records.__setitem__(name, 8) for name in list(records)],
}


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_a_section_that_looks_at_more_than_it_may_says_so(walk: Any) -> None:
    records, rt = kept(33)
    walk(records)
    assert rt.events == [SectionVisited(33 * 8)]


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_what_fits_one_section_says_nothing(walk: Any) -> None:
    records, rt = kept(32)
    for _ in range(2):  # the same ones again are the same visit
        walk(records)
    assert rt.events == []


def test_two_sections_are_counted_apart() -> None:
    records, rt = kept(40)
    names = list(records)
    for part in (names[:20], names[20:]):
        rt.number += 1
        for name in part:
            records[name]
    assert rt.events == []


def test_a_longer_walk_is_told_again_at_each_doubling() -> None:
    records, rt = kept(200)
    list(records.values())
    assert rt.events == [SectionVisited(264), SectionVisited(536), SectionVisited(1080)]


def test_one_big_group_is_not_too_much() -> None:
    records, rt = kept(1, each=2 * ROLLOUTS_A_SECTION)
    list(records.values())
    assert rt.events == []


def test_names_alone_are_no_visit_and_an_unknown_one_is_none() -> None:
    records, rt = kept(100)
    assert (len(list(records)), len(records.values()), records.get("nobody")) == (100, 100, None)
    assert rt.events == []


def test_a_section_of_the_simulator_lasts_from_one_await_to_the_next() -> None:
    found: list[int] = []

    async def controller(rt: Runtime) -> None:
        for _ in range(2):
            found.extend((rt.section(), rt.section()))
            await rt.sleep(0)

    world = World(SmallScenario(job=Job()), 0, 1, Disk(), processes={CONTROLLER: controller})
    world.live()
    world.bury()
    assert found[0] == found[1] != found[2] == found[3]
