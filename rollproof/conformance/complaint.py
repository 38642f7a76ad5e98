"""One thing that a history should not hold, and where it is: by the addresses that crash tokens use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from protocol.history import Record


class Complaint(msgspec.Struct, frozen=True):
    """``address``: process, kind and number of the event among those of its process and life; ``times``: as often was the same
    thing found."""

    rule: str  # emitter | move | path | order
    text: str
    address: tuple[str, str, int, int]  # (process, kind, n, life)
    times: int = 1

    def __str__(self) -> str:
        process, kind, n, life = self.address
        again = f" ({self.times} times)" if self.times > 1 else ""
        return f"{self.rule}: {self.text}{again}: {process}/{kind}/{n} of life {life}"


def addressed(history: Sequence[Record]) -> Iterator[tuple[Record, tuple[str, str, int, int]]]:
    """Each record with its address."""
    counts: dict[tuple[str, str, int], int] = {}
    for record in history:
        place = record.process, type(record.event).__name__, record.life
        number = counts[place] = counts.get(place, 0) + 1
        yield record, (place[0], place[1], number, place[2])
