"""I18."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.history import (
    AttemptDispatched,
    ExclusiveEntered,
    ExclusiveLeft,
    ExclusiveWaited,
    MutationEntered,
    MutationLeft,
    Record,
    RowsSubmitted,
)
from protocol.judging import Judge, Terms, Violation

DISPATCH_GATE = "dispatch"


class Section:
    """One barrier: how many mutations are inside, and how far a checkpoint has come."""

    def __init__(self) -> None:
        self.inside = 0
        self.waiting = False
        self.exclusive = False


class MutationsNeverOverlapAnExclusiveSection(Judge):
    """No mutation overlaps an exclusive section of its barrier or enters while one waits, and only one section is exclusive."""

    invariant = "I18"
    needs = (MutationEntered, ExclusiveEntered)
    sees = (MutationLeft, ExclusiveWaited, ExclusiveLeft, AttemptDispatched, RowsSubmitted)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.barriers: dict[str, Section] = {}

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        kind = type(event)
        if kind is AttemptDispatched or kind is RowsSubmitted:
            return self._dispatch(record)
        name: str = event.barrier  # type: ignore[attr-defined]
        barrier = self.barriers.get(name)
        if barrier is None:
            barrier = self.barriers[name] = Section()
        if kind is MutationEntered:
            barrier.inside += 1
            if barrier.exclusive or barrier.waiting:
                state = "is held" if barrier.exclusive else "waits"
                found = f"mutation {event.kind} entered {name} while its exclusive section {state}"  # type: ignore[attr-defined]
                return (self.broken(found, record),)
        elif kind is MutationLeft:
            barrier.inside -= 1
        elif kind is ExclusiveWaited:
            if barrier.exclusive or barrier.waiting:
                return (self.broken(f"a second checkpoint asked {name} before the first one left", record),)
            barrier.waiting = True
        elif kind is ExclusiveEntered:
            held, barrier.exclusive, barrier.waiting = barrier.exclusive, True, False
            if held:
                return (self.broken(f"{name} was entered exclusively twice", record),)
            if barrier.inside:
                return (self.broken(f"{name} was entered exclusively with {barrier.inside} mutations inside", record),)
        else:
            barrier.exclusive = barrier.waiting = False
        return ()

    def _dispatch(self, record: Record) -> Iterable[Violation]:
        """A dispatch is a mutation of the gate, whether or not it entered it."""
        gate = self.barriers.get(DISPATCH_GATE)
        if gate is None or not gate.exclusive:
            return ()
        event = record.event
        what = event.key if isinstance(event, AttemptDispatched) else ", ".join(event.keys)  # type: ignore[attr-defined]
        return (self.broken(f"{type(event).__name__} of {what} happened while {DISPATCH_GATE} was held exclusively", record),)
