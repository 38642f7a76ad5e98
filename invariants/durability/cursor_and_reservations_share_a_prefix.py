"""I16."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from invariants.durability.held import PUBLICATION, HeldFindings
from invariants.durability.payload import DATALOADER, LEDGER, OnDisk, Payload
from protocol.history import CursorMoved, CutTaken, GroupDropped, GroupReserved, Record, Restored, StepCommitted
from protocol.judging import Terms, Violation


class CursorAndReservationsShareAPrefix(OnDisk):
    """At each cut the prompts taken from the data loader are exactly those trained, those still open and those passed over."""

    invariant = "I16"
    needs = (CutTaken,)
    sees = (Restored, CursorMoved, GroupReserved, GroupDropped, StepCommitted, *PUBLICATION)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.held = HeldFindings()
        self.restored = False
        self.consumed = 0  # as the events tell it, from Restored on
        self.open = 0

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        kind = type(event)
        if kind is GroupReserved:
            self.open += 1
            assert isinstance(event, GroupReserved)
            return self._epoch_of_ordinal(event, record)
        if kind is GroupDropped:
            self.open -= 1
            return ()
        if isinstance(event, StepCommitted):
            self.open -= len(event.ordinals)
            return ()
        if isinstance(event, CursorMoved):
            return self._moved(event, record)
        if isinstance(event, CutTaken):
            for text in self._cut(event):
                self.held.hold(event, self.broken(text, record))
            return ()
        if isinstance(event, Restored):
            self.restored, self.consumed, self.open = True, event.consumed, event.open
            return ()
        return self.held.release(event)

    def _epoch_of_ordinal(self, event: GroupReserved, record: Record) -> Iterable[Violation]:
        epoch = event.ordinal // self.terms.data_length
        if event.epoch != epoch:
            return (
                self.broken(f"group {event.group} of ordinal {event.ordinal} is in epoch {event.epoch}, not {epoch}", record),
            )
        return ()

    def _moved(self, event: CursorMoved, record: Record) -> Iterable[Violation]:
        before, self.consumed = self.consumed, event.to
        if self.restored and event.first != before:
            return (self.broken(f"the cursor moved from {event.first} to {event.to}, it stood at {before}", record),)
        return ()

    def _cut(self, event: CutTaken) -> Iterator[str]:
        where = f"{event.role} cut {event.sequence}"
        trained = event.step * self.terms.job.num_prompts_per_step
        if event.consumed != trained + event.open + event.passed:
            yield (
                f"the {where} holds cursor {event.consumed}, but {trained} prompts are trained, "
                f"{event.open} open and {event.passed} passed over"
            )
        if self.restored and event.consumed != self.consumed:
            yield f"the {where} holds cursor {event.consumed}, the data loader stood at {self.consumed}"
        if self.restored and event.open != self.open:
            yield f"the {where} holds {event.open} open groups, {self.open} were reserved and not yet trained or dropped"

    def examine(self, payload: Payload) -> Iterator[str]:
        ledger, loader = payload.read(LEDGER), payload.read(DATALOADER)
        if ledger is None or loader is None:
            return  # an unreadable payload is I21's
        consumed, length = loader["consumed"], self.terms.data_length
        trained = payload.step * self.terms.job.num_prompts_per_step
        open_ = [group["ordinal"] for group in ledger["groups"]]
        passed = list(ledger["skipped"])
        if consumed != trained + len(open_) + len(passed):
            yield f"cursor {consumed}, but {trained} prompts are trained, {len(open_)} open and {len(passed)} passed over"
        if len(set(open_ + passed)) != len(open_) + len(passed):
            yield f"an ordinal is there twice: open {sorted(open_)}, passed over {sorted(passed)}"
        beyond = [ordinal for ordinal in open_ + passed if ordinal >= consumed]
        if beyond:
            yield f"ordinals {sorted(beyond)} are not below the cursor {consumed}"
        highest = max((group.get("target_step", -1) for group in ledger["groups"]), default=-1)
        if loader["dispatch_index"] < highest:
            yield f"dispatch index {loader['dispatch_index']}, but a group is stamped with target step {highest}"
        if not loader["epoch"] * length <= consumed <= (loader["epoch"] + 1) * length:
            yield f"cursor {consumed} is not in epoch {loader['epoch']} of {length} prompts"
