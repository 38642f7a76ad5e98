"""Statistics of logprobs of tokens that both runs trained: sums a row, a sample and a histogram of the whole.

The sample is the tokens with the smallest hash of (row, place): it depends neither on the order of rows nor on the batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from parity.batches import per_row

SAMPLED = 200_000  # logprob pairs that are kept at most
EDGES = np.array([0.0, *(float(f"1e{power}") for power in range(-12, 2))])  # |difference| from here on; 0: exactly none
_BITS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)  # of splitmix64


def compared(reference: Any, restored: Any, counts: Any, most: float) -> tuple[dict[str, Any], Any]:
    """Sums of each row over ``counts[i]`` float32 pairs, and |difference| of all of them (None: all bits are equal).

    What is not finite is counted, and has no difference. ``max_diff`` of a row without any difference to speak of is NaN."""
    equal = reference.view(np.int32) == restored.view(np.int32)
    finite = np.isfinite(reference) & np.isfinite(restored)
    if equal.all() and finite.all():
        nothing: Any = np.zeros(len(counts), np.int64)
        most_found = np.where(counts > 0, 0.0, np.nan)
        return {"compared": counts, "bit_identical": counts, "max_diff": most_found, "over": nothing, "not_finite": nothing}, None
    with np.errstate(invalid="ignore"):
        difference = np.abs(reference.astype(np.float64) - restored)
    difference[~finite] = np.nan
    return {
        "compared": counts,
        "bit_identical": _set(equal, counts),
        "max_diff": per_row(np.fmax, difference, counts, np.nan),
        "over": _set(difference > most, counts),
        "not_finite": _set(~finite, counts),
    }, difference


def _set(flags: Any, counts: Any) -> Any:
    return per_row(np.add, flags.view(np.uint8), counts, 0, np.int64)


def excess(reference: Any, restored: Any, counts: Any, rtol: float) -> Any:
    """Of each row the largest |difference| - rtol * |reference|; infinite where one of them is not finite, NaN for no pairs."""
    with np.errstate(invalid="ignore"):
        one = reference.astype(np.float64)
        beyond = np.abs(one - restored)
        beyond -= rtol * np.abs(one)
    beyond[~np.isfinite(beyond)] = np.inf
    return per_row(np.maximum, beyond, counts, np.nan)


@dataclass
class Histogram:
    counts: Any = field(default_factory=lambda: np.zeros(len(EDGES), np.int64))

    def add(self, difference: Any, total: int) -> None:
        """``total`` pairs, their differences None where all of them are exactly 0. NaN is nobody's difference."""
        if difference is None:
            self.counts[0] += total
            return
        self.counts[0] += int((difference == 0).sum())
        some = difference[difference > 0]
        places = np.maximum(np.searchsorted(EDGES, some, side="right") - 1, 1)  # the lowest decade holds what is below it too
        self.counts += np.bincount(places, minlength=len(EDGES))

    def table(self) -> pd.DataFrame:
        return pd.DataFrame({"edge": EDGES, "count": self.counts})


def row_hash(*numbers: Any) -> Any:
    """uint64 of each row, from the int64 numbers that name it."""
    out: Any = np.zeros(len(numbers[0]), np.uint64)
    for number in numbers:
        out = (out ^ number.astype(np.int64).view(np.uint64)) * _BITS[0]
        out = (out ^ (out >> np.uint64(29))) * _BITS[1]
    return out ^ (out >> np.uint64(32))


@dataclass
class Sample:
    """At most ``most`` pairs of finite logprobs."""

    most: int = SAMPLED
    limit: int = 2**32  # hashes from here on are in no sample any more
    parts: list[Any] = field(default_factory=list)
    held: int = 0

    def add(self, reference: Any, restored: Any, rows: Any, counts: Any) -> None:
        """``rows``: ``row_hash`` of each row, which has ``counts[i]`` of the pairs."""
        first = np.cumsum(counts) - counts
        place = (np.arange(len(reference)) - np.repeat(first, counts)).astype(np.uint32)
        mixed = place * np.uint32(2654435761)
        mixed += np.repeat((rows >> np.uint64(32)).astype(np.uint32), counts)
        mixed ^= mixed >> np.uint32(15)
        mixed *= np.uint32(2246822519)
        mixed ^= mixed >> np.uint32(13)
        keep = np.flatnonzero(mixed < self.limit) if self.limit < 2**32 else np.arange(len(mixed))
        keep = keep[np.isfinite(reference[keep]) & np.isfinite(restored[keep])]
        if not len(keep):
            return
        row = np.searchsorted(first + counts, keep, side="right")
        low = (rows[row] * _BITS[1] ^ place[keep]) & np.uint64(0xFFFFFFFF)  # of two tokens with one hash
        self.parts.append((mixed[keep].astype(np.uint64) << np.uint64(32) | low, reference[keep], restored[keep]))
        self.held += len(keep)
        if self.held > 2 * self.most:
            self._cut()

    def _cut(self) -> None:
        hashes, *values = (np.concatenate(columns) for columns in zip(*self.parts, strict=True))
        order = np.argsort(hashes)[: self.most]
        self.parts, self.held = [(hashes[order], *(column[order] for column in values))], len(order)
        if len(order) == self.most:
            self.limit = (int(hashes[order[-1]]) >> 32) + 1

    def table(self) -> pd.DataFrame:
        if self.parts:
            self._cut()
        _, reference, restored = self.parts[0] if self.parts else (None, *np.empty((2, 0), np.float32))
        return pd.DataFrame({"reference": reference, "restored": restored})
