"""Seeded random streams: counter-based, 64 bit, keyed (seed, purpose, entity, life) and hashed once.

A draw is SplitMix64 of the key plus a counter (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
Generators", 2014), so opening a stream costs one hash and no warm-up.
"""

from __future__ import annotations

import hashlib

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def stream_seed(seed: int, purpose: str, entity: str, life: int) -> int:
    """64-bit key of one stream. The parts are joined with a byte that no name contains."""
    text = f"{seed}\0{purpose}\0{entity}\0{life}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


class SeededStream:
    """``protocol.runtime.Stream64``: the same key gives the same draws."""

    __slots__ = ("_state",)

    def __init__(self, seed: int, purpose: str, entity: str, life: int) -> None:
        self._state = stream_seed(seed, purpose, entity, life)

    def bits(self) -> int:
        """64 uniform bits."""
        state = self._state = (self._state + GOLDEN) & WORD
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & WORD
        return state ^ (state >> 31)

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return (self.bits() >> 11) * 2.0**-53

    def below(self, n: int) -> int:
        """Uniform in 0 .. n - 1; ``n`` is at least 1."""
        if n < 1:
            raise ValueError(f"below({n}): the bound must be at least 1")
        return (self.bits() * n) >> 64
