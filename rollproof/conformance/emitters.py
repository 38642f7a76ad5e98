"""Who may record what: the vocabulary's own words about its sections and events, as a table."""

from __future__ import annotations

import re
from collections.abc import Sequence

from protocol import history, identity
from protocol.history import (
    SECTIONS,
    ChunksDiscarded,
    ControlRefused,
    CutAnswered,
    CutAsked,
    Event,
    FaultInjected,
    FileDone,
    FileIssued,
    FileRead,
    HandoffDone,
    LifeStarted,
    OptimizerApplied,
    ProcessContinued,
    ProcessKilled,
    ProcessStalled,
    ProcessStarted,
    Record,
    RunFailed,
    SectionVisited,
    WeightsLoaded,
)
from rollproof.conformance.complaint import Complaint, addressed

JOB = "job"
SERVICE = "service"  # a process outside the job, by whatever name
ANY = ("controller", "data-plane", "finalizer", "gym", "trainer", "worker")
BY_SECTION = {
    history.life: (identity.CONTROLLER,),
    history.ledger: (identity.CONTROLLER,),
    history.scale: ANY,
    history.deadlines: (identity.CONTROLLER,),
    history.locks: (identity.CONTROLLER,),
    history.training: (identity.CONTROLLER,),
    history.checkpoints: (identity.CONTROLLER,),
    history.control: (identity.CONTROLLER,),
    history.gym: ("gym",),
    history.workers: ("worker",),
    history.prefix: ("worker",),
    history.services: (SERVICE,),
}
BESIDE: dict[type[Event], tuple[str, ...]] = {
    LifeStarted: (JOB,),
    ProcessKilled: (JOB,),
    ProcessStalled: (JOB,),
    ProcessContinued: (JOB,),
    FaultInjected: (JOB,),
    ProcessStarted: ANY,
    RunFailed: ANY,
    SectionVisited: ANY,
    FileIssued: ANY,
    FileDone: ANY,
    FileRead: ANY,
    HandoffDone: ANY,
    OptimizerApplied: (identity.TRAINER,),
    WeightsLoaded: (identity.TRAINER,),
    ControlRefused: ("gym", "worker"),
    CutAsked: ("gym",),
    CutAnswered: ("gym",),
    ChunksDiscarded: ("worker", identity.CONTROLLER),
}
EMITTERS: dict[type[Event], tuple[str, ...]] = {
    kind: BESIDE.get(kind, BY_SECTION[section])
    for section in SECTIONS
    for kind in history.EVENTS
    if kind.__module__ == section.__name__
}


def process_kind(name: str) -> str:
    """controller, gym, worker, ... of a process name; ``service`` for whoever is none of the job's."""
    kind = re.sub(r"-[0-9]+$", "", name)
    return kind if kind in ANY or kind == JOB else SERVICE


def wrong_emitters(records: Sequence[Record]) -> list[Complaint]:
    found = []
    for record, address in addressed(records):
        allowed = EMITTERS.get(type(record.event))
        if allowed is None:
            found.append(Complaint("emitter", f"{address[1]} is no event of the vocabulary", address))
        elif process_kind(record.process) not in allowed:
            text = f"{record.process} recorded {address[1]}, which only {', '.join(allowed)} may"
            found.append(Complaint("emitter", text, address))
    return found
