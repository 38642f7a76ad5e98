"""Numbers that no row can hold, whatever the other run has: a probability above 1, a length that is not the row's, an advantage
that is none. Rows are looked at one by one only where something is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from parity.batches import Batch, Flat, counts_of
from parity.short_columns import numbers

COLUMNS = ("tokens", "token_mask", "generation_logprobs", "trainer_logprobs", "calls")
# What fp32 leaves of a logprob of 0 where the largest logits, some 30, are taken off after the sum instead of before: a few
# spacings of 30 (2e-6), with an ample margin.
ABOVE_ZERO = 1e-4
Faults = list[tuple[int, str, str]]


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Of each row of the index, NaN where nobody says; ``advantages``: whether any row says its own."""

    input_length: Any
    prompt_length: Any
    reward: Any
    advantage: Any
    admitted: Any
    advantages: bool


def numbers_of(index: pd.DataFrame, source: str) -> Numbers:
    """Raises ConfigError for a value that is no number."""
    names = ("input_length", "prompt_length", "reward", "advantage", "sample_mask")
    found = {name: numbers(index, name, source, 1.0 if name == "sample_mask" else np.nan) for name in names}
    return Numbers(
        admitted=found.pop("sample_mask") != 0, advantages=bool(np.isfinite(found["advantage"]).any()), **found
    )  # fmt: skip


def impossible(batch: Batch, index: Numbers) -> Faults:
    """(line of the index, "row", fault)."""
    tokens, mask = batch.tokens("tokens"), batch.tokens("token_mask")
    admitted, lengths = index.admitted[batch.lines], tokens.lengths
    trained = (mask.values == 1) & np.repeat(admitted, lengths)
    some = counts_of(trained, tokens.offsets) > 0
    found: Faults = []
    odd = counts_of((mask.values != 0) & (mask.values != 1), mask.offsets) > 0
    found += _told(batch, odd, "its mask holds something else than 0 and 1")
    said = index.input_length[batch.lines]
    found += _told(batch, ~np.isnan(said) & (said != lengths), "its input_length is not the number of its tokens")
    found += _prompts(batch, mask, index.prompt_length[batch.lines])
    found += _told(batch, admitted & ~np.isfinite(index.reward[batch.lines]), "its reward is no finite number")
    advantage = index.advantage[batch.lines]
    found += _told(batch, np.isinf(advantage), "its advantage is infinite")
    found += _told(batch, np.isnan(advantage) & some & index.advantages, "it has no advantage, other rows have one")
    for name in ("generation_logprobs", "trainer_logprobs"):
        found += _logprobs(batch, name, batch.tokens(name), trained, tokens.offsets)
    return found


def _told(batch: Batch, rows: Any, fault: str) -> Faults:
    return [(int(line), "row", fault) for line in batch.lines[rows]]


def _prompts(batch: Batch, mask: Flat, prompt: Any) -> Faults:
    """A prompt lies in the row, and nothing of it is trained or was generated."""
    known = ~np.isnan(prompt)
    end = np.where(known, prompt, 0).astype(np.int64)
    found = _told(batch, end > mask.lengths, "its prompt is longer than the row")
    place = np.arange(len(mask.values)) - np.repeat(mask.offsets[:-1], mask.lengths)
    inside = place < np.repeat(end, mask.lengths)
    wrong = counts_of(inside & (mask.values != 0), mask.offsets) > 0
    calls = batch.flat("calls")
    counted = np.flatnonzero((calls.lengths > 1) & known & ~wrong)
    wrong[counted] = calls.values[calls.offsets[counted]] < end[counted]
    return found + _told(batch, wrong, "its prompt_length reaches into what was generated")


def _logprobs(batch: Batch, name: str, flat: Flat, trained: Any, offsets: Any) -> Faults:
    """Of trained tokens; rows without any logprob are said to lack them elsewhere."""
    if not len(flat.values):
        return []
    values = flat.values
    if len(values) != len(trained):  # some rows have none
        wide: Any = np.zeros(len(trained), np.float32)
        wide[np.repeat(flat.lengths > 0, np.diff(offsets))] = values
        values = wide
    with np.errstate(invalid="ignore"):
        wrong = np.flatnonzero(trained & ~((values <= ABOVE_ZERO) & (values > -np.inf)))
    rows = np.searchsorted(offsets, wrong, side="right") - 1
    first = np.unique(rows, return_index=True)
    return [
        (
            int(batch.lines[row]),
            "row",
            f"{name} at token {int(wrong[at] - offsets[row])} is {values[wrong[at]]:g}: it must be finite, and not above 0",
        )
        for row, at in zip(*first, strict=True)
    ]
