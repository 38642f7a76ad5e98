"""Tasks, waits and steps of the simulator's kernel."""

from __future__ import annotations

from typing import Any

import pytest
from toy import toy_world

from protocol.errors import Refusal
from protocol.runtime import Cancelled


def live(main: Any, **options: Any) -> Any:
    world = toy_world(controller=main, **options)
    status = world.live()
    if status.outcome == "failed" and isinstance(world.failure, AssertionError):
        raise world.failure
    world.bury()
    return status


def stage_two_steps(main: Any) -> int:
    """Steps of a life whose only process is ``main``, the job's own step left out."""
    world = toy_world(controller=main)
    assert world.live().outcome == "ended"
    return world.kernel.steps


def test_an_await_that_need_not_wait_is_no_step() -> None:
    async def main(rt: Any) -> None:
        queue = rt.queue()
        for item in range(5):
            queue.put(item)
            assert await queue.get() == item
        async with rt.lock():
            pass

    assert stage_two_steps(main) == 1  # its first resumption, and nothing else


def test_a_sleep_is_one_step_and_a_landing_with_its_resumption_two() -> None:
    async def sleeps(rt: Any) -> None:
        await rt.sleep(1.0)
        await rt.sleep(0.0)

    async def reads(rt: Any) -> None:
        await rt.files.list("")

    assert stage_two_steps(sleeps) == 3
    assert stage_two_steps(reads) == 3


def test_a_dead_timer_that_pops_is_no_step() -> None:
    async def main(rt: Any) -> None:
        signal = rt.signal()

        async def setter() -> None:
            signal.set()

        rt.spawn(setter(), "setter")
        assert await rt.first_of(signal.wait(), timeout_s=1.0) == 0
        await rt.sleep(5.0)
        assert rt.now() == 5.0

    assert stage_two_steps(main) == 4  # start, setter, resumption, sleep: the timer at 1 s is none


def test_ties_are_drawn_from_the_schedule_stream_and_fifo_keeps_insertion_order() -> None:
    def order(schedule: str) -> list[int]:
        ran: list[int] = []

        async def main(rt: Any) -> None:
            async def note(number: int) -> None:
                ran.append(number)

            await rt.all_of([rt.spawn(note(number), f"n{number}") for number in range(8)])

        toy_world(controller=main, schedule=schedule).live()
        return ran

    assert order("fifo") == list(range(8))
    assert sorted(order("0")) == list(range(8))
    assert order("0") == order("0")
    assert len({tuple(order(str(schedule))) for schedule in range(6)}) == 6


def test_a_woken_but_cancelled_getter_passes_its_item_on() -> None:
    async def main(rt: Any) -> None:
        queue, taken = rt.queue(), []

        async def getter(name: str) -> None:
            taken.append((name, await queue.get()))

        first, second = rt.spawn(getter("first"), "first"), rt.spawn(getter("second"), "second")
        await rt.sleep(0.1)
        longest_waiting = first if queue.getters[0] is first.wait else second
        queue.put("item")  # wakes the one that waits longest ...
        longest_waiting.cancel()  # ... which dies before it is resumed
        await rt.sleep(0.1)
        other = "second" if longest_waiting is first else "first"
        assert taken == [(other, "item")]

    assert live(main).outcome == "ended"


def test_items_that_come_back_keep_their_place_in_the_queue() -> None:
    async def main(rt: Any) -> None:
        queue = rt.queue()

        async def getter() -> None:
            await queue.get()

        getters = [rt.spawn(getter(), f"g{number}") for number in range(3)]
        await rt.sleep(0.1)
        for item in range(4):
            queue.put(item)
        for task in reversed(getters):
            task.cancel()
        assert [await queue.get() for _ in range(4)] == [0, 1, 2, 3]

    assert live(main).outcome == "ended"


