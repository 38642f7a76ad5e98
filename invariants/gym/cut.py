"""What one Gym-bearing cut is made of, followed from Gym's own events and the ledger's: candidates, exports, restarts, replies.

Judges of I26 to I29 each keep one ``CutWatch``. A cut is looked at when its manifest is built (inside the exclusive
section, so nothing moves), and what is found is held until that snapshot is published.
"""

from __future__ import annotations

from typing import Any

from invariants.ledger.attempts import group_of, gym_attempt_of
from protocol.history import (
    AttemptAbandoned,
    AttemptDispatched,
    AttemptRefused,
    AttemptReserved,
    AttemptSealed,
    EpisodeCannotSave,
    EpisodeEnded,
    EpisodeExported,
    EpisodeInstalled,
    EpisodeRefused,
    Event,
    GroupDropped,
    GymPhaseEnded,
    GymPhaseStarted,
    ManifestBuilt,
    ReplySent,
    RetireAccepted,
    RetireQueued,
    ScopeBuilt,
    SnapshotPublished,
    SnapshotStarted,
)
from protocol.judging import Violation, held_until_published


class CutWatch:
    """``candidates``: attempts of the ledger that may be in Gym (DISPATCHED unsealed, or a continuation that waits).

    ``scope``: the candidates when the commit scope was built. ``exported``: key -> kinds written in this phase;
    ``exporters``: who wrote each.
    ``restarts``: keys that Gym cannot save. ``replied``: keys whose finished row was sent; ``over``: keys that
    ended in Gym or were refused since their last dispatch. ``leaving``: queued for retire.
    """

    def __init__(self) -> None:
        self.candidates: dict[str, None] = {}
        self.leaving: dict[str, None] = {}
        self.left_in_phase: dict[str, None] = {}  # abandoned while the phase ran
        self.replied: dict[str, None] = {}
        self.over: dict[str, None] = {}
        self.open = False  # a Gym phase runs
        self.scope: dict[str, None] = {}
        self.exported: dict[str, tuple[str, ...]] = {}
        self.exporters: dict[str, tuple[tuple[str, str], ...]] = {}  # key -> (kind, participant), each once
        self.restarts: dict[str, None] = {}
        self.held: dict[int, list[Violation]] = {}

    def follow(self, event: Event) -> None:
        handle = _FOLLOW.get(type(event))
        if handle is not None:
            handle(self, event)

    def hold(self, sequence: int, found: list[Violation]) -> None:
        self.held.setdefault(sequence, []).extend(found)

    def release(self, sequence: int) -> list[Violation]:
        return held_until_published(self.held, sequence)

    def replying(self) -> list[str]:
        """Candidates of the scope that Gym neither saved nor called restarts: only their replies can be on the wire."""
        return [key for key in self.scope if key not in self.exported and key not in self.restarts]

    # --- the ledger

    def _dispatched(self, event: AttemptDispatched) -> None:
        self.candidates[event.key] = None
        self.replied.pop(event.key, None)
        self.over.pop(event.key, None)

    def _reserved(self, event: AttemptReserved) -> None:
        if event.why == "continuation":
            self.candidates[event.key] = None

    def _installed(self, event: EpisodeInstalled) -> None:
        self.candidates[event.key] = None

    def _refused(self, event: AttemptRefused) -> None:
        if gym_attempt_of(event.key) == 0:  # a continuation still waits with its state
            self.candidates.pop(event.key, None)

    def _gone(self, event: AttemptSealed | AttemptAbandoned) -> None:
        self.candidates.pop(event.key, None)
        self.replied.pop(event.key, None)
        self.over.pop(event.key, None)
        if self.open:
            self.left_in_phase[event.key] = None

    def _dropped(self, event: GroupDropped) -> None:
        for key in [key for key in self.candidates if group_of(key) == event.group]:
            del self.candidates[key]
            if self.open:
                self.left_in_phase[key] = None

    def _queued(self, event: RetireQueued) -> None:
        self.leaving[event.key] = None

    def _accepted(self, event: RetireAccepted) -> None:
        self.leaving.pop(event.key, None)

    # --- Gym

    def _phase(self, event: GymPhaseStarted) -> None:
        self.open = True
        self.scope, self.exported, self.restarts, self.left_in_phase = {}, {}, {}, {}
        self.exporters = {}

    def _phase_ended(self, event: GymPhaseEnded) -> None:
        self.open = False

    def _scope(self, event: ScopeBuilt) -> None:
        self.scope = dict(self.candidates)

    def _exported(self, event: EpisodeExported) -> None:
        if self.open:
            kinds = self.exported.get(event.key, ())
            self.exported[event.key] = (*kinds, event.kind) if event.kind not in kinds else kinds
            exporter, known = (event.kind, event.participant), self.exporters.get(event.key, ())
            self.exporters[event.key] = (*known, exporter) if exporter not in known else known

    def _cannot_save(self, event: EpisodeCannotSave) -> None:
        if self.open:
            self.restarts[event.key] = None

    def _replied(self, event: ReplySent) -> None:
        if event.key in self.candidates:
            self.replied[event.key] = None
            self.over[event.key] = None

    def _ended(self, event: EpisodeEnded | EpisodeRefused) -> None:
        if event.key in self.candidates:
            self.over[event.key] = None

    # --- the snapshot

    def _started(self, event: SnapshotStarted) -> None:
        self.held.pop(event.sequence, None)  # a lost snapshot of another anchor had the same number


_FOLLOW: dict[type[Event], Any] = {
    AttemptDispatched: CutWatch._dispatched,
    AttemptReserved: CutWatch._reserved,
    EpisodeInstalled: CutWatch._installed,
    AttemptRefused: CutWatch._refused,
    AttemptSealed: CutWatch._gone,
    AttemptAbandoned: CutWatch._gone,
    GroupDropped: CutWatch._dropped,
    RetireQueued: CutWatch._queued,
    RetireAccepted: CutWatch._accepted,
    GymPhaseStarted: CutWatch._phase,
    GymPhaseEnded: CutWatch._phase_ended,
    ScopeBuilt: CutWatch._scope,
    EpisodeExported: CutWatch._exported,
    EpisodeCannotSave: CutWatch._cannot_save,
    ReplySent: CutWatch._replied,
    EpisodeEnded: CutWatch._ended,
    EpisodeRefused: CutWatch._ended,
    SnapshotStarted: CutWatch._started,
}
FOLLOWED: tuple[type[Event], ...] = (*_FOLLOW, ManifestBuilt, SnapshotPublished)
