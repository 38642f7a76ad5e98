"""A set of keys as a running count and order-free digest: one hash a change, whatever the set's size."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.history import KeySet, key_digest

MODULUS = 1 << 128


class KeySum:
    """Equals ``history.key_set`` of the keys added and not removed.

    The caller sees to it that no key is added twice or removed when absent: a sum cannot tell.
    """

    __slots__ = ("count", "total")

    def __init__(self, count: int = 0, total: int = 0) -> None:
        self.count = count
        self.total = total

    def add(self, key: str) -> None:
        self.count += 1
        self.total = (self.total + key_digest(key)) % MODULUS

    def add_all(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.add(key)

    def remove(self, key: str) -> None:
        self.count -= 1
        self.total = (self.total - key_digest(key)) % MODULUS

    def copy(self) -> KeySum:
        return KeySum(self.count, self.total)

    def key_set(self) -> KeySet:
        return KeySet(self.count, f"{self.total:032x}")
