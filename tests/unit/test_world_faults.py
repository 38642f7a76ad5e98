"""Faults of a scenario: triggers by a process's own events, and what each verb does."""

from __future__ import annotations

from typing import Any

import pytest
from toy import Ask, Other, ToyFault, toy_world

from protocol.errors import Cause, ConfigError, Lost, Refusal
from protocol.history import AnchorMade, FaultInjected
from protocol.messages import DiscardGroup
from protocol.runtime import END

AT = {"process": "controller", "event": "AnchorMade"}


def live(world: Any) -> Any:
    status = world.live()
    if isinstance(world.failure, AssertionError):
        raise world.failure
    assert status.outcome == "ended", status
    world.bury()
    return world


def injected(world: Any) -> list[FaultInjected]:
    return [record.event for record in world.history if isinstance(record.event, FaultInjected)]


async def gym(rt: Any) -> None:
    async def ask(message: Ask) -> int:
        rt.record(AnchorMade("handled"))
        return message.number

    async def other(message: Other, outlet: Any) -> None:
        for number in range(message.number):
            outlet.send(number)
            await rt.sleep(0.01)
        rt.record(AnchorMade("handler ended"))

    rt.serve({Ask: ask, Other: other})


@pytest.mark.parametrize(("rows", "clean"), [(0, False), (2, False), (2, True)])
def test_break_stream_delivers_its_rows_and_then_breaks_while_the_handler_lives_on(rows: int, clean: bool) -> None:
    async def main(rt: Any) -> None:
        stream = rt.stream("gym-0", Other(5))
        assert await stream.next() == 0
        rt.record(AnchorMade("now"))
        assert [await stream.next() for _ in range(rows)] == list(range(1, rows + 1))
        if clean:
            assert await stream.next() == END
        else:
            with pytest.raises(Lost, match="broke"):
                await stream.next()
        await rt.sleep(1.0)
        untouched = rt.stream("gym-0", Other(1))
        assert [await untouched.next(), await untouched.next()] == [0, END]

    fault = ToyFault(**AT, verb="break_stream", arguments={"rows": rows, "instance": "gym-0", "clean": clean})
    world = live(toy_world(controller=main, gym_0=gym, faults=(fault,)))
    assert world.counts["gym-0", "AnchorMade"] == 2  # both handlers ran to their end
    assert len(injected(world)) == 2
    assert world.faults.effects() == {0: ""}


def test_a_stream_that_ends_before_it_could_break_leaves_the_fault_to_the_next() -> None:
    async def main(rt: Any) -> None:
        rt.record(AnchorMade("now"))
        short = rt.stream("gym-0", Other(1))
        assert [await short.next(), await short.next()] == [0, END]
        long = rt.stream("gym-0", Other(5))
        assert [await long.next(), await long.next()] == [0, 1]
        with pytest.raises(Lost):
            await long.next()

    live(
        toy_world(
            controller=main, gym_0=gym, faults=(ToyFault(**AT, verb="break_stream", arguments={"rows": 2, "instance": "gym-0"}),)
        )
    )


def test_fail_call_with_an_error_never_reaches_the_peer() -> None:
    async def main(rt: Any) -> None:
        assert await rt.call("gym-0", Ask(1)) == 1
        rt.record(AnchorMade("now"))
        await rt.sleep(0.1)
        for _ in range(2):
            with pytest.raises(Refusal) as refusal:
                await rt.call("gym-0", Ask(2))
            assert refusal.value.cause is Cause.UNAVAILABLE
        assert await rt.call("gym-0", Ask(3)) == 3

    fault = ToyFault(**AT, verb="fail_call", arguments={"operation": "Ask", "to": "gym-0", "how": "error", "times": 2})
    assert live(toy_world(controller=main, gym_0=gym, faults=(fault,))).counts["gym-0", "AnchorMade"] == 2


def test_fail_call_that_is_lost_is_handled_and_never_answered() -> None:
    async def main(rt: Any) -> None:
        rt.record(AnchorMade("now"))
        await rt.sleep(0.1)
        call = rt.call("gym-0", Ask(2))
        assert await rt.first_of(call, timeout_s=60.0) is None
        call.cancel()

    fault = ToyFault(**AT, verb="fail_call", arguments={"operation": "Ask", "to": "gym-0", "how": "lost"})
    assert live(toy_world(controller=main, gym_0=gym, faults=(fault,))).counts["gym-0", "AnchorMade"] == 1


