"""The simulator's model of what happens to one thing: learned from simulated runs of a scenario, and asked about a real one.

Nothing is said by hand. From histories it takes, for each kind of thing (a rollout attempt, a group, a model call, a snapshot, a
train step, a trainer save, a tool call),

- *paths*: which event of it followed which, among those that one kind of process recorded. Between processes no order is taken:
  in the real world they run at once;
- *order*: which events of it, recorded by anybody, had come before each event in every run. What always came first is a cause,
  as far as the runs can tell: this is the partial order of the thing.

A pair that was never seen, or an event that lacks one of those that always came before it, is reported with its address. A
model knows no more than its runs have reached: learn from several seeds, with crashes, and again where a report is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from protocol import history
from protocol.history import (
    AnchorMade,
    ControlCancelled,
    CutTaken,
    DataPlaneSaveDone,
    DataPlaneSaveIssued,
    ExclusiveLeft,
    LockReleased,
    MutationLeft,
    Record,
    RowReported,
    RunEnded,
    SnapshotBroke,
    SnapshotDropped,
    SnapshotPublished,
    SnapshotStarted,
    StreamEnded,
    StreamOver,
    WaitGivenUp,
)
from protocol.identity import CONTROLLER
from rollproof.conformance.complaint import Complaint, addressed
from rollproof.conformance.emitters import SERVICE, process_kind

START = "(start)"
RESTORED = "(restored)"  # the start of what an earlier life may have begun
TELLING = ("outcome", "why", "kind", "after", "course")  # fields whose value makes another event of it
OF_STEP = tuple(
    kind for kind in history.EVENTS if kind.__module__ == history.training.__name__ and "step" in kind.__struct_fields__
)
OF_SAVE = tuple(kind for kind in history.EVENTS if kind.__name__.startswith("Trainer"))
OF_SNAPSHOT = (
    SnapshotStarted, AnchorMade, DataPlaneSaveIssued, DataPlaneSaveDone, CutTaken, SnapshotPublished, SnapshotDropped,
    SnapshotBroke,
)  # fmt: skip
CLOSING = (
    RowReported, StreamOver, StreamEnded, WaitGivenUp, MutationLeft, LockReleased, ExclusiveLeft, ControlCancelled, RunEnded,
)  # fmt: skip
Thing = tuple[str, str]  # (kind of thing, its name)


def label_of(event: Any) -> str:
    """The event's kind, and what of its content makes it another one."""
    for name in TELLING:
        value = getattr(event, name, None)
        if isinstance(value, str) and value:
            return f"{type(event).__name__}:{value}"
    return type(event).__name__


class Things:
    """Whom an event is about; in one life, event by event. A snapshot is told by the one that was started last: its sequence
    number begins anew with each anchor."""

    def __init__(self) -> None:
        self.snapshots = 0

    def of(self, event: Any) -> Thing | None:
        kind = type(event)
        if kind is SnapshotStarted:
            self.snapshots += 1
        if kind in OF_SNAPSHOT:
            role = getattr(event, "role", "snapshot")
            return ("snapshot", str(self.snapshots)) if role == "snapshot" else ("trainer save", str(event.sequence))
        if kind in OF_SAVE:
            return "trainer save", str(event.step)
        if kind in OF_STEP:
            return "train step", str(event.step)
        for field, thing in (("effect", "tool call"), ("call", "model call"), ("key", "rollout attempt"), ("group", "group")):
            name = getattr(event, field, None)
            if isinstance(name, str) and name:
                return thing, name
        return None


def whole_of(thing: Thing) -> Thing:
    """What its order is told of: a model call is a part of its rollout attempt."""
    kind, name = thing
    return ("rollout attempt", name.partition("/")[0]) if kind == "model call" else thing