def test_a_first_of_that_is_cancelled_after_a_get_won_gives_the_item_back() -> None:
    async def main(rt: Any) -> None:
        queue = rt.queue()

        async def chooser() -> None:
            await rt.first_of(queue.get(), timeout_s=9.0)

        task = rt.spawn(chooser(), "chooser")
        await rt.sleep(0.1)
        queue.put("item")
        assert len(queue) == 0
        task.cancel()
        assert len(queue) == 1

    assert live(main).outcome == "ended"


def test_first_of_names_the_winner_and_withdraws_the_losers() -> None:
    async def main(rt: Any) -> None:
        queue, signal = rt.queue(), rt.signal()
        assert await rt.first_of(queue.get(), signal.wait(), timeout_s=0.5) is None
        assert rt.now() == 0.5
        assert not queue.getters
        assert not signal.waits
        queue.put("kept")
        get = queue.get()
        assert await rt.first_of(signal.wait(), get) == 1
        assert await get == "kept"

    assert live(main).outcome == "ended"


def test_first_of_refuses_a_coroutine() -> None:
    async def main(rt: Any) -> None:
        async def other() -> None: ...

        coroutine = other()
        with pytest.raises(TypeError, match="first_of takes waits"):
            await rt.first_of(coroutine)
        coroutine.close()

    assert live(main).outcome == "ended"


def test_a_lock_is_handed_over_in_order_and_a_dead_waiter_passes_it_on() -> None:
    async def main(rt: Any) -> None:
        lock, order = rt.lock(), []

        async def user(number: int) -> None:
            async with lock:
                order.append(number)
                await rt.sleep(0.01)

        async with lock:
            users = []
            for number in range(4):
                users.append(rt.spawn(user(number), f"u{number}"))
                await rt.sleep(0.01)
        users[0].cancel()  # it was handed the lock and not resumed yet
        await rt.all_of(users)
        assert order == [1, 2, 3]
        assert not lock.held

    assert live(main).outcome == "ended"


def test_cancel_runs_finally_and_joins_as_none() -> None:
    async def main(rt: Any) -> None:
        seen = []

        async def worker() -> None:
            try:
                await rt.sleep(9.0)
            finally:
                await rt.sleep(0.5)  # a clean-up may wait
                seen.append(rt.now())

        task = rt.spawn(worker(), "worker")
        await rt.sleep(0.1)
        task.cancel()
        task.cancel()
        assert await task.join() is None
        assert seen == [0.6]
        assert task.done

    assert live(main).outcome == "ended"


def test_a_task_cancelled_before_it_ran_never_runs() -> None:
    async def main(rt: Any) -> None:
        async def worker() -> None:
            raise AssertionError("it ran")

        task = rt.spawn(worker(), "worker")
        task.cancel()
        assert await task.join() is None

    assert live(main).outcome == "ended"


def test_a_task_that_cancels_itself_stops_at_its_next_wait() -> None:
    async def main(rt: Any) -> None:
        seen = []

        async def worker() -> None:
            rt.task().cancel()
            seen.append("goes on to its next wait")
            await rt.sleep(1.0)
            seen.append("never")

        await rt.spawn(worker(), "worker").join()
        assert seen == ["goes on to its next wait"]

    assert live(main).outcome == "ended"


def test_cancelled_is_not_an_exception_that_the_core_could_swallow() -> None:
    assert not issubclass(Cancelled, Exception)


def test_a_failure_is_its_joiners_to_raise() -> None:
    async def main(rt: Any) -> None:
        async def fails(text: str, after_s: float) -> None:
            await rt.sleep(after_s)
            raise Refusal(text)

        tasks = [rt.spawn(fails("late", 0.2), "late"), rt.spawn(fails("soon", 0.1), "soon")]
        with pytest.raises(Refusal, match="late"):  # the first failure in order, not in time
            await rt.all_of(tasks)
        assert rt.now() == 0.2
        with pytest.raises(Refusal, match="soon"):  # one joined later still delivers
            await tasks[1].join()

    assert live(main).outcome == "ended"


