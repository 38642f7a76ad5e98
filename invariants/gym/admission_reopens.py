"""I31: whatever becomes of a checkpoint, Gym and the dispatch gate open again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from invariants.durability.held import SNAPSHOT, HeldFindings
from invariants.gym.parking import FOLLOWED, ParkingCalls
from protocol.config import Level
from protocol.history import (
    AdmissionClosed,
    AdmissionOpened,
    AttemptDispatched,
    ControlIssued,
    ControlReceived,
    CutTaken,
    Event,
    ExclusiveEntered,
    ExclusiveLeft,
    GymPhaseEnded,
    GymPhaseStarted,
    ProcessContinued,
    ProcessKilled,
    ProcessStalled,
    ProcessStarted,
    Record,
    RunEnded,
    SnapshotBroke,
    SnapshotDropped,
    SnapshotPublished,
    SnapshotStarted,
    StallReported,
)
from protocol.judging import Durable, Judge, RunStatus, Terms, Violation

SLACK_S = 5e-6  # rounding of summed times, and what a lease calls "no time left"
PARKING = ("prepare", "renew", "commit")


class AdmissionReopens(Judge):
    """Closed Gym admission reopens by the lease of the last control call and not before it, that lease covers the call's
    deadline plus the control timeout, every parked instance is asked to resume, those that failed again, at the latest when a
    train step commits, no cut is published that an instance's lease did not outlast, and the dispatch gate is closed only
    while a checkpoint is active.

    Time in which an instance stands still is none of its lease's; one that died has no lease.
    """

    invariant = "I31"
    needs = (AdmissionClosed,)
    sees = (
        AdmissionOpened, AttemptDispatched, ControlReceived, CutTaken, ExclusiveEntered, ExclusiveLeft, ProcessContinued,
        ProcessKilled, ProcessStalled, ProcessStarted, RunEnded,
        SnapshotBroke, SnapshotDropped, SnapshotPublished, SnapshotStarted, StallReported, *FOLLOWED,
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.grace_s = terms.job.token_capture.control_timeout_s
        self.closed: dict[str, str] = {}  # instance -> checkpoint
        self.latest: dict[str, float] = {}  # instance -> end of the longest lease given
        self.current: dict[str, float] = {}  # instance -> end of the last lease given
        self.asked: dict[tuple[str, str, str], float] = {}  # (operation, instance, checkpoint) -> deadline
        self.still: dict[str, float] = {}  # processes that stand still -> since when
        self.reopened: dict[str, float] = {}  # instances whose lease ended in the Gym phase under way -> when
        self.held = HeldFindings()
        self.gate_closed = False
        self.snapshot = False
        self.phase = False
        self.idle_since = 0.0  # since when neither a snapshot nor a Gym phase is active
        self.calls = ParkingCalls(terms)

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def on(self, record: Record) -> Iterable[Violation]:
        found: list[Violation] = []
        if self.closed or self.gate_closed:
            found += self._overdue(record)
        handle = _HANDLERS.get(type(record.event))
        if handle is not None:
            found += handle(self, record.event, record) or ()
        if type(record.event) in FOLLOWED:
            found += [self.broken(text, record) for text in self.calls.follow(record.event, record.time)]
        return found

    def _overdue(self, record: Record) -> list[Violation]:
        found: list[Violation] = []
        for instance in list(self.closed):
            bound = self.latest.get(instance, record.time)
            if record.time > bound + SLACK_S + self.terms.slack_s and instance not in self.still:
                checkpoint = self.closed.pop(instance)
                found.append(
                    self.broken(
                        f"{instance} was still closed for checkpoint {checkpoint} at {record.time:.6f} s; "
                        f"its lease ended at {bound:.6f} s.",
                        record,
                    )
                )
        idle = not (self.snapshot or self.phase)
        if self.gate_closed and idle and record.time > self.idle_since + SLACK_S + self.terms.slack_s:
            self.gate_closed = False
            found.append(
                self.broken(
                    f"The dispatch gate was closed at {record.time:.6f} s; "
                    f"no checkpoint is active since {self.idle_since:.6f} s.",
                    record,
                )
            )
        return found

    # --- Gym

    def _issued(self, event: ControlIssued, record: Record) -> None:
        if event.operation in PARKING:
            self.asked[event.operation, event.instance, event.checkpoint] = event.deadline_s

    def _received(self, event: ControlReceived, record: Record) -> Iterable[Violation]:
        end = record.time + event.lease_s
        self.current[record.process] = end
        self.latest[record.process] = max(end, self.latest.get(record.process, end))
        deadline_s = self.asked.get((event.operation, record.process, event.checkpoint))
        if deadline_s is not None and event.lease_s < deadline_s + self.grace_s - SLACK_S:
            return (
                self.broken(
                    f"{event.operation} gave {record.process} a lease of {event.lease_s:g} s; "
                    f"its deadline is {deadline_s:g} s and the grace {self.grace_s:g} s.",
                    record,
                ),
            )
        return ()

    def _closed(self, event: AdmissionClosed, record: Record) -> None:
        self.closed[record.process] = event.checkpoint

    def _opened(self, event: AdmissionOpened, record: Record) -> Iterable[Violation]:
        self.closed.pop(record.process, None)
        end = self.current.get(record.process, record.time)
        if event.why == "lease" and self.phase:
            self.reopened[record.process] = record.time
        if event.why == "lease" and record.time < end - SLACK_S - self.terms.slack_s:
            return (
                self.broken(f"{record.process} gave up its lease at {record.time:.6f} s; it lasts until {end:.6f} s.", record),
            )
        return ()

    def _restarted(self, event: ProcessStarted, record: Record) -> None:
        self._forget(record.process)

    def _killed(self, event: ProcessKilled, record: Record) -> None:
        self._forget(event.process)

    def _forget(self, process: str) -> None:
        for known in (self.closed, self.latest, self.current, self.still):
            known.pop(process, None)

    def _stalled(self, event: ProcessStalled, record: Record) -> None:
        self.still[event.process] = record.time

    def _continued(self, event: ProcessContinued, record: Record) -> None:
        since = self.still.pop(event.process, record.time)
        if event.process in self.latest:
            self.latest[event.process] += record.time - since

    # --- the controller

    def _gate_closed(self, event: ExclusiveEntered, record: Record) -> None:
        if event.barrier == "dispatch":
            self.gate_closed = True
            if not (self.snapshot or self.phase):
                self.idle_since = record.time

    def _gate_opened(self, event: ExclusiveLeft, record: Record) -> None:
        if event.barrier == "dispatch":
            self.gate_closed = False

    def _cut(self, event: CutTaken, record: Record) -> None:
        for instance, time in self.reopened.items() if event.role == SNAPSHOT else ():
            text = f"{instance} had reopened by its lease at {time:.6f} s; cut {event.sequence} was taken at {record.time:.6f} s."
            self.held.hold(event, self.broken(text, record))

    def _snapshot_started(self, event: SnapshotStarted, record: Record) -> Iterable[Violation]:
        self.snapshot = True
        return self.held.release(event)

    def _snapshot_over(self, event: Event, record: Record) -> Iterable[Violation]:
        self.snapshot = False
        self.idle_since = record.time
        return self.held.release(event)

    def _phase_started(self, event: GymPhaseStarted, record: Record) -> None:
        self.phase = True
        self.reopened = {}

    def _phase_over(self, event: GymPhaseEnded, record: Record) -> None:
        self.phase = False
        self.idle_since = record.time
        for call in [call for call in self.asked if call[2] == event.checkpoint]:
            del self.asked[call]

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        found: list[Violation] = []
        if status.outcome in ("ended", "idle") and self.gate_closed and not self.phase:
            found.append(self.broken(f"The dispatch gate was still closed when the run was over ({status.outcome})."))
        if status.outcome == "idle":
            found += [
                self.broken(f"{instance} was still closed for checkpoint {checkpoint} when nothing could happen any more.")
                for instance, checkpoint in self.closed.items()
                if instance not in self.still
            ]
        return found


_HANDLERS: dict[type, Any] = {
    AdmissionClosed: AdmissionReopens._closed,
    AdmissionOpened: AdmissionReopens._opened,
    ControlIssued: AdmissionReopens._issued,
    ControlReceived: AdmissionReopens._received,
    ExclusiveEntered: AdmissionReopens._gate_closed,
    ExclusiveLeft: AdmissionReopens._gate_opened,
    CutTaken: AdmissionReopens._cut,
    ProcessContinued: AdmissionReopens._continued,
    ProcessKilled: AdmissionReopens._killed,
    ProcessStalled: AdmissionReopens._stalled,
    GymPhaseEnded: AdmissionReopens._phase_over,
    GymPhaseStarted: AdmissionReopens._phase_started,
    ProcessStarted: AdmissionReopens._restarted,
    SnapshotBroke: AdmissionReopens._snapshot_over,
    SnapshotDropped: AdmissionReopens._snapshot_over,
    SnapshotPublished: AdmissionReopens._snapshot_over,
    SnapshotStarted: AdmissionReopens._snapshot_started,
}
