"""Requests that the data plane applies in part, refuses or never answers: what it then holds, and what its caller hears."""

from __future__ import annotations

from typing import Any

import pytest
from toy import ToyFault, toy_world

from protocol.errors import Cause, Refusal
from protocol.history import AnchorMade
from protocol.messages import CANONICAL, STAGING, ClearSamples, GetSamples, ListSampleIds, PutSamples
from sim.fake_data_plane import FakeDataPlane

AT = {"process": "controller", "event": "AnchorMade", "edge": "before"}
ROWS = tuple((name, name.encode()) for name in ("a", "b", "c"))


def live(main: Any, fault: ToyFault) -> None:
    worlds: list[Any] = []

    async def data_plane(rt: Any) -> None:
        await FakeDataPlane(rt, None, worlds[0].faults.rows).main()

    worlds.append(toy_world(data_plane=data_plane, controller=main, faults=(fault,)))
    status = worlds[0].live()
    if isinstance(worlds[0].failure, AssertionError):
        raise worlds[0].failure
    assert status.outcome == "ended", status
    assert worlds[0].faults.effects() == {0: ""}


@pytest.mark.parametrize("stored", [0, 2, 3, 9])
def test_a_partial_put_stores_its_first_rows_and_fails(stored: int) -> None:
    async def main(rt: Any) -> None:
        rt.record(AnchorMade("now"))
        await rt.call("data-plane", PutSamples(STAGING, ROWS))  # another partition
        with pytest.raises(Refusal) as refusal:
            await rt.call("data-plane", PutSamples(CANONICAL, ROWS))
        assert refusal.value.cause is Cause.INFRA
        assert await rt.call("data-plane", ListSampleIds(CANONICAL)) == tuple(key for key, _ in ROWS[:stored])
        assert await rt.call("data-plane", ListSampleIds(STAGING)) == ("a", "b", "c")
        await rt.call("data-plane", PutSamples(CANONICAL, ROWS))
        assert await rt.call("data-plane", ListSampleIds(CANONICAL)) == ("a", "b", "c")

    live(main, ToyFault(**AT, verb="partial_put", arguments={"partition": CANONICAL, "rows": stored}))


def test_a_get_that_misses_rows_says_nothing_of_it() -> None:
    async def main(rt: Any) -> None:
        await rt.call("data-plane", PutSamples(CANONICAL, ROWS))
        rt.record(AnchorMade("now"))
        keys = ("a", "b", "c")
        for _ in range(2):
            assert len(await rt.call("data-plane", GetSamples(CANONICAL, keys))) == 2
        assert len(await rt.call("data-plane", GetSamples(CANONICAL, keys))) == 3

    live(main, ToyFault(**AT, verb="lose_rows", arguments={"partition": CANONICAL, "rows": 1, "times": 2}))


def test_a_get_may_miss_its_first_rows() -> None:
    async def main(rt: Any) -> None:
        await rt.call("data-plane", PutSamples(CANONICAL, ROWS))
        rt.record(AnchorMade("now"))
        assert await rt.call("data-plane", GetSamples(CANONICAL, ("a", "b", "c"))) == ROWS[2:]

    live(main, ToyFault(**AT, verb="lose_rows", arguments={"partition": CANONICAL, "rows": 2, "first": True}))


def test_a_get_that_misses_every_row_is_refused_as_one_that_finds_none() -> None:
    async def main(rt: Any) -> None:
        await rt.call("data-plane", PutSamples(CANONICAL, ROWS))
        rt.record(AnchorMade("now"))
        with pytest.raises(Refusal, match="none of 3 keys"):
            await rt.call("data-plane", GetSamples(CANONICAL, ("a", "b", "c")))

    live(main, ToyFault(**AT, verb="lose_rows", arguments={"partition": CANONICAL, "rows": 5}))


CALL = "e0p0i1_g0r0-a0/c0"
CHUNKS = tuple((f"{CALL}/p{start}", b"") for start in (0, 5, 9))


async def stored(rt: Any) -> list[str]:
    return [key.rpartition("/")[2] for key in await rt.call("data-plane", ListSampleIds(STAGING))]


