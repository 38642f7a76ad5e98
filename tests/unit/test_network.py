"""Calls and streams between simulated processes."""

from __future__ import annotations

from typing import Any

import pytest
from toy import Ask, Other, toy_world

from protocol.errors import Cause, Lost, PeerFailed, Refusal
from protocol.runtime import END
from sim.links import DELAY_S


def live(**mains: Any) -> Any:
    world = toy_world(**mains)
    status = world.live()
    if isinstance(world.failure, AssertionError):
        raise world.failure
    assert status.outcome == "ended", status
    world.bury()
    return world


async def echo(rt: Any) -> None:
    async def ask(message: Ask) -> int:
        return message.number

    rt.serve({Ask: ask})


def test_a_call_is_two_landings_and_their_resumptions_apart() -> None:
    async def main(rt: Any) -> None:
        await rt.sleep(1.0)
        began = rt.now()
        assert await rt.call("gym-0", Ask(7)) == 7
        assert 2 * DELAY_S[0] <= rt.now() - began <= 2 * DELAY_S[1]

    assert live(controller=main, gym_0=echo).kernel.steps == 3 + 4  # request lands, handler runs, reply lands, caller runs


def test_messages_of_one_sender_to_one_receiver_stay_in_order() -> None:
    seen = []

    async def gym(rt: Any) -> None:
        async def ask(message: Ask) -> None:
            seen.append((message.number, rt.now()))

        rt.serve({Ask: ask})

    async def main(rt: Any) -> None:
        calls = []
        for number in range(50):
            calls.append(rt.call("gym-0", Ask(number)))
            await rt.sleep(0.0001)
        for call in calls:
            await call

    live(controller=main, gym_0=gym)
    # Two handlers that became ready at one instant are concurrent tasks; landings are what is in order.
    assert [time for _, time in seen] == sorted(time for _, time in seen)
    assert sorted(seen, key=lambda pair: (pair[1], pair[0])) == [(number, time) for number, (_, time) in enumerate(seen)]


def test_a_peer_that_does_not_serve_yet_is_waited_for() -> None:
    async def late(rt: Any) -> None:
        await rt.sleep(2.0)
        await echo(rt)

    async def main(rt: Any) -> None:
        withdrawn = rt.call("gym-0", Ask(1))
        assert await rt.first_of(withdrawn, timeout_s=0.5) is None
        withdrawn.cancel()
        assert await rt.call("gym-0", Ask(2)) == 2
        assert rt.now() > 2.0

    live(controller=main, gym_0=late)


def test_a_refusal_arrives_as_a_fresh_copy_with_its_cause_and_anything_else_as_peer_failed() -> None:
    raised = []

    async def gym(rt: Any) -> None:
        async def ask(message: Ask) -> None:
            error = Refusal("not now", Cause.PARKED) if message.number else KeyError("bug")
            raised.append(error)
            raise error

        rt.serve({Ask: ask})

    async def main(rt: Any) -> None:
        call = rt.call("gym-0", Ask(1))
        with pytest.raises(Refusal, match="^not now$") as refusal:
            await call
        assert refusal.value.cause is Cause.PARKED
        assert refusal.value is not raised[0]
        with pytest.raises(Refusal):  # awaited again, it says the same
            await call
        with pytest.raises(PeerFailed, match="gym-0 failed on Ask: KeyError: 'bug'"):
            await rt.call("gym-0", Ask(0))
        with pytest.raises(PeerFailed, match="serves no Other"):
            await rt.call("gym-0", Other(0))

    live(controller=main, gym_0=gym)


class TwoArguments(Refusal):
    """What pickling cannot rebuild."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(f"{status} {message}")


def test_an_error_that_cannot_be_pickled_arrives_as_peer_failed() -> None:
    async def gym(rt: Any) -> None:
        async def ask(message: Ask) -> None:
            raise TwoArguments("gone", 500)

        rt.serve({Ask: ask})

    async def main(rt: Any) -> None:
        with pytest.raises(PeerFailed, match="TwoArguments cannot cross a process boundary .*: 500 gone"):
            await rt.call("gym-0", Ask(1))

    live(controller=main, gym_0=gym)


def test_cancel_gives_up_the_answer_and_cancels_the_handler() -> None:
    ended = []

    async def gym(rt: Any) -> None:
        async def ask(message: Ask) -> None:
            try:
                await rt.sleep(9.0)
            finally:
                ended.append(rt.now())

        rt.serve({Ask: ask})

    async def main(rt: Any) -> None:
        call = rt.call("gym-0", Ask(1))
        assert await rt.first_of(call, timeout_s=1.0) is None
        assert not call.done
        call.cancel()
        with pytest.raises(Lost, match="given up"):
            await call
        await rt.sleep(1.0)
        assert len(ended) == 1
        assert ended[0] < 1.1

    live(controller=main, gym_0=gym)


def test_a_call_that_lost_a_first_of_is_still_on_its_way() -> None:
    async def gym(rt: Any) -> None:
        async def ask(message: Ask) -> int:
            await rt.sleep(message.number)
            return message.number

        rt.serve({Ask: ask})

    async def main(rt: Any) -> None:
        slow, quick = rt.call("gym-0", Ask(2)), rt.call("gym-0", Ask(1))
        assert await rt.first_of(slow, quick) == 1
        assert await rt.first_of(slow, timeout_s=0.1) is None
        await rt.sleep(5.0)
        assert slow.done  # the reply came while nobody waited
        assert await slow == 2

    live(controller=main, gym_0=gym)


async def counts(rt: Any) -> None:
    async def other(message: Other, outlet: Any) -> None:
        for number in range(message.number):
            outlet.send(number)
        if message.number > 3:
            raise Refusal("too many")

    rt.serve({Other: other})


def test_a_stream_delivers_in_order_and_ends() -> None:
    async def main(rt: Any) -> None:
        stream = rt.stream("gym-0", Other(3))
        assert [await stream.next() for _ in range(5)] == [0, 1, 2, END, END]

    live(controller=main, gym_0=counts)


def test_a_stream_whose_handler_raises_delivers_what_was_sent_and_then_the_error() -> None:
    async def main(rt: Any) -> None:
        stream = rt.stream("gym-0", Other(4))
        assert [await stream.next() for _ in range(4)] == [0, 1, 2, 3]
        for _ in range(2):
            with pytest.raises(Refusal, match="too many"):
                await stream.next()

    live(controller=main, gym_0=counts)


def test_a_cancelled_stream_stops_and_cancels_its_handler() -> None:
    ended = []

    async def gym(rt: Any) -> None:
        async def other(message: Other, outlet: Any) -> None:
            try:
                while True:
                    outlet.send(1)
                    await rt.sleep(0.1)
            finally:
                ended.append(rt.now())

        rt.serve({Other: other})

    async def main(rt: Any) -> None:
        stream = rt.stream("gym-0", Other(1))
        await stream.next()
        stream.cancel()
        with pytest.raises(Lost, match="given up"):
            await stream.next()
        await rt.sleep(1.0)
        assert len(ended) == 1

    live(controller=main, gym_0=gym)


def test_an_item_whose_reader_was_cancelled_is_there_for_the_next() -> None:
    async def main(rt: Any) -> None:
        stream = rt.stream("gym-0", Other(0))

        async def reader() -> None:
            await stream.next()

        task = rt.spawn(reader(), "reader")
        await rt.sleep(0.0001)
        stream.deliver("item", None)  # the reader is woken ...
        task.cancel()  # ... and dies before it is resumed
        assert [await stream.next(), await stream.next()] == ["item", END]

    live(controller=main, gym_0=counts)
