"""HEALTH-1: who leaves health probes unanswered is named, whoever else does so at the same time (PROTOCOL 1.9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil

from protocol.history import ProbeDone, ProbeIssued, ProcessContinued, Record, UnhealthyReported
from protocol.judging import Judge, Terms, Violation

CONTROLLER = "controller"
SLACK_S = 1e-6  # rounding of summed times


class Peer:
    """One process that is probed. An interval begins with the first probe after the one before it is over."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.well = False  # whether its last probe was answered
        self.missed = 0  # intervals in a row at whose end it was not
        self.reported = False  # since it was well
        self.counted_s = 0.0  # when the last of them was counted


class UnhealthyPeersAreReported(Judge):
    """A process that was not well at the end of unhealthy_probes watchdog intervals in a row is reported within the next one, not
    before, and once until it is well again.
    """

    invariant = "HEALTH-1"
    needs = (ProbeDone,)
    sees = (ProbeIssued, ProcessContinued, UnhealthyReported)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.interval_s = terms.job.watchdog.interval_s
        self.limit = terms.job.watchdog.unhealthy_probes
        self.peers: dict[str, Peer] = {}
        self.blind = False  # the controller has stood still: its intervals are not those of the clock any more

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if self.blind:
            return ()
        if type(event) is ProbeIssued:
            return [self.broken(text, record) for text in self._probed(event.peer, record.time)]
        if type(event) is ProbeDone:
            if event.peer in self.peers:
                self.peers[event.peer].well = event.outcome == "well"
        elif type(event) is UnhealthyReported:
            return [self.broken(text, record) for text in self._reported(event.peer)]
        elif type(event) is ProcessContinued:
            self.blind = event.process == CONTROLLER
        return ()

    def _probed(self, name: str, now_s: float) -> Iterator[str]:
        peer = self.peers.setdefault(name, Peer(now_s))
        if now_s < peer.began_s + self.interval_s - SLACK_S:
            return  # again in the same interval
        peer.began_s = now_s
        if peer.missed >= self.limit and not peer.reported and now_s >= peer.counted_s + self.terms.slack_s:
            peer.reported = True
            yield f"{name} was not well for {self.limit} intervals in a row, and was not reported"
        if peer.missed < self.limit:
            peer.counted_s = now_s
        peer.missed += 1
        if peer.well:
            peer.missed, peer.reported = 0, False

    def _reported(self, name: str) -> Iterator[str]:
        """The interval that ends with the report is counted by the probe that follows it, or has been a moment ago."""
        peer = self.peers.setdefault(name, Peer(0.0))
        if peer.reported:
            yield f"{name} was reported again, and was not well in between"
        more = ceil(self.terms.slack_s / self.interval_s)  # intervals of a busy machine are longer than the clock's
        if peer.well or not self.limit - 1 - more <= peer.missed <= self.limit + more:
            yield f"{name} was reported after {peer.missed} intervals in a row, {self.limit} make it unhealthy"
        peer.reported = True
