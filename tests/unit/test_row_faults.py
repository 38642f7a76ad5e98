"""A put that is applied in part, and a get that misses rows: what the data plane then holds, and what its caller hears."""

from __future__ import annotations

from typing import Any

import pytest
from toy import ToyFault, toy_world

from protocol.errors import Cause, Refusal
from protocol.history import AnchorMade
from protocol.messages import CANONICAL, STAGING, GetSamples, ListSampleIds, PutSamples
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


def test_a_get_that_misses_every_row_is_refused_as_one_that_finds_none() -> None:
    async def main(rt: Any) -> None:
        await rt.call("data-plane", PutSamples(CANONICAL, ROWS))
        rt.record(AnchorMade("now"))
        with pytest.raises(Refusal, match="none of 3 keys"):
            await rt.call("data-plane", GetSamples(CANONICAL, ("a", "b", "c")))

    live(main, ToyFault(**AT, verb="lose_rows", arguments={"partition": CANONICAL, "rows": 5}))
