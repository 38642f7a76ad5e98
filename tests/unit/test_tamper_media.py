"""Media metadata changed at rest: what is spoiled, and that everything else still vouches for it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import pytest

from protocol.data_plane.chunks import (
    CHUNK_ROW_VERSION,
    ChunkRow,
    chunk_digest,
    decode_chunk,
    encode_chunk,
    prefix_digest,
    sealed_chunk,
)
from protocol.data_plane.extras import Extras, MediaItem, TensorDigest
from protocol.data_plane.media import span_fault
from protocol.identity import chunk_key
from scenarios.faults import Fault
from sim.tamper import tampered

SOURCE = "bootstrap/rollout_snapshots/snapshot_000001"
ROWS = f"{SOURCE}/data_plane/rollout_staging.msgpack"
SESSIONS = f"{SOURCE}/gym/gym-0/agent/episodes.msgpack"
MANIFEST = f"{SOURCE}/gym/gym-0/agent/manifest.json"
CARRY = 12
ITEMS = tuple(
    MediaItem("image", name, at, 4, (TensorDigest("pixel_values", "float32", (16, 1176), "0" * 64),))
    for name, at in (("a.png", 1), ("b.png", 7))
)


def chunk(call: str, start: int, before: str, media: tuple[MediaItem, ...] = ()) -> ChunkRow:
    row = ChunkRow(
        v=CHUNK_ROW_VERSION, key=chunk_key(call, start), call=call, rollout_id="e0p0i1_g0r0", attempt=0, ordinal=0, generation=0,
        turn=0, previous_length=0, carry="c", start=start, tokens=(1, 2, 3), logprobs=(-0.5, -0.25, -1.0), limit=64, finish="",
        weight_version=0, extras=Extras(media=media) if media else None, digest="", cumulative="",
    )  # fmt: skip
    return sealed_chunk(row, before)


FIRST = chunk("k-a0/c0", 0, "", ITEMS)
SECOND = chunk("k-a0/c0", 3, FIRST.cumulative)
THIRD = chunk("k-a1/c0", 6, SECOND.cumulative)  # of the call that went on from the two
OTHER = chunk("j-a0/c0", 0, "")


def files() -> dict[str, bytes]:
    rows = [[row.key, encode_chunk(row)] for row in (FIRST, SECOND, THIRD, OTHER)]
    sessions = msgspec.msgpack.encode(
        {
            "k-a1": {"cut": {"keys": [FIRST.key, SECOND.key, THIRD.key], "digest": THIRD.cumulative}},
            "j-a0": {"cut": {"keys": [OTHER.key], "digest": OTHER.cumulative}},
        }
    )
    return {
        "bootstrap/manifest.json": b"{}",
        f"{SOURCE}/COMMITTED": b"",
        f"{SOURCE}/manifest.json": b'{"base_train_step": 0, "trainer_version": 0}',
        ROWS: msgspec.msgpack.encode([*rows, ["k-a0/c9", b"the row of a whole call"]]),
        SESSIONS: sessions,
        MANIFEST: json.dumps({"schema": 1, "sha256": hashlib.sha256(sessions).hexdigest()}).encode(),
    }


def corrupted(how: str) -> tuple[dict[str, bytes], str]:
    fault = Fault(process="job", event="LifeStarted", life=2, verb="corrupt_media", arguments={"how": how})
    hand = tampered(files(), (fault,), 2)
    assert hand is not None
    return dict(hand.after), hand.told[0]


def rows_of(after: dict[str, bytes]) -> dict[str, bytes]:
    return {key: data for key, data in msgspec.msgpack.decode(after[ROWS])}


@pytest.mark.parametrize("how", ["outside", "overlapping", "untold", "missing"])
def test_spoiled_media_lie_in_a_chain_that_is_whole_and_that_the_session_names(how: str) -> None:
    after, told = corrupted(how)
    assert told == f"media of 1 chunks made {how}"
    rows = {key: decode_chunk(rows_of(after)[key]) for key in (FIRST.key, SECOND.key, THIRD.key)}
    before = ""
    for row in rows.values():
        assert row.digest == chunk_digest(row) and row.cumulative == prefix_digest(before, row.digest)
        before = row.cumulative
    sessions: Any = msgspec.msgpack.decode(after[SESSIONS])
    assert sessions["k-a1"]["cut"]["digest"] == before != THIRD.cumulative
    assert json.loads(after[MANIFEST])["sha256"] == hashlib.sha256(after[SESSIONS]).hexdigest()
    media = rows[FIRST.key].extras.media  # type: ignore[union-attr]
    assert media == () if how == "missing" else span_fault(media, CARRY) != ""


def test_an_unreadable_row_is_no_chunk_row_and_nothing_else_is_changed() -> None:
    after, told = corrupted("unreadable")
    rows = rows_of(after)
    with pytest.raises(msgspec.ValidationError):
        decode_chunk(rows.pop(FIRST.key))
    assert told and rows == {key: data for key, data in rows_of(files()).items() if key != FIRST.key}
    assert {path: data for path, data in after.items() if path != ROWS} == {
        path: data for path, data in files().items() if path != ROWS
    }


def test_a_prefix_without_media_is_left_alone_and_without_any_nothing_is_done() -> None:
    after, _ = corrupted("outside")
    assert rows_of(after)[OTHER.key] == encode_chunk(OTHER)
    sessions: Any = msgspec.msgpack.decode(after[SESSIONS])
    assert sessions["j-a0"]["cut"]["digest"] == OTHER.cumulative
    alone = {path: data for path, data in files().items() if path != ROWS} | {
        ROWS: msgspec.msgpack.encode([[OTHER.key, encode_chunk(OTHER)]])
    }
    fault = Fault(process="job", event="LifeStarted", life=2, verb="corrupt_media", arguments={"how": "outside"})
    hand = tampered(alone, (fault,), 2)
    assert hand is not None and hand.after == alone and hand.told == {0: ""}
