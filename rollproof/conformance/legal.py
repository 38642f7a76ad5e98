"""Are the moves of a history those that the core's own tables have?

Each watcher follows one kind of machine through one life and says what was wrong with an event. In a later life what a restore
brought was never seen to begin: such a machine may stand anywhere when it is first heard of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from protocol.gym import phases
from protocol.history import (
    KINDS,
    AttemptAbandoned,
    AttemptDispatched,
    AttemptRefused,
    AttemptReserved,
    AttemptSealed,
    CutTaken,
    DataPlaneSaveDone,
    DataPlaneSaveIssued,
    Event,
    GateClosed,
    GateOpened,
    GatePassed,
    GroupDropped,
    GroupMoved,
    GroupReserved,
    PhaseMoved,
    ProcessStarted,
    Record,
    SnapshotBroke,
    SnapshotDropped,
    SnapshotPublished,
    SnapshotStarted,
    TrainerCheckpointDurable,
    TrainerSaveAsked,
    TrainerSaveIssued,
    TrainerSaveStarted,
)
from protocol.ledger.records import AttemptStatus, GroupStatus
from protocol.ledger.transitions import ATTEMPT_LEGAL, DROPPABLE, GROUP_LEGAL, Abandon, Dispatch, Refuse, Seal
from rollproof.conformance.complaint import Complaint, addressed


class Watcher(Protocol):
    def on(self, record: Record, event: Any) -> str:
        """What is wrong with it, '' if nothing is."""
        ...


class Attempts:
    MOVES: dict[type[Event], Any] = {
        AttemptDispatched: Dispatch, AttemptRefused: Refuse, AttemptSealed: Seal, AttemptAbandoned: Abandon,
    }  # fmt: skip

    def __init__(self) -> None:
        self.states: dict[str, AttemptStatus] = {}

    def on(self, record: Record, event: Any) -> str:
        kind = type(event)
        if kind is AttemptReserved:
            known = self.states.get(event.key)
            self.states[event.key] = AttemptStatus.RESERVED
            return f"attempt {event.key} is reserved, and was {known.value} already" if known is not None else ""
        move = self.MOVES.get(kind)
        if move is None:
            return ""
        before = self.states.get(event.key)
        if before is None and record.life > 1:
            before = next(state for state, of in ATTEMPT_LEGAL if of is move)
        after = None if before is None else ATTEMPT_LEGAL.get((before, move))
        if after is None:
            stood = "was never reserved" if before is None else f"was {before.value}"
            return f"attempt {event.key} {stood}, and {move.__name__} is no move of it"
        self.states[event.key] = after
        return ""


class Groups:
    LEGAL = tuple((before.value, after.value) for (before, _), after in GROUP_LEGAL.items())

    def __init__(self) -> None:
        self.states: dict[str, str] = {}

    def on(self, record: Record, event: Any) -> str:
        kind = type(event)
        if kind is GroupReserved:
            known = self.states.get(event.group)
            self.states[event.group] = GroupStatus.GENERATING.value
            return f"group {event.group} is reserved, and was {known} already" if known is not None else ""
        if kind is GroupMoved:
            return self.moved(record, event)
        if kind is GroupDropped:
            state = self.states.pop(event.group, None)
            if state is not None and state not in [status.value for status in DROPPABLE]:
                return f"group {event.group} is dropped, and is {state}"
        return ""

    def moved(self, record: Record, event: GroupMoved) -> str:
        known = self.states.get(event.group)
        self.states[event.group] = event.after
        if (event.before, event.after) not in self.LEGAL:
            return f"group {event.group} goes from {event.before} to {event.after}, which is no move"
        if known is None and record.life == 1:
            return f"group {event.group} moves, and was never reserved"
        if known is not None and known != event.before:
            return f"group {event.group} moves from {event.before}, and was {known}"
        return ""


class Participants:
    LEGAL = tuple((before.value, after.value) for (before, _), after in phases.LEGAL.items())

    def __init__(self) -> None:
        self.phases: dict[tuple[str, str], str] = {}

    def on(self, record: Record, event: Any) -> str:
        if type(event) is ProcessStarted:
            for place in [place for place in self.phases if place[0] == record.process]:
                del self.phases[place]
        if type(event) is not PhaseMoved:
            return ""
        place = record.process, event.participant
        known = self.phases.get(place, phases.Phase.IDLE.value)
        self.phases[place] = event.after
        if known != event.before or (event.before, event.after) not in self.LEGAL:
            return f"participant {event.participant} moves from {event.before} to {event.after}, and was {known}"
        return ""


class Gates:
    """The snapshot gate of each worker: epochs of a holder grow, what is open is not opened, nothing is deleted behind it."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, int]] = {}
        self.over: dict[tuple[str, str], int] = {}

    def on(self, record: Record, event: Any) -> str:
        kind, held = type(event), self.held.setdefault(record.process, {})
        if kind is ProcessStarted:
            held.clear()
            for place in [place for place in self.over if place[0] == record.process]:
                del self.over[place]
        elif kind is GateClosed:
            over = max(self.over.get((record.process, event.holder), -1), held.get(event.holder, -1))
            held[event.holder] = event.epoch
            if event.epoch <= over:
                return f"the gate closes under epoch {event.epoch} of {event.holder}, whose epoch {over} was before it"
        elif kind is GateOpened:
            known = held.pop(event.holder, None)
            self.over[(record.process, event.holder)] = event.epoch
            if known != event.epoch:
                return f"the gate opens epoch {event.epoch} of {event.holder}, which holds {known}"
        elif kind is GatePassed and held:
            return f"{event.what} of {event.call} passes the gate, which {', '.join(held)} holds"
        return ""


