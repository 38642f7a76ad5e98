"""I29: what Gym writes belongs to the controller's candidates, or to what the controller has dropped."""

from __future__ import annotations

from collections.abc import Iterable

from invariants.gym.cut import FOLLOWED, CutWatch
from protocol.config import Level
from protocol.history import EpisodeExported, ManifestBuilt, Record, SnapshotPublished, key_set
from protocol.judging import Judge, Terms, Violation


class ExportsAreKnown(Judge):
    """Every exported episode is a candidate or queued for retire, and the manifest saves exactly the exported ones that are
    still candidates.
    """

    invariant = "I29"
    needs = (EpisodeExported, ManifestBuilt)
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
        if type(event) is not ManifestBuilt:
            watch.follow(event)
            return ()
        found = [
            self.broken(f"{key} was exported ({', '.join(kinds)}) and belongs to nobody.", record)
            for key, kinds in watch.exported.items()
            if key not in watch.scope and key not in watch.leaving and key not in watch.left_in_phase
        ]
        saved = key_set(key for key in watch.exported if key in watch.candidates)
        if saved != event.episodes:
            found.append(
                self.broken(
                    f"The manifest saves {event.episodes.count} episodes; {saved.count} exported ones are candidates.", record
                )
            )
        watch.hold(event.sequence, found)
        return ()
