"""How far trainer and engine agree in a step, in numbers that need no model.

Sums are exact (``math.fsum``), so that no order of rows changes a bit of them. ``gen_kl_error`` and
``token_mult_prob_error`` are defined as in NeMo RL: the mean over tokens of ``exp(r) - 1 - r`` with r = trainer logprob -
generation logprob, and of ``exp(|r|)``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from protocol.data_plane.rows import CanonicalRow
from protocol.data_plane.training_rows import token_versions, trained_places


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Of some generated tokens; None where there are none."""

    tokens: int
    gen_kl_error: float | None
    token_mult_prob_error: float | None
    mean_difference: float | None  # of |trainer logprob - generation logprob|
    max_difference: float | None


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says of one row. ``logprobs``: of its trained tokens, in order. ``top``: for the same tokens (likeliest
    token, second, score of the first less that of the second); empty where that says nothing of how they were drawn. Routes
    are counted as (token, layer) pairs, of tokens that the held weights generated."""

    logprobs: tuple[float, ...]
    top: tuple[tuple[int, int, float], ...] = ()
    routes_same: int = 0
    routes_compared: int = 0


def differences(row: CanonicalRow, scored: Scored, version: int | None = None) -> list[float]:
    """Trainer logprob - generation logprob of each trained token, or only of those that ``version`` generated."""
    generated = [row.logprobs[place] for place in trained_places(row)]
    pairs = zip(scored.logprobs, generated, token_versions(row), strict=False)
    return [ours - theirs for ours, theirs, by in pairs if version is None or by == version]


def figures_of(values: Sequence[float]) -> Figures:
    """``values``: differences of logprobs. A hopeless one counts as infinite and ends nothing here."""
    if not values:
        return Figures(tokens=0, gen_kl_error=None, token_mult_prob_error=None, mean_difference=None, max_difference=None)
    count = len(values)
    return Figures(
        tokens=count,
        gen_kl_error=_sum(_exp(value) - 1 - value for value in values) / count,
        token_mult_prob_error=_sum(_exp(abs(value)) for value in values) / count,
        mean_difference=_sum(map(abs, values)) / count,
        max_difference=max(map(abs, values)),
    )


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _sum(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) if all(map(math.isfinite, listed)) else math.inf
