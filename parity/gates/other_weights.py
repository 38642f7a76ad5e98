"""Other weights: rows that a legal refit gave other weights, or whose tool replies differ, are few, and every span is legal.

Such a row is not compared by token, nor is its reward unless all its tokens and tool replies are the reference's: it is the
reward of its own final state, which the reference cannot tell. A scenario whose order is fixed has none. Legal versions lie
between the one that trains the row and the oldest that the sampler lets it be drawn from.
"""

from __future__ import annotations

from parity.agreement import acted_alike, both, of_kind
from parity.gate import Comparison, GateResult
from parity.places import judged, lines, place, unknown

NAME = "other weights"


def other_weights(comparison: Comparison) -> GateResult:
    pairs, limit = comparison.measured.pairs, comparison.profile.other_weights_max
    paired = both(pairs)
    if not paired.any():
        return unknown(NAME, "no row of the restored run has a counterpart")
    other = paired & of_kind(pairs, "other_weights")
    mine = (pairs["found"] != "reference").to_numpy(bool)
    illegal = mine & ~pairs["spans_legal"].to_numpy(bool)
    findings = [
        f"{place(row)}: its weight versions are not legal ({row.fault or 'see its spans'})" for row in lines(pairs[illegal])
    ]
    if comparison.restored.facts.fixed_order:
        moved = lines(pairs[other & ~illegal])
        findings += [f"{place(row)}: other weights or tool replies, though the scenario's order is fixed" for row in moved]
    share = float(other.sum() / paired.sum())
    silent = int((other & ~acted_alike(pairs)).sum())
    replies = int((other & pairs["spans_equal"].to_numpy(bool) & ~pairs["tools_equal"].to_numpy(bool)).sum())
    figures = {
        "rows": int(other.sum()),
        "of": int(paired.sum()),
        "rewards not compared": silent,
        "by tool replies alone": replies,
    }
    if not findings and share > limit:
        why = f"{other.sum()} of {paired.sum()} rows were generated with other weights: too few are left to compare"
        return unknown(NAME, why, value=share, limit=limit, figures=figures)
    why = "their tokens and rewards are not compared: only their spans and provenance are judged" if silent else ""
    if replies:
        why += f"; {replies} of them differ by tool replies alone, which only the environment can have changed"
    if comparison.restored.facts.max_staleness < 0 and "spans" in comparison.restored.rows.columns:
        why += "; " * bool(why) + "nobody says how old weights may be (max_staleness), which was not judged"
    return judged(NAME, findings, value=share, limit=limit, why=why, figures=figures)
