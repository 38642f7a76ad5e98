"""I58: a call goes on with the media that it was begun with, or is told by name that it cannot."""

from __future__ import annotations

import msgspec
import pytest
from ledger_files import SOURCE, judged, pack
from prefix_files import AGAIN, CALL, KEY, NEXT, asked, chunks, prefix_terms, restored, saved

from invariants.gym.nothing_is_restored_in_part import NothingIsRestoredInPart
from invariants.prefix.media_are_the_same import MediaAreTheSame
from invariants.prefix.unusable_prefixes_fall_back import UnusablePrefixesFallBack
from protocol.data_plane.chunks import encode_chunk
from protocol.data_plane.digests import StagedRow, encode_row
from protocol.data_plane.extras import Extras, MediaItem, TensorDigest, media_digest
from protocol.external import External, ServiceValue
from protocol.history import (
    CallEnded,
    EpisodeEnded,
    FaultInjected,
    LifeStarted,
    MediaAdmitted,
    MediaCompared,
    OptimizerApplied,
    PrefixClaimed,
    PrefixFellBack,
    PrefixReadIssued,
    Record,
    TrainedRow,
)
from protocol.judging import Durable, Panel, RunStatus
from protocol.worker.capture import sealed_row

REPLACE = msgspec.structs.replace
TERMS = REPLACE(prefix_terms(), media=True)
TENSOR = TensorDigest("pixel_values", "float32", (4, 8), "0" * 64)
ITEMS = (MediaItem("image", "a.png", 0, 2, (TENSOR,)),)
OTHER = (REPLACE(ITEMS[0], tensors=(REPLACE(TENSOR, sha256="1" * 64),)),)
OUTSIDE = (REPLACE(ITEMS[0], length=3),)  # two tokens were carried
WAS, IS_NOT = media_digest(ITEMS), media_digest(OTHER)
ROWS = chunks(2, 4, extras=Extras(media=ITEMS))
SPOILED = chunks(2, 4, extras=Extras(media=OUTSIDE))
CHANGED = "retained_media_changed: pixel_values of a.png has other bytes"
VANISHED = "media_source_vanished: a.png is not there"
UNREADABLE = "media_metadata_unreadable: item 0 ends at 3"


def found(*events, start=None, life=2):
    steps = [event if isinstance(event, tuple) else ("worker-0", event) for event in events]
    return judged(MediaAreTheSame, *steps, given=TERMS, start=start, life=life)


def keys(rows):
    return tuple(row.key for row in rows)


def admitted(call=AGAIN, digest=WAS):
    return MediaAdmitted(call, 1, 100, digest)


def compared(outcome="kept", was=WAS, now=WAS, rows=ROWS):
    return MediaCompared(AGAIN, rows[0].key, "prefix", was, now, outcome)


def ended(outcome="answered", call=AGAIN):
    return CallEnded(call, outcome)


# --- prefixes


def test_a_prefix_with_the_same_media_is_gone_on_from():
    kept = [asked(AGAIN, ROWS), admitted(), compared(), restored(ROWS), ended()]
    assert found(*kept, start=saved(ROWS)) == []


def test_changed_media_reject_and_unreadable_ones_regenerate():
    rejected = [asked(AGAIN, ROWS), admitted(digest=IS_NOT), compared("changed", now=IS_NOT),
                PrefixFellBack(AGAIN, keys(ROWS), CHANGED, True), ended("rejected")]  # fmt: skip
    assert found(*rejected, start=saved(ROWS)) == []
    again = [asked(AGAIN, SPOILED), admitted(), compared("unreadable", media_digest(OUTSIDE), rows=SPOILED),
             PrefixFellBack(AGAIN, keys(SPOILED), UNREADABLE), ended()]  # fmt: skip
    assert found(*again, start=saved(SPOILED)) == []


