"""Rows of the catalogue of bugs that are on purpose no mutant here, each with its reason."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, NamedTuple


class Excluded(NamedTuple):
    number: int
    area: str
    reason: str


EXCLUDED: tuple[Excluded, ...] = (
    Excluded(71, "E", "a fault of an in-process test client, which encodes a body twice: no part of the protocol, no invariant"),
)


def excluded_of(named: Sized, area: str | None) -> tuple[dict[str, Any], ...]:
    """Those of ``area`` (None: of all), unless single bugs were ``named``."""
    return tuple(
        {"number": row.number, "reason": row.reason}
        for row in EXCLUDED
        if not len(named) and (area is None or row.area == area.upper())
    )
