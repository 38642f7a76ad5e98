"""Rows that hold media: from the calls of a chain to the row that is trained on."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest
from chain_samples import GROUP, ORDINAL, chain_rows, group_request, receipt, sealed_again, staged

from protocol.data_plane.chain import linearise, verify_chain
from protocol.data_plane.digests import StagedRow
from protocol.data_plane.extras import Extras, MediaItem, TensorDigest, media_digest
from protocol.data_plane.finalizer import build_rows
from protocol.data_plane.rows import decode_canonical, encode_canonical, row_fault, trained_row
from protocol.identity import sample_id

PIXELS, CLOSER = bytes(range(96)), bytes(24)


def item(source: str, position: int, data: bytes) -> MediaItem:
    tensor = TensorDigest("pixel_values", "uint8", (len(data),), hashlib.sha256(data).hexdigest())
    return MediaItem("image", source, position, 1, (tensor,))


def chain(**changes: Any) -> list[StagedRow]:
    """Three calls: the first looks at one image, the last at another one; ``changes`` to the extras of the first."""
    rows = chain_rows()
    first = Extras(media=(item("a.png", 1, PIXELS),), tensors=(PIXELS,))
    last = Extras(media=(item("b.png", 0, CLOSER),), tensors=(CLOSER,))
    rows[0] = sealed_again(rows[0], "", extras=msgspec.structs.replace(first, **changes))
    rows[1] = sealed_again(rows[1], rows[0].cumulative)
    rows[2] = sealed_again(rows[2], rows[1].cumulative, extras=last)
    return rows


def test_a_canonical_row_holds_the_media_of_its_calls_where_its_own_tokens_are() -> None:
    rows = chain()
    whole = verify_chain(receipt(rows), staged(rows), ORDINAL, 0)
    assert whole.reason == ""
    row = linearise(sample_id(GROUP, 0), GROUP, whole.rows, 1.0)
    assert [(one.source, one.position) for one in row.media] == [("a.png", 1), ("b.png", rows[2].previous_length)]
    assert row.tensors == (PIXELS, CLOSER)
    assert row_fault(decode_canonical(encode_canonical(row))) == ""


def test_a_trained_row_names_the_media_of_each_call_as_the_call_was_admitted_with_them() -> None:
    rows = chain()
    row = linearise(sample_id(GROUP, 0), GROUP, rows, 1.0)
    digests = [media_digest(one.extras.media) if one.extras is not None else "" for one in rows]
    assert trained_row(row).media == tuple(digests) and digests[1] == "" not in (digests[0], digests[2])


def test_a_row_without_media_encodes_nothing_of_them() -> None:
    rows = chain_rows()
    row = linearise(sample_id(GROUP, 0), GROUP, rows, 1.0)
    assert (row.media, row.tensors, trained_row(row).media) == ((), (), ())
    assert "media" not in msgspec.msgpack.decode(encode_canonical(row))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"tensors": (bytes(96),)}, "other bytes"),
        ({"tensors": ()}, "there are 0 tensors"),
        ({"media": ()}, "there are 1 tensors"),
        ({"media": (item("a.png", 3, PIXELS),)}, "the call carried 3 tokens"),
    ],
)
def test_media_that_cannot_be_trusted_cost_their_sample_a_mask_and_no_other_one(changes: Any, text: str) -> None:
    rows = chain(**changes)
    other = chain_rows(generation=1)
    built, metas = build_rows(group_request([rows, other]), staged(rows) | staged(other))
    assert not metas[0].valid and "its media cannot be read" in metas[0].reason and text in metas[0].reason
    assert (built[0].sample_mask, built[0].media, built[0].tensors) == (0, (), ())
    assert metas[1].valid


def test_a_row_whose_tensors_were_changed_after_it_was_published_is_not_trained_on() -> None:
    row = linearise(sample_id(GROUP, 0), GROUP, chain(), 1.0)
    assert "other bytes" in row_fault(msgspec.structs.replace(row, tensors=(PIXELS, bytes(23))))
    moved = msgspec.structs.replace(row.media[0], position=2)
    assert "differs from its digest" in row_fault(msgspec.structs.replace(row, media=(moved, *row.media[1:])))
