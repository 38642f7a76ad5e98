"""What faults do to messages: drop, delay, duplicate, reorder, refuse, abort; and ``edge = "before"``."""

from __future__ import annotations

from typing import Any

import pytest
from toy import Ask, Other, ToyFault, toy_world

from protocol.config import Job
from protocol.errors import Cause, Refusal
from protocol.history import AnchorMade, EpisodeRefused
from protocol.messages import PARKED, Generate, PromptTask, Row, RowRefused, RunRows
from protocol.runtime import END
from scenarios.faults import fault_from

AT = {"process": "controller", "event": "AnchorMade"}
QUIET_S = 60.0


def live(**options: Any) -> Any:
    world = toy_world(**options)
    status = world.live(max_time=1_000.0)
    if isinstance(world.failure, AssertionError):
        raise world.failure
    assert status.outcome == "ended", status
    return world


def of(verb: str, operation: str = "Ask", what: str = "request", times: int = 1, **more: Any) -> ToyFault:
    arguments = {"operation": operation, "to": "gym-0", "what": what, "times": times, **more}
    return ToyFault(**AT, verb=verb, arguments=arguments)


async def gym(rt: Any) -> None:
    """Answers at once; records what it was asked."""

    async def ask(message: Ask) -> int:
        rt.record(AnchorMade(f"asked {message.number}"))
        return message.number

    async def other(message: Other, outlet: Any) -> None:
        for number in range(message.number):
            outlet.send(number)
            await rt.sleep(0.01)

    rt.serve({Ask: ask, Other: other})


def asked(world: Any) -> list[str]:
    return [record.event.anchor for record in world.history if record.process == "gym-0" and isinstance(record.event, AnchorMade)]


async def armed(rt: Any) -> None:
    rt.record(AnchorMade("now"))
    await rt.sleep(0.001)  # the boundary at which an edge "after" arms has passed


async def items(stream: Any) -> list[Any]:
    out = []
    while (item := await stream.next()) != END:
        out.append(item)
    return out


def test_a_dropped_request_reaches_nobody_and_the_next_one_passes() -> None:
    async def main(rt: Any) -> None:
        await armed(rt)
        lost = rt.call("gym-0", Ask(1))
        assert await rt.call("gym-0", Ask(2)) == 2
        assert await rt.first_of(lost, timeout_s=QUIET_S) is None
        lost.cancel()

    world = live(controller=main, gym_0=gym, faults=(of("drop"),))
    assert asked(world) == ["asked 2"]
    assert world.faults.effects() == {0: ""}


def test_a_dropped_reply_was_handled_all_the_same() -> None:
    async def main(rt: Any) -> None:
        await armed(rt)
        calls = [rt.call("gym-0", Ask(number)) for number in (1, 2, 3)]
        assert await calls[2] == 3
        assert [call.done for call in calls] == [False, False, True]
        for call in calls:
            call.cancel()

    world = live(controller=main, gym_0=gym, faults=(of("drop", what="reply", times=2),))
    assert len(asked(world)) == 3


def test_dropped_items_of_a_stream_leave_it_short_and_its_end_can_be_dropped_too() -> None:
    async def main(rt: Any) -> None:
        await armed(rt)
        assert await items(rt.stream("gym-0", Other(3))) == [1, 2]
        rt.record(AnchorMade("the end"))
        await rt.sleep(0.001)
        short = rt.stream("gym-0", Other(1))
        assert await short.next() == 0
        assert await rt.first_of(short.next(), timeout_s=QUIET_S) is None
        short.cancel()

    end = ToyFault(
        "gym-0", "AnchorMade", verb="drop", arguments={"operation": "Other", "to": "gym-0", "what": "reply"}, occurrence=1
    )

    async def says_when(rt: Any) -> None:
        streams = 0

        async def other(message: Other, outlet: Any) -> None:
            nonlocal streams
            streams += 1
            for number in range(message.number):
                outlet.send(number)
                await rt.sleep(0.01)
            if streams == 2:
                rt.record(AnchorMade("about to end"))
                await rt.sleep(0.01)

        rt.serve({Other: other})

    live(controller=main, gym_0=says_when, faults=(of("drop", "Other", "reply"), end))


