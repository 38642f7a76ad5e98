"""Work of life 1 that a restored run does again, summed up to any place of life 1's history: one look-up a crash point."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from protocol.work import ROLLOUTS, TOKENS, TURNS, Piece, Work

NUMBERS = "I"  # 4 bytes a number: a sweep keeps these sums for every restored run


class Repeated:
    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._at = array(NUMBERS, (piece.at for piece in pieces))
        self._sums = {what: _sums(pieces, what) for what in (TOKENS, TURNS, ROLLOUTS)}
        self._made: dict[int, Work] = {}  # most crash points lie between the same two pieces as the one before

    def before(self, events: int) -> Work:
        """Of the first ``events`` records of life 1: what a crash right after them loses."""
        place = bisect_left(self._at, events)
        work = self._made.get(place)
        if work is None:
            work = self._made[place] = Work(**{what: sums[place] for what, sums in self._sums.items()})
        return work


def _sums(pieces: Sequence[Piece], what: str) -> array[int]:
    return array(NUMBERS, accumulate((piece.amount if piece.name[0] == what else 0 for piece in pieces), initial=0))
