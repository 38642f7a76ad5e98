"""I39: a restore happens everywhere or nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protocol.config import Level
from protocol.history import (
    AdmissionClosed,
    AdmissionOpened,
    CallAsked,
    ControlIssued,
    EpisodeEnded,
    EpisodeInstalled,
    LifeStarted,
    PrefixClaimed,
    PrefixFellBack,
    PrefixReadIssued,
    ProcessContinued,
    ProcessKilled,
    ProcessStalled,
    ProcessStarted,
    Record,
    Restored,
    RunFailed,
)
from protocol.judging import Judge, Terms, Violation

VANISHED = "media_source_vanished"


class NothingIsRestoredInPart(Judge):
    """What refuses a restore does so before any instance is asked to install, and after a restore that failed while it was
    installing no instance keeps an installed episode or stays closed; a call whose media are gone is refused before anything of
    its prefix is claimed or read.

    Told by Gym's own events: what is installed, what has ended, which door is closed. An instance that stands still or is dead
    when the run ends can undo nothing.
    """

    invariant = "I39"
    needs = (LifeStarted,)
    sees = (AdmissionClosed, AdmissionOpened, CallAsked, ControlIssued, EpisodeEnded, EpisodeInstalled, PrefixClaimed,
            PrefixFellBack, PrefixReadIssued, ProcessContinued, ProcessKilled, ProcessStalled, ProcessStarted, Restored,
            RunFailed)  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.restored = False
        self.asked: dict[str, None] = {}  # instances that were asked to install
        self.installed: dict[str, str] = {}  # key -> instance, while it waits there
        self.closed: dict[str, str] = {}  # instance -> checkpoint
        self.read: dict[str, str] = {}  # call -> what was done with its prefix, since it came in
        self.still: dict[str, None] = {}  # those that stand still, or are dead

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
        elif isinstance(event, (ProcessKilled, ProcessStalled)):
            self.still[event.process] = None
        elif isinstance(event, ProcessContinued):
            self.still.pop(event.process, None)
        elif isinstance(event, ProcessStarted):
            self.still.pop(record.process, None)
            self.closed.pop(record.process, None)
            self.installed = {key: name for key, name in self.installed.items() if name != record.process}
        elif isinstance(event, ControlIssued):
            if event.operation == "restore":
                self.asked[event.instance] = None
        elif isinstance(event, Restored):
            self.restored = True
        elif isinstance(event, CallAsked):
            self.read.pop(event.call, None)
        elif isinstance(event, PrefixClaimed):
            self.read[event.call] = "claimed"
        elif isinstance(event, PrefixReadIssued):
            self.read.update(dict.fromkeys(event.of, "read"))
        elif isinstance(event, PrefixFellBack):
            if VANISHED in event.reason and event.call in self.read:
                text = f"media of {event.call} are gone, which was found after its prefix was {self.read[event.call]}"
                return (self.broken(text, record),)
        elif isinstance(event, RunFailed) and not self.restored:
            return [self.broken(text, record) for text in self._failed(event)]
        return ()

    def _failed(self, event: RunFailed) -> Iterator[str]:
        if event.error == "RestoreRefused" and self.asked:
            yield f"{', '.join(self.asked)} had been asked to install when the restore was refused ({event.message})"
        installed = [f"{key} on {name}" for key, name in self.installed.items() if name not in self.still]
        if installed:
            yield f"the restore failed ({event.error}), {len(installed)} episodes are still installed: {installed[0]}"
        closed = [name for name in self.closed if name not in self.still]
        if closed:
            yield f"the restore failed ({event.error}) and {', '.join(closed)} is still closed"
