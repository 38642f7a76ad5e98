"""What a figure is: a field of a frozen struct that says its unit and its definition, and an area that folds records into it.

An ``Area`` sees the records of one life one by one, in order, keeps what it needs of them and no more, and can be asked for
its figures at any time. The definitions are the page ``docs/figures.md`` (``reports.figures.page``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from protocol.history import Event, Record
from protocol.spread import nearest_rank

RING = 10_000  # newest samples that a percentile is taken of, and entries that a list of figures holds (NeMo RL's ring)

Handler = Callable[[Record, Any], None]  # the record, and its event with the type that the handler was registered for


def figure(unit: str, meaning: str) -> msgspec.Meta:
    return msgspec.Meta(title=unit, description=meaning)


class Durations(msgspec.Struct, frozen=True, kw_only=True):
    """How long something took, over all its occurrences."""

    count: Annotated[int, figure("occurrences", "how often it happened")]
    total_s: Annotated[float, figure("s", "sum over all occurrences")]
    mean_s: Annotated[float, figure("s", "mean over all occurrences")]
    p95_s: Annotated[float, figure("s", f"95th percentile (nearest rank) of the newest {RING:,} occurrences")]
    max_s: Annotated[float, figure("s", "the longest of all occurrences")]


class Stopwatch:
    """Collects durations; the newest ones are kept for the percentile."""

    def __init__(self) -> None:
        self._count = 0
        self._total_s = self._max_s = 0.0
        self._newest: deque[float] = deque(maxlen=RING)

    def add(self, seconds: float) -> None:
        self._count += 1
        self._total_s += seconds
        self._max_s = max(self._max_s, seconds)
        self._newest.append(seconds)

    def figures(self) -> Durations:
        return Durations(
            count=self._count,
            total_s=seconds(self._total_s),
            mean_s=seconds(self._total_s / self._count if self._count else 0.0),
            p95_s=seconds(nearest_rank(sorted(self._newest), 0.95) if self._newest else 0.0),
            max_s=seconds(self._max_s),
        )


def seconds(value: float) -> float:
    """To the microsecond: below that a difference of two clock readings is noise."""
    return round(value, 6)


def watches(by_name: Mapping[str, Stopwatch]) -> dict[str, Durations]:
    return {name: watch.figures() for name, watch in by_name.items()}


class Area:
    """One area of figures over one life. ``handlers`` says which events it wants; ``figures`` gives its frozen struct."""

    def handlers(self) -> Mapping[type[Event], Handler]:
        raise NotImplementedError

    def figures(self) -> Any:
        raise NotImplementedError
