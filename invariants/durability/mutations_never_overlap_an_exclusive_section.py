"""I18."""

from __future__ import annotations

from collections.abc import Iterable

from invariants.durability.held import PUBLICATION, HeldFindings
from protocol.history import (
    AttemptDispatched,
    CutTaken,
    ExclusiveEntered,
    ExclusiveLeft,
    ExclusiveWaited,
    MutationEntered,
    MutationLeft,
    Record,
    RowsSubmitted,
    RunEnded,
    RunFailed,
    SnapshotBroke,
    SnapshotDropped,
    SnapshotPublished,
)
from protocol.judging import Judge, Terms, Violation

DISPATCH_GATE = "dispatch"
DATA_PLANE = "data-plane"
OVER = (SnapshotBroke, SnapshotDropped, SnapshotPublished, RunEnded, RunFailed)  # a checkpoint, or the whole run


class Section:
    """One barrier: how many mutations are inside, and how far a checkpoint has come."""

    def __init__(self) -> None:
        self.inside = 0
        self.waiting = False
        self.exclusive = False
        self.task = ""  # that asked for the exclusive side


class MutationsNeverOverlapAnExclusiveSection(Judge):
    """A cut is taken inside an exclusive section, no mutation overlaps one of its barrier or enters while one waits, and a
    checkpoint that is over, given up or cancelled has left it.
    """

    invariant = "I18"
    needs = (MutationEntered, ExclusiveEntered)
    sees = (MutationLeft, ExclusiveWaited, ExclusiveLeft, AttemptDispatched, RowsSubmitted, CutTaken, *PUBLICATION, *OVER)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.held = HeldFindings()
        self.barriers: dict[str, Section] = {}

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        kind = type(event)
        if kind is AttemptDispatched or kind is RowsSubmitted:
            return self._dispatch(record)
        if kind is CutTaken or kind in PUBLICATION or kind in OVER:
            return [*self._cut(record), *(self._left_behind(record) if kind in OVER else ())]
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
            barrier.waiting, barrier.task = True, record.task
        elif kind is ExclusiveEntered:
            held, barrier.exclusive, barrier.waiting = barrier.exclusive, True, False
            if held:
                return (self.broken(f"{name} was entered exclusively twice", record),)
            if barrier.inside:
                return (self.broken(f"{name} was entered exclusively with {barrier.inside} mutations inside", record),)
        else:
            barrier.exclusive = barrier.waiting = False
        return ()

    def _left_behind(self, record: Record) -> Iterable[Violation]:
        """Sides that the task of this record still holds or waits for; at the end of a run, anybody's."""
        event = record.event
        run_is_over = isinstance(event, (RunEnded, RunFailed))
        for name, barrier in self.barriers.items():
            if (barrier.exclusive or barrier.waiting) and (run_is_over or barrier.task == record.task):
                barrier.task = ""  # said once
                yield self.broken(f"{type(event).__name__}, and {name} is still closed for a checkpoint that is over", record)

    def _cut(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if not isinstance(event, CutTaken):
            return self.held.release(event) if type(event) in PUBLICATION else ()
        barrier = self.barriers.get(DATA_PLANE)
        if barrier is None or not barrier.exclusive:
            found = f"{event.role} cut {event.sequence} was taken while {DATA_PLANE} was not held exclusively"
            self.held.hold(event, self.broken(found, record))
        return ()

    def _dispatch(self, record: Record) -> Iterable[Violation]:
        """A dispatch is a mutation of the gate, whether or not it entered it."""
        gate = self.barriers.get(DISPATCH_GATE)
        if gate is None or not gate.exclusive:
            return ()
        event = record.event
        what = event.key if isinstance(event, AttemptDispatched) else ", ".join(event.keys)  # type: ignore[attr-defined]
        return (self.broken(f"{type(event).__name__} of {what} happened while {DISPATCH_GATE} was held exclusively", record),)
