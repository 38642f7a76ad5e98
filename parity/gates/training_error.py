"""Training error of a restored call: in resumed tails the trainer finds what was generated about as likely as elsewhere.

``gen_kl_error`` and ``token_mult_prob_error`` (its excess over 1) of resumed tails are at most the profile's factor worse than
those of other rows. A tail of few tokens may owe that to one token that differs by the most the profile allows: so much more
is granted to each, shared by its tokens. The share that masks took out stands beside each: a low error of what masking left is
no pass.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from parity.gate import Comparison, GateResult
from parity.places import judged, nothing, unknown
from parity.profile import Profile

NAME = "training error"
SUMS = ("tokens", "masked", "scored", "kl_sum", "mult_sum")
MASKED_MORE, MASKED_FACTOR = 0.1, 2.0  # a masked share above both of these, against other rows, hides what it should show


def training_error(comparison: Comparison) -> GateResult:
    profile = comparison.profile
    figures = errors(comparison.measured.segments)
    tail, other = figures.get("restored tail"), figures.get("restored other") or figures.get("reference other")
    if other is None or not other["scored"]:
        other = figures.get("reference other")
    if tail is None or not tail["tokens"]:
        return nothing(NAME, "no row went on from a restored prefix", figures=figures)
    exact = profile.logprob_max == 0.0
    if not any(figure["scored"] for figure in figures.values()):
        return nothing(NAME, "no trainer scored any token with the weights that generated it", figures=figures)
    if not tail["scored"] or other is None or not other["scored"]:
        lacking = "resumed tail" if not tail["scored"] else "other row"
        why = f"no {lacking} was scored with the weights that generated it"
        if exact:  # reported, where there is anything: bitwise gates judge this profile
            return nothing(NAME, why, figures=figures)
        return unknown(NAME, why, figures=figures)
    for name in ("restored tail", "restored prefix"):
        hidden = figures.get(name)
        if hidden and hides(hidden, other["masked share"]):
            share, usual = hidden["masked share"], other["masked share"]
            why = f"{share:.1%} of the {name.split()[1]} tokens are masked, of other rows {usual:.1%}"
            return unknown(NAME, f"{why}: what is left says nothing of the rest", figures=figures)
    findings, value = [], {}
    for error in ("gen_kl_error", "token_mult_prob_error"):
        less = 1.0 if error == "token_mult_prob_error" else 0.0
        value[error] = tail[error]
        most = (
            max(profile.tail_factor * (other[error] - less), profile.tail_floor) + of_one_token(error, profile) / tail["scored"]
        )
        if not tail[error] - less <= most:
            findings.append(
                f"{error} of resumed tails is {tail[error]:.6g}, of other rows {other[error]:.6g}: at most {most + less:.6g}"
            )
    limit = f"{profile.tail_factor:g} times other rows, or {profile.tail_floor:g}; and one token at {profile.logprob_max:g}"
    if exact:
        return judged(NAME, [], value=value, why="reported: bitwise gates judge this profile", reported=True, figures=figures)
    return judged(NAME, findings, value=value, limit=limit, figures=figures)


def of_one_token(error: str, profile: Profile) -> float:
    """What one token adds to a sum of errors if its logprobs differ by the profile's most."""
    most = profile.logprob_max
    return math.expm1(most) - (most if error == "gen_kl_error" else 0.0)


def hides(segment: dict[str, Any], usual: float) -> bool:
    """Whether more is masked than other rows' share and three standard deviations of so few tokens explain."""
    most = min(max(MASKED_FACTOR * usual, usual + MASKED_MORE), 1.0)
    tokens = segment["tokens"]
    return bool(segment["masked share"] * tokens > most * tokens + 3.0 * (tokens * most * (1.0 - most)) ** 0.5)


def errors(segments: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """tokens, masked share, scored, gen_kl_error and token_mult_prob_error of each run's segments that hold any token."""
    if segments.empty:
        return {}
    whole = {key: lines[list(SUMS)].sum(skipna=False) for key, lines in segments.groupby(["run", "segment"])}
    return {
        f"{run} {segment}": {
            "tokens": int(row["tokens"]),
            "masked share": float(row["masked"] / row["tokens"]),
            "scored": int(row["scored"]),
            "gen_kl_error": float(row["kl_sum"] / row["scored"]) if row["scored"] else None,
            "token_mult_prob_error": float(row["mult_sum"] / row["scored"]) if row["scored"] else None,
        }
        for (run, segment), row in whole.items()
        if row["tokens"]
    }
