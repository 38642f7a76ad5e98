"""Token ids: every row's tokens are the reference's, or its first difference is excused with proof.

A prompt that differs and a prefix that is not the restored one are never excused. A difference inside the prefix that life 1
generated, or at a near tie, is excused only where the profile says so, and only with its proof. Tokens hold the tools' replies:
where they are equal, a digest of the replies that is not says something else than its row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.agreement import both, excused, of_kind
from parity.gate import Comparison, GateResult
from parity.places import at, judged, lines, unknown

NAME = "token ids"
DIFFERS = ("pre_generation", "pre_cut", "prefix_mismatch", "post_cut", "unrestored")
KNOWN = ("match", "other_weights", *DIFFERS)


def token_ids(comparison: Comparison) -> GateResult:
    pairs, profile = comparison.measured.pairs, comparison.profile
    paired = both(pairs)
    if not paired.any():
        return unknown(NAME, "no row of the restored run has a counterpart")
    allowed = excused(pairs, profile)
    prompts = ~pairs["prompt_equal"].to_numpy(bool)
    strange = ~of_kind(pairs, *KNOWN)
    replies = of_kind(pairs, "match") & ~pairs["tools_equal"].to_numpy(bool)
    wrong = paired & ((of_kind(pairs, *DIFFERS) & ~allowed) | prompts | strange | replies)
    counts = pairs.loc[paired, "kind"].value_counts().sort_index()
    figures: dict[str, Any] = {"kinds": {str(kind): int(count) for kind, count in counts.items()}, "excused": int(allowed.sum())}
    rows = pairs[wrong].head(100).assign(says=lambda few: _said(few, profile.near_tie_margin))
    why = f"{figures['excused']} differences are excused" if figures["excused"] else ""
    broken = f"{int(wrong.sum())} of {int(paired.sum())} rows differ without an excuse"
    return judged(
        NAME, at(rows, "says"), found=int(wrong.sum()), value=int(wrong.sum()), limit=0, why=why, broken=broken, figures=figures
    )


def _said(rows: Any, most: float | None) -> list[str]:
    return [_words(row, most) for row in lines(rows)]


def _words(row: Any, most: float | None) -> str:
    if row.kind == "match" and row.prompt_equal:
        return "its tokens are the reference's, the digest of its tool replies is not"
    kind = row.kind if row.prompt_equal else "pre_generation"
    said = f"{kind or 'without a class'}{f' at token {row.first}' if row.first >= 0 else ''}"
    if row.fault:
        return f"{said}: {row.fault}"
    if row.excuse and not row.proof:
        return f"{said}: the excuse {row.excuse} has no proof"
    if row.excuse == "near_tie" and most is not None and not np.isnan(row.margin):
        return f"{said}: its margin {row.margin:.4g} is not below {most:g}"
    if row.excuse:
        return f"{said}: this profile does not excuse {row.excuse}"
    return said
