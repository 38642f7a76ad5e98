"""Masks and lengths: wherever tokens are compared, the same tokens are trained and rows are equally long.

A row that parted at an excused near tie, or was generated with other weights, goes its own way, and is not held to this: but no
more of what it generated there is untrained than the reference leaves out elsewhere (a masked-out divergence would be hidden).
One whose excused difference lies in a proven prefix keeps its masks as far as both rows go, and may end elsewhere.
"""

from __future__ import annotations

from typing import Any

from parity.agreement import both, compared, excused, of_kind, parted
from parity.gate import Comparison, GateResult
from parity.gates.training_error import hides
from parity.places import judged, lines, place, unknown

NAME = "masks and lengths"


def masks_and_lengths(comparison: Comparison) -> GateResult:
    pairs = comparison.measured.pairs
    held = compared(pairs) & ~parted(pairs, comparison.profile)
    hidden = _hidden(pairs, parted(pairs, comparison.profile) | (both(pairs) & of_kind(pairs, "other_weights")))
    if not held.any() and not hidden:
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
    found = len(wrong) + len(hidden)
    return judged(NAME, findings + hidden, found=found, value=found, limit=0, figures={"compared": int(held.sum())})


def _hidden(pairs: Any, apart: Any) -> list[str]:
    """Rows that went their own way, and of which masks leave out more than of the reference's rows."""
    if "rest" not in pairs:  # evidence of older versions
        return []
    generated, masked = int(pairs["generated_ref"].sum()), int(pairs["masked_ref"].sum())
    usual = masked / generated if generated else 0.0
    return [
        f"{place(row)}: {row.rest_masked} of {row.rest} tokens of its own way are untrained, of others {usual:.1%}"
        for row in lines(pairs[apart & (pairs["rest_masked"].to_numpy() > 0)])
        if hides({"masked share": row.rest_masked / row.rest, "tokens": row.rest}, usual)
    ]
