"""The list of crash points is closed (RULES 1): every step of a life is one point, with one address that names it alone."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from invariants.registry import JUDGES
from protocol.history import LifeStarted
from scenarios.files import load
from scenarios.model import Scenario
from sim.explore.classes import key_of
from sim.explore.explorer import Explorer
from sim.explore.lives import Setting, run_life, run_plan
from sim.explore.points import Address, PlanItem


def tiny(level: str) -> Scenario:
    """Two groups of two siblings on one Gym instance, one train step."""
    scenario = load("workplace").scenario
    sizes = {"num_prompts_per_step": 2, "num_generations_per_prompt": 2, "gym_instances": 1, "generation_workers": 1}
    job = msgspec.structs.replace(scenario.job, train_steps=1, target_level=level, **sizes)
    return msgspec.structs.replace(scenario, job=job)


@pytest.fixture(scope="module", params=["sibling", "turn"])
def explorer(request: pytest.FixtureRequest) -> Explorer:
    found = Explorer(Setting(scenario=tiny(request.param), seed=3, judges=JUDGES), ("none", "all"), None)
    found.enumerate()
    return found


def test_every_step_is_one_point_and_every_point_has_its_own_address(explorer: Explorer) -> None:
    points = explorer.points
    addresses = [points.address(point) for point in range(len(points))]
    assert len(points) == explorer.life_1.steps > 200
    assert len(set(addresses)) == len(addresses)
    assert addresses[0] == Address("job", LifeStarted.__name__, 1, 0)


def test_each_address_names_an_event_of_the_history_and_k_counts_on_from_its_step(explorer: Explorer) -> None:
    counts: dict[tuple[str, str], int] = {}
    heads = []
    for record in explorer.life_1.history:
        key = (record.process, type(record.event).__name__)
        counts[key] = counts.get(key, 0) + 1
        heads.append((*key, counts[key]))
    order = {head: index for index, head in enumerate(heads)}
    before = Address("job", LifeStarted.__name__, 1, -1)
    for point in range(len(explorer.points)):
        address = explorer.points.address(point)
        if address[:3] == before[:3]:
            assert address.k == before.k + 1
        else:
            assert address.k == 0 and order[address[:3]] > order[before[:3]]
        before = address


@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_each_address_replays_to_its_own_boundary_and_its_own_class(explorer: Explorer, every: int) -> None:
    setting = replace(explorer.setting, judges=())
    rows, pairs, points = explorer.classes.rows, explorer.classes.pairs, explorer.points
    for point in range(0, len(points), every):
        for number, outcome in pairs[points.pair[point]]:
            life = run_life(setting, 1, {}, {}, None, crash=PlanItem.at(points.address(point), outcome))
            assert life.fired and life.address == points.address(point)
            assert life.steps == point + 1
            assert key_of(life.key, ()) == rows[number].key


def test_the_last_step_is_a_point_and_nothing_after_it_is(explorer: Explorer) -> None:
    last = explorer.points.address(len(explorer.points) - 1)
    crashed, restored = run_plan(explorer.setting, (PlanItem.at(last, "none"),), explorer.references)
    assert crashed.fired and crashed.history == explorer.life_1.history
    assert restored.status.outcome == "ended"
    beyond = run_plan(explorer.setting, (PlanItem.at(last._replace(k=last.k + 1), "none"),), explorer.references)
    assert [life.fired for life in beyond] == [False]


def test_a_point_is_proven_by_what_its_own_restored_life_read(explorer: Explorer) -> None:
    for number in range(len(explorer.classes.rows)):
        explorer.run_class(number)
    proofs = {row.proof for row in explorer.classes.rows}
    assert proofs == {"fresh-start", "restored"}
    assert all(row.status == "ended" for row in explorer.classes.rows)
