"""RECEIPT-1: PROTOCOL 6.7, a receipt answers exactly the inventory it was asked for, every ticket once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from protocol.config import Level
from protocol.history import (
    CallBegun,
    CallEnded,
    CutAcknowledged,
    CutAnswered,
    CutAsked,
    EpisodeAdmitted,
    EpisodeCut,
    EpisodeEnded,
    ProcessKilled,
    ReceiptSent,
    Record,
)
from protocol.judging import Judge, Terms, Violation

PREFIX, UNANSWERED = "durable_prefix", "unanswered"


@dataclass
class Inventory:
    gym: str
    calls: tuple[str, ...]
    inventory: str
    acks: dict[str, tuple[str, int]] = field(default_factory=dict)  # call -> kind and count of tokens
    sent: bool = False


class AReceiptAnswersItsInventory(Judge):
    """An inventory names every running call of its Gym instance's episodes at that worker, each is acknowledged once, the receipt
    says so to whoever asked, a repeated one cuts nothing more, and the episode is settled with what it says.
    """

    invariant = "RECEIPT-1"
    needs = (CutAsked, ReceiptSent, CutAnswered)
    sees = (CallBegun, CallEnded, CutAcknowledged, EpisodeAdmitted, EpisodeCut, EpisodeEnded, ProcessKilled)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.live: dict[str, str] = {}  # key -> Gym instance
        self.running: dict[str, str] = {}  # call -> worker
        self.open: dict[tuple[str, str], Inventory] = {}  # worker and checkpoint -> the newest inventory by its Gym instance
        self.newest: dict[tuple[str, str, str], Inventory] = {}  # likewise, and the Gym instance

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX

    def on(self, record: Record) -> Iterable[Violation]:
        return [self.broken(text, record) for text in self._wrong(record)]

    def _wrong(self, record: Record) -> Iterator[str]:
        event = record.event
        if isinstance(event, EpisodeAdmitted):
            self.live[event.key] = record.process
        elif isinstance(event, EpisodeEnded):
            self.live.pop(event.key, None)
        elif isinstance(event, CallBegun):
            self.running[event.call] = record.process
        elif isinstance(event, CallEnded):
            self.running.pop(event.call, None)
        elif isinstance(event, ProcessKilled):
            for known in (self.live, self.running):
                for name in [name for name, place in known.items() if place == event.process]:
                    del known[name]
        elif isinstance(event, CutAsked):
            yield from self._asked(event, record.process)
        elif isinstance(event, CutAcknowledged):
            yield from self._acknowledged(event, record.process)
        elif isinstance(event, ReceiptSent):
            yield from self._sent(event, record.process)
        elif isinstance(event, CutAnswered):
            yield from self._answered(event, record.process)
        elif isinstance(event, EpisodeCut):
            yield from self._settled(event, record.process)

    def _asked(self, event: CutAsked, gym: str) -> Iterator[str]:
        if len(dict.fromkeys(event.calls)) != len(event.calls):
            yield f"{gym} names a call twice in its inventory for {event.worker}."
        left = [
            call
            for call, worker in self.running.items()
            if worker == event.worker and call not in event.calls and self.live.get(call.rpartition("/")[0]) == gym
        ]
        if left:
            yield f"{gym} asks {event.worker} to cut {len(event.calls)} calls, and leaves out {left[0]}, which runs there."
        self.newest[event.worker, event.checkpoint, gym] = Inventory(gym, event.calls, event.inventory)

    def _of(self, worker: str, checkpoint: str) -> list[Inventory]:
        return [one for (at, name, _), one in self.newest.items() if (at, name) == (worker, checkpoint)]

    def _acknowledged(self, event: CutAcknowledged, worker: str) -> Iterator[str]:
        inventories = [one for one in self._of(worker, event.checkpoint) if event.call in one.calls]
        if not inventories:
            yield f"{worker} acknowledges {event.call} ({event.kind}), which no inventory of {event.checkpoint} names."
        for one in inventories:
            if one.sent:
                yield f"{worker} acknowledges {event.call} ({event.kind}) after the receipt that answers for it."
            elif event.call in one.acks:
                yield f"{worker} acknowledges {event.call} twice ({one.acks[event.call][0]}, {event.kind})."
            one.acks[event.call] = event.kind, event.count

    def _sent(self, event: ReceiptSent, worker: str) -> Iterator[str]:
        inventories = [one for one in self._of(worker, event.checkpoint) if one.inventory == event.inventory]
        for one in inventories:
            missing = [call for call in one.calls if call not in one.acks]
            if missing:
                yield f"the receipt of {worker} says nothing of {len(missing)} calls, such as {missing[0]}."
            if event.calls != len(one.calls):
                yield f"the receipt of {worker} answers {event.calls} calls, {len(one.calls)} were asked about."
            if event.repeated and not one.sent:
                yield f"{worker} repeats a receipt that it never sent."
            one.sent = True
        if not inventories and self._of(worker, event.checkpoint):
            yield f"{worker} answers the inventory {event.inventory[:12]}, which nobody has asked about."

    def _answered(self, event: CutAnswered, gym: str) -> Iterator[str]:
        one = self.newest.get((event.worker, event.checkpoint, gym))
        if one is None:
            yield f"{gym} was answered by {event.worker}, which it has not asked."
            return
        if len(event.kinds) != len(one.calls):
            yield f"{gym} asked {event.worker} about {len(one.calls)} calls, and counts {len(event.kinds)} answers."
        for call, kind in zip(one.calls, event.kinds, strict=False):
            said = one.acks.get(call, ("nothing", 0))[0]
            if kind not in (UNANSWERED, said):
                yield f"{gym} takes {call} for {kind}, {event.worker} said {said} of it."

    def _settled(self, event: EpisodeCut, gym: str) -> Iterator[str]:
        if event.call.rpartition("/")[0] != event.key:
            yield f"{event.key} is settled inside {event.call}."
        said = [one.acks[event.call] for one in self.newest.values() if one.gym == gym and event.call in one.acks]
        if said and event.kind != UNANSWERED and (event.kind, event.count) != said[-1]:
            kind, count = said[-1]
            yield f"{event.key} is settled with {event.kind} of {event.count} tokens, its worker said {kind} of {count}."
        if not said and event.kind == PREFIX:
            yield f"{event.key} is settled with a durable prefix that nobody has acknowledged."
