"""CUT-1: PROTOCOL 6.1 and 5.7, what a receipt says of a call is what its episode's record says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from invariants.durability.payload import GYM, payloads
from invariants.ledger.attempts import is_another_point, restore_point
from invariants.prefix.chunks import Evidence, saved_cuts
from protocol.config import Level
from protocol.history import (
    CallBegun,
    CutAcknowledged,
    CutSaved,
    EpisodeCut,
    EpisodeExported,
    GymPhaseStarted,
    ManifestBuilt,
    Record,
    RestoreChosen,
    SnapshotPublished,
)
from protocol.identity import GymCheckpointEpisode
from protocol.judging import Durable, Judge, RestorePoint, RunStatus, Terms, Violation, held_until_published

PREFIX, SESSIONS = "durable_prefix", ("session", "run-id")


class AcknowledgedCutsAreSaved(Judge):
    """A snapshot saves an episode that was settled inside a model call with exactly the evidence that the call's worker
    acknowledged, or with none where it acknowledged none, an episode that a restore installed and nobody has claimed with the
    evidence that it came with, and no other with any.
    """

    invariant = "CUT-1"
    needs = (CutAcknowledged, CutSaved, ManifestBuilt)
    sees = (CallBegun, EpisodeCut, EpisodeExported, GymPhaseStarted, RestoreChosen, SnapshotPublished)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.point = RestorePoint("", 0, 0, "")
        self.came: dict[str, Evidence] = {}  # key of a restored episode -> the evidence it came with
        self.known = True  # what restored episodes came with
        self.begun: dict[str, None] = {}  # model calls
        self.checkpoint = ""
        self.acked: dict[str, CutAcknowledged] = {}  # call -> the newest word of it, in this checkpoint
        self.cut: dict[str, EpisodeCut] = {}  # key -> how it was settled inside a call, in this checkpoint
        self.exported: dict[str, int] = {}  # key -> turn
        self.saved: dict[str, tuple[str, Evidence]] = {}
        self.held: dict[int, list[Violation]] = {}
        self.published: dict[tuple[int, int], dict[str, tuple[str, Evidence]]] = {}  # step and sequence -> what was saved

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        for payload in payloads(durable):
            if payload.sequence and payload.source == self.point.source:
                try:
                    cuts = saved_cuts(payload.read, payload.read(GYM))
                except (KeyError, TypeError, AttributeError):
                    cuts, self.known = {}, False
                for key, (_, cut) in cuts.items():
                    self.came[GymCheckpointEpisode.of(key).next().capture_key] = cut
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, CallBegun):
            self.begun[event.call] = None
        elif isinstance(event, RestoreChosen):
            if is_another_point(event, self.point):
                self.came, self.known = {}, False
        elif isinstance(event, GymPhaseStarted):
            self.checkpoint = event.checkpoint
            self.acked, self.cut, self.exported, self.saved = {}, {}, {}, {}
        elif isinstance(event, CutAcknowledged):
            if event.checkpoint == self.checkpoint:
                self.acked[event.call] = event
        elif isinstance(event, EpisodeCut):
            self.cut[event.key] = event
        elif isinstance(event, EpisodeExported):
            if event.kind in SESSIONS or event.key not in self.exported:
                self.exported[event.key] = event.turn
        elif isinstance(event, CutSaved):
            evidence = Evidence(event.keys, event.count, event.digest, event.limit)
            self.saved[event.key] = event.call, evidence
        elif isinstance(event, ManifestBuilt):
            if event.checkpoint == self.checkpoint:
                self.held[event.sequence] = [self.broken(text, record) for text in self._wrong()]
        elif isinstance(event, SnapshotPublished):
            self.published[event.anchor_step, event.sequence] = self.saved
            return held_until_published(self.held, event.sequence)
        return ()

    def _wrong(self) -> Iterator[str]:
        for key, turn in self.exported.items():
            call, found = self.saved.get(key, ("", None))
            own = f"{key}/c{turn}"
            if found is not None and call != own:
                yield f"{key} is saved before its turn {turn}, with a cut of {call}."
            settled = self.cut.get(key)
            if settled is not None:
                right = self._acknowledged(settled)
                if settled.turn != turn or settled.call != own:
                    yield f"{key} was settled inside {settled.call}, and is saved before its turn {turn}."
                if found != right:
                    yield f"{key} is saved with {_said(found)}; {settled.call} was acknowledged with {_said(right)}."
            elif found is not None and self.known and (found != self.came.get(key) or own in self.begun):
                yield f"{key} is saved with {_said(found)}, and was not settled inside a call."
            elif found is None and key in self.came and own not in self.begun and turn_of(key, self.came[key]) == turn:
                yield f"{key} came with {_said(self.came[key])}, has not used it, and is saved without."

    def _acknowledged(self, settled: EpisodeCut) -> Evidence | None:
        acked = self.acked.get(settled.call)
        if acked is None or acked.kind != PREFIX or settled.kind != PREFIX:
            return None
        return Evidence(acked.keys, acked.count, acked.digest, acked.limit)

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterator[Violation]:
        """What lies on disk of this life's snapshots is what was said to be saved."""
        for payload in payloads(durable):
            gym = payload.read(GYM)
            said = self.published.get((payload.step, payload.sequence)) if payload.sequence else None
            if said is None or not isinstance(gym, dict):
                continue
            try:
                found = saved_cuts(payload.read, gym)
                parts = gym["instances"].values()
                named = [f"{one['rollout_id']}-a{one['attempt']}" for part in parts for one in part["episodes"]]
            except (KeyError, TypeError, AttributeError):
                continue  # a Gym part of another shape is I26's
            for key in named:
                if found.get(key) != said.get(key):
                    ours, theirs = (None if one is None else one[1] for one in (found.get(key), said.get(key)))
                    yield self.broken(
                        f"{payload.source}: the record of {key} has {_said(ours)}, it was saved with {_said(theirs)}."
                    )


def turn_of(key: str, cut: Evidence) -> int:
    """The turn whose model call was cut, from its chunks' names; -1: they say none."""
    name = cut.keys[0].split("/")[1] if cut.keys and cut.keys[0].count("/") == 2 else ""
    return int(name[1:]) if name[:1] == "c" and name[1:].isdigit() else -1


def _said(cut: Evidence | None) -> str:
    return "no cut" if cut is None else f"a cut of {cut.count} tokens ({cut.digest[:8]}) in {len(cut.keys)} chunks"
