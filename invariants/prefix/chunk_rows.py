"""The part of I49 that is about chunk rows: each belongs to a call, to a cut that waits for its call, or to a clean-up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from invariants.durability.payload import GYM, payloads
from invariants.ledger.attempts import is_another_point, restore_point
from invariants.prefix.chunks import saved_cuts
from protocol.config import Level
from protocol.history import (
    CallAsked,
    CallBegun,
    CallEnded,
    ChunkIssued,
    ChunksDiscarded,
    ChunksLeft,
    ChunkStaged,
    CutAcknowledged,
    CutTaken,
    DataPlaneSaveIssued,
    EpisodeCut,
    FinalizeIssued,
    GroupDropped,
    GroupsClaimed,
    GymPhaseStarted,
    ProcessKilled,
    Record,
    RestoreChosen,
    RunEnded,
)
from protocol.identity import group_of_sample, sample_of_key
from protocol.judging import Durable, RestorePoint, Terms

FOLLOWED = (CallAsked, CallBegun, CallEnded, ChunkIssued, ChunksDiscarded, ChunksLeft, ChunkStaged, CutAcknowledged, CutTaken,
            DataPlaneSaveIssued, EpisodeCut, FinalizeIssued, GroupDropped, GroupsClaimed, GymPhaseStarted, ProcessKilled,
            RestoreChosen, RunEnded)  # fmt: skip
HANDED_S = 1.0  # in which the rows of a call that was aborted while somebody holds it are handed to the clean-up


def group_of(key: str) -> str:
    return group_of_sample(sample_of_key(key.partition("/")[0]))


class ChunkRows:
    """``there``: chunk rows that may lie in staging, each with the call that staged it ('': an earlier life).

    ``owners``: running call -> rows that it has or was given; ``waiting``: rows of restored cuts that no call was given yet.
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.watched = terms.job.level >= Level.PREFIX
        self.point = RestorePoint("", 0, 0, "")
        self.there: dict[str, str] = {}
        self.owners: dict[str, dict[str, None]] = {}
        self.where: dict[str, str] = {}  # running call -> worker
        self.running: dict[str, int] = {}  # call -> how often it was asked for and has not ended
        self.waiting: dict[str, None] = {}
        self.left: dict[str, None] = {}  # handed to the clean-up
        self.acked: dict[str, None] = {}  # named by a receipt of the open checkpoint
        self.aborted: dict[str, float] = {}  # row of a call that was given up -> when
        self.dead: dict[str, None] = {}  # rows of calls that died with their worker: Gym retires those that it has heard of
        self.named: dict[str, tuple[str, ...]] = {}  # call -> rows of its newest acknowledgement
        self.heard: dict[str, None] = {}  # rows that Gym has heard of
        self.saving: dict[str, dict[str, None]] = {}  # role of a save under way -> rows that it may hold
        self.allowed: dict[tuple[int, int], dict[str, None]] = {}  # rows that a save may hold, by step and sequence
        self.gone: dict[str, None] = {}  # groups that have left the ledger

    def begin(self, durable: Durable) -> None:
        if not self.watched:
            return
        self.point = restore_point(durable, self.terms)
        for payload in payloads(durable):
            if payload.sequence and payload.source == self.point.source:
                try:
                    cuts = saved_cuts(payload.read, payload.read(GYM))
                except (KeyError, TypeError, AttributeError):
                    cuts = {}
                for _, cut in cuts.values():
                    self.waiting.update(dict.fromkeys(cut.keys))
                    self.there.update(dict.fromkeys(cut.keys, ""))

    def on(self, record: Record) -> Iterator[str]:
        event: Any = record.event
        kind = type(event)
        if kind is CallAsked:
            self.owners.setdefault(event.call, {}).update(dict.fromkeys(event.keys))
            self.heard.update(dict.fromkeys(event.keys))
            self.where[event.call] = record.process
            for key in event.keys:
                self.waiting.pop(key, None)
        elif kind is CallBegun:
            self.owners.setdefault(event.call, {})
            self.where[event.call] = record.process
            self.running[event.call] = self.running.get(event.call, 0) + 1
        elif kind is ChunkIssued or kind is ChunkStaged:
            self.there[event.key] = event.call
            for rows in self.saving.values():
                rows[event.key] = None
            self.left.pop(event.key, None)
            self.owners.setdefault(event.call, {})[event.key] = None
        elif kind is ChunksDiscarded:
            for key in event.keys:
                for known in (self.there, self.left, self.aborted, self.dead, self.waiting):
                    known.pop(key, None)
        elif kind is ChunksLeft:
            self.left.update(dict.fromkeys(event.keys))
        elif kind is CallEnded:
            self.running[event.call] = self.running.get(event.call, 1) - 1
            if self.running[event.call] > 0:
                return  # asked again meanwhile: its rows are the newer one's
            rows = self.owners.pop(event.call, {})
            self.where.pop(event.call, None)
            if event.outcome in ("aborted", "rejected"):
                self.aborted.update(dict.fromkeys((key for key in rows if key in self.there), record.time))
        elif kind is ProcessKilled:
            for call in [call for call, worker in self.where.items() if worker == event.process]:
                self.dead.update(dict.fromkeys(self.owners.pop(call, {})))
                self.running.pop(call, None)
                del self.where[call]
            # What it was to delete is forgotten with it: the rows stay until their group goes.
            self.dead.update(self.left)
        elif kind is GymPhaseStarted:
            self.acked = {}
        elif kind is CutAcknowledged:
            self.acked.update(dict.fromkeys(event.keys))
            self.named[event.call] = event.keys
        elif kind is EpisodeCut:
            self.heard.update(dict.fromkeys(self.named.get(event.call, ()) if event.count else ()))
        elif kind is RestoreChosen:
            if is_another_point(event, self.point):
                self.waiting, self.there = {}, {}
        elif kind is GroupDropped:
            self.gone[event.group] = None
        elif kind is CutTaken:
            place = event.step, event.sequence if event.role == "snapshot" else 0
            if event.role in self.saving:
                self.allowed[place] = self.saving.pop(event.role)
        elif kind is DataPlaneSaveIssued:
            self.saving[event.role] = dict.fromkeys(key for key in self.there if self._is_needed(key, record.time))
        elif kind is GroupsClaimed or kind is FinalizeIssued:
            groups = event.groups if kind is GroupsClaimed else (event.group,)
            what = "is trained" if kind is GroupsClaimed else "is finalized"
            for key in self.there:
                if group_of(key) in groups and (key not in self.dead or key in self.heard):
                    yield f"{key} may still be staged when its group {what}"
        elif kind is RunEnded:
            for key, call in self.there.items():
                if not self._is_needed(key, record.time):
                    yield f"{key} of {call or 'an earlier life'} may still be staged when the run ends, and nothing needs it"

    def _is_needed(self, key: str, now: float) -> bool:
        if key in self.left or key in self.acked or key in self.dead:
            return True
        if key in self.waiting:
            return group_of(key) not in self.gone
        if key in self.aborted and self.aborted[key] > now - HANDED_S - self.terms.slack_s:
            return True
        return any(key in rows for rows in self.owners.values())

    def is_left_behind(self, key: str, place: tuple[int, int]) -> bool:
        """Whether nothing needed this row when the save of that place was taken. ``key``: a chunk's."""
        return place in self.allowed and key not in self.allowed[place]
