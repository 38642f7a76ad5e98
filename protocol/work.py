"""What a life generated, and how much of it a later life generates again: lost work, from two histories alone.

Work has names that do not change from life to life, made of the prompt's ordinal and the generation index:

    tokens     of one model call: (ordinal, generation, the call's id in its episode), a call that never ended included
    turns      completed: (ordinal, generation, turn)
    rollouts   begun from their task, which a continuation is not: (ordinal, generation)

A call that goes on after a restored prefix generates what comes after it, and nothing of the prefix again.

*Lost work* of a crash is what the life before it had done by then and the life after it does again. Each name counts once,
however often a life did it: a call that was made twice before the crash (its row was lost) counts with the execution
that had come furthest. Work that nobody does again (its rows were kept, or its prompt was dropped) is not lost work.

Where one process fails alone there is no next life, and lost work is what was done *more than once* in the whole run: all
executions added up, less the furthest one of each name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from protocol.history import EngineStarted, EpisodeAdmitted, Record, TokensGenerated, TurnCompleted

Name = tuple[str, int, int, str | int]  # (what, ordinal, generation, call id | turn | 0)
TOKENS, TURNS, ROLLOUTS = "tokens", "turns", "rollouts"
WORKING = frozenset((EngineStarted, EpisodeAdmitted, TokensGenerated, TurnCompleted))


class Work(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Amounts of work: generated tokens, completed turns, begun rollouts."""

    tokens: int = 0
    turns: int = 0
    rollouts: int = 0


class Piece(NamedTuple):
    """``amount`` more of the work ``name``, after the ``done`` that there was, at the record with this sequence number."""

    at: int
    name: Name
    amount: int
    done: int = 0


class WorkLog:
    """The work of one life, piece by piece in the order it was done. ``executed``: its sums over all executions."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.pieces: list[Piece] = []
        self.executed = {TOKENS: 0, TURNS: 0, ROLLOUTS: 0}
        self._counts: dict[str, int] = {}  # tokens so far of the running execution of each call
        self.furthest: dict[Name, int] = {}  # how far each piece of work has come in any of its executions
        self.began: dict[Name, int] = {}  # after how much of it the earliest execution began: a restored prefix is not made again
        episodes: dict[str, tuple[int, int]] = {}
        given: dict[str, int] = {}  # restored tokens of the calls that have generated nothing yet
        for record in records:
            event = record.event
            if type(event) not in WORKING:  # most are not, and this is asked of every record of every restored run
                continue
            if isinstance(event, TokensGenerated):
                key, _, call = event.call.rpartition("/")
                if key in episodes:
                    name = (TOKENS, *episodes[key], call)
                    before = self._counts.get(event.call, 0)
                    if event.call in given or event.count < before or not before:  # another execution
                        before = given.pop(event.call, 0)
                        self._begins(name, before)
                    self.executed[TOKENS] += event.count - before
                    self._counts[event.call] = event.count
                    self._did(record.sequence, name, event.count)
            elif isinstance(event, EngineStarted):
                given[event.call] = event.prefix
            elif isinstance(event, TurnCompleted):
                if event.key in episodes:
                    self.executed[TURNS] += 1
                    self._did(record.sequence, (TURNS, *episodes[event.key], event.turn), 1)
            elif isinstance(event, EpisodeAdmitted):
                who = episodes[event.key] = (event.ordinal, event.generation)
                if not event.continued:
                    self.executed[ROLLOUTS] += 1
                    self._did(record.sequence, (ROLLOUTS, *who, 0), 1)

    def _begins(self, name: Name, done: int) -> None:
        """An execution begins with that much restored: it is not done again, and not by this life."""
        self.began[name] = min(done, self.began.get(name, done))
        self.furthest[name] = max(done, self.furthest.get(name, 0))

    def _did(self, sequence: int, name: Name, amount: int) -> None:
        before = self.furthest.get(name, 0)
        if amount > before:
            self.furthest[name] = amount
            self.pieces.append(Piece(sequence, name, amount - before, before))

    def repeated_by(self, later: WorkLog) -> list[Piece]:
        """The part of this life's work that ``later`` does again: what lies before a restored prefix's end it does not."""
        again = []
        for piece in self.pieces:
            if piece.name in later.furthest:
                kept = max(later.began.get(piece.name, 0) - piece.done, 0)
                if kept < piece.amount:
                    again.append(piece._replace(amount=piece.amount - kept))
        return again

    def total(self) -> Work:
        return total(self.pieces)


def total(pieces: Iterable[Piece]) -> Work:
    sums = {TOKENS: 0, TURNS: 0, ROLLOUTS: 0}
    for piece in pieces:
        sums[piece.name[0]] += piece.amount
    return Work(**sums)


def lost_work(before: Iterable[Record], after: Iterable[Record]) -> Work:
    """What a crash at the end of ``before`` lost, if the next life's history is ``after``."""
    return total(WorkLog(before).repeated_by(WorkLog(after)))


def done_again(histories: Iterable[Iterable[Record]]) -> Work:
    """What the lives of a run, taken together, did more than once."""
    furthest: dict[Name, int] = {}
    again = {TOKENS: 0, TURNS: 0, ROLLOUTS: 0}
    for log in map(WorkLog, histories):
        for what, amount in log.executed.items():
            again[what] += amount
        for name, amount in log.furthest.items():
            furthest[name] = max(amount, furthest.get(name, 0))
    for name, amount in furthest.items():
        again[name[0]] -= amount
    return Work(**again)
