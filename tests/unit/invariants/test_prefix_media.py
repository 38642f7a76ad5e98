"""I58, I39 (media), I57 (media): a call goes on with the media it began with, and their bytes are stored once."""

from __future__ import annotations

import pytest
from ledger_files import judged
from prefix_files import AGAIN, CALL, asked, chunk, prefix_terms, restored, saved

from invariants.gym.nothing_is_restored_in_part import NothingIsRestoredInPart
from invariants.prefix.batches_are_bounded import BatchesAreBounded
from invariants.prefix.media_are_the_same import MediaAreTheSame
from protocol.data_plane.extras import Extras, MediaItem, TensorDigest, media_digest
from protocol.history import (
    CallEnded,
    MediaAdmitted,
    MediaCompared,
    OptimizerApplied,
    PrefixClaimed,
    PrefixFellBack,
    PrefixReadIssued,
    RowStagedDone,
    TrainedRow,
)

TERMS = prefix_terms()


def item(position=0, letter="0"):
    return MediaItem("image", "a.png", position, 1, (TensorDigest("pixels", "uint8", (2, 2), letter * 64),))


ITEMS = (item(),)
SAME, OTHER = media_digest(ITEMS), media_digest((item(letter="1"),))
ROWS = [chunk(0, 2, extras=Extras(media=ITEMS))]
KEY = ROWS[0].key
KEYS = (KEY,)


def found(kind, *events, start=None):
    return judged(kind, *[("worker-0", event) for event in events], given=TERMS, start=start, life=2)


def admitted(digest=SAME, call=AGAIN):
    return MediaAdmitted(call, 1, 4, digest)


def compared(outcome, now=SAME, before=SAME, key=KEY, path="prefix"):
    return MediaCompared(AGAIN, key, path, before, now, outcome)


def fell_back(reason, rejected=False):
    return PrefixFellBack(AGAIN, KEYS, reason, rejected)


CHANGED = fell_back("retained_media_changed: other bytes", True)
ANSWERED = CallEnded(AGAIN, "answered", 5, 2, 5, 8)
ASKED = asked(AGAIN, ROWS, media=1)


def trained(digest):
    row = TrainedRow(0, 0, "s", "p", "c", ((0, 5),), "t", 1.0, True, ((AGAIN, "a", "b"),), (digest,))
    return OptimizerApplied(1, "w0", "w1", (row,))


@pytest.mark.parametrize(
    "events",
    [
        [ASKED, admitted(), compared("kept"), restored(ROWS), ANSWERED, trained(SAME)],
        [ASKED, admitted(OTHER), compared("changed", OTHER), CHANGED],
        [ASKED, admitted(), compared("unreadable", before=""), fell_back("media_metadata_unreadable")],
    ],
)
def test_a_call_that_goes_on_with_its_media_or_not_at_all_is_held(events):
    start = saved(ROWS) if events[-1] != fell_back("media_metadata_unreadable") else saved([chunk(0, 2)])
    assert found(MediaAreTheSame, *events, start=start) == []


def test_media_whose_places_nobody_can_read_are_generated_again():
    odd = [chunk(0, 2, extras=Extras(media=(item(position=9),)))]
    digest = media_digest((item(position=9),))
    events = [asked(AGAIN, odd, media=1), admitted(OTHER), MediaCompared(AGAIN, KEY, "prefix", digest, OTHER, "unreadable")]
    assert found(MediaAreTheSame, *events, fell_back("media_metadata_unreadable"), start=saved(odd)) == []
    gone_on = [asked(AGAIN, odd, media=1), admitted(digest), restored(odd)]
    assert "whose media nobody can place" in found(MediaAreTheSame, *gone_on, start=saved(odd))[0]


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([ASKED, admitted(OTHER), restored(ROWS)], "its prefix was generated from"),
        ([ASKED, restored(ROWS)], "goes on with media none"),
        ([ASKED, admitted(OTHER), compared("kept", OTHER)], "keeps the media of"),
        ([ASKED, admitted(), compared("changed")], "for changed, their digest is"),
        ([ASKED, admitted(), CHANGED], "and no media of it were found changed"),
        ([ASKED, admitted(OTHER), compared("changed", OTHER), fell_back("x")], "is not rejected (x)"),
        ([ASKED, admitted(OTHER), compared("unreadable", OTHER), fell_back("x")], "have changed, which must reject it"),
        ([ASKED, admitted(), compared("kept", before="z")], "compares with media z"),
        ([ASKED, admitted(), compared("changed", "z")], "compares media z, it was admitted with"),
        ([ASKED, compared("changed", OTHER, key=CALL, path="parent"), ANSWERED], "is answered and staged, though the media of"),
        ([ASKED, admitted(), ANSWERED, trained(OTHER)], "is trained with media"),
    ],
)
def test_a_call_of_other_media_breaks_I58(events, text):
    lines = found(MediaAreTheSame, *events, start=saved(ROWS))
    assert any(text in line for line in lines) and lines != []


# --- I39

VANISHED = fell_back("media_source_vanished: a.png", True)


def test_media_that_are_gone_are_found_before_anything_is_read():
    assert found(NothingIsRestoredInPart, ASKED, VANISHED) == []
    claimed = PrefixClaimed(AGAIN, "d", KEYS, "owned")
    assert "after its prefix was claimed" in found(NothingIsRestoredInPart, ASKED, claimed, VANISHED)[0]
    read = PrefixReadIssued(1, 1, 1, (AGAIN,))
    assert "after its prefix was read" in found(NothingIsRestoredInPart, ASKED, read, VANISHED)[0]


# --- I57


def test_media_that_are_stored_once_are_held():
    assert found(BatchesAreBounded, ASKED, admitted(), RowStagedDone(AGAIN, 7, "d", 300, 4)) == []
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
    lines = found(BatchesAreBounded, ASKED, admitted(), *rows)
    assert any(text in line for line in lines) and lines != []
