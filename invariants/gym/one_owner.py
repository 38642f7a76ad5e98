"""I27: an episode without an owner is lost by the restore, one with two runs twice."""

from __future__ import annotations

from collections.abc import Iterable

from invariants.gym.cut import FOLLOWED, CutWatch
from protocol.config import Level
from protocol.history import ManifestBuilt, Record, ScopeBuilt, SnapshotPublished, key_set
from protocol.judging import Judge, Terms, Violation


class OneOwner(Judge):
    """At a cut each attempt that may be in Gym has exactly one owner: an environment's export or else a session, an agent's
    own run, a restart, or its reply on the wire.

    The candidates are followed from the ledger's events, the owners from Gym's.
    """

    invariant = "I27"
    needs = (ScopeBuilt, ManifestBuilt)
    sees = FOLLOWED

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.watch = CutWatch()

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
        if type(event) is ScopeBuilt:  # no finding about a cut: the scope is wrong whatever becomes of it
            actual = key_set(watch.candidates)
            if actual != event.candidates:
                text = f"The scope was built from {event.candidates.count} candidates; the history has {actual.count}."
                return (self.broken(text, record),)
        return ()

    def _owners(self, record: Record) -> Iterable[Violation]:
        watch = self.watch
        for key in watch.scope:
            if key not in watch.candidates:  # sealed or dropped since: not in the manifest, nobody's
                continue
            kinds = watch.exported.get(key, ())
            owners = ["an export"] if "environment" in kinds or "session" in kinds else []
            if "run-id" in kinds:
                owners.append("an agent's own run")
            if key in watch.restarts:
                owners.append("a restart")
            if key in watch.replied:
                owners.append("a reply on the wire")
            if len(owners) > 1:
                yield self.broken(f"{key} has {len(owners)} owners: {' and '.join(owners)}.", record)
            elif not owners and key not in watch.over:
                yield self.broken(f"{key} has no owner.", record)
