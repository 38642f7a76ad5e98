"""I28: an episode that Gym cannot save is started over, and nobody waits for it."""

from __future__ import annotations

from collections.abc import Iterable

from invariants.gym.cut import FOLLOWED, CutWatch
from protocol.config import Level
from protocol.history import (
    ControlDone,
    DrainEnded,
    EpisodeCannotSave,
    EpisodeExported,
    ManifestBuilt,
    Record,
    SnapshotPublished,
    key_set,
)
from protocol.judging import Judge, Terms, Violation


class RestartsAreNotSaved(Judge):
    """An episode that cannot be saved is in no commit, is not waited for by the drain, and is in the manifest's restarts as
    long as it is a candidate.
    """

    invariant = "I28"
    needs = (EpisodeCannotSave, ManifestBuilt)
    sees = (*FOLLOWED, ControlDone, DrainEnded)

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
        if type(event) is DrainEnded:
            return self._drained(event, record)
        if type(event) is ControlDone:
            return self._commit_refused(event, record) if event.operation == "commit" else ()
        if type(event) is ManifestBuilt:
            restarts = key_set(key for key in watch.restarts if key in watch.candidates)
            if restarts != event.restarts:
                text = f"The manifest names {event.restarts.count} restarts; {restarts.count} candidates could not be saved."
                watch.hold(event.sequence, [self.broken(text, record)])
            return ()
        watch.follow(event)
        if type(event) is EpisodeExported and event.key in watch.restarts:
            return (self.broken(f"{event.key} was committed by {event.participant} though it cannot be saved.", record),)
        return ()

    def _commit_refused(self, event: ControlDone, record: Record) -> Iterable[Violation]:
        """Gym refuses a scope that names a restart, and calls it a contradiction."""
        if event.outcome == "refused" and event.cause == "broken" and self.watch.restarts:
            text = (
                f"{event.instance} refused the commit as a contradiction when {len(self.watch.restarts)} episodes had to restart."
            )
            return (self.broken(text, record),)
        return ()

    def _drained(self, event: DrainEnded, record: Record) -> Iterable[Violation]:
        """Nobody else can be on the wire than the candidates that were neither saved nor restarting."""
        watch = self.watch
        rest = watch.replying()
        left = [key for key in rest if key in watch.candidates]
        if event.waited > len(rest):
            text = f"The drain waited for {event.waited} episodes; {len(rest)} were neither saved nor restarting."
        elif event.left > len(left):
            text = f"The drain gave up on {event.left} episodes; only {len(left)} could still reply."
        else:
            return ()
        return (self.broken(text, record),)
