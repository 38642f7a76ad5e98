"""Work over many live rollouts, in slices that yield (I42, ARCHITECTURE section 9).

Whoever walks holds a lock that keeps what it walks as it is: each slice ends in a step of its own, in which every other
task may run. What fits one slice is walked at once, without a step: a small run has no other steps than before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, TypeVar

from protocol.history import WalkSliced
from protocol.runtime import Runtime
from protocol.visits import ROLLOUTS_A_SECTION

T = TypeVar("T")

ROLLOUTS_A_SLICE = ROLLOUTS_A_SECTION


def position(places: Sequence[Any], place: Any) -> int:
    """Where ``place`` belongs in the sorted ``places``: before what is equal to it. Looks at a logarithm of them."""
    low, high = 0, len(places)
    if places and places[-1] < place:  # what comes in order goes to the end
        return high
    while low < high:
        middle = (low + high) // 2
        if places[middle] < place:
            low = middle + 1
        else:
            high = middle
    return low


class Slices:
    """``visited`` live rollouts over all walks, ``longest`` in one slice: for tests and measurements, never for a decision.

    A group is never cut in two: one of more than ROLLOUTS_A_SLICE siblings is a slice of its own.
    """

    def __init__(self, rt: Runtime, siblings: int) -> None:
        self.rt = rt
        self.siblings = siblings
        self.groups_a_slice = max(1, ROLLOUTS_A_SLICE // siblings)
        self.visited = 0
        self.longest = 0

    async def groups(self, items: Iterable[T], visit: Callable[[Sequence[T]], object]) -> None:
        """``visit`` each slice of ``items``, which stand for a group each (groups, slots, prompts, their names)."""
        await self._walk(items, visit, self.groups_a_slice, self.siblings)

    async def keys(self, items: Iterable[T], visit: Callable[[Sequence[T]], object]) -> None:
        """As ``groups`` for what stands for one rollout, or less: attempts, row keys."""
        await self._walk(items, visit, ROLLOUTS_A_SLICE, 1)

    async def ordered(self, items: Iterable[T], order: Callable[[T], Any]) -> Iterator[T]:
        """``items`` (a group each) by ``order``; equal ones stay as they were. Sorting them whole is one section."""
        kept: list[T] = []
        places: list[tuple[Any, int]] = []

        def sort_in(part: Sequence[T]) -> None:
            for item in part:
                place = (order(item), len(kept))
                places.insert(position(places, place), place)
                kept.append(item)

        await self.groups(items, sort_in)
        return (kept[index] for _, index in places)

    async def _walk(self, items: Iterable[T], visit: Callable[[Sequence[T]], object], size: int, weight: int) -> None:
        many = len(items) > size if isinstance(items, Sized) else None  # None: not known before the first slice is full
        if many:  # before the first, too: what ran up to here may have visited some
            await self.rt.sleep(0)
        rest = iter(items)
        part = list(islice(rest, size))
        if many is None:
            many = len(part) == size
            if many:
                await self.rt.sleep(0)
        walked = slices = longest = 0
        while part:  # nothing is taken ahead: to take it is to look at it
            visit(part)
            walked, slices, longest = walked + len(part) * weight, slices + 1, max(longest, len(part) * weight)
            if many:
                await self.rt.sleep(0)
            part = list(islice(rest, size))
        self.visited += walked
        self.longest = max(self.longest, longest)
        if slices > 1:
            self.rt.record(WalkSliced(rollouts=walked, slices=slices, longest=longest))
