"""I27: an episode without an owner is lost by the restore, one with two runs twice."""

from __future__ import annotations

from collections.abc import Iterable

from invariants.gym.cut import FOLLOWED, CutWatch
from protocol.config import Level
from protocol.history import (
    AttemptAbandoned,
    AttemptRefused,
    AttemptSealed,
    ControlDone,
    ControlReceived,
    DrainEnded,
    EpisodeAdmitted,
    EpisodeEnded,
    EpisodeExported,
    GymPhaseStarted,
    ManifestBuilt,
    ProcessStarted,
    Record,
    ScopeBuilt,
    SnapshotPublished,
    key_set,
)
from protocol.judging import Judge, Terms, Violation

WAKES_S = 0.05  # from the last outcome in the ledger to the end of the drain [I]
SETTLED = (AttemptAbandoned, AttemptRefused, AttemptSealed, ControlDone)  # the drain begins with the last commit's answer


class OneOwner(Judge):
    """At a cut each attempt that may be in Gym has exactly one owner: an environment's export or else a session, an agent's
    own run, a restart, or its reply on the wire, and the drain that waits for replies ends with the last one.

    The candidates are followed from the ledger's events, the owners from Gym's. An episode that still is in Gym when the drain
    gives up had no owner: its reply could not be on the wire.
    """

    invariant = "I27"
    needs = (ScopeBuilt, ManifestBuilt)
    sees = (*FOLLOWED, ControlDone, ControlReceived, DrainEnded, EpisodeAdmitted, ProcessStarted)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.watch = CutWatch()
        self.settled_s = 0.0  # when the newest outcome of an attempt entered the ledger, or the newest control call was over
        self.inside: dict[str, str] = {}  # live episodes -> their instance
        self.written: dict[tuple[str, str, str], str] = {}  # (key, participant, kind) written in this commit -> its instance

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def on(self, record: Record) -> Iterable[Violation]:
        event, watch = record.event, self.watch
        if type(event) is SnapshotPublished:
            return watch.release(event.sequence)
        if type(event) is ManifestBuilt:
            watch.hold(event.sequence, list(self._owners(record)))
            return ()
        watch.follow(event)
        if type(event) is GymPhaseStarted:
            self.written = {}
        elif type(event) is ControlReceived:
            if event.operation == "commit":  # one that is repeated may write again
                self.written = {place: where for place, where in self.written.items() if where != record.process}
        elif type(event) is EpisodeExported:
            place = (event.key, event.participant, event.kind)
            if place in self.written:  # whatever becomes of the cut
                return (self.broken(f"{event.key} was written twice by {event.participant} in one commit.", record),)
            self.written[place] = record.process
        elif type(event) is EpisodeAdmitted:
            self.inside[event.key] = record.process
        elif type(event) is EpisodeEnded:
            self.inside.pop(event.key, None)
        elif type(event) is ProcessStarted:
            self.inside = {key: where for key, where in self.inside.items() if where != record.process}
        elif type(event) in SETTLED:
            self.settled_s = record.time
        elif type(event) is DrainEnded:
            return list(self._drained(event, record))
        if type(event) is ScopeBuilt:  # no finding about a cut: the scope is wrong whatever becomes of it
            actual = key_set(watch.candidates)
            if actual != event.candidates:
                text = f"The scope was built from {event.candidates.count} candidates; the history has {actual.count}."
                return (self.broken(text, record),)
        return ()

    def _drained(self, event: DrainEnded, record: Record) -> Iterable[Violation]:
        """It waits for exactly those whose reply is on the wire, and until none of them is left."""
        rest = self.watch.replying()
        left = [key for key in rest if key in self.watch.candidates]
        if event.waited != len(rest):
            yield self.broken(f"The drain waited for {event.waited} episodes; {len(rest)} have no other owner.", record)
        if event.left > len(left):
            yield self.broken(f"The drain gave up on {event.left} episodes; only {len(left)} could still reply.", record)
        elif event.left < len(left):
            yield self.broken(f"The drain ended with {event.left} episodes left; {left[0]} had not replied.", record)
        elif event.left:
            yield from self._waited_for(record)
        elif event.waited and record.time > self.settled_s + WAKES_S + self.terms.slack_s:
            yield self.broken(f"The drain ended {record.time - self.settled_s:.3f} s after the last reply was in.", record)

    def _waited_for(self, record: Record) -> Iterable[Violation]:
        watch = self.watch
        for key in watch.scope:
            if key in self.inside and key in watch.candidates and key not in watch.exported and key not in watch.restarts:
                yield self.broken(f"{key} has no owner: the drain waited for it while it was in {self.inside[key]}.", record)

    def _owners(self, record: Record) -> Iterable[Violation]:
        watch = self.watch
        for key in watch.scope:
            if key not in watch.candidates:  # sealed or dropped since: not in the manifest, nobody's
                continue
            owners = exporters(watch.exporters.get(key, ()))
            if key in watch.restarts:
                owners.append("a restart")
            if key in watch.replied:
                owners.append("a reply on the wire")
            if len(owners) > 1:
                yield self.broken(f"{key} has {len(owners)} owners: {' and '.join(owners)}.", record)
            elif not owners and key not in watch.over:
                yield self.broken(f"{key} has no owner.", record)


def exporters(written: Iterable[tuple[str, str]]) -> list[str]:
    """Who owns an episode by what was written of it: a session record beside an environment's export is no second owner."""
    written = tuple(written)
    environments = [participant for kind, participant in written if kind == "environment"]
    sessions = [participant for kind, participant in written if kind == "session"]
    runs = [participant for kind, participant in written if kind == "run-id"]
    owners = [f"an export of {participant}" for participant in environments]
    if not environments:
        owners += [f"a session of {participant}" for participant in sessions]
    return owners + [f"{participant}'s own run" for participant in runs]
