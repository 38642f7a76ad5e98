"""I44, I45, I51, I52, OWNER-1: a call that goes on after a prefix is one call, of one owner."""

from __future__ import annotations

import pytest
from ledger_files import judged
from prefix_files import (
    AGAIN,
    CALL,
    CARRY,
    NEXT,
    acknowledged,
    asked,
    changed,
    chunks,
    prefix_terms,
    restored,
    saved,
)

from invariants.prefix.a_restored_cut_has_one_owner import ARestoredCutHasOneOwner
from invariants.prefix.draws_are_used_once import DrawsAreUsedOnce
from invariants.prefix.text_is_uninterrupted import TextIsUninterrupted
from invariants.prefix.tokens_stay_within_the_limit import TokensStayWithinTheLimit
from invariants.prefix.unusable_prefixes_fall_back import UnusablePrefixesFallBack
from protocol.data_plane.digests import carry_digest
from protocol.history import (
    CallBegun,
    CallEnded,
    CallFrozen,
    ChunkIssued,
    ChunksDiscarded,
    ChunksLeft,
    EngineStarted,
    EpisodeEnded,
    FaultInjected,
    MediaCompared,
    OptimizerApplied,
    PrefixClaimed,
    PrefixFellBack,
    PrefixReadDone,
    PrefixReleased,
    ProcessKilled,
    RowStagedDone,
    TokensGenerated,
    TrainedRow,
)

TERMS = prefix_terms()
ROWS = chunks(2, 4)
KEYS = tuple(row.key for row in ROWS)
DIGEST = ROWS[1].cumulative


def found(kind, *events, given=TERMS, start=None, life=2):
    steps = [event if isinstance(event, tuple) else ("worker-0", event) for event in events]
    return judged(kind, *steps, given=given, start=start, life=life)


def ended(generated=5, prefix=4, reported=5, limit=8, outcome="answered", call=AGAIN, finish="stop", text="t", plain="t"):
    return CallEnded(call, outcome, generated, prefix, reported, limit, finish, text, plain)


# --- I44

GOES_ON = [asked(AGAIN, ROWS), restored(ROWS), EngineStarted(AGAIN, 4, 4, -1, 0), TokensGenerated(AGAIN, 5, "c")]


def row_of(generated):
    row = TrainedRow(0, 0, "s", "p", "c", ((0, generated),), "t", 1.0, True, ((AGAIN, "a", "b"),))
    return ("trainer", OptimizerApplied(1, "w0", "w1", (row,)))


def test_a_call_within_its_limit_is_held():
    staged = RowStagedDone(AGAIN, len(CARRY) + 5, "d")
    assert found(TokensStayWithinTheLimit, *GOES_ON, staged, ended(), row_of(5)) == []
    whole = [asked(AGAIN, ROWS), restored(ROWS, terminal=True), ended(4, 4, 4, outcome="terminal-prefix")]
    assert found(TokensStayWithinTheLimit, *whole) == []
    own = [asked(limit=6), CallFrozen(CALL, "1-1", 4, 0, 0, (4, 4, -1), 6), acknowledged(ROWS, limit=6)]
    assert found(TokensStayWithinTheLimit, *own) == []
    unlimited = prefix_terms(max_new_tokens=None)
    assert found(TokensStayWithinTheLimit, asked(), TokensGenerated(CALL, 99), given=unlimited) == []


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([asked(), TokensGenerated(CALL, 9)], "has 9 tokens, its limit is 8"),
        ([asked(limit=3), TokensGenerated(CALL, 4)], "has 4 tokens, its limit is 3"),
        ([asked(), CallFrozen(CALL, "1-1", 4, 0, 0, (4, 4, -1), 6)], "is frozen with a limit of 6, it is 8"),
        ([asked(), acknowledged(ROWS, limit=9)], "is acknowledged with a limit of 9, it is 8"),
        ([asked(AGAIN, ROWS), restored(ROWS, remaining=8)], "goes on with 8 tokens to go; of 8 it has 4"),
        ([asked(AGAIN, ROWS), restored(ROWS, count=8, remaining=0)], "though none of its 8 tokens' limit is left"),
        ([*GOES_ON[:2], EngineStarted(AGAIN, 4, 8, -1, 0)], "with 8 tokens to go; of 8 it has 4"),
        ([*GOES_ON[:2], EngineStarted(AGAIN, 4, -1, -1, 0)], "without a limit; of 8 it has 4"),
        ([*GOES_ON, ended(reported=1)], "reports 1 tokens, it has 5"),
        ([*GOES_ON, ended(generated=9, reported=9)], "ended with 9 tokens, its limit is 8"),
        ([*GOES_ON, ended(generated=6, reported=6)], "ended with 6 tokens, 5 were restored and generated"),
        ([*GOES_ON, ended(limit=9)], "ended with a limit of 9, it is 8"),
        ([*GOES_ON, ended(prefix=6)], "ended with 5 tokens, 6 of them restored"),
        ([*GOES_ON, ended(finish="length")], "ended at its limit of 8 with 5 tokens"),
        ([*GOES_ON, RowStagedDone(AGAIN, 3, "d"), ended()], "holds 3 tokens, it brought 2 and has 5"),
        ([*GOES_ON, ended(), row_of(1)], "counts 1 tokens of"),
    ],
)
def test_a_call_that_is_counted_wrongly_breaks_I44(events, text):
    lines = found(TokensStayWithinTheLimit, *events)
    assert any(text in line for line in lines) and lines != []


