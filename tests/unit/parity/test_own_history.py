"""A row that counts is the one that its run's own history tells of, and was rewarded as its environment did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from parity_samples import EXACT, Pair, Side, clean_pair

from parity.compare import compare
from parity.evidence import faults_of
from parity.sources.history import tables
from parity.sources.lineage import LifeTold
from parity.tables import TOLD, Run
from protocol.data_plane.digests import content_digest, tokens_digest
from protocol.history import (
    AttemptSealed,
    Event,
    LifeStarted,
    OptimizerApplied,
    Record,
    ReplySent,
    StepCommitted,
    TrainedRow,
    WeightsSynced,
)
from protocol.judging import Verdict


def told(side: Side) -> Run:
    """The run with what its history tells of its rows as they are now."""
    lines = []
    for row in side.rows:
        spans = row["spans"]
        content = content_digest(row["tokens"], row["token_mask"], row["generation_logprobs"])
        prompt, versions = tokens_digest(row["tokens"][: row["prompt_length"]]), [(spans[2], spans[1] - spans[0]), (spans[5], 0)]
        versions[1] = (spans[5], spans[4] - spans[3])
        place = (row["step"], row["ordinal"], row["generation"])
        lines.append(
            (*place, content, prompt, row["tools"], tuple(versions), row["reward"], row["reward"], row["sample_mask"] == 1)
        )
    return replace(side.run(), told=pd.DataFrame(lines, columns=list(TOLD)))


def found(pair: Pair, spoil: Callable[[dict[str, Any]], None]) -> list[str]:
    history = told(pair.restored).told
    row = pair.restored.row(3, 1)
    spoil(row)
    faults = faults_of(told(pair.reference), replace(pair.restored.run(), told=history))
    assert {line[:4] for line in faults[["run", "ordinal", "generation", "what"]].itertuples(index=False, name=None)} <= {
        ("restored", 4, 1, what) for what in ("told", "provenance", "row")
    }
    return [str(fault) for fault in faults.loc[faults["what"] == "told", "fault"]]


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda row: row["tokens"].__setitem__(-1, 7), "its tokens, mask or generation logprobs are not those"),
        (lambda row: row["token_mask"].__setitem__(-1, 0), "its tokens, mask or generation logprobs are not those"),
        (lambda row: row["generation_logprobs"].__setitem__(-1, -0.5), "its tokens, mask or generation logprobs are not those"),
        (lambda row: row.update(prompt_length=row["prompt_length"] - 1), "tokens are not the prompt"),
        (lambda row: row.update(tools="another"), "the digest of its tool replies is not"),
        (lambda row: row["spans"].__setitem__(2, 1), "its tokens are of weight versions 1 ("),
        (lambda row: row.update(reward=1.0 - row["reward"]), "its reward is 0, its history tells of 1"),
        (lambda row: row.update(sample_mask=0), "it is masked, its history tells otherwise"),
        (lambda row: row.update(step=2), "its history tells of no such row"),
    ],
)  # fmt: skip
def test_what_a_dump_says_otherwise_than_the_history_is_a_fault(spoil: Any, fault: str) -> None:
    assert any(fault in said for said in found(clean_pair(), spoil)), fault


def test_rows_as_the_history_tells_of_them_have_no_fault() -> None:
    assert found(clean_pair(), lambda row: None) == []


def test_a_row_that_was_trained_with_another_reward_than_its_environment_gave_is_broken_whatever_the_reference_says() -> None:
    pair = clean_pair()
    run = told(pair.restored)
    run.told.loc[run.told["step"] == 3, "rewarded"] = 0.25
    result = compare(told(pair.reference), run, EXACT)
    (gate,) = [gate for gate in result.gates if gate.verdict is Verdict.BROKEN]
    assert (gate.name, gate.found) == ("own history", 8)
    assert "its environment gave 0.25" in gate.findings[0]


def life(number: int, *events: Event) -> LifeTold:
    records = [
        Record(place, float(place), "test", number, "", event) for place, event in enumerate((LifeStarted(number), *events))
    ]
    return LifeTold(number=number, records=records)


def test_the_history_says_what_the_environment_gave_and_which_push_missed_a_worker() -> None:
    row = TrainedRow(0, 0, "e0p0i1_g0", "prompt", "content", ((0, 5),), "tools", 1.0, True)
    key = "e0p0i1_g0-a0"
    events = (
        WeightsSynced(0),
        ReplySent(key, 0.5, 1),
        AttemptSealed("e0p0i1_g0", key, key, "", 1),
        OptimizerApplied(1, "", "", (row,)),
        StepCommitted(1, 1, (0,), 1, ""),
        WeightsSynced(1, ("worker-1",)),
    )
    read = tables([life(1, *events)])
    assert read.told.values.tolist() == [[1, 0, 0, "content", "prompt", "tools", ((0, 5),), 1.0, 0.5, True]]
    assert read.steps["missed"].to_list() == [1]
