"""Digests of route rows add up: each is a sum over rows, modulo 2^128, in hex ('' is of no rows)."""

from __future__ import annotations

from collections.abc import Iterable

_MODULUS = 1 << 128


def routes_added(digests: Iterable[str]) -> str:
    """Of ranges that do not overlap, taken together."""
    return f"{sum(int(digest, 16) for digest in digests if digest) % _MODULUS:032x}"


def routes_less(whole: str, part: str) -> str:
    """Of what is left of ``whole`` without ``part``."""
    return f"{(int(whole or '0', 16) - int(part or '0', 16)) % _MODULUS:032x}"
