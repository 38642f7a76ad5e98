"""What faults do to messages at the links and at the door of one process, over links that nobody listens at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from protocol.errors import Cause, Lost, Refusal
from protocol.history import EpisodeRefused
from protocol.messages import PARKED, Probe, PromptTask, Resume, Row, RowFailed, RowRefused, RunRows
from real.fault_links import FaultyLink, Lane, LinkFaults
from real.faults import UNREACHED, UNTOLD, effects_of, unfit_faults
from real.killer.control import Armed, InVain, Told
from real.remote import Sender
from scenarios.faults import Fault
from scenarios.files import load
from scenarios.model import Scenario
from sim.armed import ARMED, WAITING, WHY_UNFIRED
from sim.faults import without_effect

pytestmark = pytest.mark.real
PEER = "gym-0"
RESUME = Resume(token="t", checkpoint="1.1", timeout_s=1.0, lease_grace_s=1.0)
TASK = PromptTask("t", "n", "p", (), ())
SOON_S = 0.15


class Wire:
    """A link whose peer answers at once with what it was asked, and streams ``items``."""

    def __init__(self, *items: Any) -> None:
        self.items = items
        self.got: list[Any] = []

    async def call(self, message: Any) -> Any:
        self.got.append(message)
        return type(message).__name__, len(self.got)

    async def stream(self, message: Any) -> AsyncIterator[Any]:
        self.got.append(message)
        for item in self.items:
            yield item

    async def close(self) -> None:
        pass


class World:
    """One process, its way to PEER, and what the killer and the recorder hear."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.told: list[Any] = []
        self.recorded: list[Any] = []
        self.faults = LinkFaults(self.told.append, self.recorded.append)
        self.link = FaultyLink(PEER, wire, self.faults)

    def arm(self, verb: str, **arguments: Any) -> None:
        named = {} if verb in ("break_stream", "refuse", "fail_row") else {"operation": "Probe", "to": PEER}
        self.faults.arm(fault(verb, **{**named, **arguments}), 0)

    def done(self) -> list[str]:
        return [ask.detail for ask in self.told if isinstance(ask, Told)]


def fault(verb: str, at: str = "controller", on: str = "after", **arguments: Any) -> Fault:
    return Fault(process=at, event="SnapshotStarted", edge=on, verb=verb, arguments=arguments)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 10.0))


async def silent(work: Coroutine[Any, Any, Any]) -> bool:
    """Nothing comes of it."""
    with suppress(TimeoutError):
        await asyncio.wait_for(work, SOON_S)
        return False
    return True


def rows(*samples: str) -> RunRows:
    return RunRows("g", 0, 0, TASK, tuple(Row(sample, 0, f"{sample}r0", 0, False) for sample in samples))


async def items_of(stream: AsyncIterator[Any]) -> tuple[list[Any], str]:
    """What came, and how it ended."""
    found: list[Any] = []
    try:
        async for item in stream:
            found.append(item)
    except Lost as error:
        return found, str(error)
    return found, ""


def test_what_no_fault_matches_goes_its_way() -> None:
    async def case() -> None:
        world = World(Wire(1, 2))
        world.arm("drop", operation="Prepare")
        world.arm("drop", to="gym-1")
        assert await world.link.call(Probe()) == ("Probe", 1)
        assert await items_of(world.link.stream(Probe())) == ([1, 2], "")
        assert world.done() == []

    run(case())


def test_a_dropped_request_is_never_sent_and_a_dropped_answer_never_heard() -> None:
    async def case() -> None:
        world = World(Wire())
        world.arm("drop")
        assert await silent(world.link.call(Probe())) and world.wire.got == []
        world.arm("drop", what="reply")
        assert await silent(world.link.call(Probe())) and len(world.wire.got) == 1
        assert await world.link.call(Probe()) == ("Probe", 2)  # one message, and no more
        assert world.done() == [f"Probe to {PEER} was dropped", f"the answer to Probe to {PEER} was dropped"]

    run(case())


def test_times_is_how_many_messages_are_bent() -> None:
    async def case() -> None:
        world = World(Wire())
        world.arm("fail_call", times=2)
        for _ in range(2):
            with pytest.raises(Refusal):
                await world.link.call(Probe())
        assert await world.link.call(Probe()) == ("Probe", 1)

    run(case())


def test_a_delayed_request_holds_up_what_comes_behind_it() -> None:
    async def case() -> None:
        world = World(Wire())
        world.arm("delay", by_s=0.1)
        began = asyncio.get_running_loop().time()
        answers = await asyncio.gather(world.link.call(Probe()), world.link.call(RESUME))
        assert [type(message) for message in world.wire.got] == [Probe, Resume] and answers[1] == ("Resume", 2)
        assert asyncio.get_running_loop().time() - began >= 0.1
        assert world.done() == [f"Probe to {PEER} was held up for 0.1 s"]

    run(case())


