"""Crash points that differ only outside the job are different classes, and a class's state decides its life (RULES 3)."""

from __future__ import annotations

import msgspec
import pytest
from test_crash_points import tiny
from test_sharing import explored

from invariants.registry import JUDGES
from scenarios.files import load
from scenarios.model import Scenario
from sim.explore.classes import key_of
from sim.explore.lives import Setting, run_life, run_plan
from sim.explore.outcomes import landing_of
from sim.explore.points import PlanItem, rank
from sim.explore.verify import crash_and_restore, differences


def outside(name: str, level: str = "turn") -> Scenario:
    """The tiny job with the services, and the faults, of a library scenario."""
    scenario, other = tiny(level), load(name).scenario
    profile = {**scenario.profile, "service_min_s": 0.02, "service_max_s": 0.15}
    return msgspec.structs.replace(scenario, contract=other.contract, profile=profile)


def setting_of(name: str, seed: int) -> Setting:
    return Setting(scenario=outside(name), seed=seed, judges=JUDGES)


@pytest.mark.parametrize("name", ["effects", "effects-repeated"])
def test_a_class_is_what_survives_on_disk_and_outside(name: str) -> None:
    explorer, captures = explored(setting_of(name, 3))
    rows = explorer.classes.rows
    assert any(landing_of(row.outcome) for row in rows), "some request was on its way"
    by_files: dict[frozenset[tuple[str, bytes]], list[int]] = {}
    for number, capture in enumerate(captures):
        by_files.setdefault(frozenset(capture.files.items()), []).append(number)
    alike = [numbers for numbers in by_files.values() if len(numbers) > 1]
    assert alike, "only what services hold tells these classes apart"
    for numbers in alike:
        held = [captures[number].external for number in numbers]
        assert len(set(held)) == len(held)
    assert len({row.key for row in rows}) == len(rows)


@pytest.mark.parametrize("name", ["effects", "effects-repeated"])
def test_equal_files_and_equal_services_give_the_same_life(name: str) -> None:
    explorer, captures = explored(setting_of(name, 4))
    setting = explorer.setting.independent()
    for row, capture in zip(explorer.classes.rows, captures, strict=True):
        alone = run_life(setting, 2, capture.files, capture.scratch, explorer.references, external=capture.external)
        assert (alone.digest, alone.panel.verdicts()) == (row.history_hash, row.verdicts)


@pytest.mark.parametrize(("name", "count"), [("effects", 12), ("effects-repeated", 12)])
def test_points_truly_killed_with_their_requests_landing_agree_with_their_class(name: str, count: int) -> None:
    explorer, _ = explored(setting_of(name, 5))
    setting, points, classes = explorer.setting.independent(), explorer.points, explorer.classes
    landing = [
        point for point in range(len(points)) if any(landing_of(outcome) for _, outcome in classes.pairs[points.pair[point]])
    ]
    assert landing
    for point in sorted(landing, key=lambda point: rank("test", point))[:count]:
        for number, outcome in classes.pairs[points.pair[point]]:
            item = PlanItem.at(points.address(point), outcome)
            first, second = crash_and_restore(setting, (item,), explorer.references)
            assert differences(classes.rows[number], points.violations[point], item, first, second) == []


def test_what_services_hold_is_handed_from_life_to_life() -> None:
    setting = setting_of("effects-repeated", 3)
    lives = run_plan(setting, (PlanItem("mailer", "EffectLanded", 1), PlanItem("mailer", "EffectLanded", 1)))
    assert [life.status.outcome for life in lives] == ["crashed", "crashed", "ended"]
    assert [life.external[0] for life in lives[1:]] == [life.external[1] for life in lives[:-1]]
    assert [sum(effect.times for effect in life.external[1].landed) for life in lives[:2]] == [1, 2]


def test_a_crash_with_more_landings_than_requests_does_not_fire() -> None:
    (life,) = run_plan(setting_of("effects", 3), (PlanItem("mailer", "EffectLanded", 1, 0, "none+" + "1" * 9),))
    assert life.fired is False


def test_only_what_is_held_outside_is_in_the_key() -> None:
    assert key_of(b"f", (b"c",)) == key_of(b"f", (b"c",), b"") != key_of(b"f", (b"c",), b"x")
