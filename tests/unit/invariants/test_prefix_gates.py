"""I13 (the gate), GATE-1, I53, I57: what waits for a snapshot, what must not wait, and what batches cost."""

from __future__ import annotations

import pytest
from ledger_files import judged
from prefix_files import CALL, CHECKPOINT, KEY, acknowledged, chunk, chunks, prefix_terms, saved
from run_files import cut

from invariants.durability.every_owned_staging_row_is_saved import EveryOwnedStagingRowIsSaved
from invariants.prefix.batches_are_bounded import BatchesAreBounded
from invariants.prefix.gates_open_again import GatesOpenAgain
from invariants.prefix.serving_never_waits_for_a_lifecycle import ServingNeverWaitsForALifecycle
from protocol.data_plane.extras import Extras, MediaItem
from protocol.history import (
    AdmissionOpened,
    CallBegun,
    CallFrozen,
    ChunkIssued,
    ChunksDiscarded,
    CutAsked,
    DataPlaneSaveDone,
    FaultInjected,
    GateClosed,
    GateCloseIgnored,
    GateOpened,
    GatePassed,
    GymPhaseStarted,
    LifecycleWaited,
    PrefixReadDone,
    PrefixReadIssued,
    ProcessKilled,
    ProcessStalled,
    ReceiptSent,
    RowStagedIssued,
    RunEnded,
    SnapshotPublished,
    SnapshotStarted,
)
from protocol.judging import RunStatus

TERMS = prefix_terms()
ENDED = RunStatus("ended")
BOUND_S = TERMS.job.park_bound_s
ROWS = chunks(2, 4)
CLOSED = GateClosed("gym-0", 1, CHECKPOINT)
OPENED = GateOpened("gym-0", 1, "asked", 0.001)


def found(kind, *events, given=TERMS, start=None, status=ENDED):
    steps = [event if isinstance(event, tuple) else ("worker-0", event) for event in events]
    return judged(kind, *steps, given=given, start=start, status=status)


# --- I13

BEGINS = [
    ("controller", SnapshotStarted("bootstrap", 1, False)),
    ("controller", GymPhaseStarted(CHECKPOINT)),
    ("gym-0", CutAsked("worker-0", CHECKPOINT, 1, (CALL,), "i")),
]
FROZEN = CallFrozen(CALL, CHECKPOINT, 4, 0, 0, (4, 4, -1), 8)
SAVED = ("controller", DataPlaneSaveDone("snapshot", 1))
PUBLISHED = ("controller", SnapshotPublished("bootstrap", 1, 0, 0, 0, 0))
ENDS = [("controller", cut()), SAVED, PUBLISHED]


@pytest.mark.parametrize(
    "events",
    [
        [*BEGINS, CLOSED, FROZEN, acknowledged(ROWS), *ENDS[:2], OPENED, GatePassed(CALL, "cleanup"), PUBLISHED],
        [*BEGINS, CLOSED, FROZEN, ChunksDiscarded(CALL, (ROWS[0].key,), "unsealed"), *ENDS],
        [*BEGINS, CLOSED, FROZEN, acknowledged(ROWS), OPENED, SAVED],  # never published
        [*BEGINS, CLOSED, FROZEN, acknowledged(ROWS), ("job", ProcessKilled("worker-0")), RowStagedIssued("x"), *ENDS],
        [("worker-0", GatePassed(CALL, "cleanup")), *BEGINS, RowStagedIssued("x"), CLOSED, FROZEN, acknowledged(ROWS), *ENDS],
    ],
)  # fmt: skip
def test_a_gate_that_is_closed_from_the_freeze_to_the_save_is_held(events):
    assert found(EveryOwnedStagingRowIsSaved, *events) == []


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([FROZEN, CLOSED, acknowledged(ROWS)], "worker-0 froze " + CALL + " for gym-0, whose gate is not closed"),
        ([acknowledged(ROWS)], "worker-0 acknowledged " + CALL + " for gym-0, whose gate is not closed"),
        ([GateClosed("gym-0", 2, CHECKPOINT), acknowledged(ROWS)], "whose gate is not closed"),
        ([CLOSED, FROZEN, acknowledged(ROWS), OPENED], "was opened (asked) between the cut of gym-0 and the save"),
        ([CLOSED, FROZEN, acknowledged(ROWS), GatePassed("x", "cleanup")], "a clean-up of x passed worker-0's gate"),
        ([CLOSED, FROZEN, acknowledged(ROWS), RowStagedIssued("x")], "a terminal write of x passed worker-0's gate"),
        ([CLOSED, FROZEN, acknowledged(ROWS), ChunksDiscarded("x", ("k",), "aborted")], "were deleted (aborted) between"),
        ([CLOSED, acknowledged(ROWS, call="another/c0")], "which no inventory of this checkpoint names"),
    ],
)
def test_a_gate_that_is_open_between_a_cut_and_the_save_breaks_I13(events, text):
    lines = found(EveryOwnedStagingRowIsSaved, *BEGINS, *events, *ENDS)
    assert any(text in line for line in lines) and lines != []


