"""How much of what calls generated is untrained: masks may leave out some of it, and where rows went different ways nothing else
says whether they left out too much. Rows that do not count their calls say nothing of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.batches import Batch, Flat, counts_of, per_row
from parity.classes import Side


def generated_of(batch: Batch, mask: Flat, admitted: Any) -> dict[str, Any]:
    """int64 [rows]: tokens that calls generated in rows that are admitted, and how many of them are untrained."""
    calls = batch.flat("calls")
    place = np.arange(len(calls.values)) - np.repeat(calls.offsets[:-1], calls.lengths)
    generated = per_row(np.add, np.where(place % 2 == 1, calls.values, 0), calls.lengths, 0, np.int64)
    generated = np.where(admitted & (calls.lengths % 2 == 0), generated, 0)
    untrained = np.maximum(generated - counts_of(mask.values == 1, mask.offsets), 0)
    return {"generated_ref": generated, "masked_ref": untrained}


def rest_of(row: Side, first: int) -> tuple[int, int]:
    """(tokens that calls generated behind the ``first`` one, untrained ones of them); of the whole row if it is -1."""
    calls = row.calls
    if not row.sample_mask or not calls or len(calls) % 2 or min(calls) < 0 or sum(calls) != len(row.tokens):
        return 0, 0
    generated: Any = np.repeat(np.arange(len(calls)) % 2 == 1, calls)
    generated[: first + 1] = False
    return int(generated.sum()), int((generated & (row.mask != 1)).sum())
