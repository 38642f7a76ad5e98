"""I39: a restore happens everywhere or nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protocol.config import Level
from protocol.history import (
    AdmissionClosed,
    AdmissionOpened,
    ControlIssued,
    EpisodeEnded,
    EpisodeInstalled,
    LifeStarted,
    ProcessStarted,
    Record,
    Restored,
    RunFailed,
)
from protocol.judging import Judge, Terms, Violation


class NothingIsRestoredInPart(Judge):
    """What refuses a restore does so before any instance is asked to install, and after a restore that failed while it was
    installing no instance keeps an installed episode or stays closed.

    Told by Gym's own events: what is installed, what has ended, which door is closed.
    """

    invariant = "I39"
    needs = (LifeStarted,)
    sees = (AdmissionClosed, AdmissionOpened, ControlIssued, EpisodeEnded, EpisodeInstalled, ProcessStarted, Restored,
            RunFailed)  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.restored = False
        self.asked: dict[str, None] = {}  # instances that were asked to install
        self.installed: dict[str, str] = {}  # key -> instance, while it waits there
        self.closed: dict[str, str] = {}  # instance -> checkpoint

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, EpisodeInstalled):
            self.installed[event.key] = record.process
        elif isinstance(event, EpisodeEnded):
            self.installed.pop(event.key, None)
        elif isinstance(event, AdmissionClosed):
            self.closed[record.process] = event.checkpoint
        elif isinstance(event, AdmissionOpened):
            self.closed.pop(record.process, None)
        elif isinstance(event, ProcessStarted):
            self.closed.pop(record.process, None)
            self.installed = {key: name for key, name in self.installed.items() if name != record.process}
        elif isinstance(event, ControlIssued):
            if event.operation == "restore":
                self.asked[event.instance] = None
        elif isinstance(event, Restored):
            self.restored = True
        elif isinstance(event, RunFailed) and not self.restored:
            return [self.broken(text, record) for text in self._failed(event)]
        return ()

    def _failed(self, event: RunFailed) -> Iterator[str]:
        if event.error == "RestoreRefused" and self.asked:
            yield f"{', '.join(self.asked)} had been asked to install when the restore was refused ({event.message})"
        if self.installed:
            key, name = next(iter(self.installed.items()))
            yield f"the restore failed ({event.error}), {len(self.installed)} episodes are still installed: {key} on {name}"
        if self.closed:
            yield f"the restore failed ({event.error}) and {', '.join(self.closed)} is still closed"
