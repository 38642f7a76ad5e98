"""I43: the trainer reads what engines generated and what Gym rewarded."""

from __future__ import annotations

import pytest
from ledger_files import attempt, group, judged, pack, snapshot

from invariants.ledger.trained_is_what_was_generated import TrainedIsWhatWasGenerated, content_digest
from protocol.history import (
    AttemptSealed,
    CallBegun,
    CallEnded,
    FaultInjected,
    OptimizerApplied,
    ReplySent,
    TokensGenerated,
    TrainedRow,
)

G = "e0p0i1"
S = f"{G}_g0"
KEY = f"{S}r0-a0"
CALLS = tuple((f"{KEY}/c{turn}", f"carry{turn}", f"made{turn}") for turn in (0, 1))
SEALED = AttemptSealed(S, KEY, KEY, "r", 2)
SPANS = ((0, 3), (1, 3))


def made(turn, version):
    call, carry, content = CALLS[turn]
    return [
        ("worker-0", CallBegun(call, version, carry)),
        ("worker-0", TokensGenerated(call, 1)),
        ("worker-0", TokensGenerated(call, 3, content)),
        ("worker-0", CallEnded(call, "answered")),
    ]


LIFE = [*made(0, 0), *made(1, 1), ("gym-0", ReplySent(KEY, 0.5, 2)), SEALED]


def trained(**other):
    values = {
        "ordinal": 0, "generation": 0, "sample": S, "prompt": "p", "content": "c", "spans": SPANS, "tools": "t", "reward": 0.5,
        "valid": True, "calls": CALLS,
    }  # fmt: skip
    return ("trainer", OptimizerApplied(2, "w1", "w2", (TrainedRow(**{**values, **other}),)))


def test_a_row_of_exactly_its_calls_is_held():
    assert judged(TrainedIsWhatWasGenerated, *LIFE, trained()) == []


FOREIGN = ("e0p0i1_g1r0-a0/c1", "carry1", "made1")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"reward": 1.0}, f"has reward 1.0, {KEY} was rewarded 0.5"),
        ({"calls": CALLS[:1]}, f"holds 1 model calls, {KEY} made 2"),
        ({"calls": (CALLS[0], FOREIGN)}, f"holds {FOREIGN[0]} in place of model call 1 of {KEY}"),
        ({"calls": CALLS[::-1]}, f"holds {CALLS[1][0]} in place of model call 0 of {KEY}"),
        ({"calls": (CALLS[0], (CALLS[1][0], "other", "made1"))}, f"does not hold the tokens that {CALLS[1][0]} was given"),
        (
            {"calls": (CALLS[0], (CALLS[1][0], "carry1", "other"))},
            f"does not hold the tokens, masks and logprobs that {CALLS[1][0]} generated",
        ),
        ({"spans": ((0, 3), (0, 3))}, f"counts {CALLS[1][0]} to weight version 0, it began under 1"),
        ({"valid": False, "calls": ()}, f"is masked, though all 2 model calls of {KEY} were captured"),
    ],
)
def test_a_row_that_differs_from_its_calls_breaks_I43(change, text):
    found = judged(TrainedIsWhatWasGenerated, *LIFE, trained(**change))
    assert any(line == f"Row {S} of step 2 {text}." for line in found) and len(found) == 1 + (change.get("calls") == CALLS[::-1])


def test_a_row_is_masked_by_right_if_a_call_was_not_captured():
    lost = ("worker-0", CallEnded(CALLS[1][0], "capture-failed"))
    rows_lost = ("job", FaultInjected("lose_rows", "2 rows"))
    masked = trained(valid=False, calls=())
    assert judged(TrainedIsWhatWasGenerated, *LIFE, lost, masked) == []
    assert judged(TrainedIsWhatWasGenerated, *LIFE, rows_lost, masked) == []


TOKENS, MASK, LOGPROBS = [7, 8, 9], [0, 1, 1], [0.0, -0.5, -1.0]
STAGED = {"weight_version": 0, "tokens": TOKENS, "mask": MASK, "logprobs": LOGPROBS}
CALL = (f"{KEY}/c0", content_digest(TOKENS[:1], MASK[:1], LOGPROBS[:1]), content_digest(TOKENS[1:], MASK[1:], LOGPROBS[1:]))


def restored():
    sealed = attempt(KEY, "SEALED", receipt="r")
    sealed["receipt"]["calls"] = [{"key": CALL[0], "digest": "d"}]
    files = snapshot(group(0, sealed, attempt(f"{G}_g1r0-a0", "RESERVED")))
    folder = next(path for path in files if path.endswith("rollout_staging.msgpack"))
    return {**files, folder: pack([[CALL[0], pack(STAGED)]])}


def test_calls_of_an_earlier_life_are_those_on_disk():
    row = trained(calls=(CALL,), spans=((0, 2),), reward=1.0)
    assert judged(TrainedIsWhatWasGenerated, row, start=restored(), life=2) == []
    shifted = (CALL[0], CALL[1], content_digest([8, 9], [1, 1], [-1.0, -0.5]))
    found = judged(TrainedIsWhatWasGenerated, trained(calls=(shifted,), spans=((0, 2),), reward=1.0), start=restored(), life=2)
    assert found == [f"Row {S} of step 2 does not hold the tokens, masks and logprobs that {CALL[0]} generated."]


def test_a_row_that_is_masked_though_its_receipt_is_whole_breaks_I43():
    masked = trained(valid=False, calls=())
    found = judged(TrainedIsWhatWasGenerated, masked, start=restored(), life=2)
    assert found == [f"Row {S} of step 2 is masked, though all 1 model calls of {KEY} were captured."]


def test_a_published_row_of_an_earlier_life_is_trained_as_it_is():
    canonical = {S: {"tokens": TOKENS, "mask": MASK, "logprobs": LOGPROBS, "spans": [[0, 2]], "reward": 1.0}}
    start = snapshot(group(0, attempt(KEY, "SEALED", receipt="r"), status="FINALIZED"), canonical=canonical)
    same = trained(content=content_digest(TOKENS, MASK, LOGPROBS), spans=((0, 2),), reward=1.0, calls=(CALL,))
    assert judged(TrainedIsWhatWasGenerated, same, start=start, life=2) == []
    found = judged(TrainedIsWhatWasGenerated, trained(spans=((0, 2),), reward=1.0), start=start, life=2)
    assert found == [f"Row {S} of step 2 is not the restored one (reward 1.0 for 1.0, spans ((0, 2),) for ((0, 2),))."]
