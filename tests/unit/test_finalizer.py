"""The finalizer as a process: what it reads, what it puts, and what its failures mean."""

from __future__ import annotations

from typing import Any

import pytest
from chain_samples import GROUP, chain_rows, group_request, staged
from small_world import Client, Played, play

from protocol.config import Job
from protocol.data_plane.finalizer import Finalizer
from protocol.data_plane.rows import decode_canonical
from protocol.errors import Cause, Lost, OutcomeUnknown, PeerFailed, ProtocolError, Refusal
from protocol.identity import DATA_PLANE, finalizer_name, sample_id
from protocol.messages import (
    CANONICAL,
    STAGING,
    ClearSamples,
    GetSamples,
    GroupPublished,
    ListSampleIds,
    PutSamples,
)
from protocol.runtime import Runtime
from sim.fake_data_plane import FakeDataPlane

SIBLINGS = 4
CHAINS = [chain_rows(generation) for generation in range(SIBLINGS)]
STAGED = tuple((key, row) for chain in CHAINS for key, row in staged(chain).items())
SAMPLES = tuple(sample_id(GROUP, generation) for generation in range(SIBLINGS))
REQUEST = group_request(CHAINS)
FINALIZER = finalizer_name(0)


class Watched(FakeDataPlane):
    """Remembers every request; ``fails`` maps a message type to what answering it raises, after it took effect."""

    def __init__(self, rt: Runtime, asked: list[Any], fails: dict[type, Exception]) -> None:
        super().__init__(rt)
        self.asked = asked
        self.fails = fails

    async def put(self, message: PutSamples) -> None:
        await super().put(message)
        if message.partition == CANONICAL:
            self._fail(message)

    async def get(self, message: GetSamples) -> tuple[tuple[str, bytes], ...]:
        found = await super().get(message)
        self._fail(message)
        return found

    async def clear(self, message: ClearSamples) -> None:
        self._fail(message)
        await super().clear(message)

    def _fail(self, message: Any) -> None:
        self.asked.append(message)
        error = self.fails.get(type(message))
        if error is not None:
            raise error


def beside(client: Client, asked: list[Any] | None = None, fails: dict[type, Exception] | None = None) -> Played:
    watched = [] if asked is None else asked
    return play(
        client,
        {
            DATA_PLANE: lambda rt: Watched(rt, watched, fails or {}).main(),
            FINALIZER: lambda rt: Finalizer(rt, Job(num_generations_per_prompt=SIBLINGS)).main(),
        },
    )


async def finalized(rt: Runtime, rows: tuple[tuple[str, bytes], ...] = STAGED) -> Any:
    """(reply or error, canonical ids afterwards)."""
    await rt.call(DATA_PLANE, PutSamples(STAGING, rows))
    try:
        reply: Any = await rt.call(FINALIZER, REQUEST)
    except ProtocolError as error:
        reply = error
    return reply, await rt.call(DATA_PLANE, ListSampleIds(CANONICAL))


def test_a_sealed_group_is_published_as_exactly_its_rows() -> None:
    async def client(rt: Runtime) -> Any:
        reply, ids = await finalized(rt)
        return reply, ids, await rt.call(DATA_PLANE, GetSamples(CANONICAL, SAMPLES))

    reply, ids, rows = beside(client).result
    assert isinstance(reply, GroupPublished)
    assert tuple(meta.sample for meta in reply.rows) == ids == SAMPLES
    assert [decode_canonical(data).digest for _, data in rows] == [meta.digest for meta in reply.rows]
    assert all(decode_canonical(data).sample_mask == 1 for _, data in rows)


def test_a_group_is_read_in_one_call_and_put_in_one_call() -> None:
    asked: list[Any] = []
    beside(finalized, asked)
    assert [type(message) for message in asked] == [GetSamples, PutSamples]
    assert asked[0] == GetSamples(STAGING, tuple(key for key, _ in STAGED))
    assert tuple(key for key, _ in asked[1].rows) == SAMPLES


def test_a_partial_miss_masks_a_row_and_the_group_is_still_published() -> None:
    lost = CHAINS[2][1].key

    async def client(rt: Runtime) -> Any:
        return await finalized(rt, tuple(pair for pair in STAGED if pair[0] != lost))

    reply, ids = beside(client).result
    assert ids == SAMPLES
    assert [meta.valid for meta in reply.rows] == [True, True, False, True]
    assert reply.rows[2].reason == f"{lost}: missing from staging"


@pytest.mark.parametrize("error", [Lost("gone"), Refusal("no"), ValueError("torn")])
def test_a_failed_read_says_that_nothing_was_written(error: Exception) -> None:
    """A lost read must not look like a lost publish, which would end the run."""
    reply, ids = beside(finalized, fails={GetSamples: error}).result
    assert (type(reply), reply.cause, ids) == (Refusal, Cause.INFRA, ())


@pytest.mark.parametrize("error", [Refusal("no"), ValueError("disk full")])
def test_a_put_that_fails_after_writing_is_taken_back(error: Exception) -> None:
    asked: list[Any] = []
    reply, ids = beside(finalized, asked, {PutSamples: error}).result
    assert (type(reply), reply.cause, ids) == (Refusal, Cause.INFRA, ())
    assert ClearSamples(CANONICAL, SAMPLES) in asked


def test_a_lost_put_is_taken_back_and_its_outcome_is_unknown() -> None:
    reply, ids = beside(finalized, fails={PutSamples: Lost("gone")}).result
    assert (type(reply), ids) == (OutcomeUnknown, ())


def test_a_put_that_cannot_be_taken_back_is_unknown_and_both_errors_are_told() -> None:
    reply, ids = beside(finalized, fails={PutSamples: PeerFailed("first"), ClearSamples: Refusal("second")}).result
    assert (type(reply), ids) == (OutcomeUnknown, SAMPLES)
    assert "first" in str(reply) and "second" in str(reply)


def test_a_request_without_every_sibling_is_refused_before_anything_is_read() -> None:
    asked: list[Any] = []

    async def client(rt: Runtime) -> Any:
        with pytest.raises(Refusal) as caught:
            await rt.call(FINALIZER, group_request(CHAINS[:-1]))
        return caught.value.cause

    assert beside(client, asked).result is Cause.BROKEN
    assert asked == []
