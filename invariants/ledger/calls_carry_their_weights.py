"""WEIGHTS-1: PROTOCOL 1.5, each captured model call is stamped with the weight version at its beginning."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.history import CallBegun, ProcessKilled, ProcessStarted, Record, WeightsPushed, WeightsReceived, WeightsSynced
from protocol.identity import worker_name
from protocol.judging import Judge, Terms, Violation


class CallsCarryTheirWeights(Judge):
    """A model call is stamped with the weight version that its worker was last given, a worker that was given none since it
    started begins none, its version never decreases, and whoever is said to carry a version was given it.
    """

    invariant = "WEIGHTS-1"
    needs = (WeightsReceived, CallBegun)
    sees = (ProcessKilled, ProcessStarted, WeightsPushed, WeightsSynced)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.given: dict[str, int] = {}  # worker -> version
        self.died: dict[str, None] = {}  # workers whose process died since the last push to all of them

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is CallBegun:
            given = self.given.get(record.process)
            if given == event.version:
                return ()
            has = "no weights" if given is None else f"version {given}"
            text = f"{event.call} is stamped {event.version}; {record.process} was given {has} since it started"
            return (self.broken(text, record),)
        if type(event) is WeightsReceived:
            before = self.given.get(record.process)
            self.given[record.process] = event.version
            if before is not None and event.version < before:
                return (self.broken(f"{record.process} went back from version {before} to {event.version}", record),)
        elif type(event) is ProcessKilled:
            self._forget(event.process)
        elif type(event) is ProcessStarted:
            self._forget(record.process)
        elif type(event) is WeightsSynced:
            workers = [worker_name(index) for index in range(self.terms.job.generation_workers)]
            found = [
                self.broken(f"every worker but {list(event.missing)} is said to carry {event.version}; {worker} does not", record)
                for worker in workers
                if worker not in event.missing and worker not in self.died and self.given.get(worker, -1) < event.version
            ]
            self.died = {}
            return found
        elif type(event) is WeightsPushed and event.worker not in self.died and self.given.get(event.worker, -1) < event.version:
            return (self.broken(f"{event.worker} is said to carry {event.version}; it does not", record),)
        return ()

    def _forget(self, process: str) -> None:
        if self.given.pop(process, None) is not None:
            self.died[process] = None
