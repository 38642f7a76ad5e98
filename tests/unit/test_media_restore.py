"""Model calls that look at media, cut and gone on from: text, an image, an image and a video; once and twice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.config import Job
from protocol.data_plane.chunks import decode_chunk
from protocol.data_plane.digests import decode_row
from protocol.data_plane.extras import media_digest
from protocol.data_plane.media import CHANGED, UNREADABLE, VANISHED, bytes_fault
from protocol.errors import Cause, Refusal
from protocol.history import (
    CallEnded,
    ChunksDiscarded,
    ChunkStaged,
    EngineStarted,
    MediaAdmitted,
    MediaCompared,
    PrefixClaimed,
    PrefixFellBack,
    PrefixReadIssued,
    PrefixRestored,
    RowStagedDone,
    RowStagedIssued,
)
from protocol.messages import (
    DURABLE_FAILURE,
    DURABLE_PREFIX,
    STAGING,
    ClearSamples,
    CutCalls,
    Generate,
    Generated,
    GetSamples,
    ListSampleIds,
    MediaSource,
    OpenGate,
    PrefixEvidence,
    PutSamples,
    RetainedMedia,
    Ticket,
)
from sim.media import MediaStore
from sim.world import World
from tests.unit.gym_bench import ALL_SAVABLE, Bench, events, until

JOB = Job(target_level="prefix", generation_workers=1)
LONG = {**ALL_SAVABLE, "tokens_min": 30, "tokens_max": 30}
ROLLOUT = "e0p5i1_g0r0"
CARRY = tuple(range(40, 60))
IMAGE = MediaSource("image", "a.png", 1, 4)
CLIP = MediaSource("video", "b.mp4", 6, 8)
KINDS = {"text": (), "an image": (IMAGE,), "an image and a video": (IMAGE, CLIP)}


def call(attempt: int = 0, *media: MediaSource, prefix: PrefixEvidence | None = None, **changes: Any) -> Generate:
    made = Generate(
        call=f"{ROLLOUT}-a{attempt}/c0", rollout_id=ROLLOUT, attempt=attempt, ordinal=5, generation=0, turn=0, parent="",
        parent_cumulative="", previous_length=0, carry=CARRY, media=media, prefix=prefix,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


async def cut(rt: Any, world: World, request: Generate, epoch: int) -> PrefixEvidence:
    """Begin this call, have it cut while it runs, and give it up, as a crash would. The rows stay."""
    running = rt.call("worker-0", request)
    await rt.sleep(0.15)
    ticket = Ticket(request.call, request.rollout_id, request.attempt, request.admitted_at)
    for tried in range(5):  # a cut that would end inside a character is refused: a token later it is another one
        receipt = await rt.call("worker-0", CutCalls(f"k{epoch}.{tried}", "gym-0", epoch, (ticket,), 2.0))
        (ack,) = receipt.acks
        if ack.reason != "inside-a-character":
            break
        await rt.sleep(0.012)
    assert ack.kind == DURABLE_PREFIX, ack
    assert ack.evidence is not None
    rows = await rt.call("data-plane", GetSamples(STAGING, ack.evidence.keys))
    running.cancel()  # its clean-up waits at the gate
    await rt.sleep(0.1)
    await rt.call("worker-0", OpenGate("gym-0", epoch))
    await rt.sleep(0.1)
    await rt.call("data-plane", PutSamples(STAGING, rows))  # as they were when the cut was acknowledged
    evidence: PrefixEvidence = ack.evidence
    return evidence


@pytest.mark.parametrize("media", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("times", [1, 2])
def test_a_restored_call_has_the_digest_that_was_acknowledged_and_ends_as_if_never_cut(
    media: tuple[MediaSource, ...], times: int
) -> None:
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        whole: Generated = await rt.call("worker-0", call(9, *media))
        evidence: PrefixEvidence | None = None
        for attempt in range(times):
            evidence = await cut(rt, world, call(attempt, *media, prefix=evidence), attempt + 1)
        assert evidence is not None
        chunks = [decode_chunk(data) for _, data in await rt.call("data-plane", GetSamples(STAGING, evidence.keys))]
        restored: Generated = await rt.call("worker-0", call(times, *media, prefix=evidence))
        found.append((whole, evidence, chunks, restored))
        found.append(await rt.call("data-plane", GetSamples(STAGING, (*evidence.keys, call(times).call))))

    world = Bench(LONG, job=JOB).run(script)
    (whole, evidence, chunks, restored), left = found
    last = events(world, PrefixRestored)[-1]
    assert (last.digest, last.count, last.keys) == (evidence.digest, evidence.count, evidence.keys)
    assert (restored.prefix, restored.prefix_digest) == (evidence.count, evidence.digest)
    assert (restored.tokens, restored.logprobs) == (whole.tokens, whole.logprobs)
    assert [chunk.start for chunk in chunks] == [0, chunks[0].end][:times] and len(chunks) == times
    # The first chunk names the media, later ones hold nothing beside their columns.
    digests = [media_digest(chunk.extras.media) if chunk.extras is not None else "" for chunk in chunks]
    admitted = events(world, MediaAdmitted)
    assert len(admitted) == (times + 2 if media else 0)
    assert digests == [admitted[0].digest if media else "", ""][:times]
    assert [event.extras for event in events(world, ChunkStaged)] == [("media",) if media else (), ()][:times]
    # Only the row of the whole call is left.
    assert [key for key, _ in left] == [call(times).call]


def test_the_bytes_of_media_are_stored_once_an_attempt_and_never_by_a_cut() -> None:
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        evidence = await cut(rt, world, call(0, IMAGE, CLIP), 1)
        await rt.call("worker-0", call(1, IMAGE, CLIP, prefix=evidence))
        found.extend(await rt.call("data-plane", GetSamples(STAGING, (call(1).call,))))

    world = Bench(LONG, job=JOB).run(script)
    pixels = events(world, MediaAdmitted)[-1].bytes
    assert pixels > 200_000
    assert [event.pixels for event in events(world, RowStagedDone)] == [pixels]
    assert max(event.bytes for event in events(world, ChunkStaged)) < 3_000
    ((_, data),) = found
    extras = decode_row(data).extras
    assert extras is not None and bytes_fault(extras.media, extras.tensors) == ""
    assert sum(map(len, extras.tensors)) == pixels < len(data) < pixels + 3_000


def restored_after(change: Any, *media: MediaSource) -> tuple[World, Any]:
    """A call cut with these media, and asked for again after ``change(store)``: the world, and its answer or refusal."""
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        evidence = await cut(rt, world, call(0, *media), 1)
        change(world.media_store())
        try:
            found.append(await rt.call("worker-0", call(1, *media, prefix=evidence)))
        except Refusal as refusal:
            found.append(refusal)
        await rt.sleep(0.2)
        found.append(await rt.call("data-plane", ListSampleIds(STAGING)))

    world = Bench(LONG, job=JOB).run(script)
    assert found[1] == ()  # its chunks are gone
    return world, found[0]


def test_changed_media_reject_the_restored_call_with_their_name_and_retire_its_chunks() -> None:
    world, refusal = restored_after(lambda store: store.replace("b.mp4"), IMAGE, CLIP)
    assert isinstance(refusal, Refusal) and refusal.cause is Cause.DATA
    assert str(refusal) == f"{CHANGED}: pixel_values_videos of b.mp4 has other bytes"
    (fell,) = events(world, PrefixFellBack)
    assert fell.rejected and fell.reason == str(refusal)
    assert [event.outcome for event in events(world, CallEnded)] == ["aborted", "rejected"]
    assert [(event.path, event.outcome) for event in events(world, MediaCompared)] == [("prefix", "changed")]
    assert events(world, RowStagedIssued) == events(world, EngineStarted) == []


def test_a_vanished_source_is_found_before_the_data_plane_is_asked_for_anything() -> None:
    world, refusal = restored_after(lambda store: store.remove("a.png"), IMAGE, CLIP)
    assert isinstance(refusal, Refusal) and refusal.cause is Cause.DATA
    assert str(refusal) == f"{VANISHED}: a.png is not there"
    assert events(world, PrefixReadIssued) == events(world, PrefixClaimed) == []
    (fell,) = events(world, PrefixFellBack)
    assert fell.rejected and fell.reason == str(refusal)
    assert [event.outcome for event in events(world, CallEnded)] == ["aborted", "rejected"]
    assert [event.why for event in events(world, ChunksDiscarded)][-1] == "retired"


# --- media of the calls before

PARENT = call(0, IMAGE, CLIP)


def child(coordinate: Any, length: int, *retained: MediaSource) -> Generate:
    return call(
        0,
        MediaSource("image", "c.png", 1, 4),
        call=f"{ROLLOUT}-a0/c1", turn=1, parent=coordinate.key, parent_cumulative=coordinate.cumulative,
        previous_length=length, retained=(RetainedMedia(coordinate.key, retained),),
    )  # fmt: skip


def after_parent(change: Any, *retained: MediaSource) -> tuple[World, Any]:
    """A call with media and its child, ``change(rt, store)`` between them: the world, and the child's answer or refusal."""
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        parent: Generated = await rt.call("worker-0", PARENT)
        await change(rt, world.media_store())
        try:
            asked = child(parent.coordinate, len(CARRY) + len(parent.tokens), *(retained or (IMAGE, CLIP)))
            found.append(await rt.call("worker-0", asked))
        except Refusal as refusal:
            found.append(refusal)

    world = Bench(LONG, job=JOB).run(script)
    return world, found[0]


