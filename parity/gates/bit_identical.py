"""Bit-identical logprobs: the share that is bitwise the reference's, held to a minimum where the profile has one.

The minimum was calibrated on many tokens: of few it is lowered by three standard deviations of their number (by nothing where
it is 1).
"""

from __future__ import annotations

from parity.gate import Comparison, GateResult
from parity.places import judged, unknown

NAME = "bit-identical logprobs"


def bit_identical(comparison: Comparison) -> GateResult:
    pairs, least = comparison.measured.pairs, comparison.profile.bit_identical_min
    total, equal = int(pairs["compared"].sum()), int(pairs["bit_identical"].sum())
    if not total:
        return unknown(NAME, "no trained token of a matching row has a logprob in both runs", reported=least is None)
    share = equal / total
    slack = 0.0 if least is None else 3.0 * (least * (1.0 - least) / total) ** 0.5
    findings = (
        [f"{equal} of {total} logprobs are bitwise equal: {share:.4%}, not {least:.2%}"]
        if least is not None and share < least - slack
        else []
    )
    return judged(
        NAME,
        findings,
        value=share,
        limit=least,
        reported=least is None,
        figures={"tokens": total, "equal": equal, "slack": slack},
    )