def test_a_manifest_without_the_chunks_of_a_saved_cut_breaks_I13():
    assert found(EveryOwnedStagingRowIsSaved, start=saved(ROWS)) == []
    files = {
        path: data.replace(f'"{KEY}/c0/p0", '.encode(), b"") if path.endswith("gym_checkpoint.json") else data
        for path, data in saved(ROWS).items()
    }
    assert "and 2 chunks, the manifest names 1 rows of it" in found(EveryOwnedStagingRowIsSaved, start=files)[0]
    lines = found(EveryOwnedStagingRowIsSaved, start=saved(ROWS, stored=ROWS[:1]))
    assert any(f"row {KEY}/c0/p2" in line and "is missing" in line for line in lines) and lines != []


# --- GATE-1


def test_a_gate_that_opens_in_time_is_held():
    assert found(GatesOpenAgain, CLOSED, OPENED) == []
    lease = GateOpened("gym-0", 1, "lease", BOUND_S)
    assert found(GatesOpenAgain, ("worker-0", CLOSED, 0.0), ("worker-0", lease, BOUND_S)) == []
    killed = [CLOSED, ("job", ProcessKilled("worker-0")), ("controller", RunEnded(1), 9 * BOUND_S)]
    assert found(GatesOpenAgain, *killed) == []
    assert found(GatesOpenAgain, CLOSED, status=RunStatus("crashed")) == []


OVER = ("gym-0", AdmissionOpened(CHECKPOINT, "resume"), 1.0)
IGNORED = GateCloseIgnored("gym-0", 1)


def test_a_close_that_comes_too_late_changes_nothing():
    assert found(GatesOpenAgain, BEGINS[2], OVER, ("worker-0", IGNORED, 1.1)) == []
    assert found(GatesOpenAgain, BEGINS[2], CLOSED, OPENED, IGNORED) == []
    assert "whose 1-1 is open" in found(GatesOpenAgain, BEGINS[2], IGNORED)[0]


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([OPENED], "is opened for gym-0, and was not closed for it"),
        ([CLOSED, GateOpened("gym-0", 2, "asked", 0.001)], "is opened for epoch 2 of gym-0, it was closed for 1"),
        ([CLOSED, GateOpened("gym-0", 1, "asked", 3.0)], "says that it was closed for 3.000 s"),
        ([CLOSED, GateOpened("gym-0", 1, "lease", 0.001)], "opens by itself after 0.001 s"),
        ([("worker-0", CLOSED, 0.0), ("controller", RunEnded(1), 2 * BOUND_S)], "a park may last"),
        ([("worker-0", CLOSED, 0.0), OVER, ("controller", RunEnded(1), 30.0)], f"29.000 s after {CHECKPOINT} was over"),
        ([GateClosed("gym-0", 2, CHECKPOINT), CLOSED], "is closed for epoch 1 of gym-0, it is closed for 2"),
    ],
)
def test_a_gate_that_opens_early_late_or_never_breaks_GATE_1(events, text):
    lines = found(GatesOpenAgain, *events)
    assert any(text in line for line in lines) and lines != []


