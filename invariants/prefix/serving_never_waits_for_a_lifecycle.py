"""I53: decoding goes on while calls are cut."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.config import Level
from protocol.history import (
    CallAsked,
    CallBegun,
    CallFrozen,
    GateClosed,
    LifecycleWaited,
    PrefixClaimed,
    ReceiptSent,
    Record,
    RowStagedIssued,
    WeightsReceived,
)
from protocol.judging import Judge, Terms, Violation

HELD = (CallFrozen, PrefixClaimed, RowStagedIssued)  # recorded by who holds a call's lifecycle lock
SERVING = (CallAsked, CallBegun, GateClosed, ReceiptSent, WeightsReceived)


class ServingNeverWaitsForALifecycle(Judge):
    """No task that serves a request of a worker (a model call, a cut, a push of weights) waits for a call's lifecycle lock, or
    does what only its holder may: who must hold it does so in a task of its own.

    A serving task is one that has recorded what only the handler of a request records.
    """

    invariant = "I53"
    needs = (CallBegun, CallFrozen)
    sees = (*SERVING, *HELD, LifecycleWaited)

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
        elif isinstance(event, HELD):
            served = self.serving.get((record.process, record.task))
            if served is not None:
                text = f"{record.task}, which recorded {served}, holds the lifecycle of {event.call} ({type(event).__name__})."
                return (self.broken(text, record),)
        else:
            self.serving.setdefault((record.process, record.task), type(event).__name__)
        return ()
