"""Generation logprobs: on rows whose tokens match they differ by no more than the profile allows, and are numbers."""

from __future__ import annotations

import numpy as np

from parity.gate import Comparison, GateResult
from parity.places import judged, lines, place, unknown

NAME = "generation logprobs"


def generation_logprobs(comparison: Comparison) -> GateResult:
    pairs, profile = comparison.measured.pairs, comparison.profile
    compared = pairs["compared"].to_numpy()
    total = int(compared.sum())
    broken_numbers = pairs["not_finite"].to_numpy() > 0
    if not total and not broken_numbers.any():
        return unknown(NAME, "no trained token of a matching row has a logprob in both runs")
    largest = pairs["max_diff"].to_numpy(float)
    within = 1.0 - float(pairs["over"].sum()) / total if total else 0.0
    over = (compared > 0) & ~(largest <= profile.logprob_max)  # NaN is over
    findings = [f"{place(row)}: {row.not_finite} logprobs are no numbers" for row in lines(pairs[broken_numbers])]
    findings += [f"{place(row)}: a logprob differs by {row.max_diff:.4g}" for row in lines(pairs[over])]
    if within < profile.logprob_share:
        findings.append(
            f"only {within:.4%} of {total} logprobs are within {profile.logprob_most:g}, not {profile.logprob_share:.2%}"
        )
    seen = largest[compared > 0]
    value = float(np.nanmax(seen)) if len(seen) and not np.isnan(seen).all() else None
    figures = {"tokens": total, "share within": within, "share limit": profile.logprob_share, "within": profile.logprob_most}
    return judged(NAME, findings, value=value, limit=profile.logprob_max, figures=figures)