class Model(msgspec.Struct, frozen=True):
    """``paths``: (kind of thing, kind of process) -> each (event, next event) with the number of times it was seen.
    ``order``: (kind of thing, event) -> those that had always come before it; of things that were seen from their start."""

    paths: dict[tuple[str, str], dict[tuple[str, str], int]] = msgspec.field(default_factory=dict)
    order: dict[tuple[str, str], tuple[str, ...]] = msgspec.field(default_factory=dict)
    histories: int = 0

    @classmethod
    def learn(cls, histories: Iterable[Sequence[Record]]) -> Model:
        """Each history is one life's."""
        paths: dict[tuple[str, str], dict[tuple[str, str], int]] = {}
        order: dict[tuple[str, str], tuple[str, ...]] = {}
        count = 0
        for records in histories:
            count += 1
            for step in steps(records):
                pairs = paths.setdefault(step.place, {})
                pairs[step.pair] = pairs.get(step.pair, 0) + 1
            for told in tellings(records):
                known = order.get(told.place)
                order[told.place] = told.before if known is None else tuple(name for name in known if name in told.before)
        return cls(paths, order, count)

    def strangers(self, records: Sequence[Record]) -> list[Complaint]:
        """What of one life's history no simulated run had, each once, at its first event."""
        found: dict[tuple[str, ...], Complaint] = {}

        def report(rule: str, key: tuple[str, ...], text: str, address: tuple[str, str, int, int]) -> None:
            known = found.get((rule, *key))
            times = 1 if known is None else known.times + 1
            first = Complaint(rule, text, address) if known is None else known
            found[(rule, *key)] = msgspec.structs.replace(first, times=times)

        for step in steps(records):
            if step.pair not in self.paths.get(step.place, {}):
                thing, process = step.place
                text = f"{thing} {step.name}: in {process}, {step.pair[1]} after {step.pair[0]} was never simulated"
                report("path", (*step.place, *step.pair), text, step.address)
        for told in tellings(records):
            missing = [name for name in self.order.get(told.place, ()) if name not in told.before]
            if missing:
                text = f"{told.place[0]} {told.name}: {told.place[1]} came without {', '.join(missing)} before it"
                report("order", (*told.place, *missing), text, told.address)
        return list(found.values())


class Step(msgspec.Struct, frozen=True):
    place: tuple[str, str]
    pair: tuple[str, str]
    name: str
    address: tuple[str, str, int, int]


class Telling(msgspec.Struct, frozen=True):
    place: tuple[str, str]
    before: tuple[str, ...]
    name: str
    address: tuple[str, str, int, int]


def steps(records: Sequence[Record]) -> Iterator[Step]:
    """Each event with the one before it of the same thing in the same process."""
    things = Things()
    last: dict[tuple[Thing, str], str] = {}
    closing = closing_of(records)
    for number, (record, address) in enumerate(addressed(records)):
        thing = things.of(record.event)
        if thing is None or (number >= closing and record.process != CONTROLLER):
            continue
        own = (thing, record.process)
        name = label_of(record.event)
        before = last[own] if own in last else (START if record.life == 1 else RESTORED)
        yield Step((thing[0], process_kind(record.process)), (before, name), thing[1], address)
        last[own] = name


def closing_of(records: Sequence[Record]) -> int:
    """Where a run that is done begins to stop what still runs: the first of the controller's last events that say nothing else.

    What the others record from there on is a race between that and the end of the life, which no two worlds run alike. As many
    as there are records: the life did not end so."""
    first = len(records)
    if not any(type(record.event) is RunEnded for record in records):
        return first
    for number in range(len(records) - 1, -1, -1):
        if records[number].process == CONTROLLER:
            if type(records[number].event) not in CLOSING:
                break
            first = number
    return first


def tellings(records: Sequence[Record]) -> Iterator[Telling]:
    """Each event that is the first of its kind for a thing, with the kinds that had come before it. What a later life goes on
    with is left out, and so is what a service outside of the job records."""
    things = Things()
    seen: dict[Thing, dict[str, None]] = {}
    closing = closing_of(records)
    for number, (record, address) in enumerate(addressed(records)):
        thing = things.of(record.event)
        if thing is None or record.life > 1 or process_kind(record.process) == SERVICE:
            continue
        if number >= closing and record.process != CONTROLLER:
            continue
        whole, name = whole_of(thing), label_of(record.event)
        before = seen.setdefault(whole, {})
        if name not in before:
            yield Telling((whole[0], name), tuple(before), thing[1], address)
            before[name] = None