@pytest.mark.parametrize("what", ["request", "reply"])
def test_a_delayed_message_holds_up_those_behind_it(what: str) -> None:
    async def main(rt: Any) -> None:
        await armed(rt)
        began = rt.now()
        calls = [rt.call("gym-0", Ask(number)) for number in (1, 2)]
        assert await calls[1] == 2
        assert calls[0].done, "a link is a FIFO, as one connection is"
        assert 5.0 < rt.now() - began < 5.01
        assert await rt.call("gym-0", Ask(3)) == 3
        assert rt.now() - began < 5.02

    world = live(controller=main, gym_0=gym, faults=(of("delay", what=what, by_s=5.0),))
    assert sorted(asked(world)) == ["asked 1", "asked 2", "asked 3"]


def test_a_duplicated_request_is_handled_twice_and_answered_once() -> None:
    async def main(rt: Any) -> None:
        await armed(rt)
        assert await rt.call("gym-0", Ask(1)) == 1
        assert await rt.call("gym-0", Ask(2)) == 2
        assert await items(rt.stream("gym-0", Other(2))) == [0, 1]

    faults = (of("duplicate"), of("duplicate", "Other"))
    assert asked(live(controller=main, gym_0=gym, faults=faults)) == ["asked 1", "asked 1", "asked 2"]


def test_a_duplicated_reply_of_a_call_changes_nothing_and_a_streams_item_comes_twice() -> None:
    async def main(rt: Any) -> None:
        await armed(rt)
        assert await rt.call("gym-0", Ask(1)) == 1
        assert await items(rt.stream("gym-0", Other(3))) == [0, 0, 1, 2]

    faults = (of("duplicate", what="reply"), of("duplicate", "Other", "reply"))
    world = live(controller=main, gym_0=gym, faults=faults)
    assert asked(world) == ["asked 1"]
    assert world.faults.effects() == {0: "", 1: ""}


def test_a_reordered_request_is_overtaken_by_the_next_one() -> None:
    async def main(rt: Any) -> None:
        await armed(rt)
        calls = [rt.call("gym-0", Ask(number)) for number in (1, 2, 3)]
        for number, call in enumerate(calls, start=1):
            assert await call == number

    async def keeps_order(rt: Any) -> None:
        async def ask(message: Ask) -> int:
            rt.record(AnchorMade(f"asked {message.number}"))
            return message.number

        rt.serve({Ask: ask})

    world = live(controller=main, gym_0=keeps_order, faults=(of("reorder"),))
    assert asked(world)[0] == "asked 2"
    assert world.faults.effects() == {0: ""}


def test_reordered_items_of_a_stream_change_places() -> None:
    async def main(rt: Any) -> None:
        await armed(rt)
        assert await items(rt.stream("gym-0", Other(4))) == [1, 0, 2, 3]

    live(controller=main, gym_0=gym, faults=(of("reorder", "Other", "reply"),))


def test_a_message_that_nothing_overtakes_lands_and_the_fault_took_no_effect() -> None:
    async def main(rt: Any) -> None:
        await armed(rt)
        assert await rt.call("gym-0", Ask(1)) == 1
        assert 1.0 < rt.now() < 1.1

    world = live(controller=main, gym_0=gym, faults=(of("reorder"),))
    assert world.faults.effects() == {0: "nothing came behind Ask to gym-0 that could have overtaken it"}


@pytest.mark.parametrize(("edge", "second"), [("before", True), ("after", False)])
def test_an_edge_before_affects_what_the_event_announces(edge: str, second: bool) -> None:
    async def main(rt: Any) -> None:
        rt.record(AnchorMade("issued"))
        call = rt.call("gym-0", Ask(1))
        assert (await rt.first_of(call, timeout_s=QUIET_S) is None) is second
        call.cancel()
        again = rt.call("gym-0", Ask(2))
        assert (await rt.first_of(again, timeout_s=QUIET_S) is None) is not second
        again.cancel()

    arguments = {"operation": "Ask", "to": "gym-0", "what": "request"}
    live(controller=main, gym_0=gym, faults=(ToyFault(**AT, verb="drop", arguments=arguments, edge=edge),))


def rows(*rollouts: str) -> RunRows:
    task = PromptTask("task", "task", "", (), ())
    return RunRows("e0p0", 0, 0, task, tuple(Row(f"e0p0_g{place}", place, name, 0, False) for place, name in enumerate(rollouts)))


