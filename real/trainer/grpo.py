"""The numbers of a GRPO step that need no model: advantages of a group, and how far trainer and engine agree.

Sums are exact (``math.fsum``), so that no order of rows changes a bit of them. ``gen_kl_error`` and
``token_mult_prob_error`` are defined as in NeMo RL: the mean over tokens of ``exp(r) - 1 - r`` with r = trainer logprob -
generation logprob, and of ``exp(|r|)``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence

import msgspec

from protocol.data_plane.rows import CanonicalRow


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


def by_place(rows: Iterable[CanonicalRow]) -> list[CanonicalRow]:
    """The one order in which rows are trained, whenever they came."""
    return sorted(rows, key=lambda row: (row.ordinal, row.generation, row.sample))


def advantages(rows: Sequence[CanonicalRow], epsilon: float) -> dict[str, float]:
    """By sample: (reward - mean) / (deviation + epsilon) within the row's own group, each a 32-bit float.

    Masked rows count for nothing and have 0; the deviation is that of a sample (n - 1), as torch's default. A group with
    fewer than two valid rows has nothing to compare: 0.
    """
    found = {row.sample: 0.0 for row in rows}
    groups: dict[str, list[CanonicalRow]] = {}
    for row in rows:
        if row.sample_mask:
            groups.setdefault(row.group, []).append(row)
    for group in groups.values():
        if len(group) > 1:
            mean = math.fsum(row.reward for row in group) / len(group)
            deviation = math.sqrt(math.fsum((row.reward - mean) ** 2 for row in group) / (len(group) - 1))
            found |= {row.sample: float32((row.reward - mean) / (deviation + epsilon)) for row in group}
    return found


def float32(value: float) -> float:
    """The nearest 32-bit float."""
    found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return found


def trained_places(row: CanonicalRow) -> list[int]:
    """Positions of the tokens that are trained on: generated ones; of a masked row none."""
    return [place for place, mask in enumerate(row.mask) if mask] if row.sample_mask else []


def token_versions(row: CanonicalRow) -> list[int]:
    """Weight version of each generated token, in order."""
    return [version for version, count in row.segments or row.spans for _ in range(count)]


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
