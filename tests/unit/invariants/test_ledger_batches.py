"""BATCH-1: what is taken whole fails whole."""

from __future__ import annotations

from ledger_files import judged

from invariants.ledger.a_batch_fails_whole import ABatchFailsWhole
from invariants.ledger.rows_share_no_fate import RowsShareNoFate
from protocol.config import Job
from protocol.history import (
    AttemptReserved,
    BudgetSpent,
    CompletionArrived,
    FailureArrived,
    GroupDropped,
    RowsSubmitted,
    StreamEnded,
)
from protocol.judging import Terms

G = "e0p0i1"
A, B = f"{G}_g0r0-a0", f"{G}_g1r0-a0"
SYNC = Job(target_level="sibling", async_engine=False)
SENT, FAILED = RowsSubmitted(G, "gym-0", (A, B)), FailureArrived(A, "infra")
STOPPED, CHARGED = StreamEnded(G, "gym-0", "cancelled", 1), BudgetSpent(G, "", "infra", 1, 5)


def found(*events):
    return judged(ABatchFailsWhole, *events, given=Terms(scenario="s", job=SYNC, data_length=8))


def test_a_failed_row_that_stops_its_stream_and_is_charged_is_held():
    assert found(SENT, FAILED, STOPPED, CHARGED, SENT) == []
    assert found(SENT, FAILED, STOPPED, GroupDropped(G, 0, "skipped"), SENT) == []


def test_a_stream_that_is_read_on_breaks_BATCH_1():
    assert found(SENT, FAILED, CompletionArrived(B)) == [f"{B} was taken from a stream on which {A} had failed."]
    assert found(SENT, FAILED, StreamEnded(G, "gym-0", "clean", 0)) == [
        f"The stream of {A}, which had failed, was read on to its end."
    ]


def test_a_row_replaced_alone_breaks_BATCH_1():
    assert found(AttemptReserved(f"{G}_g0", f"{G}_g0r1-a0", "lost-row")) == [f"{G}_g0r1-a0 replaced one row of a batch."]
    assert found(BudgetSpent(G, A, "row", 2, 3)) == [f"{A} cost a row attempt of its own."]


def test_a_batch_sent_again_before_it_was_charged_breaks_BATCH_1():
    assert found(SENT, FAILED, STOPPED, SENT) == [f"{G} sent {A} before {A} had cost it a group attempt."]
    lost = StreamEnded(G, "gym-0", "cancelled", 2)
    assert found(SENT, lost, SENT) == [f"{G} sent {A} before a stream with 2 rows missing had cost it a group attempt."]


def test_each_path_has_its_own_rule():
    sync, other = (Terms(scenario="s", job=job, data_length=8) for job in (SYNC, Job()))
    assert (ABatchFailsWhole.applies(sync), RowsShareNoFate.applies(sync)) == (True, False)
    assert (ABatchFailsWhole.applies(other), RowsShareNoFate.applies(other)) == (False, True)
