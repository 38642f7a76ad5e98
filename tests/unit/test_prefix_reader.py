"""Reads of restored prefixes: shared, bounded by rows, and each caller's trouble its own (PROTOCOL 6.2; I57)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from protocol.history import PrefixReadDone, PrefixReadIssued
from protocol.worker.batches import Fetched, PrefixReader
from tests.unit.chunk_plane import Outcome, Rule, ScriptedPlane, all_is_well, bad_row, events, job, keys, play, script

REFUSED = "read failed: refused by the script"


def holding(count: int, rule: Rule = all_is_well) -> ScriptedPlane:
    plane = ScriptedPlane(rule)
    plane.rows = {f"c{number}/p0": b"%d" % number for number in range(count)}
    return plane


def fetched(*numbers: int) -> Fetched:
    return Fetched({f"c{number}/p0": b"%d" % number for number in numbers})


def restores(plane: ScriptedPlane, asked: Sequence[Sequence[str]], **sizes: Any) -> tuple[list[Fetched], Any]:
    """What each of several callers gets that ask at the same time."""
    found: list[Fetched] = []

    async def main(rt: Any) -> None:
        reader = PrefixReader(rt, job(**sizes))
        found.extend(await rt.all_of([rt.spawn(reader.read(f"r{n}", theirs), f"restore {n}") for n, theirs in enumerate(asked)]))

    return found, play(plane, main)


def test_restores_that_ask_together_share_one_read() -> None:
    plane = holding(4)
    found, world = restores(plane, [keys(0, 1), keys(2), keys(3)])
    assert found == [fetched(0, 1), fetched(2), fetched(3)]
    (asked,) = plane.of("get")
    assert sorted(asked) == sorted(keys(0, 1, 2, 3))
    assert events(world, PrefixReadIssued, PrefixReadDone) == [
        PrefixReadIssued(4, 3, 4, ("r0", "r1", "r2")),
        PrefixReadDone(4, 1, 0),
    ]


def test_reads_are_bounded_by_rows_and_never_by_tokens() -> None:
    plane = holding(40)
    found, world = restores(plane, [keys(n) for n in range(40)], rows=16, positions=1)
    assert found == [fetched(n) for n in range(40)]
    assert sorted(len(asked) for asked in plane.of("get")) == [8, 16, 16]
    issued = events(world, PrefixReadIssued)
    assert [(event.keys, event.calls, event.waiting) for event in issued] == [(16, 16, 40), (16, 16, 24), (8, 8, 8)]


def test_a_caller_with_more_keys_than_a_read_may_hold_gets_them_all() -> None:
    plane = holding(7)
    found, _ = restores(plane, [keys(*range(7))], rows=3)
    assert found == [fetched(*range(7))]
    assert [len(asked) for asked in plane.of("get")] == [3, 3, 1]


def test_who_asks_for_the_same_key_is_answered_from_the_same_read() -> None:
    plane = holding(2)
    found, _ = restores(plane, [keys(0), keys(0, 1), (*keys(1), *keys(1))])
    assert found == [fetched(0), fetched(0, 1), fetched(1)]
    assert plane.count("get") == 1


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
def test_an_outage_costs_one_request_more_than_there_are_keys(rows: int) -> None:
    plane = holding(8, lambda kind, asked: Outcome(refused=True))
    found, world = restores(plane, [keys(n) for n in range(8)], rows=rows)
    assert found == [Fetched({}, {f"c{n}/p0": REFUSED}) for n in range(8)]
    reads = 8 // rows
    assert plane.count("get") == reads * (rows + 1)
    assert [(event.keys, event.gets, event.failed) for event in events(world, PrefixReadDone)] == [(rows, rows + 1, rows)] * reads


def test_an_outage_without_answers_ends_after_two_time_outs() -> None:
    plane = holding(4, lambda kind, asked: Outcome(lost=True))
    found: list[Fetched] = []

    async def main(rt: Any) -> None:
        found.append(await PrefixReader(rt, job(rpc_timeout_s=5.0)).read("r", keys(0, 1, 2, 3)))
        assert 10.0 <= rt.now() < 10.1

    play(plane, main)
    assert sorted(found[0].missing) == list(keys(0, 1, 2, 3)) and not found[0].rows


def test_a_bad_row_fails_its_own_callers_alone() -> None:
    plane = holding(4, bad_row("c2/p0", kind="get"))
    found, world = restores(plane, [keys(0, 1), keys(2, 3), keys(2), keys(3)], rows=8)
    assert found == [
        fetched(0, 1),
        Fetched({"c3/p0": b"3"}, {"c2/p0": REFUSED}),
        Fetched({}, {"c2/p0": REFUSED}),
        fetched(3),
    ]
    assert events(world, PrefixReadDone) == [PrefixReadDone(4, 5, 1, keys(2))]


def test_rows_of_a_short_answer_are_taken_by_their_names_and_the_rest_is_asked_for_alone() -> None:
    plane = holding(4, script(("get", Outcome(2))))
    del plane.rows["c0/p0"]
    found, world = restores(plane, [keys(0, 1, 2, 3)])
    assert found == [Fetched(fetched(1, 2, 3).rows, {"c0/p0": "not in the answer"})]
    assert sorted(plane.of("get")) == [keys(0), keys(0, 1, 2, 3), keys(3)]
    assert events(world, PrefixReadDone) == [PrefixReadDone(4, 3, 1, keys(0))]


def test_a_caller_that_gives_up_changes_nothing_for_the_others() -> None:
    plane = holding(2)
    found: list[Fetched] = []

    async def main(rt: Any) -> None:
        reader = PrefixReader(rt, job())
        first = rt.spawn(reader.read("r", keys(0)), "first")
        second = rt.spawn(reader.read("r", keys(1)), "second")
        await rt.sleep(0.001)
        first.cancel()
        found.append(await second.join())

    play(plane, main)
    assert found == [fetched(1)]


def test_a_later_caller_does_not_wait_for_a_read_that_hangs() -> None:
    plane = holding(2, script(("get", Outcome(lost=True))))

    async def main(rt: Any) -> None:
        reader = PrefixReader(rt, job())
        rt.spawn(reader.read("r", keys(0)), "first")
        await rt.sleep(0.5)
        assert await reader.read("r", keys(1)) == fetched(1)
        assert rt.now() < 0.6

    play(plane, main)


def test_nothing_asked_is_nothing_read() -> None:
    plane = holding(0)
    assert restores(plane, [()])[0] == [Fetched()]
    assert plane.asked == []