BEGUN = [asked(AGAIN, ROWS), admitted(), compared()]
OTHERWISE = [asked(AGAIN, ROWS), admitted(digest=IS_NOT), compared("changed", now=IS_NOT)]
BROKEN = {
    "goes on with other media": (
        [asked(AGAIN, ROWS), admitted(digest=IS_NOT), restored(ROWS)], ROWS, "goes on with media"),
    "goes on without media": ([asked(AGAIN, ROWS), restored(ROWS)], ROWS, "goes on with media none"),
    "goes on with what nobody can read": (
        [asked(AGAIN, SPOILED), admitted(digest=media_digest(OUTSIDE)), restored(SPOILED)], SPOILED, "nobody can read"),
    "rejected for nothing": (
        [*BEGUN, PrefixFellBack(AGAIN, keys(ROWS), CHANGED, True)], ROWS, "its media are those of its prefix"),
    "rejected over what nobody can read": (
        [asked(AGAIN, SPOILED), admitted(), PrefixFellBack(AGAIN, keys(SPOILED), CHANGED, True)], SPOILED, "nobody can read"),
    "vanished, and still there": (
        [*BEGUN, PrefixFellBack(AGAIN, keys(ROWS), VANISHED, True)], ROWS, "every source is there"),
    "changed, and generated again": (
        [*OTHERWISE, PrefixFellBack(AGAIN, keys(ROWS), CHANGED)], ROWS, "that rejects it"),
    "changed, and answered": ([*OTHERWISE, ended()], ROWS, "have changed"),
    "kept, though they differ": ([asked(AGAIN, ROWS), admitted(digest=IS_NOT), compared(now=IS_NOT)], ROWS, "for the same"),
    "compared with something else": ([asked(AGAIN, ROWS), admitted(), compared(was=IS_NOT, now=IS_NOT)], ROWS, "it names"),
    "rejected without a cause": ([*BEGUN, ended("rejected")], ROWS, "nothing has changed or vanished"),
}  # fmt: skip


@pytest.mark.parametrize(("events", "rows", "text"), BROKEN.values(), ids=BROKEN)
def test_a_prefix_and_media_that_do_not_belong_together_break_it(events, rows, text):
    lines = found(*events, start=saved(rows))
    assert any(text in line for line in lines) and lines != []


def test_a_source_that_a_fault_or_an_earlier_life_took_away_may_reject():
    rejected = [asked(AGAIN, ROWS), PrefixFellBack(AGAIN, keys(ROWS), VANISHED, True), ended("rejected")]
    assert found(("job", FaultInjected("vanish_media", "a.png")), *rejected, start=saved(ROWS)) == []
    out = Panel([MediaAreTheSame], TERMS)
    out.begin(Durable(saved(ROWS)), External((), (ServiceValue("media-store", "gone/a.png", 1),)))
    for number, event in enumerate([LifeStarted(2), *rejected]):
        out.feed(Record(number, 0.0, "job" if number == 0 else "worker-0", 2, "", event))
    out.end(Durable({}), External(), RunStatus("ended"), None)
    assert out.violations == []


# --- calls before

PARENT, CHILD = CALL, f"{NEXT}/c1"


def parent_row(media=ITEMS):
    row = StagedRow(
        v=2, key=PARENT, rollout_id=KEY[:-3], attempt=0, call="c0", ordinal=0, generation=0, turn=0, mode="text", parent="",
        previous_length=0, tokens=(3, 4, 5), mask=(0, 0, 1), logprobs=(0.0, 0.0, -1.0), weight_version=0, digest="",
        cumulative="", extras=Extras(media=media, tensors=(b"pixels",)),
    )  # fmt: skip
    return sealed_row(row, "")


def with_parent(media=ITEMS):
    row = parent_row(media)
    staging = [[one.key, encode_chunk(one)] for one in ROWS] + [[row.key, encode_row(row)]]
    return {**saved(ROWS), f"{SOURCE}/data_plane/rollout_staging.msgpack": pack(staging)}


def looks(outcome, was=WAS, now=WAS):
    return [asked(CHILD, previous=3), MediaCompared(CHILD, PARENT, "parent", was, now, outcome)]


def test_a_child_that_looks_at_the_same_media_again_is_held():
    assert found(*looks("kept"), ended(call=CHILD), start=with_parent()) == []
    assert found(*looks("changed", now=IS_NOT), ended("rejected", CHILD), start=with_parent()) == []
    spoiled = with_parent(OUTSIDE)
    assert found(*looks("unreadable", media_digest(OUTSIDE)), ended("capture-failed", CHILD), start=spoiled) == []


