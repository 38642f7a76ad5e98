"""The clock of request deadlines: what stands still, for whom, and until when."""

from __future__ import annotations

from typing import Any

import pytest
from toy import toy_world

from protocol.controller.deadlines import DeadlineClock, decide_left
from protocol.history import DeadlineHeld, DeadlineReleased, Event


def expires_at(limit_s: float, *steps: tuple[float, str, str]) -> tuple[float, list[Event], int]:
    """When a deadline of ``limit_s`` set at 0 expires, the events recorded, and the kernel's steps."""
    at: list[float] = []

    async def main(rt: Any) -> None:
        clock = DeadlineClock(rt)

        async def others() -> None:
            for time_s, act, name in steps:
                await rt.sleep(time_s - rt.now())
                getattr(clock, act)(name)

        acting = rt.spawn(others(), "others")
        await clock.expired(limit_s)
        at.append(rt.now())
        await acting.join()

    world = toy_world(controller=main)
    assert world.live().outcome == "ended", world.failure
    events = [record.event for record in world.history if isinstance(record.event, DeadlineHeld | DeadlineReleased)]
    return at[0], events, world.kernel.steps


def test_a_deadline_that_nobody_holds_expires_after_its_limit() -> None:
    assert expires_at(2.0)[0] == pytest.approx(2.0)


@pytest.mark.parametrize("since_s, until_s", [(0.5, 1.5), (1.9, 9.0), (0.0, 30.0)])
def test_held_time_is_added_to_a_deadline(since_s: float, until_s: float) -> None:
    at, events, _ = expires_at(2.0, (since_s, "hold", "checkpoint"), (until_s, "release", "checkpoint"))
    assert at == pytest.approx(2.0 + until_s - since_s)
    assert events == [DeadlineHeld("checkpoint"), DeadlineReleased("checkpoint", ())]


def test_several_holds_one_after_the_other_add_up() -> None:
    holds = [(0.5, "hold", "a"), (1.0, "release", "a"), (1.2, "hold", "b"), (4.2, "release", "b")]
    assert expires_at(2.0, *holds)[0] == pytest.approx(5.5)


def test_releasing_one_holder_leaves_the_others_hold_in_force() -> None:
    at, events, _ = expires_at(2.0, (1.0, "hold", "a"), (1.5, "hold", "b"), (2.0, "release", "a"), (6.0, "release", "b"))
    assert at == pytest.approx(7.0)
    assert events[2:] == [DeadlineReleased("a", ("b",)), DeadlineReleased("b", ())]


def test_holding_twice_under_one_name_is_one_hold_and_releasing_twice_one_release() -> None:
    acts = [(1.0, "hold", "a"), (1.5, "hold", "a"), (3.0, "release", "a"), (3.5, "release", "a"), (3.6, "release", "never")]
    at, events, _ = expires_at(4.0, *acts)
    assert at == pytest.approx(6.0)
    assert events == [DeadlineHeld("a"), DeadlineReleased("a", ())]


def test_a_long_hold_wakes_nobody_while_it_lasts() -> None:
    """The steps of a deadline do not grow with the length of a hold: nothing is polled."""
    short = expires_at(2.0, (1.0, "hold", "a"), (3.0, "release", "a"))
    long = expires_at(2.0, (1.0, "hold", "a"), (3000.0, "release", "a"))
    assert (long[0], long[2]) == (pytest.approx(3001.0), short[2])


def test_held_time_is_counted_while_it_is_held() -> None:
    seen: list[float] = []

    async def main(rt: Any) -> None:
        clock = DeadlineClock(rt)
        for act in (None, "hold", None, "release", None):
            if act is not None:
                getattr(clock, act)("a")
            await rt.sleep(1.0)
            seen.append(clock.held_s())

    assert toy_world(controller=main).live().outcome == "ended"
    assert seen == pytest.approx([0.0, 1.0, 2.0, 2.0, 2.0])


def test_a_rollout_that_began_inside_a_hold_owes_nothing_for_what_was_held_before() -> None:
    at: list[float] = []

    async def main(rt: Any) -> None:
        clock = DeadlineClock(rt)
        clock.hold("a")
        await rt.sleep(5.0)
        clock.release("a")
        await clock.expired(1.0)
        at.append(rt.now())

    assert toy_world(controller=main).live().outcome == "ended"
    assert at == pytest.approx([6.0])


@pytest.mark.parametrize(
    "limit_s, elapsed_s, held_s, left_s", [(2.0, 0.0, 0.0, 2.0), (2.0, 9.0, 8.0, 1.0), (2.0, 3.0, 0.0, -1.0)]
)
def test_what_is_left_is_the_limit_less_what_nobody_held(limit_s: float, elapsed_s: float, held_s: float, left_s: float) -> None:
    assert decide_left(limit_s, elapsed_s, held_s) == left_s
