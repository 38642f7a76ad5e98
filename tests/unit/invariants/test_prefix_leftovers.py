"""I49, chunk rows: each belongs to a call, to a cut that waits for one, or to a clean-up."""

from __future__ import annotations

import pytest
from ledger_files import judged
from prefix_files import AGAIN, CALL, CHECKPOINT, GROUP, KEY, acknowledged, asked, chunks, prefix_terms, saved, staged
from run_files import cut

from invariants.durability.no_staged_row_is_left_behind import NoStagedRowIsLeftBehind
from protocol.history import (
    CallBegun,
    CallEnded,
    ChunkIssued,
    ChunksDiscarded,
    ChunksLeft,
    DataPlaneSaveIssued,
    EpisodeCut,
    FinalizeIssued,
    GroupDropped,
    GroupsClaimed,
    GymPhaseStarted,
    ProcessKilled,
    RunEnded,
)

TERMS = prefix_terms()
ROWS = chunks(2, 4)
KEYS = tuple(row.key for row in ROWS)
BEGUN = CallBegun(CALL, 0)
PUT = [ChunkIssued(CALL, ROWS[0].key, 1, 2), staged(ROWS[0])]
OVER = CallEnded(CALL, "answered")
GONE = ChunksDiscarded(CALL, KEYS, "completed")
ENDED = ("controller", RunEnded(2))
SAVE = [("controller", DataPlaneSaveIssued("snapshot", 1)), ("controller", cut())]


def found(*events, start=None, life=1):
    steps = [event if isinstance(event, tuple) else ("worker-0", event) for event in events]
    return judged(NoStagedRowIsLeftBehind, *steps, given=TERMS, start=start, life=life)


@pytest.mark.parametrize(
    "events",
    [
        [BEGUN, *PUT, GONE, OVER, ENDED],
        [BEGUN, *PUT, ENDED],  # the call runs
        [BEGUN, *PUT, ChunksLeft(CALL, KEYS, "aborted"), CallEnded(CALL, "aborted"), ENDED],
        [BEGUN, *PUT, CallEnded(CALL, "aborted"), ENDED],  # somebody holds it still
        [BEGUN, *PUT, ("job", ProcessKilled("worker-0")), ENDED],
        [("controller", GymPhaseStarted(CHECKPOINT)), BEGUN, *PUT, acknowledged(ROWS[:1]), OVER, ENDED],
        [BEGUN, *PUT, GONE, OVER, ("controller", GroupsClaimed(1, (GROUP,), 1)), ("controller", FinalizeIssued(GROUP))],
    ],
)
def test_rows_that_somebody_needs_are_held(events):
    assert found(*events) == []


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([BEGUN, *PUT, OVER, ENDED], "may still be staged when the run ends"),
        ([BEGUN, *PUT, ("worker-0", CallEnded(CALL, "aborted"), 0.1), ("controller", RunEnded(2), 9.0)], "when the run ends"),
        ([BEGUN, *PUT, OVER, ("controller", GroupsClaimed(1, (GROUP,), 1))], "when its group is trained"),
        ([BEGUN, *PUT, ChunksLeft(CALL, KEYS, "x"), OVER, ("controller", FinalizeIssued(GROUP))], "when its group is finalized"),
    ],
)
def test_rows_that_nobody_needs_break_I49(events, text):
    lines = found(*events)
    assert any(text in line for line in lines) and lines != []


def test_rows_that_gym_has_heard_of_are_retired_when_their_worker_dies():
    died, claimed = ("job", ProcessKilled("worker-0")), ("controller", GroupsClaimed(1, (GROUP,), 1))
    assert found(BEGUN, *PUT, acknowledged(ROWS[:1]), died, claimed) == []  # nobody knows of them
    heard = ("gym-0", EpisodeCut(KEY, 0, CALL, "durable_prefix", 2))
    assert "when its group is trained" in found(BEGUN, *PUT, acknowledged(ROWS[:1]), heard, died, claimed)[0]


def test_a_save_that_holds_a_row_of_a_call_that_is_over_breaks_I49():
    held = saved(ROWS[:1])
    assert found(BEGUN, *PUT, *SAVE, start=held) == []
    assert found(*SAVE, start=held, life=2) == []  # it waits for its call
    used = [asked(AGAIN, ROWS[:1]), CallBegun(AGAIN, 0)]
    assert found(*used, *SAVE, start=held, life=2) == []
    assert "1 staged rows that nothing needs" in found(*used, CallEnded(AGAIN, "answered"), *SAVE, start=held, life=2)[0]
    dropped = [("controller", GroupDropped(GROUP, 0, "discarded"))]
    assert "1 staged rows that nothing needs" in found(*dropped, *SAVE, start=held, life=2)[0]
