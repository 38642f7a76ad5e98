"""Addresses, strata and draws of crash points."""

from __future__ import annotations

import pytest

from sim.explore.points import Address, PlanItem, Points, shares


def points_of(*kinds: str) -> Points:
    points = Points()
    for n, kind in enumerate(kinds, start=1):
        points.add(("controller", kind, n), 0, 0, 0)
    return points


def test_a_point_is_addressed_by_the_last_event_before_it_and_the_steps_since() -> None:
    points = Points()
    points.add(("job", "LifeStarted", 1), 0, 0, 0)
    points.add(("job", "LifeStarted", 1), 1, 0, 0)
    points.add(("gym-0", "TurnCompleted", 3), 0, 1, 2)
    assert [points.address(index) for index in range(3)] == [
        Address("job", "LifeStarted", 1, 0),
        Address("job", "LifeStarted", 1, 1),
        Address("gym-0", "TurnCompleted", 3, 0),
    ]
    assert list(points.violations) == [0, 0, 2]


def test_a_draw_covers_every_protocol_step_before_it_takes_two_of_one() -> None:
    points = points_of(*["FileDone"] * 90, *["CutTaken"] * 2, "RunEnded")
    drawn = points.stratified(3, range(len(points)), "0/points")
    assert sorted(points.kind(point) for point in drawn) == ["CutTaken", "FileDone", "RunEnded"]


def test_a_draw_depends_on_its_stream_alone() -> None:
    points = points_of(*["FileDone"] * 90)
    assert points.stratified(5, range(90), "0/points") == points.stratified(5, range(90), "0/points")
    assert points.stratified(5, range(90), "0/points") != points.stratified(5, range(90), "1/points")


def test_a_draw_of_all_or_more_is_all() -> None:
    points = points_of("FileDone", "CutTaken")
    assert points.stratified(7, range(2), "0/points") == [0, 1]


@pytest.mark.parametrize("wanted", [0, 1, 2, 3, 4, 10, 99, 100])
def test_shares_add_up_and_exceed_no_stratum(wanted: int) -> None:
    sizes = {"a": 90, "b": 7, "c": 3}
    given = shares(sizes, wanted)
    assert sum(given.values()) == wanted
    assert all(0 <= given[name] <= sizes[name] for name in sizes)


def test_a_plan_item_in_words_names_the_place_and_what_the_disk_keeps() -> None:
    item = PlanItem.at(Address("controller", "CutTaken", 2, 3), "all")
    assert item.words() == "killed 3 steps after event CutTaken number 2 of controller; every unsynced write is kept"
