"""Spearman's rank correlation of generation logprobs, reported: it has no limit, and constant logprobs have none."""

from __future__ import annotations

from scipy import stats

from parity.gate import Comparison, GateResult
from parity.places import nothing
from protocol.judging import Verdict

NAME = "Spearman of logprobs"


def spearman(comparison: Comparison) -> GateResult:
    sample = comparison.measured.sample
    if len(sample) < 2:
        return nothing(NAME, "undefined: fewer than two logprobs match", reported=True)
    one, other = sample["reference"].to_numpy(float), sample["restored"].to_numpy(float)
    if (one == one[0]).all() or (other == other[0]).all():
        return nothing(NAME, "undefined: constant logprobs have no ranks", reported=True)
    value = float(stats.spearmanr(one, other).statistic)
    return GateResult(name=NAME, verdict=Verdict.HELD, value=value, reported=True, figures={"tokens": len(sample)})