def test_refused_rows_never_reach_the_instance_and_the_others_do() -> None:
    came: list[str] = []

    async def door(rt: Any) -> None:
        async def run(message: RunRows, outlet: Any) -> None:
            for row in message.rows:
                came.append(row.rollout_id)
                outlet.send(row.rollout_id)

        rt.serve({RunRows: run})

    async def main(rt: Any) -> None:
        await armed(rt)
        assert await items(rt.stream("gym-0", rows("a", "b"))) == [
            RowRefused("a-a0", PARKED, 0.0),
            RowRefused("b-a0", PARKED, 0.0),
        ]
        assert await items(rt.stream("gym-0", rows("c", "d"))) == [RowRefused("c-a0", PARKED, 0.0), "d"]
        assert await items(rt.stream("gym-0", rows("a"))) == ["a"]

    world = live(controller=main, gym_0=door, faults=(ToyFault(**AT, verb="refuse", arguments={"instance": "gym-0", "rows": 3}),))
    assert came == ["d", "a"]
    refused = [(record.process, record.event.key) for record in world.history if isinstance(record.event, EpisodeRefused)]
    assert refused == [("gym-0", "a-a0"), ("gym-0", "b-a0"), ("gym-0", "c-a0")]


def asks_for(call: str) -> Generate:
    return Generate(call, "r", 0, 0, 0, 0, (), "", "", 0)


async def worker(rt: Any) -> None:
    async def generate(message: Generate) -> str:
        rt.record(AnchorMade(message.call))
        await rt.sleep(1.0)
        rt.record(AnchorMade(f"{message.call} ended"))
        return message.call

    rt.serve({Generate: generate})


ABORT = {"verb": "abort", "arguments": {"worker": "worker-0"}}


def test_an_abort_takes_the_newest_call_that_runs() -> None:
    async def main(rt: Any) -> None:
        first = rt.call("worker-0", asks_for("first"))
        await rt.sleep(0.5)
        second = rt.call("worker-0", asks_for("second"))
        await rt.sleep(0.1)
        rt.record(AnchorMade("now"))
        with pytest.raises(Refusal, match="worker-0 aborted Generate") as refusal:
            await second
        assert refusal.value.cause is Cause.INFRA
        assert rt.now() < 0.7
        assert await first == "first"

    world = live(controller=main, worker_0=worker, faults=(ToyFault(**AT, **ABORT),))
    said = [record.event.anchor for record in world.history if isinstance(record.event, AnchorMade)]
    assert "first ended" in said
    assert "second ended" not in said


def test_an_abort_with_nothing_to_abort_waits_for_the_next_call() -> None:
    async def main(rt: Any) -> None:
        await armed(rt)
        with pytest.raises(Refusal):
            await rt.call("worker-0", asks_for("first"))
        assert await rt.call("worker-0", asks_for("second")) == "second"

    world = live(controller=main, worker_0=worker, faults=(ToyFault(**AT, **ABORT),))
    assert world.faults.effects() == {0: ""}


ALL = [
    of("drop"),
    of("delay", by_s=1.0),
    of("duplicate"),
    of("reorder"),
    ToyFault(**AT, verb="kill", arguments={"process": "gym-0"}),
    ToyFault(**AT, verb="restart", arguments={"process": "gym-0", "after_s": 1.0}),
    ToyFault(**AT, verb="stall", arguments={"process": "gym-0", "for_s": 1.0}),
    ToyFault(**AT, verb="hold", arguments={"until": {"process": "gym-0", "event": "AnchorMade"}}),
    ToyFault(**AT, verb="refuse", arguments={"instance": "gym-0", "rows": 1}),
    ToyFault(**AT, **ABORT),
    ToyFault(**AT, verb="partial_put", arguments={"partition": "rollout_data", "rows": 1}),
    ToyFault(**AT, verb="lose_rows", arguments={"partition": "rollout_data", "rows": 1}),
]


@pytest.mark.parametrize("fault", ALL, ids=[fault.verb for fault in ALL])
@pytest.mark.parametrize("edge", ["before", "after"])
def test_a_fault_that_is_never_reached_changes_nothing_and_says_so(fault: ToyFault, edge: str) -> None:
    async def main(rt: Any) -> None:
        for number in range(5):
            rt.record(AnchorMade("often"))
            assert await rt.call("gym-0", Ask(number)) == number
        assert await items(rt.stream("gym-0", Other(3))) == [0, 1, 2]

    never = ToyFault(fault.process, fault.event, fault.verb, fault.arguments, occurrence=99, edge=edge)
    without, with_it = (live(controller=main, gym_0=gym, faults=faults, seed=3) for faults in ((), (never,)))
    assert with_it.digest() == without.digest()
    assert with_it.steps == without.steps
    assert with_it.faults.effects() == {0: "its trigger was never reached"}


