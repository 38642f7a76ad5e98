"""I43, prefixes: what a saved session goes on from is what its engine published."""

from __future__ import annotations

import pytest
from ledger_files import judged
from prefix_files import (
    AGAIN,
    CALL,
    CARRY,
    GROUP,
    KEY,
    TOKENS,
    acknowledged,
    asked,
    changed,
    chunk,
    chunks,
    content,
    evidence,
    prefix_terms,
    restored,
    saved,
    staged,
)

from invariants.ledger.trained_is_what_was_generated import TrainedIsWhatWasGenerated
from protocol.data_plane.digests import carry_digest
from protocol.history import (
    AttemptSealed,
    CallBegun,
    CallEnded,
    EngineStarted,
    OptimizerApplied,
    ReplySent,
    RowStagedDone,
    TokensGenerated,
    TrainedRow,
)

TERMS = prefix_terms()
TWO = chunks(2, 4)
WHOLE = chunks(2, 5)


def found(*events, start=None, life=1):
    steps = [("worker-0", event) for event in events]
    return judged(TrainedIsWhatWasGenerated, *steps, given=TERMS, start=start, life=life)


def test_a_snapshot_whose_chunks_are_its_cut_is_held():
    assert found(start=saved(TWO)) == []
    assert found(start=saved(TWO, cut={}, stored=[])) == []


@pytest.mark.parametrize(
    ("rows", "cut", "text"),
    [
        ([TWO[0]], evidence(TWO), f"{CALL}/p2 is missing"),
        ([TWO[0], changed(TWO[1], tokens=(99, 14))], evidence(TWO), f"{CALL}/p2 says digest"),
        ([TWO[0], changed(TWO[1], logprobs=(-1.0, -1.0))], evidence(TWO), f"{CALL}/p2 says digest"),
        ([TWO[0], chunk(2, 4, "another")], evidence(TWO), f"{CALL}/p2 does not end the chain of the chunks before it"),
        (TWO, evidence(TWO, count=3), "its chunks hold 4 tokens, 3 are named"),
        (TWO, evidence(TWO, digest="x"), "its chain ends in"),
        (TWO, evidence(TWO, limit=7), "its chunks are of a limit of 8, 7 is named"),
        (TWO, evidence([TWO[0]], count=4, digest=TWO[1].cumulative), "its chunks hold 2 tokens, 4 are named"),
        (TWO, evidence(TWO[::-1]), f"{CALL}/p2 begins at token 2, the one before it ends at 0"),
        ([TWO[0], chunk(2, 9, TWO[0].cumulative, tokens=TOKENS + (1, 2), logprobs=(-1.0,) * 7)], None, "the call's limit is 8"),
        ([TWO[0], chunk(2, 4, TWO[0].cumulative, logprobs=(-1.0,))], None, "holds 2 tokens and 1 logprobs"),
        ([TWO[0], chunk(2, 4, TWO[0].cumulative, logprobs=(-1.0, float("nan")))], None, "a logprob that is not finite"),
        ([chunk(0, 2, weight_version=2), chunk(2, 4, chunk(0, 2, weight_version=2).cumulative)], None, "one before it of 2"),
        ([chunk(0, 2, finish="stop"), chunk(2, 4, chunk(0, 2, finish="stop").cumulative)], None, "is not the last chunk"),
        ([TWO[0], chunk(2, 4, TWO[0].cumulative, ordinal=1)], None, "is of another call than"),
        ([TWO[0], chunk(2, 4, TWO[0].cumulative, carry="other")], None, "is of another call than"),
    ],
)  # fmt: skip
def test_a_cut_that_its_chunks_do_not_hold_breaks_I43(rows, cut, text):
    lines = found(start=saved(rows, cut, stored=rows))
    assert any(text in line for line in lines) and lines != []


def test_a_cut_in_order_that_is_restored_as_it_was_is_held():
    cut = [staged(TWO[0]), staged(TWO[1]), acknowledged(TWO), TokensGenerated(CALL, 5, content(chunks(5)))]
    assert found(asked(), CallBegun(CALL, 0), *cut) == []
    again = [asked(AGAIN, TWO), restored(TWO), EngineStarted(AGAIN, 4, 4, -1, 0), CallEnded(AGAIN, "answered", 5, 4, 5, 8)]
    assert found(*again, start=saved(TWO), life=2) == []


def test_a_call_that_has_not_begun_to_go_on_is_acknowledged_with_what_it_came_with():
    same = acknowledged(TWO, call=AGAIN, content="")
    assert found(asked(AGAIN, TWO), same, start=saved(TWO), life=2) == []
    assert found(asked(AGAIN, TWO), acknowledged(TWO[:1], call=AGAIN, content=""), start=saved(TWO), life=2) != []