# --- I45


def test_a_text_that_was_cut_and_reads_like_one_that_was_not_is_held():
    assert found(TextIsUninterrupted, restored(ROWS), ended()) == []
    assert found(TextIsUninterrupted, ended(plain="", call=CALL)) == []  # nobody compares a call that was never cut
    assert found(TextIsUninterrupted, restored(ROWS), ended(plain="", outcome="aborted")) == []


def test_a_text_that_shows_the_cut_breaks_I45():
    assert "is not that of its 5 tokens" in found(TextIsUninterrupted, ended(text="other"))[0]
    assert "was compared with nothing" in found(TextIsUninterrupted, restored(ROWS), ended(plain=""))[0]


# --- I52


def test_a_seeded_call_that_goes_on_where_its_draws_are_is_held():
    assert found(DrawsAreUsedOnce, asked(AGAIN, ROWS, seed=7), EngineStarted(AGAIN, 4, 4, 7, 4)) == []
    assert found(DrawsAreUsedOnce, asked(AGAIN, ROWS), EngineStarted(AGAIN, 4, 4, -1, 0)) == []
    assert found(DrawsAreUsedOnce, asked(AGAIN, ROWS, seed=7, temperature=0.0), EngineStarted(AGAIN, 4, 4, 7, 0)) == []


def test_draws_that_are_used_again_break_I52():
    assert "goes on with draw 0 of its seed" in found(DrawsAreUsedOnce, asked(AGAIN, seed=7), EngineStarted(AGAIN, 4, 4, 7, 0))[0]
    assert "and goes on with -1" in found(DrawsAreUsedOnce, asked(AGAIN, seed=7), EngineStarted(AGAIN, 4, 4, -1, 4))[0]


# --- OWNER-1

OWNED = PrefixClaimed(AGAIN, DIGEST, KEYS, "owned")
REFUSED = PrefixClaimed("another/c0", DIGEST, KEYS, "refused")
CONSUMED = PrefixReleased(AGAIN, DIGEST, "consumed")
RELEASED = PrefixReleased(AGAIN, DIGEST, "released")
STAGED = RowStagedDone(AGAIN, 7, "d")


@pytest.mark.parametrize(
    "events",
    [
        [OWNED, restored(ROWS), REFUSED, STAGED, CONSUMED, REFUSED, ended()],
        [OWNED, RELEASED, PrefixClaimed("another/c0", DIGEST, KEYS, "owned")],
        [OWNED, ("job", ProcessKilled("worker-0")), OWNED],
        [ChunksDiscarded(AGAIN, KEYS, "retired"), *(ChunkIssued(AGAIN, key, 1, 2) for key in KEYS), OWNED, restored(ROWS)],
    ],
)
def test_a_cut_of_one_owner_at_a_time_is_held(events):
    assert found(ARestoredCutHasOneOwner, *events) == []


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([OWNED, PrefixClaimed("another/c0", DIGEST, KEYS, "owned")], f"which {AGAIN} owns"),
        ([OWNED, STAGED, CONSUMED, PrefixClaimed("another/c0", DIGEST, KEYS, "owned")], f"which {AGAIN} has consumed"),
        ([REFUSED], "which nobody owns and nobody has consumed"),
        ([restored(ROWS)], "from a cut that nobody owns"),
        ([OWNED, STAGED, CONSUMED, restored(ROWS)], "from a cut that nobody owns"),
        ([OWNED, ChunksLeft(CALL, KEYS[:1], "aborted"), restored(ROWS)], "which was given up (aborted)"),
        ([RELEASED], "which nobody owns"),
        ([OWNED, restored(ROWS), STAGED, RELEASED], "for a row of its own, and gives it back for others"),
        ([OWNED, CONSUMED], "and no row of its own is staged"),
        ([OWNED, ended()], "is answered, and still owns the cut"),
    ],
)
def test_a_cut_of_two_owners_or_of_none_breaks_OWNER_1(events, text):
    lines = found(ARestoredCutHasOneOwner, *events)
    assert any(text in line for line in lines) and lines != []