def test_a_hold_stops_its_process_until_the_other_one_records_the_event() -> None:
    async def says(rt: Any) -> None:
        await rt.sleep(2.0)
        rt.record(AnchorMade("released"))
        await rt.sleep(9.0)

    async def main(rt: Any) -> None:
        await rt.sleep(1.0)
        rt.record(AnchorMade("held"))
        await rt.sleep(0.1)
        assert 2.0 <= rt.now() < 2.01
        await rt.sleep(1.0)

    until = {"process": "gym-0", "event": "AnchorMade"}
    world = live(controller=main, gym_0=says, faults=(ToyFault(**AT, verb="hold", arguments={"until": until}),))
    assert world.faults.effects() == {0: ""}


def test_a_hold_that_comes_too_late_stops_nothing_and_says_so() -> None:
    async def says(rt: Any) -> None:
        rt.record(AnchorMade("said"))

    async def main(rt: Any) -> None:
        await rt.sleep(1.0)
        rt.record(AnchorMade("late"))
        await rt.sleep(0.1)
        assert rt.now() < 1.11

    until = {"process": "gym-0", "event": "AnchorMade"}
    world = live(controller=main, gym_0=says, faults=(ToyFault(**AT, verb="hold", arguments={"until": until}),))
    assert world.faults.effects() == {0: "AnchorMade number 1 of gym-0 had been recorded before controller came there"}


def test_a_process_killed_by_what_its_own_step_set_off_dies_at_the_end_of_that_step() -> None:
    async def main(rt: Any) -> None:
        await armed(rt)
        assert await rt.first_of(rt.call("gym-0", Ask(1)), timeout_s=QUIET_S) == 0

    async def answers(rt: Any) -> None:
        async def ask(message: Ask) -> int:
            return message.number  # the reply is duplicated, and that is reported inside this step

        rt.serve({Ask: ask})

    twice = of("duplicate", what="reply")
    kill = ToyFault("job", "FaultInjected", "kill", {"process": "gym-0"}, occurrence=2, edge="before")
    world = live(controller=main, gym_0=answers, faults=(twice, kill))
    assert world.faults.effects() == {0: "", 1: ""}
    assert not world.fates.by_name["gym-0"].alive
    assert world.kernel.doomed == ""


def test_a_message_that_is_reordered_by_a_sender_that_stands_still_leaves_when_it_goes_on() -> None:
    async def main(rt: Any) -> None:
        await rt.sleep(1.0)
        rt.record(AnchorMade("now"))
        calls = [rt.call("gym-0", Ask(number)) for number in (1, 2)]
        for call in calls:
            await call
        assert 3.0 < rt.now() < 3.1

    faults = (
        ToyFault(**AT, verb="stall", arguments={"process": "controller", "for_s": 2.0}, edge="before"),
        ToyFault(**AT, verb="reorder", arguments={"operation": "Ask", "to": "gym-0", "what": "request"}, edge="before"),
    )
    world = live(controller=main, gym_0=gym, faults=faults)
    assert len(asked(world)) == 2


@pytest.mark.parametrize("operation", ["run_rows", "generate", "put_samples", "load_checkpoint", "load_weights"])
def test_a_request_that_the_transport_brings_once_at_most_cannot_be_doubled(operation: str) -> None:
    at = {"process": "controller", "event": "RowsSubmitted", "occurrence": 1, "edge": "after", "life": 1}

    def refusal(what: str, verb: str = "duplicate") -> list[str]:
        return fault_from(at, {verb: {"operation": operation, "to": "gym-0", "what": what}}, Job(), "faults[0]")[1]

    assert "brings such a request once at most" in refusal("request")[0]
    assert refusal("reply") == [] and refusal("request", "drop") == []


def test_a_control_call_is_not_refused_for_the_sake_of_a_prompt() -> None:
    at = {"process": "controller", "event": "RowsSubmitted", "occurrence": 1, "edge": "after", "life": 1}

    def refusal(operation: str, to: str, cause: str) -> list[str]:
        return fault_from(at, {"fail_call": {"operation": operation, "to": to, "cause": cause}}, Job(), "faults[0]")[1]

    assert "cause is 'data': a control call has no prompt" in refusal("resume", "gym-0", "data")[0]
    assert refusal("resume", "gym-0", "infra") == refusal("generate", "worker-0", "data") == []
