"""One process alone dies, starts again, or stands still, while the others go on."""

from __future__ import annotations

from typing import Any

import pytest
from toy import Ask, Other, ToyFault, toy_world

from protocol.errors import Lost
from protocol.history import AnchorMade, ProcessContinued, ProcessKilled, ProcessStalled, ProcessStarted
from protocol.runtime import END, Fenced

AT = {"process": "controller", "event": "AnchorMade"}
KILL = {"verb": "kill", "arguments": {"process": "gym-0"}}


def live(**options: Any) -> Any:
    world = toy_world(**options)
    status = world.live(max_time=1_000.0)
    if isinstance(world.failure, AssertionError):
        raise world.failure
    assert status.outcome == "ended", status
    assert world.faults.effects() == dict.fromkeys(world.faults.effects(), "")
    return world


def names(world: Any, *kinds: type) -> list[str]:
    return [type(record.event).__name__ for record in world.history if isinstance(record.event, kinds)]


def made(world: Any) -> list[str]:
    return [record.event.anchor for record in world.history if isinstance(record.event, AnchorMade)]


async def gym(rt: Any) -> None:
    async def ask(message: Ask) -> int:
        await rt.sleep(float(message.number))
        rt.record(AnchorMade(f"answered {message.number}"))
        return message.number

    async def other(message: Other, outlet: Any) -> None:
        for number in range(message.number):
            outlet.send(number)
            await rt.sleep(1.0)

    rt.serve({Ask: ask, Other: other})


def restart(after_s: float) -> dict[str, Any]:
    return {"verb": "restart", "arguments": {"process": "gym-0", "after_s": after_s}}


def stall(for_s: float) -> dict[str, Any]:
    return {"verb": "stall", "arguments": {"process": "gym-0", "for_s": for_s}}


def test_a_dead_process_runs_no_finally_writes_no_file_and_sends_nothing() -> None:
    reached = []

    async def dying(rt: Any) -> None:
        async def ask(message: Ask) -> int:
            try:
                await rt.sleep(9.0)
            finally:
                reached.append("finally")
                rt.record(AnchorMade("from the grave"))
                rt.call("controller", Ask(1)).cancel()
                await rt.files.write("grave", b"hand")
                reached.append("never")
            return 1

        rt.serve({Ask: ask})

    async def main(rt: Any) -> None:
        async def never(message: Ask) -> None:
            pytest.fail("a message of the dead arrived")

        rt.serve({Ask: never})
        call = rt.call("gym-0", Ask(1))
        await rt.sleep(1.0)
        rt.record(AnchorMade("now"))
        with pytest.raises(Lost, match="gym-0 is dead: the connection broke before Ask was answered"):
            await call
        assert 1.0 < rt.now() < 1.01
        await rt.sleep(30.0)

    world = live(controller=main, gym_0=dying, faults=(ToyFault(**AT, **KILL),))
    assert reached == ["finally"]
    assert made(world) == ["now"]
    assert world.disk.surviving("all") == {}


def test_whoever_calls_the_dead_hears_lost_until_the_next_incarnation_serves() -> None:
    async def slow(rt: Any) -> None:
        await rt.sleep(0.5)
        await gym(rt)

    async def main(rt: Any) -> None:
        assert await rt.call("gym-0", Ask(0)) == 0
        on_its_way = rt.call("gym-0", Ask(0))
        rt.record(AnchorMade("now"))
        for call in (on_its_way, rt.call("gym-0", Ask(0))):
            with pytest.raises(Lost):
                await call
        await rt.sleep(2.2)  # it was started again and does not serve yet
        with pytest.raises(Lost):
            await rt.call("gym-0", Ask(0))
        await rt.sleep(0.5)
        assert await rt.call("gym-0", Ask(3)) == 3

    world = live(controller=main, gym_0=slow, faults=(ToyFault(**AT, **restart(2.0)),))
    starts = [record.event for record in world.history if isinstance(record.event, ProcessStarted) and record.process == "gym-0"]
    assert starts == [ProcessStarted(1), ProcessStarted(2)]
    assert names(world, ProcessKilled, ProcessStarted)[-2:] == ["ProcessKilled", "ProcessStarted"]


def test_a_request_on_its_way_to_an_incarnation_that_dies_never_reaches_the_next_one() -> None:
    async def main(rt: Any) -> None:
        await rt.sleep(1.0)
        calls = [rt.call("gym-0", Ask(0)) for _ in range(20)]
        rt.record(AnchorMade("now"))
        for call in calls:
            with pytest.raises(Lost):
                await call
        await rt.sleep(0.1)
        assert await rt.call("gym-0", Ask(0)) == 0

    world = live(controller=main, gym_0=gym, faults=(ToyFault(**AT, **restart(0.0)),))
    assert made(world) == ["now", "answered 0"]


