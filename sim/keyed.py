"""Numbers that are drawn by a key and not by chance: the same key, the same number, in every run."""

from __future__ import annotations

import hashlib

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15  # splitmix64's increment (Steele, Lea, Flood 2014)


def mixed(word: int) -> int:
    """splitmix64's finalizer: 64 well-mixed bits from 64 bits."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


def keyed(*key: int | str) -> int:
    """64 bits."""
    return int.from_bytes(hashlib.blake2b(",".join(map(str, key)).encode(), digest_size=8).digest(), "big")