async def nothing(rt: Any, store: MediaStore) -> None:
    return None


def test_a_child_looks_at_its_parents_media_again_and_stages_its_own_alone() -> None:
    world, answer = after_parent(nothing)
    assert answer.coordinate.captured
    assert [(event.path, event.key, event.outcome) for event in events(world, MediaCompared)] == [("parent", PARENT.call, "kept")]
    first, second = events(world, MediaAdmitted)
    assert [event.pixels for event in events(world, RowStagedDone)] == [first.bytes, second.bytes]


@pytest.mark.parametrize("how", ["other bytes", "another place"])
def test_changed_media_of_a_call_before_reject_the_child(how: str) -> None:
    async def change(rt: Any, store: MediaStore) -> None:
        if how == "other bytes":
            store.replace("a.png")

    moved = (IMAGE, msgspec.structs.replace(CLIP, position=7)) if how == "another place" else ()
    world, refusal = after_parent(change, *moved)
    assert isinstance(refusal, Refusal) and refusal.cause is Cause.DATA and str(refusal).startswith(CHANGED)
    assert [event.outcome for event in events(world, CallEnded)] == ["answered", "rejected"]


async def gone(rt: Any, store: MediaStore) -> None:
    await rt.call("data-plane", ClearSamples(STAGING, (PARENT.call,)))