def test_what_the_dead_had_sent_arrives_before_its_caller_hears_lost() -> None:
    async def main(rt: Any) -> None:
        stream = rt.stream("gym-0", Other(5))
        assert [await stream.next(), await stream.next()] == [0, 1]
        with pytest.raises(Lost):
            while await stream.next() != END:
                pass

    fault = ToyFault("gym-0", "AnchorMade", edge="before", **KILL)

    async def sends_and_dies(rt: Any) -> None:
        async def other(message: Other, outlet: Any) -> None:
            outlet.send(0)
            outlet.send(1)
            rt.record(AnchorMade("dies here"))
            outlet.send(2)
            pytest.fail("it went on in its last step")

        rt.serve({Other: other})

    world = live(controller=main, gym_0=sends_and_dies, faults=(fault,))
    assert made(world) == ["dies here"]


def test_killed_before_the_boundary_a_step_makes_its_record_and_nothing_else() -> None:
    async def main(rt: Any) -> None:
        rt.call("gym-0", Ask(0))
        await rt.sleep(1.0)

    async def writes(rt: Any) -> None:
        async def ask(message: Ask) -> int:
            try:
                rt.record(AnchorMade("first"))
                rt.record(AnchorMade("second"))
            finally:
                rt.record(AnchorMade("third"))
            return 0

        rt.serve({Ask: ask})

    for edge, left in (("before", ["first"]), ("after", ["first", "second", "third"])):
        world = toy_world(controller=main, gym_0=writes, faults=(ToyFault("gym-0", "AnchorMade", edge=edge, **KILL),))
        world.live()
        assert made(world) == left


def test_a_file_operation_of_the_dead_does_not_land_and_what_had_landed_stays() -> None:
    async def writes(rt: Any) -> None:
        await rt.files.write("whole", b"1")
        rt.record(AnchorMade("now"))
        await rt.files.write("never", b"1")

    async def main(rt: Any) -> None:
        await rt.sleep(1.0)

    world = live(controller=main, gym_0=writes, faults=(ToyFault("gym-0", "AnchorMade", **KILL),))
    assert world.disk.surviving("all") == {"whole": b"1"}


def test_a_restarted_process_does_not_draw_again_what_its_first_incarnation_drew() -> None:
    drawn = []

    async def draws(rt: Any) -> None:
        drawn.append(rt.random("tool", "a").random())
        rt.record(AnchorMade("drawn"))

    async def main(rt: Any) -> None:
        await rt.sleep(1.0)

    fault = ToyFault("gym-0", "AnchorMade", **restart(0.1))
    for _ in range(2):
        live(controller=main, gym_0=draws, faults=(fault,))
    assert drawn[0] != drawn[1]
    assert drawn[:2] == drawn[2:]


def test_the_runtime_of_a_dead_incarnation_waits_for_nothing_and_does_nothing() -> None:
    kept: list[Any] = []

    async def keeps(rt: Any) -> None:
        kept.append(rt)
        rt.record(AnchorMade("now"))
        await rt.sleep(9.0)

    async def main(rt: Any) -> None:
        await rt.sleep(1.0)
        dead = kept[0]
        events = rt.task().kernel.steps
        for starts in (
            lambda: dead.sleep(1.0),
            lambda: dead.call("controller", Ask(1)),
            lambda: dead.stream("controller", Ask(1)),
            lambda: dead.on_loop("engine", len, ()),
            lambda: dead.files.write("grave", b""),
            lambda: dead.files.read("grave"),
            lambda: dead.first_of(timeout_s=1.0),
            lambda: dead.spawn(gym(dead), "new"),
        ):
            with pytest.raises(Fenced):
                starts()
        dead.record(AnchorMade("from the grave"))
        dead.serve({Ask: None})
        assert rt.task().kernel.steps == events

    world = live(controller=main, gym_0=keeps, faults=(ToyFault("gym-0", "AnchorMade", **KILL),))
    assert made(world) == ["now"]


def test_a_process_that_stands_still_resumes_in_order_what_came_due_and_hears_what_was_sent() -> None:
    seen = []

    async def ticks(rt: Any) -> None:
        async def tick(number: int) -> None:
            await rt.sleep(number / 10)
            seen.append((number, round(rt.now(), 3)))

        async def ask(message: Ask) -> int:
            seen.append((message.number, round(rt.now(), 3)))
            return message.number

        rt.serve({Ask: ask})
        for number in (12, 3, 2, 1):
            rt.spawn(tick(number), f"tick {number}")

    async def main(rt: Any) -> None:
        await rt.sleep(0.05)
        rt.record(AnchorMade("now"))
        await rt.sleep(0.1)
        calls = [rt.call("gym-0", Ask(number)) for number in (100, 101)]
        for call in calls:
            await call
        assert 1.05 < rt.now() < 1.06
        await rt.sleep(1.0)

    live(controller=main, gym_0=ticks, faults=(ToyFault(**AT, **stall(1.0)),))
    assert [number for number, _ in seen if number < 10] == [1, 2, 3]
    assert [number for number, _ in seen if number >= 100] == [100, 101]
    assert seen[-1] == (12, 1.2)
    assert all(1.049 < time < 1.06 for number, time in seen if number != 12)


