"""The loop of an engine: decode steps without a pause, and functions handed to it between them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from toy import ToyFault, toy_world

from protocol.history import HandoffDone, Record
from sim.loops import LoopCosts, StepClock

STEP_S = 0.03
COSTS = LoopCosts(base_from_s=0.0002, base_to_s=0.0002)


class Item(msgspec.Struct, frozen=True):
    positions: int


def clock(step_s: float = STEP_S) -> StepClock:
    return StepClock(lambda step: step_s)


# --- the clock of the steps ----------------------------------------------------------------------------------------------


def test_steps_follow_each_other_while_a_call_runs_and_none_comes_after_the_last() -> None:
    steps = clock()
    assert steps.advance(5.0) == 0
    assert steps.join(5.0) == 0
    assert [steps.advance(5.0 + STEP_S * k + 0.001) for k in range(4)] == [0, 1, 2, 3]
    steps.leave(5.0 + 3 * STEP_S + 0.001)  # in the middle of the fourth, which comes to its end
    assert steps.advance(9.0) == 4
    assert steps.last_end == pytest.approx(5.0 + 4 * STEP_S)


def test_a_call_that_comes_during_a_step_is_decoded_from_the_next_one_on() -> None:
    steps = clock()
    assert steps.join(0.0) == 0
    assert steps.join(0.01) == 1
    assert steps.join(STEP_S) == 1  # the very instant at which it begins
    assert steps.join(STEP_S + 0.001) == 2


def test_a_call_that_leaves_as_a_step_ends_takes_no_further_step_with_it() -> None:
    steps = clock()
    steps.join(0.0)
    steps.leave(STEP_S)
    assert steps.advance(10.0) == 1
    assert steps.join(20.0) == 1  # the next one begins at once
    assert steps.end_of(1) == pytest.approx(20.0 + STEP_S)


def test_each_step_may_last_as_long_as_it_likes() -> None:
    steps = StepClock(lambda step: 0.01 * (step + 1))
    steps.join(0.0)
    assert steps.end_of(3) == pytest.approx(0.1)
    assert steps.advance(0.07) == 3
    assert steps.end_of(3) == pytest.approx(0.1)


def test_an_idle_loop_is_free_and_a_decoding_one_only_between_two_steps() -> None:
    steps = clock()
    assert steps.next_gap(1.0) == 1.0
    steps.join(1.0)
    assert steps.next_gap(1.0) == pytest.approx(1.0 + STEP_S)  # the step has begun this instant
    assert steps.next_gap(1.01) == pytest.approx(1.0 + STEP_S)
    assert not steps.in_gap(1.01)
    assert steps.in_gap(1.0 + STEP_S)


def test_a_hold_puts_off_every_later_step_and_none_before() -> None:
    steps = clock()
    steps.join(0.0)
    assert steps.advance(STEP_S) == 1
    steps.hold(STEP_S, 0.01)
    assert steps.end_of(1) == pytest.approx(2 * STEP_S + 0.01)
    assert steps.advance(2 * STEP_S) == 1
    assert steps.advance(2 * STEP_S + 0.01) == 2
    assert steps.delays == {1: pytest.approx(0.01)}


def test_holds_of_one_gap_add_up() -> None:
    steps = clock()
    steps.join(0.0)
    steps.hold(STEP_S, 0.01)
    assert steps.in_gap(STEP_S + 0.01)
    steps.hold(STEP_S + 0.01, 0.02)
    assert steps.delays == {1: pytest.approx(0.03)}
    assert steps.end_of(1) == pytest.approx(2 * STEP_S + 0.03)


def test_a_call_that_comes_while_an_idle_loop_is_held_begins_after_it() -> None:
    steps = clock()
    steps.hold(1.0, 0.01)
    assert steps.join(1.004) == 0
    assert steps.end_of(0) == pytest.approx(1.01 + STEP_S)


# --- functions on the loop -----------------------------------------------------------------------------------------------


def handoffs(main: Any, faults: tuple[ToyFault, ...] = ()) -> list[Record]:
    world = toy_world(worker_0=main, controller=idle, faults=faults)
    status = world.live()
    assert status.outcome == "ended", world.failure
    return [record for record in world.history if isinstance(record.event, HandoffDone)]


async def idle(rt: Any) -> None:
    await rt.sleep(10.0)


def engine(rt: Any) -> Any:
    loop = rt.loop("engine")
    loop.steps.duration = lambda step: STEP_S
    loop.costs = COSTS
    return loop


def test_a_function_waits_for_the_end_of_the_step_and_holds_the_loop() -> None:
    async def main(rt: Any) -> None:
        loop = engine(rt)
        loop.steps.join(0.0)
        await rt.sleep(0.1)
        assert await rt.on_loop("engine", lambda items: (rt.now(), len(items)), (Item(7), Item(5))) == (pytest.approx(0.12), 2)
        assert rt.now() == pytest.approx(0.12 + 0.000204)
        assert loop.steps.delays == {4: pytest.approx(0.000204)}

    (record,) = handoffs(main)
    done = record.event
    assert isinstance(done, HandoffDone)
    assert (done.loop, done.items, done.positions, done.rows) == ("engine", 2, 12, 0)
    assert done.waited_s == pytest.approx(0.02)
    assert done.held_s == pytest.approx(0.000204)
    assert (record.process, record.task) == ("worker-0", "main")


def test_what_is_copied_and_what_is_materialised_on_the_loop_holds_it_longer() -> None:
    async def main(rt: Any) -> None:
        loop = engine(rt)

        def copy(items: Any) -> None:
            loop.copy(1_000)
            loop.materialise(len(items))

        await rt.on_loop("engine", copy, ())
        await rt.on_loop("engine", copy, (Item(1),) * 3)
        loop.materialise(100)  # outside of the loop it costs the loop nothing
        await rt.on_loop("engine", len, ())

    held = [(record.event.rows, record.event.held_s) for record in handoffs(main) if isinstance(record.event, HandoffDone)]
    assert held == [
        (0, pytest.approx(0.0002 + 1_000 * COSTS.reference_s)),
        (3, pytest.approx(0.0002 + 3 * COSTS.item_s + 1_000 * COSTS.reference_s + 3 * COSTS.row_s)),
        (0, pytest.approx(0.0002)),
    ]


def test_what_another_task_does_while_the_loop_is_held_costs_the_loop_nothing() -> None:
    async def main(rt: Any) -> None:
        loop = engine(rt)
        task = rt.spawn(hand(rt), "hand")
        await rt.sleep(0.0001)
        assert loop.held is not None
        loop.materialise(100)
        await task.join()

    async def hand(rt: Any) -> None:
        await rt.on_loop("engine", len, ())

    (record,) = handoffs(main)
    assert isinstance(record.event, HandoffDone)
    assert (record.event.rows, record.event.held_s) == (0, pytest.approx(0.0002))


def test_who_waits_as_a_step_ends_is_served_before_the_next_and_who_comes_later_after_it() -> None:
    ran: list[tuple[str, float]] = []

    async def main(rt: Any) -> None:
        engine(rt).steps.join(0.0)

        async def twice(name: str) -> None:
            for _ in range(2):
                await rt.on_loop("engine", lambda items: ran.append((name, rt.now())), ())

        await rt.sleep(0.001)
        await rt.all_of([rt.spawn(twice("a"), "a"), rt.spawn(twice("b"), "b")])

    handoffs(main)
    first = [time for _, time in ran[:2]]
    second = [time for _, time in ran[2:]]
    assert first == [pytest.approx(STEP_S), pytest.approx(STEP_S + 0.0002)]
    assert second == [pytest.approx(2 * STEP_S + 0.0004), pytest.approx(2 * STEP_S + 0.0006)]


def test_a_function_whose_caller_has_left_the_line_does_not_run_and_those_behind_it_do() -> None:
    ran: list[str] = []

    async def main(rt: Any) -> None:
        engine(rt).steps.join(0.0)

        async def hand(name: str) -> None:
            await rt.on_loop("engine", lambda items: ran.append(name), ())

        tasks = [rt.spawn(hand(name), name) for name in ("a", "b")]
        await rt.sleep(0.001)
        tasks[0].cancel()
        await rt.all_of(tasks)

    handoffs(main)
    assert ran == ["b"]


def test_a_function_that_runs_comes_to_its_end_though_its_caller_gave_up() -> None:
    async def main(rt: Any) -> None:
        loop = engine(rt)
        task = rt.spawn(held(rt), "held")
        await rt.sleep(0.0001)
        assert loop.held is not None
        task.cancel()
        await rt.sleep(0.01)
        assert loop.held is None
        await rt.on_loop("engine", len, ())

    async def held(rt: Any) -> None:
        await rt.on_loop("engine", len, ())

    assert len(handoffs(main)) == 2


def test_a_failure_of_the_function_is_its_callers_and_the_loop_goes_on() -> None:
    async def main(rt: Any) -> None:
        engine(rt)
        with pytest.raises(ZeroDivisionError):
            await rt.on_loop("engine", lambda items: 1 // 0, ())
        assert await rt.on_loop("engine", len, (1, 2)) == 2

    assert len(handoffs(main)) == 2


def test_a_process_that_stood_still_at_the_end_of_the_step_waits_for_another_end() -> None:
    async def main(rt: Any) -> None:
        engine(rt).steps.join(0.0)
        await rt.on_loop("engine", len, ())
        await rt.on_loop("engine", len, ())

    stall = ToyFault("worker-0", "HandoffDone", "stall", {"process": "worker-0", "for_s": 0.5})
    times = [record.time for record in handoffs(main, (stall,))]
    assert times[1] > 0.5
    steps = (times[1] - 0.0004) / STEP_S  # two holds of 0.0002 s each
    assert steps == pytest.approx(round(steps), abs=1e-6)