class Ordered:
    """Steps that come in this order, each one after the one before it; ``ends`` may come after any of them but none."""

    def __init__(self, name: str, steps: tuple[type[Event], ...], ends: tuple[type[Event], ...] = (), role: str = "") -> None:
        self.name = name
        self.steps = steps
        self.ends = ends
        self.role = role
        self.place = -1  # of the last step that was done; -1: none

    def on(self, record: Record, event: Any) -> str:
        kind = type(event)
        if getattr(event, "role", self.role) != self.role:
            return ""
        if kind in self.ends:
            open_now, self.place = self.place >= 0, -1
            return "" if open_now else f"{kind.__name__}, and no {self.name} was under way"
        if kind not in self.steps:
            return ""
        wanted, before = self.steps.index(kind), self.place
        self.place = wanted if wanted + 1 < len(self.steps) else -1
        if before == wanted - 1 or wanted == 0:
            return ""
        done = "nothing" if before < 0 else self.steps[before].__name__
        return f"{kind.__name__} of a {self.name} comes after {done}"


def _pairs() -> dict[type[Event], tuple[type[Event], tuple[str, ...]]]:
    """Kind of a ...Done -> its ...Issued, and the fields that both have."""
    found = {}
    for name, issued in KINDS.items():
        done = KINDS.get(name.removesuffix("Issued") + "Done") if name.endswith("Issued") else None
        if done is not None:
            found[done] = (issued, tuple(field for field in issued.__struct_fields__ if field in done.__struct_fields__))
    return found


class Effects:
    """What is done was issued before, by the same process and about the same thing."""

    PAIRS = _pairs()
    ISSUED = {kind: fields for kind, fields in PAIRS.values()}

    def __init__(self) -> None:
        self.open: dict[tuple[Any, ...], int] = {}

    def on(self, record: Record, event: Any) -> str:
        kind = type(event)
        if kind is ProcessStarted:
            for place in [place for place in self.open if place[0] == record.process]:
                del self.open[place]
        elif kind in self.ISSUED:
            place = (record.process, kind, *(getattr(event, name) for name in self.ISSUED[kind]))
            self.open[place] = self.open.get(place, 0) + 1
        elif kind in self.PAIRS:
            issued, fields = self.PAIRS[kind]
            place = (record.process, issued, *(getattr(event, name) for name in fields))
            left = self.open.get(place, 0)
            if not left:
                return f"{kind.__name__} of {', '.join(map(str, place[2:]))} was never issued"
            self.open[place] = left - 1
        return ""


def watchers() -> tuple[Watcher, ...]:
    return (
        Attempts(),
        Groups(),
        Participants(),
        Gates(),
        Ordered(
            "snapshot",
            (SnapshotStarted, DataPlaneSaveIssued, DataPlaneSaveDone, CutTaken, SnapshotPublished),
            (SnapshotDropped, SnapshotBroke),
            role="snapshot",
        ),
        Ordered(
            "trainer save",
            (
                TrainerSaveAsked, TrainerSaveStarted, DataPlaneSaveIssued, DataPlaneSaveDone, CutTaken, TrainerSaveIssued,
                TrainerCheckpointDurable,
            ),
            role="trainer",
        ),
        Effects(),
    )  # fmt: skip


def illegal_moves(records: Sequence[Record]) -> list[Complaint]:
    """Of one life. A move that is illegal is reported once: the machine stands behind it from then on."""
    found, watching = [], watchers()
    for record, address in addressed(records):
        for watcher in watching:
            wrong = watcher.on(record, record.event)
            if wrong:
                found.append(Complaint("move", wrong, address))
    return found
