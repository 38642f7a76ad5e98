"""Rewards and admission: wherever tokens are compared, a row has the reference's reward and is admitted as there.

Where siblings are rewarded against each other, a group of which one sibling went another way is not compared. A row generated
with other weights has the reward of its own final state, which the reference can tell only where it did the same: where all its
tokens and tool replies are the reference's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from parity.agreement import acted_alike, both, compared, parted, same
from parity.gate import Comparison, GateResult
from parity.places import judged, lines, place, unknown

NAME = "rewards and admission"


def rewards_and_admission(comparison: Comparison) -> GateResult:
    pairs = comparison.measured.pairs
    alike = acted_alike(pairs)
    other = parted(pairs, comparison.profile) | (both(pairs) & ~compared(pairs) & ~alike)
    held = (compared(pairs) | alike) & ~other
    beside: Any = np.zeros(len(pairs), bool)
    if comparison.restored.facts.relative_rewards or comparison.reference.facts.relative_rewards:
        group = pairs.groupby(["epoch", "ordinal"]).ngroup().to_numpy()
        beside = held & np.isin(group, np.unique(group[other]))
    if not held.any():
        return unknown(NAME, "no pair of rows has equal weights and tool replies")
    reward = held & ~beside & ~same(pairs["reward"], pairs["reward_ref"])
    nothing = held & ~np.isfinite(pairs["reward"].to_numpy(float)) & (pairs["sample_mask"].to_numpy() != 0)
    admitted = held & (pairs["sample_mask"].to_numpy() != pairs["sample_mask_ref"].to_numpy())
    wrong = reward | nothing | admitted
    findings = [
        f"{place(row)}: "
        + (
            f"reward {row.reward:g}, not {row.reward_ref:g}"
            if row.reward != row.reward_ref
            else f"{'admitted' if row.sample_mask else 'not admitted'}, unlike the reference's"
        )
        for row in lines(pairs[wrong].head(100))
    ]
    figures = {"compared": int((held & ~beside).sum()), "beside a sibling that went another way": int(beside.sum())}
    return judged(NAME, findings, found=int(wrong.sum()), value=int(wrong.sum()), limit=0, figures=figures)