def test_a_terminal_prefix_is_what_the_engine_published_whole():
    cut = [staged(row) for row in WHOLE]
    right = content(chunks(5))
    assert found(TokensGenerated(CALL, 5, right), *cut, acknowledged(WHOLE)) == []
    assert found(*cut, acknowledged(WHOLE), TokensGenerated(CALL, 5, right)) == []
    assert "does not hold what the engine published" in found(*cut, acknowledged(WHOLE), TokensGenerated(CALL, 5, "x"))[0]
    assert "does not hold what the engine published" in found(TokensGenerated(CALL, 5, "x"), *cut, acknowledged(WHOLE))[0]
    assert "the engine published 4" in found(TokensGenerated(CALL, 4, "x"), *cut, acknowledged(WHOLE))[0]


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([acknowledged(TWO)], "which was never staged"),
        ([staged(TWO[0]), staged(TWO[1], start=3), acknowledged(TWO)], "begins at token 3, the chunk before it ends at 2"),
        ([staged(TWO[0]), staged(TWO[1]), acknowledged(TWO, count=5)], "is said to be 5 tokens"),
        ([staged(TWO[0]), staged(TWO[1]), acknowledged(TWO, digest="x")], "is said to be 4 tokens with digest x"),
        ([acknowledged(TWO, keys=())], "names no chunk"),
        ([acknowledged(TWO, kind="terminal_completion")], "acknowledged as completed, and its row is not staged"),
        ([RowStagedDone(CALL, 7, "d"), staged(TWO[0]), acknowledged(TWO[:1])], "its own row is staged already"),
    ],
)
def test_an_acknowledgement_of_what_is_not_durable_breaks_I43(events, text):
    lines = found(asked(), *events)
    assert any(text in line for line in lines) and lines != []


def test_a_finished_call_is_acknowledged_by_its_row():
    assert found(RowStagedDone(CALL, 7, "d"), acknowledged(TWO, kind="terminal_completion")) == []


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([restored(TWO, count=3)], "goes on with tokens 3, its chunks have 4"),
        ([restored(TWO, content="x")], "goes on with content x"),
        ([restored(TWO, version=1)], "goes on with oldest version 1"),
        ([restored(TWO, digest="x")], "goes on after 4 (x)"),
        ([restored(TWO), EngineStarted(AGAIN, 3, 4, -1, 0)], "after 3 tokens, 4 were restored"),
        ([EngineStarted(AGAIN, 4, 4, -1, 0)], "after 4 tokens, none were restored"),
        ([restored(TWO), CallEnded(AGAIN, "answered", 5, 3, 5, 8)], "ended with a prefix of 3, 4 tokens of it were restored"),
        ([restored(TWO, terminal=True), CallEnded(AGAIN, "answered", 5, 4, 5, 8)], "its engine was asked for more"),
    ],
)
def test_a_call_that_goes_on_from_something_else_breaks_I43(events, text):
    lines = found(asked(AGAIN, TWO), *events, start=saved(TWO), life=2)
    assert any(text in line for line in lines) and lines != []


def row_of(*segments):
    key = KEY.replace("-a0", "-a1")
    sealed = ("controller", AttemptSealed(f"{GROUP}_g0", key, key, "r", 1))
    row = TrainedRow(
        0, 0, f"{GROUP}_g0", "p", "c", ((0, 5),), "t", 1.0, True, ((AGAIN, carry_digest(CARRY), "whole"),), segments=segments
    )
    return [("gym-0", ReplySent(key, 1.0, 1)), sealed, ("trainer", OptimizerApplied(3, "w", "w", (row,)))]


def test_a_row_says_which_of_its_tokens_are_of_which_weights():
    begun = [asked(AGAIN, TWO), CallBegun(AGAIN, 2, carry_digest(CARRY)), restored(TWO), EngineStarted(AGAIN, 4, 4, -1, 0)]
    steps = [*begun, TokensGenerated(AGAIN, 5, "whole"), CallEnded(AGAIN, "answered", 5, 4, 5, 8)]
    at_worker = [("worker-0", event) for event in steps]

    def trained(*segments):
        return judged(TrainedIsWhatWasGenerated, *at_worker, *row_of(*segments), given=TERMS, start=saved(TWO), life=2)

    assert trained((0, 4), (2, 1)) == []
    assert "says that its tokens are of weights ()" in trained()[0]
    assert "they are of ((0, 4), (2, 1))" in trained((0, 5))[0]