async def garbled(rt: Any, store: MediaStore) -> None:
    await rt.call("data-plane", PutSamples(STAGING, ((PARENT.call, b"?"),)))


@pytest.mark.parametrize("change", [gone, garbled])
def test_a_child_whose_parents_row_cannot_be_read_is_answered_and_never_staged_nor_cut(change: Any) -> None:
    world, answer = after_parent(change)
    assert isinstance(answer, Generated) and not answer.coordinate.captured and len(answer.tokens) == 30
    assert [event.outcome for event in events(world, CallEnded)] == ["answered", "capture-failed"]
    assert [event.call for event in events(world, RowStagedIssued)] == [PARENT.call]
    assert [event.outcome for event in events(world, MediaCompared)] == ["unreadable"]


def test_a_call_that_rests_on_unreadable_media_is_acknowledged_as_its_own_failure() -> None:
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        parent: Generated = await rt.call("worker-0", PARENT)
        await gone(rt, world.media_store())
        asked = child(parent.coordinate, len(CARRY) + len(parent.tokens), IMAGE, CLIP)
        running = rt.call("worker-0", asked)
        await until(rt, world, MediaCompared)
        await rt.sleep(0.1)
        ticket = Ticket(asked.call, asked.rollout_id, asked.attempt, asked.admitted_at)
        found.append((await rt.call("worker-0", CutCalls("k1", "gym-0", 1, (ticket,), 2.0))).acks[0])
        await rt.call("worker-0", OpenGate("gym-0", 1))
        found.append(await running)

    Bench(LONG, job=JOB).run(script)
    ack, answer = found
    assert (ack.kind, ack.evidence) == (DURABLE_FAILURE, None) and ack.reason.startswith(UNREADABLE)
    assert not answer.coordinate.captured
