"""Which part of each life of a run is still true at its end: what came before the cut that the next life went on from.

A life that restores a snapshot goes on from its cut; one that restores a trainer checkpoint alone, from the trainer's cut; a
fresh start keeps nothing. Everything that an earlier life did after that cut was discarded, and what is done again is legal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protocol.history import CutTaken, Record, Restored, StepCommitted


@dataclass(frozen=True, kw_only=True)
class LifeTold:
    """One life of a run. ``files``: what was durable at its end, path -> content. ``crashed_at``: the event that a crash ended it
    at, in words ('' it was not crashed)."""

    number: int
    records: Sequence[Record]
    files: Mapping[str, bytes] = field(default_factory=dict)
    crashed_at: str = ""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The first ``count`` records of ``life`` are true at the end of the run."""

    life: LifeTold
    count: int

    @property
    def records(self) -> Sequence[Record]:
        return self.life.records[: self.count]


def lineage(lives: Sequence[LifeTold]) -> list[Kept]:
    """Oldest life first; lives of which nothing is left have count 0. The last one is kept whole."""
    counts = {life.number: 0 for life in lives}
    place = len(lives) - 1
    count = len(lives[place].records) if lives else 0
    while place >= 0:
        life = lives[place]
        counts[life.number] = count
        restored = next((record.event for record in life.records[:count] if isinstance(record.event, Restored)), None)
        if restored is None or not restored.anchor:
            break
        found = _cut(lives[:place], restored)
        if found is None:
            break
        place, count = found
    return [Kept(life=life, count=counts[life.number]) for life in lives]


def counted_steps(lives: Sequence[LifeTold]) -> dict[int, int]:
    """Committed train step -> the life that it counts in. A life that restored step s discards what others did after s."""
    found: dict[int, int] = {}
    for life in lives:
        for record in life.records:
            if isinstance(record.event, Restored):
                found = {step: number for step, number in found.items() if step <= _step(record.event)}
            elif isinstance(record.event, StepCommitted):
                found[record.event.step] = life.number
    return dict(sorted(found.items()))


def from_weights_alone(lives: Sequence[LifeTold]) -> set[int]:
    """Numbers of the lives that restored a trained checkpoint, of a run that takes no rollout snapshots.

    Of a run that takes them, no rows but those that a snapshot brought over show that restoring works."""
    snapshots = (record.event for life in lives for record in life.records)
    if any(isinstance(event, CutTaken) and event.role == "snapshot" for event in snapshots):
        return set()
    found = {life.number: (record.event for record in life.records if isinstance(record.event, Restored)) for life in lives}
    return {number for number, events in found.items() if any(_step(event) > 0 and not event.sequence for event in events)}


def _step(restored: Restored) -> int:
    return restored.step if restored.anchor else 0


def _cut(earlier: Sequence[LifeTold], restored: Restored) -> tuple[int, int] | None:
    """(place of the life, records up to and with the cut) of what was restored, None if no life tells of it.

    A cut is looked for, and not the word that it was published: a crash may have come between the marker and the word."""
    role = "snapshot" if restored.sequence else "trainer"
    for place in reversed(range(len(earlier))):
        records = earlier[place].records
        for index in reversed(range(len(records))):
            event = records[index].event
            if isinstance(event, CutTaken) and (event.role, event.step) == (role, restored.step):
                if event.sequence == restored.sequence or role == "trainer":
                    return place, index + 1
    return None