def test_a_bad_row_refuses_every_put_that_holds_it_and_no_other() -> None:
    async def main(rt: Any) -> None:
        rt.record(AnchorMade("now"))
        await rt.call("data-plane", PutSamples(STAGING, CHUNKS[:1]))  # too few rows
        with pytest.raises(Refusal, match="p5 is bad"):
            await rt.call("data-plane", PutSamples(STAGING, CHUNKS))
        with pytest.raises(Refusal, match="p5 is bad"):
            await rt.call("data-plane", PutSamples(STAGING, CHUNKS[1:2]))
        await rt.call("data-plane", PutSamples(STAGING, (CHUNKS[2],)))
        assert await stored(rt) == ["p0", "p9"]

    arguments = {"partition": STAGING, "row": 1, "at_least": 2, "times": 0}
    live(main, ToyFault(**AT, verb="bad_row", arguments=arguments))


def test_a_bad_row_of_a_get_is_refused_so_many_times_and_is_then_read() -> None:
    async def main(rt: Any) -> None:
        await rt.call("data-plane", PutSamples(STAGING, CHUNKS))
        rt.record(AnchorMade("now"))
        keys = tuple(key for key, _ in CHUNKS)
        for asked in (keys, keys[:1]):
            with pytest.raises(Refusal, match="p0 is bad"):
                await rt.call("data-plane", GetSamples(STAGING, asked))
        assert await rt.call("data-plane", GetSamples(STAGING, keys)) == CHUNKS

    live(main, ToyFault(**AT, verb="bad_row", arguments={"partition": STAGING, "request": "get", "times": 2}))


def test_an_outage_begins_with_the_first_request_it_meets_and_ends_by_itself() -> None:
    async def main(rt: Any) -> None:
        await rt.call("data-plane", PutSamples(STAGING, CHUNKS))
        rt.record(AnchorMade("now"))
        await rt.sleep(50.0)
        keys = tuple(key for key, _ in CHUNKS)
        for message in (GetSamples(STAGING, keys), ClearSamples(STAGING, keys), PutSamples(STAGING, ((f"{CALL}/p20", b""),))):
            with pytest.raises(Refusal, match="out of order"):
                await rt.call("data-plane", message)
        assert await stored(rt) == ["p0", "p5", "p9"]
        await rt.sleep(3.0)
        assert await rt.call("data-plane", GetSamples(STAGING, keys)) == CHUNKS

    live(main, ToyFault(**AT, verb="outage", arguments={"partition": STAGING, "for_s": 3.0}))


def test_a_silent_outage_answers_nobody_and_only_those_it_is_meant_for() -> None:
    async def main(rt: Any) -> None:
        rt.record(AnchorMade("now"))
        await rt.call("data-plane", PutSamples(STAGING, ((CALL, b""),)))  # a whole call's row
        put = rt.call("data-plane", PutSamples(STAGING, CHUNKS))
        assert await rt.first_of(put, timeout_s=100.0) is None
        put.cancel()
        assert await stored(rt) == ["c0"]

    arguments = {"partition": STAGING, "for_s": 3.0, "request": "put", "how": "silent", "chunks": True}
    live(main, ToyFault(**AT, verb="outage", arguments=arguments))


def test_a_partial_put_may_wait_for_a_put_of_chunks_with_enough_rows() -> None:
    async def main(rt: Any) -> None:
        rt.record(AnchorMade("now"))
        await rt.call("data-plane", PutSamples(STAGING, ROWS))
        await rt.call("data-plane", PutSamples(STAGING, CHUNKS[:1]))
        with pytest.raises(Refusal):
            await rt.call("data-plane", PutSamples(STAGING, CHUNKS))
        assert await stored(rt) == ["a", "b", "c", "p0", "p5"]

    arguments = {"partition": STAGING, "rows": 2, "chunks": True, "at_least": 2}
    live(main, ToyFault(**AT, verb="partial_put", arguments=arguments))


def test_a_partial_put_may_store_everything_and_never_say_so() -> None:
    async def main(rt: Any) -> None:
        rt.record(AnchorMade("now"))
        put = rt.call("data-plane", PutSamples(STAGING, CHUNKS))
        assert await rt.first_of(put, timeout_s=100.0) is None
        put.cancel()
        assert await stored(rt) == ["p0", "p5", "p9"]

    live(main, ToyFault(**AT, verb="partial_put", arguments={"partition": STAGING, "rows": 9, "how": "silent"}))