def test_a_stall_is_bracketed_and_ends_at_its_time() -> None:
    async def main(rt: Any) -> None:
        rt.record(AnchorMade("now"))
        await rt.sleep(5.0)

    world = live(controller=main, gym_0=gym, faults=(ToyFault(**AT, **stall(2.0)),))
    at = {type(record.event): record.time for record in world.history}
    assert names(world, ProcessStalled, ProcessContinued) == ["ProcessStalled", "ProcessContinued"]
    assert at[ProcessContinued] - at[ProcessStalled] == pytest.approx(2.0)


def test_stalled_before_the_boundary_the_rest_of_its_step_happens_when_it_goes_on() -> None:
    async def says(rt: Any) -> None:
        await rt.sleep(1.0)
        rt.record(AnchorMade("first"))
        rt.record(AnchorMade("second"))
        rt.call("controller", Ask(7))
        await rt.sleep(0.5)
        rt.record(AnchorMade("third"))

    async def main(rt: Any) -> None:
        heard = rt.queue()

        async def ask(message: Ask) -> None:
            heard.put(message.number)

        rt.serve({Ask: ask})
        assert await heard.get() == 7
        assert 3.0 < rt.now() < 3.01
        await rt.sleep(2.0)

    world = live(controller=main, gym_0=says, faults=(ToyFault("gym-0", "AnchorMade", edge="before", **stall(2.0)),))
    times = [round(record.time, 3) for record in world.history if isinstance(record.event, AnchorMade)]
    assert times[:2] == [1.0, 3.0]
    assert times[2] >= 3.0


def test_a_process_that_stands_still_can_be_killed_and_started_again() -> None:
    async def main(rt: Any) -> None:
        call = rt.call("gym-0", Ask(0))
        rt.record(AnchorMade("stand still"))
        await rt.sleep(1.0)
        rt.record(AnchorMade("die"))
        with pytest.raises(Lost):
            await call
        await rt.sleep(1.0)
        assert await rt.call("gym-0", Ask(0)) == 0
        await rt.sleep(20.0)  # past the end of the stall of the dead incarnation

    faults = (ToyFault(**AT, **stall(10.0)), ToyFault(**AT, occurrence=2, **restart(0.5)))
    world = live(controller=main, gym_0=gym, faults=faults)
    assert names(world, ProcessStalled, ProcessContinued, ProcessKilled) == ["ProcessStalled", "ProcessKilled"]


def test_a_dead_get_eats_no_item_and_a_dead_task_fails_nobody() -> None:
    async def fails(rt: Any) -> None:
        queue = rt.queue()

        async def get() -> None:
            await queue.get()

        async def fail() -> None:
            await rt.sleep(1.0)
            raise ValueError("after its death")

        rt.spawn(get(), "get")
        rt.spawn(fail(), "fail")
        await rt.sleep(0.5)
        rt.record(AnchorMade("dies"))
        queue.put(1)
        await rt.sleep(9.0)

    async def main(rt: Any) -> None:
        await rt.sleep(3.0)

    world = live(controller=main, gym_0=fails, faults=(ToyFault("gym-0", "AnchorMade", **KILL),))
    assert [task.process for task in world.kernel.tasks] == []


@pytest.mark.parametrize("fault", [KILL, restart(1.5), stall(3.0)])
@pytest.mark.parametrize("edge", ["before", "after"])
def test_two_lives_with_a_partial_fault_are_equal(fault: dict[str, Any], edge: str) -> None:
    async def main(rt: Any) -> None:
        for number in range(6):
            try:
                await rt.first_of(rt.call("gym-0", Ask(1)), timeout_s=2.0)
            except Lost:
                rt.record(AnchorMade(f"lost {number}"))
            await rt.sleep(0.3)

    first, second = (
        live(controller=main, gym_0=gym, faults=(ToyFault("gym-0", "AnchorMade", occurrence=2, edge=edge, **fault),), seed=5)
        for _ in range(2)
    )
    assert first.digest() == second.digest()
    assert first.steps == second.steps


def test_the_list_of_what_is_waited_for_names_a_process_that_stands_still() -> None:
    async def main(rt: Any) -> None:
        rt.record(AnchorMade("now"))
        await rt.call("gym-0", Ask(0))

    until = {"process": "gym-0", "event": "AnchorMade", "occurrence": 9}
    fault = ToyFault(**AT, verb="hold", arguments={"until": until})
    world = toy_world(controller=main, gym_0=gym, faults=(fault,))
    status = world.live()
    assert status.outcome == "idle"
    assert "waits for controller to go on, which stands still" in status.waiting
    assert world.faults.effects() == {0: "controller waits for AnchorMade number 9 of gym-0, which never came"}
