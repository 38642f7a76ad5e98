"""Media of a call: one reader of spans, what a restore may go on with, digests made once and off the serving loop."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from toy import toy_world

from protocol.data_plane.extras import Extras, MediaItem, TensorDigest, extras_digest, media_digest
from protocol.data_plane.media import CHANGED, UNREADABLE, VANISHED, bytes_fault, decide_retained, rejects, span_fault
from protocol.errors import Cause, Refusal
from protocol.history import MediaAdmitted, MediaCompared
from protocol.messages import Generate, MediaSource, RetainedMedia
from protocol.worker.media import MALFORMED, AdmittedMedia, admit, compare, media_evidence
from sim.fake_engine import FakeEngine

CARRY = 20
REPLACE = msgspec.structs.replace


def tensor(name: str = "pixel_values", **changes: Any) -> TensorDigest:
    return REPLACE(TensorDigest(name, "float32", (16, 1176), "0" * 64), **changes)


def item(**changes: Any) -> MediaItem:
    made = MediaItem("image", "a.png", 2, 4, (tensor(), tensor("image_grid_thw", dtype="int64", shape=(1, 3))))
    return REPLACE(made, **changes)


TWO = (item(), item(source="b.mp4", kind="video", position=8, length=6))

MALFORMED_ITEMS = {
    "neither an image nor a video": (item(kind="sound"),),
    "no source": (item(source=""),),
    "no place": (item(length=0),),
    "before the carry": (item(position=-1),),
    "behind the carry": (item(position=17),),
    "overlapping": (item(), item(position=5)),
    "out of order": TWO[::-1],
    "no tensor": (item(tensors=()),),
    "a tensor without a name": (item(tensors=(tensor(""),)),),
    "two tensors of one name": (item(tensors=(tensor(), tensor())),),
    "an unknown dtype": (item(tensors=(tensor(dtype="float24"),)),),
    "no shape": (item(tensors=(tensor(shape=()),)),),
    "a negative shape": (item(tensors=(tensor(shape=(-1, 2)),)),),
    "no digest": (item(tensors=(tensor(sha256=""),)),),
    "half a digest": (item(tensors=(tensor(sha256="0" * 63 + "x"),)),),
}


@pytest.mark.parametrize("items", MALFORMED_ITEMS.values(), ids=MALFORMED_ITEMS)
def test_malformed_items_have_a_reason_and_can_only_be_unreadable_at_a_restore(items: tuple[MediaItem, ...]) -> None:
    reason = span_fault(items, CARRY)
    assert reason
    assert decide_retained(items, items, CARRY) == f"{UNREADABLE}: {reason}"
    assert not rejects(decide_retained(items, TWO, CARRY))


def test_items_side_by_side_up_to_the_last_carried_token_are_sound() -> None:
    assert span_fault((), 0) == ""
    assert span_fault((item(position=0, length=10), item(position=10, length=10)), CARRY) == ""


CHANGES: dict[str, tuple[tuple[MediaItem, ...], str]] = {
    "another item": ((item(source="c.png"), TWO[1]), "the items were"),
    "one item less": (TWO[:1], "the items were"),
    "none at all": ((), "the items were"),
    "another place": ((item(position=3), TWO[1]), "the items were"),
    "another kind": ((item(kind="video"), TWO[1]), "the items were"),
    "a tensor less": ((item(tensors=TWO[0].tensors[:1]), TWO[1]), "a.png had the tensors"),
    "another dtype": ((item(tensors=(tensor(dtype="bfloat16"), TWO[0].tensors[1])), TWO[1]), "was float32[16, 1176]"),
    "another shape": ((item(tensors=(tensor(shape=(8, 1176)), TWO[0].tensors[1])), TWO[1]), "it is float32[8, 1176]"),
    "other bytes": ((item(tensors=(tensor(sha256="1" * 64), TWO[0].tensors[1])), TWO[1]), "has other bytes"),
}


@pytest.mark.parametrize(("now", "found"), CHANGES.values(), ids=CHANGES)
def test_changed_media_reject_and_say_what_changed(now: tuple[MediaItem, ...], found: str) -> None:
    reason = decide_retained(TWO, now, CARRY)
    assert reason.startswith(f"{CHANGED}: ") and found in reason
    assert rejects(reason)


def test_unchanged_media_are_kept_and_a_row_that_names_none_is_unreadable() -> None:
    assert decide_retained(TWO, TWO, CARRY) == decide_retained((), (), CARRY) == ""
    assert decide_retained((), TWO, CARRY).startswith(UNREADABLE)


@pytest.mark.parametrize("now", [now for now, _ in CHANGES.values() if now])
def test_the_digest_of_the_media_tells_what_the_comparison_tells(now: tuple[MediaItem, ...]) -> None:
    assert media_digest(now) != media_digest(TWO) == media_digest(TWO)
    assert extras_digest(Extras(media=now)) != extras_digest(Extras(media=TWO))


def test_only_the_first_chunk_names_media_and_no_chunk_holds_their_bytes() -> None:
    admitted = AdmittedMedia(TWO, (b"pixels",) * 4)
    assert media_evidence(admitted, 0) == TWO
    assert media_evidence(admitted, 1) == media_evidence(admitted, 512) == ()


def test_tensors_are_vouched_for_by_the_digests_in_the_media_alone() -> None:
    pixels = bytes(64)
    named = (item(tensors=(tensor(sha256=hashlib.sha256(pixels).hexdigest()),)),)
    assert bytes_fault(named, (pixels,)) == ""
    assert "other bytes" in bytes_fault(named, (bytes(65),))
    assert "0 tensors" in bytes_fault(named, ())
    assert extras_digest(Extras(media=named, tensors=(pixels,))) == extras_digest(Extras(media=named))


# --- admission


def request(*sources: MediaSource, retained: tuple[RetainedMedia, ...] = ()) -> Generate:
    return Generate(
        call="e0p5i1_g0r0-a0/c0", rollout_id="e0p5i1_g0r0", attempt=0, ordinal=5, generation=0, turn=0, parent="",
        parent_cumulative="", previous_length=0, carry=(1,) * CARRY, media=sources, retained=retained,
    )  # fmt: skip


IMAGE = MediaSource("image", "a.png", 1, 4)
CLIP = MediaSource("video", "b.mp4", 6, 8)


def in_a_worker(script: Callable[[Any, FakeEngine], Any]) -> Any:
    """The world of one worker that has run ``script(rt, engine)``."""

    async def main(rt: Any) -> None:
        await script(rt, FakeEngine(rt, None, world.media_store()))

    async def controller(rt: Any) -> None:
        await rt.sleep(1.0)

    world = toy_world(worker_0=main, controller=controller)
    status = world.live()
    if world.failure is not None:
        raise world.failure
    assert status.outcome == "ended"
    world.bury()
    return world


def told(world: Any, kind: type) -> list[Any]:
    return [record.event for record in world.history if isinstance(record.event, kind)]


def test_each_tensor_is_digested_once_on_the_media_loop_and_its_bytes_are_counted() -> None:
    found: list[AdmittedMedia] = []
    loops: list[tuple[str, int]] = []

    async def script(rt: Any, engine: FakeEngine) -> None:
        usual = rt.on_loop
        rt.on_loop = lambda name, function, items: (loops.append((name, len(items))), usual(name, function, items))[1]
        found.append(await admit(rt, engine, request(IMAGE, CLIP)))

    world = in_a_worker(script)
    (admitted,) = found
    assert loops == [("media", 2)]
    assert [one.source for one in admitted.items] == ["a.png", "b.mp4"]
    assert [tensor.name for tensor in admitted.items[1].tensors] == [
        "pixel_values_videos",
        "video_grid_thw",
        "second_per_grid_ts",
    ]
    assert bytes_fault(admitted.items, admitted.tensors) == ""
    expected = 4 * 4 * 1176 * 4 + 3 * 8 + 8 * 4 * 1176 * 4 + 3 * 8 + 4  # patches of a token, values of a patch, bytes of a value
    assert told(world, MediaAdmitted) == [MediaAdmitted(request().call, 2, expected, media_digest(admitted.items))]


def test_a_call_without_media_reads_digests_and_records_nothing() -> None:
    async def script(rt: Any, engine: FakeEngine) -> None:
        assert await admit(rt, engine, request()) == AdmittedMedia()

    assert told(in_a_worker(script), MediaAdmitted) == []


def test_media_of_the_calls_before_are_told_apart_from_the_calls_own() -> None:
    before = (RetainedMedia("k/c0", (CLIP,)), RetainedMedia("k/c1", (IMAGE, CLIP)))
    found: list[AdmittedMedia] = []

    async def script(rt: Any, engine: FakeEngine) -> None:
        found.append(await admit(rt, engine, request(IMAGE, retained=before)))

    world = in_a_worker(script)
    assert [[one.source for one in items] for items in found[0].retained] == [["b.mp4"], ["a.png", "b.mp4"]]
    assert len(found[0].items) == 1 and len(found[0].tensors) == 2
    assert [event.items for event in told(world, MediaAdmitted)] == [1]


@pytest.mark.parametrize("own", [True, False], ids=["its own", "one of a call before"])
def test_a_source_that_is_not_there_rejects_with_the_named_cause(own: bool) -> None:
    async def script(rt: Any, engine: FakeEngine) -> None:
        engine.pictures.store.remove("b.mp4")
        asked = request(IMAGE, CLIP) if own else request(IMAGE, retained=(RetainedMedia("k/c0", (CLIP,)),))
        with pytest.raises(Refusal, match=f"^{VANISHED}: b.mp4 is not there$") as raised:
            await admit(rt, engine, asked)
        assert raised.value.cause is Cause.DATA and rejects(str(raised.value))

    assert told(in_a_worker(script), MediaAdmitted) == []


def test_a_request_whose_own_spans_are_malformed_is_refused_as_data() -> None:
    async def script(rt: Any, engine: FakeEngine) -> None:
        with pytest.raises(Refusal, match=f"^{MALFORMED}: item 1 ends at 24") as raised:
            await admit(rt, engine, request(IMAGE, REPLACE(CLIP, position=16)))
        assert raised.value.cause is Cause.DATA

    in_a_worker(script)


def test_a_comparison_is_told_with_both_digests_and_its_outcome() -> None:
    async def script(rt: Any, engine: FakeEngine) -> None:
        assert compare(rt, "k/c1", "k/c1/p0", "prefix", TWO, TWO, CARRY) == ""
        compare(rt, "k/c1", "k/c0", "parent", TWO, TWO[:1], CARRY)
        compare(rt, "k/c1", "k/c0", "parent", TWO, TWO, 3)

    both = media_digest(TWO)
    assert told(in_a_worker(script), MediaCompared) == [
        MediaCompared("k/c1", "k/c1/p0", "prefix", both, both, "kept"),
        MediaCompared("k/c1", "k/c0", "parent", both, media_digest(TWO[:1]), "changed"),
        MediaCompared("k/c1", "k/c0", "parent", both, both, "unreadable"),
    ]
