"""How a sample of numbers is spread: what figures say of many values in three."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Mean, 95th percentile (nearest rank: a value of the sample) and maximum; all 0 for an empty sample."""

    mean: float
    p95: float
    max: float


def spread_of(values: Iterable[float]) -> Spread:
    ordered = sorted(values)
    if not ordered:
        return Spread(mean=0.0, p95=0.0, max=0.0)
    return Spread(mean=round(math.fsum(ordered) / len(ordered), 6), p95=nearest_rank(ordered, 0.95), max=ordered[-1])


def nearest_rank(ordered: Sequence[float], share: float) -> float:
    """The smallest value of a sorted, non-empty sample that is at least as large as ``share`` of it."""
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]