def test_a_parent_of_this_life_counts_as_it_was_admitted():
    first = [asked(f"{KEY}/c0"), admitted(f"{KEY}/c0"), ended(call=f"{KEY}/c0")]
    child = f"{KEY}/c1"
    again = [asked(child, previous=3), MediaCompared(child, f"{KEY}/c0", "parent", WAS, WAS, "kept"), ended(call=child)]
    assert found(*first, *again, life=1) == []
    forged = [asked(child, previous=3), MediaCompared(child, f"{KEY}/c0", "parent", IS_NOT, IS_NOT, "kept")]
    assert any("they were" in line for line in found(*first, *forged, life=1))


@pytest.mark.parametrize(
    ("events", "media", "text"),
    [
        (looks("kept", IS_NOT, IS_NOT), ITEMS, "they were"),
        (looks("kept", media_digest(OUTSIDE), media_digest(OUTSIDE)), OUTSIDE, "nobody can read them"),
        (looks("changed", media_digest(OUTSIDE)), OUTSIDE, "nobody can read them"),
        (looks("changed", IS_NOT), ITEMS, "they are the same"),
        (looks("unreadable"), ITEMS, "there they lie"),
        ([asked(CHILD, previous=3), ended(call=CHILD)], ITEMS, "compared with nothing"),
        ([*looks("changed", now=IS_NOT), ended(call=CHILD)], ITEMS, "have changed"),
        ([*looks("unreadable", media_digest(OUTSIDE)), ended(call=CHILD)], OUTSIDE, "is captured"),
    ],
)
def test_a_child_that_takes_its_parents_media_for_what_they_are_not_breaks_it(events, media, text):
    assert any(text in line for line in found(*events, start=with_parent(media)))


def test_a_read_that_failed_explains_media_that_nobody_could_read():
    disturbed = ("job", FaultInjected("lose_rows", "a get came back short"))
    assert found(disturbed, *looks("unreadable"), ended("capture-failed", CHILD), start=with_parent()) == []


# --- training


@pytest.mark.parametrize(("media", "wrong"), [((WAS,), False), ((IS_NOT,), True), ((), True)])
def test_a_row_is_trained_with_the_media_that_its_calls_looked_at(media, wrong):
    row = TrainedRow(0, 0, "s", "p", "c", ((0, 1),), "t", 1.0, True, ((PARENT, "a", "b"),), media=media)
    applied = ("trainer", OptimizerApplied(1, "w0", "w1", (row,)))
    assert any("is trained with media" in line for line in found(applied, start=with_parent())) is wrong


# --- I39: what is gone is found first


GONE = PrefixFellBack(AGAIN, keys(ROWS), VANISHED, True)


def test_a_call_whose_media_are_gone_is_refused_before_its_prefix_is_looked_at():
    first = [("worker-0", asked(AGAIN, ROWS)), ("worker-0", GONE)]
    assert judged(NothingIsRestoredInPart, *first, given=TERMS, life=2) == []


@pytest.mark.parametrize(
    "before", [PrefixReadIssued(2, 1, of=(AGAIN,)), PrefixClaimed(AGAIN, ROWS[1].cumulative, keys(ROWS), "owned")]
)
def test_media_that_are_found_gone_after_a_prefix_was_claimed_or_read_break_i39(before):
    late = [("worker-0", event) for event in (asked(AGAIN, ROWS), before, GONE)]
    assert len(judged(NothingIsRestoredInPart, *late, given=TERMS, life=2)) == 1


# --- I51: a fault of media excuses nobody


@pytest.mark.parametrize(("fault", "lines"), [("corrupt_media", 1), ("kill", 0)])
def test_a_row_that_is_lost_over_unreadable_media_breaks_i51_unless_something_else_has_failed(fault, lines):
    steps = [
        ("job", FaultInjected(fault, "done")),
        *(("worker-0", event) for event in (
            asked(AGAIN, SPOILED), compared("unreadable", media_digest(OUTSIDE), rows=SPOILED),
            PrefixFellBack(AGAIN, keys(SPOILED), UNREADABLE), ended("aborted"),
        )),
        ("gym-0", EpisodeEnded(NEXT, "failed")),
    ]  # fmt: skip
    found_here = judged(UnusablePrefixesFallBack, *steps, given=TERMS, start=saved(SPOILED), life=2)
    assert len([line for line in found_here if "failed over" in line]) == lines
