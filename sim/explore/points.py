"""Crash points of one life: where each one is, and which of them are drawn.

A point is the boundary after a step (RULES 1). Its *address* is the last event recorded before it and the number of
steps completed since the step that recorded it, so every point has exactly one address and needs no number of its own.
Points are kept in columns: a sweep has tens of thousands of them and the worlds they lie in are long gone.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sim.explore.outcomes import outcome_words

Head = tuple[str, str, int]  # (process, event kind, occurrence in that process and life)


class Address(NamedTuple):
    """The ``k``-th step after the one that recorded the ``n``-th event ``kind`` of ``process`` in its life."""

    process: str
    kind: str
    n: int
    k: int = 0

    def words(self) -> str:
        place = f"event {self.kind} number {self.n} of {self.process}"
        return f"right after {place}" if self.k == 0 else f"{self.k} steps after {place}"


class PlanItem(NamedTuple):
    """How one life ends: killed at an address, with what the disk keeps and what still lands (``sim.explore.outcomes``)."""

    process: str
    kind: str
    n: int
    k: int = 0
    outcome: str = "none"

    @property
    def address(self) -> Address:
        return Address(self.process, self.kind, self.n, self.k)

    @classmethod
    def at(cls, address: Address, outcome: str) -> PlanItem:
        return cls(*address, outcome)

    def words(self) -> str:
        return f"killed {self.address.words()}; {outcome_words(self.outcome)}"


Plan = tuple[PlanItem, ...]


class Points:
    """The closed list of crash points of life 1, in order.

    ``pair`` is an index into ``Classes.pairs``: the classes this point belongs to, one for each different outcome.
    ``violations`` is how many violations life 1 had shown by then: they count for every later point.
    """

    def __init__(self) -> None:
        self.heads: list[Head] = []
        self._head = array("L")
        self._since = array("L")
        self.pair = array("L")
        self.violations = array("L")

    def add(self, head: Head, since: int, pair: int, violations: int) -> None:
        if not self.heads or self.heads[-1] != head:
            self.heads.append(head)
        self._head.append(len(self.heads) - 1)
        self._since.append(since)
        self.pair.append(pair)
        self.violations.append(violations)

    def __len__(self) -> int:
        return len(self.pair)

    def address(self, point: int) -> Address:
        return Address(*self.heads[self._head[point]], self._since[point])

    def kind(self, point: int) -> str:
        """The protocol step that the point belongs to: the event kind of its address."""
        return self.heads[self._head[point]][1]

    def stratified(self, wanted: int, among: Sequence[int], stream: str) -> list[int]:
        """``wanted`` of the points ``among``, in order, drawn from ``stream`` and spread over the protocol steps.

        Each step gets its share by size, and at least one where ``wanted`` allows.
        """
        if wanted >= len(among):
            return sorted(among)
        strata: dict[str, list[int]] = {}
        for point in among:
            strata.setdefault(self.kind(point), []).append(point)
        drawn: list[int] = []
        for kind, share in shares({kind: len(members) for kind, members in strata.items()}, wanted).items():
            drawn.extend(sorted(strata[kind], key=lambda point: rank(stream, point))[:share])
        return sorted(drawn)


def rank(stream: str, item: int) -> bytes:
    """The place of ``item`` in the order that ``stream`` draws in: stateless, so a draw never shifts another one."""
    return hashlib.blake2b(f"{stream}/{item}".encode(), digest_size=16).digest()


def shares(sizes: dict[str, int], wanted: int) -> dict[str, int]:
    """Split ``wanted`` over strata by size (largest remainder), at least one each while there are enough."""
    total = sum(sizes.values())
    floor = 1 if wanted >= len(sizes) else 0
    exact = {name: wanted * size / total for name, size in sizes.items()}
    given = {name: min(sizes[name], max(floor, int(share))) for name, share in exact.items()}
    by_need: Iterable[str]
    while sum(given.values()) > wanted:  # the floors gave too many: take from the largest
        by_need = sorted(given, key=lambda name: (exact[name] - given[name], -given[name], name))
        given[next(name for name in by_need if given[name] > floor)] -= 1
    while sum(given.values()) < wanted:
        by_need = sorted(given, key=lambda name: (given[name] - exact[name], name))
        given[next(name for name in by_need if given[name] < sizes[name])] += 1
    return given
