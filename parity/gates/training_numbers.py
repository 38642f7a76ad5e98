"""Training numbers: advantages, trainer logprobs, loss and mean reward agree while both runs train with the same weights.

A step's mean reward, and an advantage, are made of other rows too: they are compared only in steps whose rows are all the
reference's; a loss only where all generation logprobs are within rtol as well, since their ratios weigh it. Steps after the
first difference are not compared, and how many are is printed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from parity.agreement import both, first_difference, outright, same_weights
from parity.gate import Comparison, GateResult
from parity.places import judged, lines, nothing, place, unknown
from parity.profile import Profile

NAME = "training numbers"


def training_numbers(comparison: Comparison) -> GateResult:
    pairs, profile = comparison.measured.pairs, comparison.profile
    mine, theirs = comparison.restored.steps, comparison.reference.steps
    if not both(pairs).any():
        return unknown(NAME, "no row of the restored run has a counterpart")
    equal = same_weights(pairs, mine, theirs)
    whole = {step for step in equal if step < first_difference(pairs, bitwise=False)}
    at_once = both(pairs) & outright(pairs) & pairs["step"].isin(sorted(equal)).to_numpy(bool)
    in_whole = at_once & pairs["step"].isin(sorted(whole)).to_numpy(bool)
    advantages = in_whole & ~(pairs["advantage"].isna() & pairs["advantage_ref"].isna()).to_numpy(bool)
    wrong = pairs[advantages & ~close(pairs["advantage"], pairs["advantage_ref"], profile)]
    findings = [f"{place(row)}: advantage {row.advantage:.6g}, not {row.advantage_ref:.6g}" for row in lines(wrong)]
    scored = at_once & (pairs["trainer_compared"].to_numpy() > 0)
    over = pairs[scored & ~(pairs["trainer_excess"].to_numpy(float) <= profile.trainer_atol)]
    findings += [
        f"{place(row)}: a trainer logprob differs by {row.trainer_excess:.4g} more than its {profile.trainer_rtol:g}th part"
        for row in lines(over)
    ]
    quiet = whole - set(pairs.loc[both(pairs) & (pairs["max_diff"].to_numpy(float) > profile.trainer_rtol), "step"])
    held = 0
    for name, steps in (("loss", quiet), ("reward_mean", whole)):
        count, said = _of_steps(name, mine, theirs, steps, profile)
        held += count
        findings += said
    figures = {
        "advantages": int(advantages.sum()),
        "rows scored": int(scored.sum()),
        "step figures": held,
        "steps with equal weights": len(equal),
    }
    limit = f"rtol {profile.trainer_rtol:g}, atol {profile.trainer_atol:g}"
    if not (advantages.any() or scored.any() or held):
        return nothing(
            NAME, "neither run says an advantage, a trainer logprob or a loss where both had the same weights", figures=figures
        )
    why = f"{len(equal)} steps were trained with the reference's weights, {len(whole)} of them on its rows throughout"
    return judged(NAME, findings, value=len(findings), limit=limit, why=why, figures=figures)


def close(found: pd.Series, wanted: pd.Series, profile: Profile) -> Any:
    left, right = found.to_numpy(float), wanted.to_numpy(float)
    with np.errstate(invalid="ignore"):
        return np.abs(left - right) <= profile.trainer_atol + profile.trainer_rtol * np.abs(right)  # NaN, infinity: not close


def _of_steps(name: str, mine: pd.DataFrame, theirs: pd.DataFrame, steps: set[int], profile: Profile) -> tuple[int, list[str]]:
    """How many steps say this figure, and where it differs."""
    if mine.empty or theirs.empty:
        return 0, []
    paired = mine[["step", name]].merge(theirs[["step", name]], on="step", suffixes=("", "_ref"))
    paired = paired[paired["step"].isin(sorted(steps))]
    found, wanted = paired[name].astype(float), paired[f"{name}_ref"].astype(float)
    said = ~(found.isna() & wanted.isna()).to_numpy(bool)
    wrong = paired[said & ~close(found, wanted, profile)]
    return int(said.sum()), [f"step {step}: {name} {value}, not {right}" for step, value, right in wrong.itertuples(index=False)]
