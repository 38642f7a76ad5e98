"""Who waits for whom: what is stuck, which cycles there are, and what is told of it."""

from __future__ import annotations

from typing import Any

from toy import toy_world

from protocol.controller.budgets import Permits
from protocol.readers_writer import ReadersWriter
from protocol.wait_for import LINES_MAX, Edge, Node, WaitGraph


def node(name: str, *alternatives: tuple[Edge, ...]) -> Node:
    return Node(f"controller/{name}", "work", alternatives)


TIMER = Edge("timer", "a sleep", moves=True)
UNKNOWN = Edge("signal", "a signal")


def test_two_tasks_that_join_each_other_are_stuck_and_are_a_cycle() -> None:
    graph = WaitGraph((node("a", (Edge("join", "the end", 1),)), node("b", (Edge("join", "the end", 0),))), 0)
    assert graph.stuck == {0, 1}
    assert [[link.text for link in cycle] for cycle in graph.cycles()] == [
        ["controller/a at work waits for the end of controller/b", "controller/b at work waits for the end of controller/a"]
    ]
    assert graph.text().splitlines()[0].startswith("wait for each other: controller/a")


def test_an_alternative_that_moves_by_itself_frees_its_task_and_whoever_waits_for_it() -> None:
    waits = (Edge("join", "the end", 0),)
    graph = WaitGraph((node("a", waits, (TIMER,)), node("b", waits), node("c", (Edge("join", "the end", 2),))))
    assert graph.stuck == {2}


def test_all_parts_of_an_alternative_must_come_about() -> None:
    assert WaitGraph((node("a", (TIMER, UNKNOWN)),)).stuck == {0}
    assert WaitGraph((node("a", (TIMER,), (UNKNOWN,)),)).stuck == frozenset()


def test_the_text_follows_the_run_from_its_own_task_to_the_leaf_nobody_wakes() -> None:
    graph = WaitGraph(
        (
            node("main", (UNKNOWN,), (Edge("join", "the end", 1),), (Edge("join", "the end", 2),)),
            node("watchdog", (TIMER,)),
            node("pump", (Edge("call", "gym-0's answer to Prepare", 3),)),
            node("prepare", (Edge("queue", "an item of a queue"),)),
        ),
        0,
    )
    assert graph.text().split(" <- ") == [
        "controller/main at work waits for the end of controller/pump",
        "controller/pump at work waits for gym-0's answer to Prepare of controller/prepare",
        "controller/prepare at work waits for an item of a queue",
    ]


def test_a_long_text_is_cut_and_says_how_much_is_left_out() -> None:
    lines = WaitGraph(tuple(node(f"t{index}", (UNKNOWN,)) for index in range(LINES_MAX + 5))).text().splitlines()
    assert len(lines) == LINES_MAX + 1 and lines[-1] == "and 5 more"


def stuck_world(main: Any) -> Any:
    world = toy_world(controller=main)
    status = world.live(max_time=60.0)
    world.bury()
    return status


def test_tasks_that_take_two_locks_in_two_orders_are_drawn_as_a_cycle() -> None:
    async def main(rt: Any) -> None:
        gate, barrier = ReadersWriter(rt, "dispatch"), ReadersWriter(rt, "data-plane")

        async def dispatch() -> None:
            async with barrier.mutation("other"):
                await rt.sleep(1.0)
                async with gate.mutation("dispatch"):
                    pass

        async def save() -> None:
            async with gate.exclusive():
                await rt.sleep(2.0)
                async with barrier.exclusive():
                    pass

        await rt.all_of([rt.spawn(dispatch(), "dispatch"), rt.spawn(save(), "save")])

    status = stuck_world(main)
    assert status.outcome == "idle"
    (cycle,) = status.waits.cycles()
    assert [link.how for link in cycle] == ["lock", "lock"]
    assert "controller/dispatch at ReadersWriter.until_open waits for the dispatch lock of controller/save" in status.waiting
    assert "controller/save at Exclusive.__aenter__ waits for the data-plane lock of controller/dispatch" in status.waiting


def test_a_permit_is_owed_by_any_of_its_takers() -> None:
    async def main(rt: Any) -> None:
        permits = Permits(rt, 1, "a slot")

        async def keeps() -> None:
            await permits.acquire()
            await rt.queue().get()

        rt.spawn(keeps(), "keeps")
        await rt.sleep(0.1)
        await permits.acquire()

    assert "waits for a slot of controller/keeps" in stuck_world(main).waiting


def test_a_call_is_drawn_up_to_its_handler_in_the_other_process() -> None:
    async def server(rt: Any) -> None:
        async def never(message: Any) -> None:
            await rt.signal().wait()

        rt.serve({str: never})

    async def main(rt: Any) -> None:
        await rt.call("gym-0", "hello")

    world = toy_world(controller=main, gym_0=server)
    status = world.live(max_time=60.0)
    world.bury()
    assert "waits for gym-0's answer to str of gym-0/str 1 from controller" in status.waiting


def test_a_run_that_only_waits_for_time_is_not_stuck() -> None:
    async def main(rt: Any) -> None:
        while True:
            await rt.sleep(1.0)

    status = stuck_world(main)
    assert (status.outcome, status.waits.stuck, status.at_s) == ("time", frozenset(), 60.0)
