"""Masks and lengths: wherever tokens are compared, the same tokens are trained and rows are equally long.

A row that parted at an excused near tie goes its own way after it, and is not held to this; one whose excused difference lies in
a proven prefix keeps its masks as far as both rows go, and may end elsewhere.
"""

from __future__ import annotations

from parity.agreement import compared, excused, parted
from parity.gate import Comparison, GateResult
from parity.places import judged, lines, place, unknown

NAME = "masks and lengths"


def masks_and_lengths(comparison: Comparison) -> GateResult:
    pairs = comparison.measured.pairs
    held = compared(pairs) & ~parted(pairs, comparison.profile)
    if not held.any():
        return unknown(NAME, "no pair of rows has equal weights and tool replies")
    length = (pairs["tokens"].to_numpy() != pairs["tokens_ref"].to_numpy()) & ~excused(pairs, comparison.profile)
    mask = ~pairs["mask_equal"].to_numpy(bool)
    wrong = pairs[held & (length | mask)]
    findings = [
        f"{place(row)}: {row.tokens} tokens, not {row.tokens_ref}"
        if row.tokens != row.tokens_ref
        else f"{place(row)}: other tokens are trained"
        for row in lines(wrong.head(100))
    ]
    return judged(NAME, findings, found=len(wrong), value=len(wrong), limit=0, figures={"compared": int(held.sum())})
