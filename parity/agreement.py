"""Which pairs of rows agree, which differences are excused, and up to which step both runs had the same weights.

All masks are as long as ``pairs``. An excuse holds only with its proof and only if the profile knows it: what was measured
under one profile may be judged under another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from parity.profile import Profile

NEVER = 2**31 - 1  # no step: nothing differs
PRE_CUT, NEAR_TIE = "pre_cut", "near_tie"


def both(pairs: pd.DataFrame) -> Any:
    return (pairs["found"] == "both").to_numpy(bool)


def of_kind(pairs: pd.DataFrame, *kinds: str) -> Any:
    return pairs["kind"].isin(kinds).to_numpy(bool)


def compared(pairs: pd.DataFrame) -> Any:
    """Pairs that are compared by token."""
    return both(pairs) & ~of_kind(pairs, "other_weights")


def acted_alike(pairs: pd.DataFrame) -> Any:
    """Pairs that are not compared by token, whose tokens and tool replies are equal all the same: what was done is the same."""
    alike = (pairs["first"].to_numpy() < 0) & (pairs["tokens"].to_numpy() == pairs["tokens_ref"].to_numpy())
    return both(pairs) & of_kind(pairs, "other_weights") & alike & pairs["tools_equal"].to_numpy(bool)


def excused(pairs: pd.DataFrame, profile: Profile) -> Any:
    proven = (pairs["proof"] != "").to_numpy(bool)
    prefix = of_kind(pairs, "pre_cut") & (pairs["excuse"] == PRE_CUT).to_numpy(bool) & profile.pre_cut_excused
    most = profile.near_tie_margin
    tied: Any = np.zeros(len(pairs), bool)
    if most is not None:
        margin = pairs["margin"].to_numpy(float)
        tied = (
            of_kind(pairs, "post_cut", "unrestored")
            & (pairs["excuse"] == NEAR_TIE).to_numpy(bool)
            & (margin >= 0)
            & (margin < most)
        )
    return both(pairs) & proven & (prefix | tied)


def parted(pairs: pd.DataFrame, profile: Profile) -> Any:
    """Rows that went on otherwise for an excused reason: only a proven prefix of life 1 keeps its reward and masks."""
    return excused(pairs, profile) & (pairs["excuse"] == NEAR_TIE).to_numpy(bool)


def outright(pairs: pd.DataFrame) -> Any:
    """Equal in tokens, masks, weights, tools, reward and admission, with nothing excused."""
    return (
        both(pairs)
        & of_kind(pairs, "match")
        & pairs["prompt_equal"].to_numpy(bool)
        & pairs["mask_equal"].to_numpy(bool)
        & pairs["spans_equal"].to_numpy(bool)
        & pairs["tools_equal"].to_numpy(bool)
        & (pairs["sample_mask"].to_numpy() == pairs["sample_mask_ref"].to_numpy())
        & same(pairs["reward"], pairs["reward_ref"])
    )


def restored_rows(pairs: pd.DataFrame) -> Any:
    """Rows that a restore brought over, or that hold a restored prefix."""
    return (pairs["how"] != "").to_numpy(bool) | (pairs["prefix_tokens"].to_numpy() > 0)


def same(left: pd.Series, right: pd.Series) -> Any:
    """Bitwise, where nothing (NaN) equals nothing."""
    one, other = left.to_numpy(float), right.to_numpy(float)
    return (one == other) | (np.isnan(one) & np.isnan(other))


def first_difference(pairs: pd.DataFrame, bitwise: bool = True) -> int:
    """The first step of either run in which a row differs (``NEVER``: none). ``bitwise``: logprobs and advantages too, since
    weights are made of them; else only what was sampled."""
    equal = outright(pairs) & (pairs["step"].to_numpy() == pairs["step_ref"].to_numpy())
    if bitwise:
        equal &= (pairs["compared"].to_numpy() == pairs["bit_identical"].to_numpy()) & same(
            pairs["advantage"], pairs["advantage_ref"]
        )
    found = pairs["found"].to_numpy()
    step = np.where(found == "reference", NEVER, pairs["step"].to_numpy())
    step_ref = np.where(found == "restored", NEVER, pairs["step_ref"].to_numpy())
    differing = np.minimum(step, step_ref)[~equal]
    return int(differing.min()) if len(differing) else NEVER


def same_weights(pairs: pd.DataFrame, steps: pd.DataFrame, steps_ref: pd.DataFrame) -> set[int]:
    """Steps that both runs began with the same weights: by digest, or where nobody wrote any, by all rows before them."""
    mine, theirs = _begun_with(steps), _begun_with(steps_ref)
    if mine and theirs:
        return {step for step, weights in mine.items() if theirs.get(step) == weights}
    last = first_difference(pairs)
    return {int(step) for step in np.unique(pairs["step"].to_numpy()[both(pairs)]) if step <= last}


def _begun_with(steps: pd.DataFrame) -> dict[int, str]:
    if steps.empty:
        return {}
    return {int(step): str(before) for step, before in zip(steps["step"], steps["before"], strict=True) if before}
