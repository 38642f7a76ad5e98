"""Advantages of a GRPO step: numbers that need no model, the same in both worlds.

Sums are exact (``math.fsum``), so that no order of rows changes a bit of them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence

from protocol.data_plane.rows import CanonicalRow

EPSILON = 1e-6  # added to the deviation, so that a group of equal rewards divides by something


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
