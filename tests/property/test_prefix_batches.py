"""Batched I/O of chunk rows under whatever a data plane may do: packing, and what is left in the end."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.history import PrefixReadDone
from protocol.worker.batches import Fetched, PendingRow, PrefixReader, PrefixWriter, decide_batches
from protocol.worker.cleanup import ChunkCleanup
from tests.unit.chunk_plane import OK, OpenGate, Outcome, ScriptedPlane, events, job, play

SIZES = st.lists(st.integers(0, 50), max_size=60)
OUTCOMES = st.one_of(
    st.just(OK),
    st.builds(Outcome, rows=st.integers(0, 4), refused=st.just(True)),
    st.builds(Outcome, rows=st.one_of(st.none(), st.integers(0, 4)), lost=st.just(True)),
)
ANSWERS = st.one_of(OUTCOMES, st.builds(Outcome, rows=st.integers(0, 4)))  # a read may be short without a word


@given(SIZES, st.integers(1, 9), st.integers(1, 120))
def test_batches_are_the_rows_in_order_within_both_bounds_and_as_full_as_they_can_be(
    sizes: list[int], rows_max: int, positions_max: int
) -> None:
    batches = decide_batches(sizes, rows_max, positions_max)
    assert [index for start, end in batches for index in range(start, end)] == list(range(len(sizes)))
    for start, end in batches:
        assert 1 <= end - start <= rows_max
        assert sum(sizes[start:end]) <= positions_max or end - start == 1
    for start, end in batches[:-1]:
        assert end - start == rows_max or sum(sizes[start : end + 1]) > positions_max


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 12), max_size=12), st.integers(1, 5), st.lists(OUTCOMES, max_size=24), st.sets(st.integers(0, 11)))
def test_what_is_stored_in_the_end_is_what_was_reported_stored_and_has_sealed(
    sizes: list[int], rows_max: int, outcomes: list[Outcome], sealed: set[int]
) -> None:
    left = iter(outcomes)
    plane = ScriptedPlane(lambda kind, asked: next(left, OK))
    rows = [PendingRow(call=f"c{n}", key=f"c{n}/p0", data=b"%d" % n, positions=size) for n, size in enumerate(sizes)]
    small = job(rows_max, 20, rpc_timeout_s=2.0)
    kept: dict[str, bytes] = {}

    async def main(rt: Any) -> None:
        cleanup = ChunkCleanup(rt, small, OpenGate(rt))
        writer = PrefixWriter(rt, small, cleanup)
        reasons = await writer.write(rows)
        assert list(reasons) == [row.key for row in rows]
        for n, row in enumerate(rows):
            assert not reasons[row.key] or row.key not in writer.unsealed
            if not reasons[row.key] and n in sealed:
                writer.seal(row.key)
                kept[row.key] = row.data
        await writer.flush()
        for row in rows:
            await cleanup.wait_for(row.call)

    play(plane, main)
    assert plane.rows == kept
    puts = plane.of("put")
    batches = decide_batches(sizes, rows_max, 20)
    assert len(puts) <= len(batches) + len(rows)  # each row alone once at most
    assert all(sum(row.key in put for put in puts) <= 2 for row in rows)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 9), max_size=4, unique=True), max_size=6),
    st.integers(1, 5),
    st.lists(ANSWERS, max_size=16),
    st.sets(st.integers(0, 9)),
)
def test_every_caller_hears_of_each_of_its_keys_and_gets_no_other_row(
    asked: list[list[int]], rows_max: int, outcomes: list[Outcome], absent: set[int]
) -> None:
    left = iter(outcomes)
    plane = ScriptedPlane(lambda kind, keys: next(left, OK))
    plane.rows = {f"k{n}": b"%d" % n for n in range(10) if n not in absent}
    found: list[Fetched] = []

    async def main(rt: Any) -> None:
        reader = PrefixReader(rt, job(rows_max, rpc_timeout_s=2.0))
        callers = [rt.spawn(reader.read(f"r{i}", [f"k{n}" for n in theirs]), f"caller {i}") for i, theirs in enumerate(asked)]
        found.extend(await rt.all_of(callers))

    world = play(plane, main)
    for theirs, fetched in zip(asked, found, strict=True):
        assert sorted((*fetched.rows, *fetched.missing)) == sorted(f"k{n}" for n in theirs)
        assert all(plane.rows[key] == row for key, row in fetched.rows.items())
        assert all(reason for reason in fetched.missing.values())
    reads = events(world, PrefixReadDone)
    assert all(read.keys <= rows_max and read.gets <= read.keys + 1 for read in reads)
    assert sum(read.gets for read in reads) == plane.count("get")
