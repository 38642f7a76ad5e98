"""Media: a row looked at the same images and videos as the reference's."""

from __future__ import annotations

from parity.agreement import both
from parity.gate import Comparison, GateResult
from parity.places import judged, lines, nothing, place, unknown

NAME = "media"


def media(comparison: Comparison) -> GateResult:
    pairs = comparison.measured.pairs
    held = both(pairs) & (pairs["media_equal"].to_numpy() >= 0)
    wrong = pairs[held & (pairs["media_equal"].to_numpy() == 0)]
    findings = [f"{place(row)}: it looked at other media than the reference's" for row in lines(wrong)]
    if not held.any():
        if comparison.restored.facts.media:
            return unknown(NAME, "the run declares media, but no pair of rows shows any")
        return nothing(NAME, "no row looked at media")
    return judged(NAME, findings, value=len(findings), limit=0, figures={"rows compared": int(held.sum())})