def test_who_gives_up_a_delayed_request_frees_nobody_who_waits_behind_another_one() -> None:
    async def case() -> None:
        lane, order = Lane(), []

        async def pass_by(name: str, hold_s: float = 0.0) -> None:
            await lane.turn(hold_s)
            order.append(name)

        first = asyncio.create_task(pass_by("first", 0.1))
        second, third = asyncio.create_task(pass_by("second")), asyncio.create_task(pass_by("third"))
        await asyncio.sleep(0.01)
        second.cancel()
        await asyncio.gather(first, third)
        assert order == ["first", "third"]

    run(case())


def test_an_overtaken_message_goes_behind_the_next_one_of_its_link() -> None:
    async def case() -> None:
        world = World(Wire())
        world.arm("reorder")
        await asyncio.gather(world.link.call(Probe()), world.link.call(RESUME))
        assert [type(message) for message in world.wire.got] == [Resume, Probe]
        assert world.done() == [f"Probe to {PEER} was overtaken"]

    run(case())


def test_a_message_that_nothing_overtakes_goes_on_and_the_fault_was_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("real.fault_links.PATIENCE_S", 0.05)

    async def case() -> None:
        world = World(Wire())
        world.arm("reorder")
        assert await world.link.call(Probe()) == ("Probe", 1)
        assert world.told[-1] == InVain(0, f"nothing came behind Probe to {PEER} that could have overtaken it")

    run(case())


def test_a_duplicated_request_is_handled_twice_and_a_duplicated_item_delivered_twice() -> None:
    async def case() -> None:
        world = World(Wire("a", "b"))
        world.arm("duplicate")
        assert await world.link.call(Probe()) in (("Probe", 1), ("Probe", 2))
        await asyncio.sleep(0.01)
        assert len(world.wire.got) == 2
        world.arm("duplicate", what="reply")
        assert await items_of(world.link.stream(Probe())) == (["a", "a", "b"], "")

    run(case())


def test_a_call_fails_with_the_scenarios_cause_and_the_peer_never_sees_it() -> None:
    async def case() -> None:
        world = World(Wire())
        world.arm("fail_call", how="error", cause="infra")
        with pytest.raises(Refusal) as refused:
            await world.link.call(Probe())
        assert refused.value.cause is Cause.INFRA and world.wire.got == []
        assert world.done() == [f"Probe to {PEER}: error (infra)"]

    run(case())


def test_a_broken_call_was_handled_and_a_lost_one_is_never_answered() -> None:
    async def case() -> None:
        world = World(Wire())
        world.arm("fail_call", how="broken")
        with pytest.raises(Lost, match="broke before Probe was answered"):
            await world.link.call(Probe())
        world.arm("fail_call", how="lost")
        assert await silent(world.link.call(Probe())) and len(world.wire.got) == 2
        assert world.done() == [f"Probe to {PEER}: broken", f"Probe to {PEER}: lost"]

    run(case())


@pytest.mark.parametrize(
    ("after", "clean", "items", "end"),
    [(0, False, [], True), (1, False, ["a"], True), (2, True, ["a", "b"], False)],
)
def test_a_stream_breaks_after_so_many_items(after: int, clean: bool, items: list[str], end: bool) -> None:
    async def case() -> None:
        world = World(Wire("a", "b", "c"))
        world.arm("break_stream", instance=PEER, rows=after, clean=clean)
        found, error = await items_of(world.link.stream(rows("s")))
        assert (found, bool(error)) == (items, end)
        assert await items_of(world.link.stream(rows("s"))) == (["a", "b", "c"], "")
        what = "ended early" if clean else "broke"
        assert world.done() == [f"stream RunRows from {PEER} {what} after {after} more items"]

    run(case())


def test_a_stream_that_ends_first_leaves_the_break_to_the_next_one() -> None:
    async def case() -> None:
        world = World(Wire("a"))
        world.arm("break_stream", instance=PEER, rows=2)
        assert await items_of(world.link.stream(rows("s"))) == (["a"], "")
        world.wire.items = ("a", "b", "c")
        assert (await items_of(world.link.stream(rows("s"))))[0] == ["a", "b"]

    run(case())


class Instance:
    name = PEER

    def __init__(self) -> None:
        self.rows: list[str] = []

    async def answer(self, sender: Sender, message: Any) -> Any:
        return message

    async def answer_stream(self, sender: Sender, message: Any, send: Callable[[Any], None]) -> None:
        self.rows += [row.sample for row in message.rows]