def test_a_gate_that_is_closed_when_nothing_moves_any_more_breaks_GATE_1():
    idle = RunStatus("idle", at_s=3 * BOUND_S)
    assert "a park may last" in found(GatesOpenAgain, CLOSED, status=idle)[0]
    assert found(GatesOpenAgain, CLOSED, ("job", ProcessStalled("worker-0", 0.0)), status=idle) == []


# --- I53

WAITS = LifecycleWaited(CALL, "terminal")


def test_who_waits_for_a_lifecycle_in_a_task_of_its_own_is_held():
    events = [("worker-0", CallBegun(CALL, 0), 0.0, "Generate 1"), ("worker-0", WAITS, 0.1, "terminal-1")]
    assert found(ServingNeverWaitsForALifecycle, *events) == []


def test_a_serving_task_that_writes_a_whole_call_breaks_I53():
    events = [("worker-0", CallBegun(CALL, 0), 0.0, "Generate 1"), ("worker-0", RowStagedIssued(CALL), 0.1, "Generate 1")]
    assert "holds the lifecycle of" in found(ServingNeverWaitsForALifecycle, *events)[0]


@pytest.mark.parametrize("served", [CallBegun(CALL, 0), ReceiptSent(CHECKPOINT, "i", 1, False), CLOSED])
def test_a_serving_task_that_waits_for_a_lifecycle_breaks_I53(served):
    events = [("worker-0", served, 0.0, "served 1"), ("worker-0", WAITS, 0.1, "served 1")]
    assert "waits for the lifecycle of" in found(ServingNeverWaitsForALifecycle, *events)[0]


# --- I57

EIGHT = prefix_terms(token_capture={"generation_prefix_batch_size": 8, "generation_prefix_token_budget": 100})


@pytest.mark.parametrize(
    "events",
    [
        [ChunkIssued(CALL, "k", 8, 100), ChunkIssued(CALL, "k", 1, 400)],
        [PrefixReadIssued(8, 3, 20), PrefixReadDone(8, 1, 0), PrefixReadIssued(3, 2, 3), PrefixReadDone(3, 1, 0)],
        [PrefixReadIssued(3, 2, 3), PrefixReadDone(3, 4, 2)],
        [("job", FaultInjected("lose_rows", "x")), PrefixReadDone(3, 4, 0)],
    ],
)
def test_batches_within_their_bounds_are_held(events):
    assert found(BatchesAreBounded, *events, given=EIGHT) == []


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (ChunkIssued(CALL, "k", 9, 50), "with 9 rows; 8 are allowed"),
        (ChunkIssued(CALL, "k", 2, 101), "with 101 token positions; 100 are allowed"),
        (PrefixReadIssued(9, 2, 9), "9 chunks are read at once; 8 are allowed"),
        (PrefixReadIssued(4, 2, 6), "4 chunks are read, 6 are asked for and 8 fit into one read"),
        (PrefixReadDone(4, 7, 4), "4 chunks took 7 requests; 5 are enough"),
        (PrefixReadDone(4, 5, 0), "4 chunks took 5 requests, and none has failed"),
    ],
)
def test_a_batch_beyond_its_bounds_breaks_I57(event, text):
    assert text in found(BatchesAreBounded, event, given=EIGHT)[0]


def test_a_chunk_that_holds_pixels_breaks_I57():
    item = MediaItem("image", "a.png", 0, 1, ())
    pixels = MediaItem("image", "a" * 5_000, 0, 1, ())
    assert found(BatchesAreBounded, start=saved([chunk(0, 2, extras=Extras(media=(item,)))])) == []
    assert (
        "its 2 tokens, routes and media digests need"
        in found(BatchesAreBounded, start=saved([chunk(0, 2, extras=Extras(media=(pixels,)))]))[0]
    )
