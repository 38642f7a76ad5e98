"""GATE-1: PROTOCOL 3.5 and 6.7, the snapshot gate is closed for a checkpoint and for nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from protocol.config import Level
from protocol.history import (
    AdmissionClosed,
    AdmissionOpened,
    CutAsked,
    GateClosed,
    GateCloseIgnored,
    GateOpened,
    ProcessKilled,
    ProcessStalled,
    Record,
    RunEnded,
)
from protocol.judging import Durable, Judge, RunStatus, Terms, Violation

SLACK_S = 0.001
HEARD_S = 5.0  # for a worker to hear that a checkpoint is over, beside one control timeout


class GatesOpenAgain(Judge):
    """A worker's snapshot gate closes for an open checkpoint of its holder and for no other, opens when that checkpoint is over,
    or by itself when a park's bound has passed and not before, and is never closed for longer.

    A worker has one control timeout, and some seconds, to hear that it is over; one that stood still may be later.
    """

    invariant = "GATE-1"
    needs = (GateClosed, GateOpened)
    sees = (AdmissionClosed, AdmissionOpened, CutAsked, GateCloseIgnored, ProcessKilled, ProcessStalled, RunEnded)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.bound_s = terms.job.park_bound_s
        self.late_s = terms.job.token_capture.control_timeout_s + HEARD_S
        self.closed: dict[tuple[str, str], tuple[float, int, str]] = {}  # worker and holder -> since, epoch, checkpoint
        self.over: dict[tuple[str, str], float] = {}  # holder and checkpoint -> since when its admission is open again
        self.asked: dict[tuple[str, str, int], str] = {}  # worker, holder and epoch -> checkpoint
        self.last: dict[tuple[str, str], int] = {}  # worker and holder -> the newest epoch that was opened
        self.died: dict[str, None] = {}
        self.ended_s = 0.0
        self.still = False

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX

    def on(self, record: Record) -> Iterable[Violation]:
        self.ended_s = record.time
        return [self.broken(text, record) for text in self._wrong(record)]

    def _wrong(self, record: Record) -> Iterator[str]:
        event, now = record.event, record.time
        if isinstance(event, GateClosed):
            before = self.closed.get((record.process, event.holder))
            since = now if before is None else before[0]
            if before is not None and event.epoch < before[1]:
                where = f"{record.process}'s gate"
                yield f"{where} is closed for epoch {event.epoch} of {event.holder}, it is closed for {before[1]}."
            self.closed[record.process, event.holder] = since, event.epoch, event.checkpoint
        elif isinstance(event, GateOpened):
            yield from self._opened(event, record)
        elif isinstance(event, AdmissionOpened):
            self.over.setdefault((record.process, event.checkpoint), now)
        elif isinstance(event, AdmissionClosed):
            self.over.pop((record.process, event.checkpoint), None)
        elif isinstance(event, ProcessStalled):
            self.still = True
        elif isinstance(event, CutAsked):
            self.asked[event.worker, record.process, event.epoch] = event.checkpoint
        elif isinstance(event, GateCloseIgnored):
            yield from self._ignored(event, record.process)
        elif isinstance(event, ProcessKilled):
            self.died[event.process] = None
            for place in [place for place in self.closed if place[0] == event.process]:
                del self.closed[place]
        elif isinstance(event, RunEnded):
            yield from self._left(now)

    def _ignored(self, event: GateCloseIgnored, worker: str) -> Iterator[str]:
        """Only a close whose checkpoint is over, or was overtaken by a newer one, changes nothing."""
        checkpoint = self.asked.get((worker, event.holder, event.epoch))
        newer = any((at, holder) == (worker, event.holder) and epoch > event.epoch for at, holder, epoch in self.asked)
        if checkpoint is None or newer or (event.holder, checkpoint) in self.over or event.holder in self.died:
            return
        if self.last.get((worker, event.holder), -1) < event.epoch:
            yield f"{worker}'s gate does not close for epoch {event.epoch} of {event.holder}, whose {checkpoint} is open."

    def _opened(self, event: GateOpened, record: Record) -> Iterator[str]:
        before = self.closed.pop((record.process, event.holder), None)
        where = f"{record.process}'s gate"
        self.last[record.process, event.holder] = event.epoch
        if before is None:
            yield f"{where} is opened for {event.holder}, and was not closed for it."
            return
        held = record.time - before[0]
        if event.epoch != before[1]:
            yield f"{where} is opened for epoch {event.epoch} of {event.holder}, it was closed for {before[1]}."
        if abs(held - event.held_s) > SLACK_S + self.terms.slack_s:
            yield f"{where} says that it was closed for {event.held_s:.3f} s; it was for {held:.3f}."
        if event.why == "lease" and held < self.bound_s - SLACK_S - self.terms.slack_s:
            yield f"{where} opens by itself after {held:.3f} s; a park may last {self.bound_s:.3f}."
        yield from self._too_long(record.process, event.holder, before, record.time)

    def _too_long(self, worker: str, holder: str, closed: tuple[float, int, str], now: float) -> Iterator[str]:
        since, _, checkpoint = closed
        if self.still:
            return
        if now - since > self.bound_s + SLACK_S + self.terms.slack_s:
            yield f"{worker}'s gate is closed for {holder} for {now - since:.3f} s; a park may last {self.bound_s:.3f}."
            return
        over = self.over.get((holder, checkpoint))
        if over is not None and now - max(over, since) > self.late_s + self.terms.slack_s:
            yield f"{worker}'s gate is closed for {holder} {now - over:.3f} s after {checkpoint} was over."

    def _left(self, now: float) -> Iterator[str]:
        for (worker, holder), closed in self.closed.items():
            yield from self._too_long(worker, holder, closed, now)

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        """Of a life that stopped moving: what its end shows."""
        if status.outcome in ("ended", "crashed", "failed"):
            return ()
        return [self.broken(text) for text in self._left(max(status.at_s, self.ended_s))]
