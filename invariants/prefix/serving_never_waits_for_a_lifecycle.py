"""I53: decoding goes on while calls are cut."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.config import Level
from protocol.history import CallAsked, CallBegun, CallFrozen, GateClosed, LifecycleWaited, ReceiptSent, Record, WeightsReceived
from protocol.judging import Judge, Terms, Violation

SERVING = (CallAsked, CallBegun, GateClosed, ReceiptSent, WeightsReceived)


class ServingNeverWaitsForALifecycle(Judge):
    """No task that serves a request of a worker (a model call, a cut, a push of weights) waits for a call's lifecycle lock: who
    must wait for it does so in a task of its own.

    A serving task is one that has recorded what only the handler of a request records.
    """

    invariant = "I53"
    needs = (CallBegun, CallFrozen)
    sees = (*SERVING, LifecycleWaited)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.serving: dict[tuple[str, str], str] = {}  # process and task -> what it has recorded first

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, LifecycleWaited):
            served = self.serving.get((record.process, record.task))
            if served is not None:
                text = f"{record.task}, which recorded {served}, waits for the lifecycle of {event.call} ({event.what})."
                return (self.broken(text, record),)
        elif not isinstance(event, CallFrozen):
            self.serving.setdefault((record.process, record.task), type(event).__name__)
        return ()