# --- I51

BEGUN = [asked(AGAIN, ROWS), CallBegun(AGAIN, 0, carry_digest(CARRY))]
REJECTED = PrefixFellBack(AGAIN, KEYS, "retained_media_changed", True)
NEWER = chunks(2, 4, weight_version=1)  # than this worker's weights
FELL = PrefixFellBack(AGAIN, KEYS, "the digests differ")
FAILED = ("gym-0", EpisodeEnded(NEXT, "failed"))
OUTAGE = ("job", FaultInjected("outage", "x"))


@pytest.mark.parametrize(
    ("events", "start"),
    [
        ([*BEGUN, restored(ROWS), ended()], saved(ROWS)),
        ([*BEGUN, FELL, ended(prefix=0)], saved([ROWS[0], changed(ROWS[1], tokens=(1, 2))])),
        ([*BEGUN, PrefixClaimed(AGAIN, DIGEST, KEYS, "refused"), FELL], saved(ROWS)),
        ([BEGUN[0], CallBegun(AGAIN, 0, "other"), FELL], saved(ROWS)),  # it brings other tokens
        ([asked(AGAIN, ROWS, limit=7), BEGUN[1], FELL], saved(ROWS)),
        ([asked(AGAIN, NEWER), BEGUN[1], FELL], saved(NEWER)),
        ([("job", FaultInjected("lose_rows", "x")), *BEGUN, PrefixReadDone(2, 3, 1, KEYS[:1]), FELL], saved(ROWS)),
        ([*BEGUN, ChunksLeft(AGAIN, KEYS, "retired"), FELL], saved(ROWS)),
        ([*BEGUN, MediaCompared(AGAIN, KEYS[0], "prefix", "a", "b", "unreadable"), FELL], saved(ROWS)),
        ([*BEGUN, REJECTED, ended(outcome="rejected")], saved(ROWS)),
        ([*BEGUN, ended(outcome="aborted"), ("gym-0", EpisodeEnded(NEXT, "cancelled"))], saved(ROWS)),
        ([("job", FaultInjected("drop", "x")), *BEGUN, ended(outcome="aborted"), FAILED], saved(ROWS)),
    ],
)
def test_a_prefix_that_is_used_or_left_for_a_reason_is_held(events, start):
    assert found(UnusablePrefixesFallBack, *events, start=start) == []


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([*BEGUN, FELL], "its 4 tokens lie there whole, and they fit"),
        ([*BEGUN, PrefixFellBack(AGAIN, KEYS, "torn", True)], "is rejected over its prefix (torn)"),
        ([*BEGUN, FELL, ended(outcome="rejected")], "is rejected, and its prefix is not the reason"),
        ([*BEGUN, ended()], "was answered without a word of them"),
        ([*BEGUN, REJECTED, ended()], "was rejected over its prefix, and answered"),
        ([*BEGUN, ended(outcome="aborted"), FAILED], "to go on from a prefix (unresolved)"),
        ([OUTAGE, *BEGUN, FELL, ended(outcome="aborted"), FAILED], "to go on from a prefix (fell back)"),
        ([*BEGUN, PrefixReadDone(2, 1, 1)], "not each was read alone"),
        ([asked(AGAIN), BEGUN[1]], "asks for 0 tokens of a prefix; its episode was saved with 4"),
        ([*BEGUN, PrefixReadDone(2, 3, 1, KEYS[:1])], "counts as lost, though nothing has failed"),
    ],
)  # fmt: skip
def test_a_prefix_that_costs_more_than_itself_breaks_I51(events, text):
    lines = found(UnusablePrefixesFallBack, *events, start=saved(ROWS))
    assert any(text in line for line in lines) and lines != []
