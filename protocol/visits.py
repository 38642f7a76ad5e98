"""How many live rollouts one synchronous section looks at (I42), counted where they are kept and not where they are walked.

Whoever takes a record out of ``LiveRecords`` is counted, whatever it is for. A section is what one task does between two
awaits (``Runtime.section``). Names are no records: who only lists them looks at no rollout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar, overload

from protocol.history import SectionVisited
from protocol.runtime import Runtime

T = TypeVar("T")
D = TypeVar("D")

ROLLOUTS_A_SECTION = 256  # K of I42: live rollouts that one synchronous section may visit


class Visits:
    """Groups seen in the running section, each once. ``SectionVisited`` is recorded when they hold more than
    ROLLOUTS_A_SECTION rollouts, and again at each doubling; one group alone is never too much."""

    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        self.section = -1
        self.seen: dict[str, None] = {}
        self.rollouts = 0
        self._limit = ROLLOUTS_A_SECTION

    def saw(self, name: str, record: T, rollouts: Callable[[T], int]) -> None:
        section = self.rt.section()
        if section != self.section:
            self.section, self.seen, self.rollouts, self._limit = section, {}, 0, ROLLOUTS_A_SECTION
        elif name in self.seen:
            return
        self.seen[name] = None
        self.rollouts += rollouts(record)
        if self.rollouts > self._limit and len(self.seen) > 1:
            self._limit = 2 * self.rollouts
            self.rt.record(SectionVisited(rollouts=self.rollouts))


class LiveRecords(dict[str, T]):
    """Records of live groups by group id; ``rollouts`` says how many a record stands for."""

    def __init__(self, visits: Visits, rollouts: Callable[[T], int]) -> None:
        super().__init__()
        self.visits = visits
        self.rollouts = rollouts

    def __getitem__(self, name: str) -> T:
        record = super().__getitem__(name)
        self.visits.saw(name, record, self.rollouts)
        return record

    def __setitem__(self, name: str, record: T) -> None:
        super().__setitem__(name, record)
        self.visits.saw(name, record, self.rollouts)

    @overload
    def get(self, name: str, default: None = None, /) -> T | None: ...
    @overload
    def get(self, name: str, default: D, /) -> T | D: ...
    def get(self, name: str, default: D | None = None, /) -> T | D | None:
        return self[name] if name in self else default

    def values(self) -> LiveValues[T]:  # type: ignore[override]  # a view that counts
        return LiveValues(self)

    def items(self) -> LiveItems[T]:  # type: ignore[override]  # likewise
        return LiveItems(self)


class LiveItems(Generic[T]):
    """Name and record; each counts when it is taken."""

    def __init__(self, records: LiveRecords[T]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[tuple[str, T]]:
        records = self._records
        for name in records:
            yield name, records[name]


class LiveValues(Generic[T]):
    """Records alone; each counts when it is taken."""

    def __init__(self, records: LiveRecords[T]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[T]:
        records = self._records
        for name in records:
            yield records[name]
