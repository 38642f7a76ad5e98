import msgspec
import pytest

from protocol.data_plane.digests import (
    StagedRow,
    as_float32s,
    content_digest,
    cumulative_digest,
    decode_row,
    encode_row,
    row_digest,
    tokens_digest,
)
from protocol.data_plane.extras import Extras, MediaItem
from protocol.messages import Generate
from protocol.worker.capture import coordinate_of, delta_row, lost_coordinate, sealed_row

REQUEST = Generate(
    call="e0p3i1_g1r0-a0/c1",
    rollout_id="e0p3i1_g1r0",
    attempt=0,
    ordinal=3,
    generation=1,
    turn=1,
    parent="e0p3i1_g1r0-a0/c0",
    parent_cumulative="ab" * 32,
    previous_length=20,
    carry=(7, 8),
)
ROW = delta_row(REQUEST, ((4, 3),), (10, 11, 12), (-0.5, -0.25, -1.0))


def test_a_delta_row_is_carry_then_generated() -> None:
    assert ROW.tokens == (7, 8, 10, 11, 12)
    assert ROW.mask == (0, 0, 1, 1, 1)
    assert ROW.logprobs == (0.0, 0.0, -0.5, -0.25, -1.0)
    assert (ROW.mode, ROW.previous_length, ROW.weight_version, ROW.generated) == ("token_in", 20, 4, 3)


def test_a_call_without_a_parent_is_a_root() -> None:
    root = msgspec.structs.replace(REQUEST, parent="", parent_cumulative="", previous_length=0)
    assert delta_row(root, ((0, 1),), (1,), (-1.0,)).mode == "text"


def test_a_row_survives_its_codec() -> None:
    assert decode_row(encode_row(ROW)) == ROW


@pytest.mark.parametrize("data", [b"", b"\x81\xa1v\x02", encode_row(ROW)[:-3]])
def test_what_is_no_row_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_row(data)


OTHER = {
    "v": 3,
    "key": "e0p3i1_g1r0-a1/c1",
    "rollout_id": "e0p3i1_g1r1",
    "attempt": 1,
    "call": "c2",
    "ordinal": 4,
    "generation": 2,
    "turn": 2,
    "mode": "text",
    "parent": "",
    "previous_length": 21,
    "tokens": (7, 8, 10, 11, 13),
    "mask": (0, 1, 1, 1, 1),
    "logprobs": (0.0, 0.0, -0.5, -0.25, -1.0000001),
    "weight_version": 5,
    "extras": Extras(media=(MediaItem("image", "a.png", 0, 1, ()),)),
    "segments": ((4, 2), (5, 1)),
}


@pytest.mark.parametrize("field", [name for name in StagedRow.__struct_fields__ if name not in ("digest", "cumulative")])
def test_the_row_digest_covers_every_field(field: str) -> None:
    changed = msgspec.structs.replace(ROW, **{field: OTHER[field]})
    assert row_digest(changed) != row_digest(ROW)


def test_the_row_digest_leaves_the_digests_out() -> None:
    assert row_digest(msgspec.structs.replace(ROW, digest="x", cumulative="y")) == ROW.digest


def test_text_cannot_move_between_neighbouring_fields() -> None:
    moved = msgspec.structs.replace(ROW, key=ROW.key + "e", rollout_id=ROW.rollout_id[1:])
    assert row_digest(moved) != row_digest(ROW)


def test_tokens_cannot_move_into_the_mask() -> None:
    assert content_digest((1, 2), (1,), (0.0,)) != content_digest((1,), (2, 1), (0.0,))


def test_the_chain_digest_depends_on_the_parent_and_the_row() -> None:
    assert ROW.cumulative == cumulative_digest("ab" * 32, ROW.digest)
    assert len({cumulative_digest("", ROW.digest), cumulative_digest(ROW.digest, ""), ROW.cumulative, ROW.digest}) == 4
    assert sealed_row(ROW, "").cumulative != ROW.cumulative


def test_a_coordinate_names_the_row_and_a_lost_one_has_no_digest() -> None:
    coordinate = coordinate_of(ROW)
    assert (coordinate.key, coordinate.digest, coordinate.cumulative) == (ROW.key, ROW.digest, ROW.cumulative)
    assert (coordinate.version, coordinate.tokens) == (4, 3)
    lost = lost_coordinate(ROW)
    assert (lost.key, lost.digest, lost.cumulative, lost.tokens) == (ROW.key, "", "", 3)


def test_content_is_named_whatever_its_keys_are() -> None:
    assert content_digest(ROW.tokens, ROW.mask, ROW.logprobs) == content_digest(
        list(ROW.tokens), list(ROW.mask), list(ROW.logprobs)
    )
    assert tokens_digest((1, 2)) != tokens_digest((2, 1))
    assert len(tokens_digest(())) == 32


def test_logprobs_are_stored_as_32_bit_floats() -> None:
    (rounded,) = as_float32s((-0.1,))
    assert rounded != -0.1
    assert as_float32s((rounded,)) == (rounded,)
    assert delta_row(REQUEST, ((0, 1),), (1,), (-0.1,)).logprobs[-1] == rounded