def test_rows_are_refused_at_the_door_and_the_rest_come_in() -> None:
    async def case() -> None:
        world, inside, sent = World(Wire()), Instance(), []
        door = world.faults.door(inside)
        world.arm("refuse", instance=PEER, rows=3)
        asked = Sender("controller", 1, 1)
        await door.answer_stream(asked, rows("a", "b"), sent.append)
        await door.answer_stream(asked, rows("c", "d"), sent.append)
        assert inside.rows == ["d"] and len(sent) == 3
        assert sent[0] == RowRefused("ar0-a0", PARKED, 0.0) and world.recorded[0] == EpisodeRefused("ar0-a0", PARKED)
        assert world.done()[0] == f"2 rows were refused at the door of {PEER}"

    run(case())


def test_a_row_fails_at_the_door_in_the_words_of_the_scenario() -> None:
    async def case() -> None:
        world, inside, sent = World(Wire()), Instance(), []
        world.arm("fail_row", instance=PEER, rows=1, terminal=None, no_result="overloaded", status=503)
        await world.faults.door(inside).answer_stream(Sender("controller", 1, 1), rows("a"), sent.append)
        assert sent == [RowFailed("ar0-a0", False, "a fault", 0.0, None, "overloaded", 503)] and inside.rows == []

    run(case())


@pytest.mark.parametrize(("edge", "spared"), [("before", False), ("after", True)])
def test_only_the_edge_before_befalls_what_the_recording_step_sends(edge: str, spared: bool) -> None:
    async def case() -> None:
        world = World(Wire())
        arming = world.faults.arming(fault("fail_call", on=edge, operation="Probe", to=PEER), 0)
        arming()  # inside ``record``
        call = asyncio.ensure_future(world.link.call(Probe()))  # the step goes on, and sends
        assert [type(ask) for ask in world.told] == ([] if spared else [Armed])
        assert isinstance((await asyncio.gather(call, return_exceptions=True))[0], tuple) is spared
        await asyncio.sleep(0.01)
        with suppress(Refusal):
            await world.link.call(Probe())
        assert len(world.done()) == 1

    run(case())


def with_faults(*faults: Fault) -> Scenario:
    return msgspec.structs.replace(load("workplace").scenario, faults=faults)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (fault("drop", operation="Prepare", to=PEER), ""),
        (fault("drop", "gym-0", operation="Prepare", to=PEER), "only at an event of the process that sends"),
        (fault("drop", "gym-1", operation="Generate", to="worker-0", what="reply"), ""),
        (fault("delay", "worker-0", operation="PutSamples", to="data-plane", by_s=1.0), ""),
        (fault("delay", operation="PutSamples", to="data-plane", by_s=1.0), "controller sends PutSamples to nobody of that name"),
        (fault("break_stream", instance=PEER), ""),
        (fault("break_stream", "gym-0", instance=PEER), "only at an event of the process that sends"),
        (fault("refuse", PEER, instance=PEER, rows=1), ""),
        (fault("refuse", instance=PEER, rows=1), "only at an event of the process whose door it is"),
        (fault("abort", worker="worker-0"), "the real world cannot do abort"),
        (fault("kill", "job", process=PEER), "has triggers in processes of the job only, and job is none"),
        (fault("hold", until={"process": "job", "event": "LifeStarted"}), "and job is none"),
        (fault("stall", process=PEER, for_s=1.0), ""),
    ],
)  # fmt: skip
def test_what_the_real_world_cannot_do_is_said_before_anything_starts(one: Fault, expected: str) -> None:
    wrong = unfit_faults(with_faults(one))
    assert expected in wrong[0] if expected else wrong == []


def test_every_fault_of_the_scenarios_of_both_worlds_fits_the_real_one() -> None:
    names = ("refusal", "lost-row", "gym-stall", "worker-kill", "data-plane-kill")
    assert all(load(name).scenario.faults and unfit_faults(load(name).scenario.in_real()) == [] for name in names)


def test_a_fault_without_an_effect_says_why_in_the_simulators_words() -> None:
    two = [fault("drop", operation="Prepare", to=PEER), msgspec.structs.replace(fault("stall", process=PEER), life=2)]
    scenario = with_faults(*two)
    assert effects_of(scenario, 1, {}, []) == {0: UNREACHED} and WHY_UNFIRED[WAITING] == UNREACHED
    assert effects_of(scenario, 1, {0: ""}, []) == {0: ""}
    assert effects_of(scenario, 2, {}, []) == {1: UNREACHED}
    assert (
        "took no effect in life 1: its trigger was never reached" in without_effect(two[:1], [effects_of(scenario, 1, {}, [])])[0]
    )


def test_the_killer_says_of_an_armed_fault_what_the_simulator_does() -> None:
    from real.killer.killer import ARMED_ONLY

    assert WHY_UNFIRED[ARMED] == ARMED_ONLY
    assert UNTOLD != UNREACHED