def test_fail_call_that_is_broken_is_handled_and_its_caller_is_told() -> None:
    async def main(rt: Any) -> None:
        rt.record(AnchorMade("now"))
        await rt.sleep(0.1)
        with pytest.raises(Lost, match="the connection to gym-0 broke before Ask was answered"):
            await rt.call("gym-0", Ask(2))

    fault = ToyFault(**AT, verb="fail_call", arguments={"operation": "Ask", "to": "gym-0", "how": "broken"})
    assert live(toy_world(controller=main, gym_0=gym, faults=(fault,))).counts["gym-0", "AnchorMade"] == 1


def test_discard_sends_the_message_from_the_job() -> None:
    async def main(rt: Any) -> None:
        got = rt.queue()

        async def discard(message: DiscardGroup) -> str:
            got.put(message.ordinal)
            return ""

        rt.serve({DiscardGroup: discard})
        rt.record(AnchorMade("now"))
        assert await got.get() == 3

    live(toy_world(controller=main, faults=(ToyFault(**AT, verb="discard", arguments={"ordinal": 3}),)))


def test_config_drops_a_participant_before_any_process_starts() -> None:
    async def main(rt: Any) -> None: ...

    fault = ToyFault("job", "LifeStarted", "config", {"drop_participant": "resources", "instance": "gym-1"}, life=2)
    for life, left in ((1, 4), (2, 3)):
        world = live(toy_world(controller=main, life=life, faults=(fault,)))
        assert len(world._participants("gym-1")) == left
        assert len(world._participants("gym-0")) == 4


def test_a_trigger_counts_one_processs_events_and_takes_effect_at_the_boundary_after_the_step() -> None:
    async def main(rt: Any) -> None:
        for _ in range(2):
            rt.record(AnchorMade("in one step"))
            call = rt.call("gym-0", Ask(1))  # sent inside the triggering step: the fault is not armed yet
        assert await call == 1
        with pytest.raises(Refusal):
            await rt.call("gym-0", Ask(2))

    fault = ToyFault(**AT, verb="fail_call", arguments={"operation": "Ask", "to": "gym-0"}, occurrence=2)
    other = ToyFault("gym-1", "AnchorMade", "discard", {})
    world = toy_world(controller=main, gym_0=gym, faults=(fault, other))
    addresses = []
    world.live(lambda: addresses.append((*world.last, world.since)))
    assert isinstance(world.failure, type(None)), world.failure
    assert ("job", "FaultInjected", 1, 0) in addresses
    assert world.faults.effects() == {0: "", 1: "its trigger was never reached"}


def test_the_fault_state_tells_lives_apart_that_must_not_share() -> None:
    async def clean_up(rt: Any) -> None:
        for name in await rt.files.list(""):
            await rt.files.remove(name)

    def state(files: int) -> bytes:
        from sim.disk import Disk

        fault = ToyFault("controller", "FileDone", "discard", {}, occurrence=5)
        world = toy_world(clean_up=clean_up, disk=Disk.of({f"f{n}": b"" for n in range(files)}), faults=(fault,))
        assert world.clean() is None
        return world.fault_state()

    assert state(1) == state(1)
    assert state(1) != state(2)


def test_a_discard_asked_for_during_the_clean_up_is_sent_when_the_processes_start() -> None:
    async def clean_up(rt: Any) -> None:
        rt.record(AnchorMade("inside the clean-up"))
        await rt.sleep(1.0)  # long enough for a message to be lost on its way

    async def main(rt: Any) -> None:
        told = rt.queue()

        async def discard(message: DiscardGroup) -> str:
            told.put(message.ordinal)
            return ""

        rt.serve({DiscardGroup: discard})
        assert await told.get() == 3

    fault = ToyFault(**AT, verb="discard", arguments={"ordinal": 3})
    world = live(toy_world(controller=main, clean_up=clean_up, faults=(fault,)))
    assert [event.detail for event in injected(world)] == ["armed: ordinal 3", "DiscardGroup(3) sent"]


def test_an_unknown_verb_is_refused() -> None:
    with pytest.raises(ConfigError, match="'explode' is unknown"):
        toy_world(faults=(ToyFault(**AT, verb="explode"),))