def test_an_unjoined_failure_ends_the_run() -> None:
    async def main(rt: Any) -> None:
        async def fails() -> None:
            raise Refusal("nobody waits")

        rt.spawn(fails(), "fails")
        await rt.sleep(9.0)

    assert (live(main).outcome, live(main).error) == ("failed", "Refusal: nobody waits")


def test_a_failure_between_two_first_ofs_is_still_the_watchers() -> None:
    async def main(rt: Any) -> None:
        go = rt.signal()

        async def waits_then_fails() -> None:
            await go.wait()
            raise Refusal("in the gap")

        async def ends() -> None:
            await rt.sleep(0.1)
            go.set()

        failing, ending = rt.spawn(waits_then_fails(), "failing"), rt.spawn(ends(), "ending")
        assert await rt.first_of(failing.join(), ending.join()) == 1
        await rt.sleep(1.0)
        with pytest.raises(Refusal):
            await failing.join()

    assert live(main).outcome == "ended"


def test_a_failure_of_a_cancelled_task_does_not_end_the_run() -> None:
    async def main(rt: Any) -> None:
        async def fails_in_finally() -> None:
            try:
                await rt.sleep(9.0)
            finally:
                raise Refusal("while cleaning up")

        task = rt.spawn(fails_in_finally(), "task")
        await rt.sleep(0.1)
        task.cancel()
        await rt.sleep(0.1)

    assert live(main).outcome == "ended"


def test_a_loop_is_held_by_one_handoff_at_a_time_in_order() -> None:
    async def main(rt: Any) -> None:
        ran = []

        async def user(number: int) -> None:
            result = await rt.on_loop("engine", lambda items: ran.append((number, rt.now())) or sum(items), (number, 1))
            assert result == number + 1

        await rt.all_of([rt.spawn(user(number), f"u{number}") for number in range(4)])
        times = [time for _, time in ran]
        assert times == sorted(set(times))  # no two at once
        with pytest.raises(ZeroDivisionError):
            await rt.on_loop("engine", lambda items: 1 // 0, ())

    assert live(main).outcome == "ended"


def test_an_idle_world_says_who_waits_on_what() -> None:
    async def main(rt: Any) -> None:
        async def never() -> None:
            await rt.queue().get()

        await rt.first_of(rt.spawn(never(), "never").join(), rt.signal().wait())

    status = live(main)
    assert status.outcome == "idle"
    assert [node.task for node in status.waits.nodes] == ["controller/main", "controller/never"]
    (line,) = status.waiting.split("\n")
    first, second = line.split(" <- ")
    assert first.startswith("controller/main at ") and first.endswith(" waits for the end of controller/never")
    assert second.startswith("controller/never at ") and second.endswith(" waits for an item of a queue")


def test_two_tasks_that_wake_each_other_at_one_instant_run_into_the_step_budget() -> None:
    async def main(rt: Any) -> None:
        ping, pong = rt.queue(), rt.queue()

        async def echo() -> None:
            while True:
                pong.put(await ping.get())

        rt.spawn(echo(), "echo")
        while True:
            ping.put(1)
            await pong.get()

    world = toy_world(controller=main)
    status = world.live(max_steps=500)
    assert (status.outcome, world.kernel.steps, world.now) == ("steps", 500, 0.0)
    world.bury()


def test_virtual_time_has_a_budget() -> None:
    async def main(rt: Any) -> None:
        while True:
            await rt.sleep(1.0)

    world = toy_world(controller=main)
    assert world.live(max_time=10.5).outcome == "time"
    assert world.now == 10.0
    world.bury()


def test_a_foreign_awaitable_is_an_error_that_names_the_task() -> None:
    class Foreign:
        def __await__(self) -> Any:
            yield "not a wait"

    async def main(rt: Any) -> None:
        await Foreign()

    assert live(main).error.startswith("TypeError: task 'main' awaited 'not a wait'")
