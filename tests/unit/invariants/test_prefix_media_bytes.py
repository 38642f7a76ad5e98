"""I39 and I57, media: what is gone is found before anything is read, and what is there is stored once."""

from __future__ import annotations

import pytest
from ledger_files import judged
from prefix_files import AGAIN, CALL, asked, chunks, prefix_terms

from invariants.gym.nothing_is_restored_in_part import NothingIsRestoredInPart
from invariants.prefix.batches_are_bounded import BatchesAreBounded
from protocol.history import MediaAdmitted, PrefixClaimed, PrefixFellBack, PrefixReadIssued, RowStagedDone

TERMS = prefix_terms()
ROWS = chunks(2)
KEYS = (ROWS[0].key,)
ASKED = asked(AGAIN, ROWS, media=1)
ADMITTED = MediaAdmitted(AGAIN, 1, 4, "d")
VANISHED = PrefixFellBack(AGAIN, KEYS, "media_source_vanished: a.png", True)


def found(kind, *events):
    return judged(kind, *[("worker-0", event) for event in events], given=TERMS, life=2)


def test_media_that_are_gone_are_found_before_anything_is_read():
    assert found(NothingIsRestoredInPart, ASKED, VANISHED) == []
    claimed = PrefixClaimed(AGAIN, "d", KEYS, "owned")
    assert "after its prefix was claimed" in found(NothingIsRestoredInPart, ASKED, claimed, VANISHED)[0]
    read = PrefixReadIssued(1, 1, 1, (AGAIN,))
    assert "after its prefix was read" in found(NothingIsRestoredInPart, ASKED, read, VANISHED)[0]


def test_media_that_are_stored_once_are_held():
    assert found(BatchesAreBounded, ASKED, ADMITTED, RowStagedDone(AGAIN, 7, "d", 300, 4)) == []
    assert found(BatchesAreBounded, asked(), RowStagedDone(CALL, 7, "d", 300, 0)) == []


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([RowStagedDone(AGAIN, 7, "d", 300, 8)], "holds 8 bytes of media, it was admitted with 4"),
        ([RowStagedDone(AGAIN, 7, "d", 300, 4)] * 2, "4 bytes of the media of"),
        ([RowStagedDone(AGAIN, 7, "d", 9_000, 4)], "has 9000 bytes"),
    ],
)
def test_media_that_are_stored_twice_break_I57(rows, text):
    lines = found(BatchesAreBounded, ASKED, ADMITTED, *rows)
    assert any(text in line for line in lines) and lines != []
