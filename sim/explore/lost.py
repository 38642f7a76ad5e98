"""Lost work at each crash point: what life 1 had done by then and the restored run does again (``protocol.work``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from protocol.history import Record
from protocol.spread import Spread, spread_of
from protocol.work import Work
from sim.explore.classes import Classes
from sim.explore.points import Address, Head, Points


class LostWork(msgspec.Struct, frozen=True, kw_only=True):
    """Over crash points: generated tokens, completed turns and begun rollouts that the restored run does again.

    A point that has two restored runs (one for each disk outcome) counts once, with the larger number of each kind.
    ``points`` are those whose restored runs came to their end: one that was refused repeats nothing and proves nothing.
    """

    points: int
    tokens: Spread
    turns: Spread
    rollouts: Spread


def lost_work_of(losses: Iterable[Work]) -> LostWork:
    found = list(losses)
    return LostWork(
        points=len(found),
        tokens=spread_of(work.tokens for work in found),
        turns=spread_of(work.turns for work in found),
        rollouts=spread_of(work.rollouts for work in found),
    )


@dataclass(frozen=True, kw_only=True)
class Losses:
    """What each judged point lost, and the same by class number, each point under the class's own outcome. ``partial``: what
    each partial crash whose run came to its end did more than once."""

    points: Mapping[Address, Work] = field(default_factory=dict)
    classes: Mapping[int, Sequence[Work]] = field(default_factory=dict)
    partial: Sequence[Work] = ()


def losses(points: Points, judged: Sequence[int], classes: Classes, life_1: Sequence[Record]) -> Losses:
    """Of every judged point whose restored runs ended."""
    places = events_by_then(life_1)
    by_point: dict[Address, Work] = {}
    by_class: dict[int, list[Work]] = {}
    for point in judged:
        address = points.address(point)
        pair, place = classes.pairs[points.pair[point]], places[address[:3]]
        works: list[Work] = []
        for number, _ in pair:
            row = classes.rows[number]
            if row.again is not None and row.status == "ended":
                works.append(row.again.before(place))
                by_class.setdefault(number, []).append(works[-1])
        if len(works) == len(pair):
            by_point[address] = _largest(works)
    return Losses(points=by_point, classes=by_class)


def events_by_then(records: Sequence[Record]) -> dict[Head, int]:
    """How many events the life had recorded with each event, that one included."""
    counts: dict[tuple[str, str], int] = {}
    places: dict[Head, int] = {}
    for number, record in enumerate(records, start=1):
        key = (record.process, type(record.event).__name__)
        counts[key] = counts.get(key, 0) + 1
        places[*key, counts[key]] = number
    return places


def _largest(works: Sequence[Work]) -> Work:
    if all(work == works[0] for work in works):
        return works[0]
    return Work(
        tokens=max(work.tokens for work in works),
        turns=max(work.turns for work in works),
        rollouts=max(work.rollouts for work in works),
    )


def as_plain(lost: LostWork) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(lost)
    return plain
