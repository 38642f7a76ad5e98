"""I30: nobody waits for Gym, or for progress, without a bound."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from protocol.config import Level
from protocol.history import (
    AttemptDispatched,
    ControlCancelled,
    ControlDone,
    ControlIssued,
    GroupMoved,
    GymPhaseEnded,
    ParticipantsFound,
    ProbeDone,
    ProbeIssued,
    ProcessContinued,
    ProcessStalled,
    Record,
    RestoreChosen,
    Restored,
    RunEnded,
    RunFailed,
    StallReported,
    StepCommitted,
)
from protocol.judging import Durable, Judge, RunStatus, Terms, Violation

CONTROLLER = "controller"
SLACK_S = 1e-6  # rounding of summed times
UNDO_S = 30.0  # what retiring after a failed restore may take at least (PROTOCOL 5.7)

Call = tuple[str, str, str]  # operation, instance, checkpoint


class CallsEndInTime(Judge):
    """Every control call is answered or cancelled within its deadline plus grace and every health probe within one watchdog
    interval, the start finds Gym's participants or fails within the spin-up's, and no progress for the stall timeout while
    steps remain is reported within one watchdog interval, whatever is in flight.

    Progress is a published group or a committed step. A run that stops moving is judged by its own end: what would have
    been reported by then, or, if nothing can happen any more, what nobody is left to report. Time in which the controller
    itself stands still counts for nothing: bounds are of its own running time.
    """

    invariant = "I30"
    needs = (ControlIssued,)
    sees = (
        AttemptDispatched, ControlCancelled, ControlDone, GroupMoved, GymPhaseEnded, ParticipantsFound, ProbeDone, ProbeIssued,
        ProcessContinued, ProcessStalled, RestoreChosen, Restored, RunEnded, RunFailed, StallReported, StepCommitted,
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.open: dict[Call, list[float]] = {}  # bounds, oldest first
        self.progress = -1.0  # or the last report since it; -1: the watchdog does not run yet
        self.reported = False  # since the last progress
        self.trained = False  # no step remains
        self.longest_s = terms.job.watchdog.stall_timeout_s + terms.job.watchdog.interval_s
        self.looking = -1.0  # since when the start looks for participants; -1: it does not
        job = terms.job
        self.spin_up_s = job.rollout_recovery.gym_spinup_timeout_s
        self.grace_s = job.rollout_recovery.reply_grace_s
        self.deadlines = {
            "discover": self.spin_up_s,
            "prepare": job.rollout_recovery.gym_prepare_timeout_s,
            "retire": max(job.token_capture.control_timeout_s, UNDO_S),
        }
        self.ordinary_s = job.token_capture.control_timeout_s
        self.still_since = -1.0  # since when the controller stands still; -1: it does not

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is AttemptDispatched:
            return self._overdue(record) if self.open else ()
        if type(event) is GroupMoved:
            return self._moved(record) if event.after == "FINALIZED" else ()
        if type(event) is ControlIssued:
            return self._issued(event, record)
        if type(event) is ParticipantsFound or type(event) is RestoreChosen:
            return self._found(record)
        if type(event) is ControlDone or type(event) is ControlCancelled:
            return self._over((event.operation, event.instance, event.checkpoint), record)
        if type(event) is GymPhaseEnded:
            found = list(self._overdue(record))
            for call in [call for call in self.open if call[2] == event.checkpoint]:
                del self.open[call]  # given up with its phase
            return found
        if type(event) is ProbeIssued:
            return self._probed(event, record)
        if type(event) is ProbeDone:
            return self._over(("probe", event.peer, ""), record)
        if type(event) is ProcessStalled or type(event) is ProcessContinued:
            self._stood_still(event.process, type(event) is ProcessStalled, record.time)
            return ()
        if type(event) is StallReported:
            self.progress, self.reported = record.time, True
            return ()
        if type(event) is Restored:
            self.progress = record.time
            return ()
        found = [*self._overdue(record), *self._moved(record)]  # StepCommitted, RunEnded, RunFailed
        if type(event) is StepCommitted and event.step >= self.terms.job.train_steps:
            self.progress, self.trained = -1.0, True
        return [*found, *self._found(record)] if type(event) is RunFailed else found

    def _issued(self, event: ControlIssued, record: Record) -> Iterable[Violation]:
        call = (event.operation, event.instance, event.checkpoint)
        self.open.setdefault(call, []).append(record.time + event.deadline_s + event.grace_s)
        if event.operation == "discover" and self.looking < 0:
            self.looking = record.time
        most_s = self.deadlines.get(event.operation, self.ordinary_s)
        if event.deadline_s > most_s + SLACK_S:
            text = f"{event.operation} of {event.instance} was given {event.deadline_s:g} s, the configuration says {most_s:g} s."
            return (self.broken(text, record),)
        return ()

    def _probed(self, event: ProbeIssued, record: Record) -> Iterable[Violation]:
        interval_s = self.terms.job.watchdog.interval_s
        self.open.setdefault(("probe", event.peer, ""), []).append(record.time + interval_s)
        if event.deadline_s > interval_s + SLACK_S:
            text = f"A probe of {event.peer} was given {event.deadline_s:g} s, an interval is {interval_s:g} s."
            return (self.broken(text, record),)
        return ()

    def _stood_still(self, process: str, begins: bool, now: float) -> None:
        if process != CONTROLLER:
            return
        if begins:
            self.still_since = now
            return
        lost_s, self.still_since = now - self.still_since, -1.0
        self.open = {call: [bound + lost_s for bound in bounds] for call, bounds in self.open.items()}
        self.progress += lost_s if self.progress >= 0 else 0.0
        self.looking += lost_s if self.looking >= 0 else 0.0

    def _found(self, record: Record) -> Iterable[Violation]:
        """The participants are known, or the start has failed."""
        since, self.looking = self.looking, -1.0
        bound = since + self.spin_up_s + self.grace_s
        if since < 0 or record.time <= bound + SLACK_S + self.terms.slack_s:
            return ()
        text = f"Looking for participants took {record.time - since:.3f} s; all tries together have {bound - since:g} s."
        return (self.broken(text, record),)

    def _over(self, call: Call, record: Record) -> Iterable[Violation]:
        bounds = self.open.get(call)
        if not bounds:  # cancelled and done are two records of one end
            return ()
        bound = bounds.pop(0)
        if not bounds:
            del self.open[call]
        if record.time > bound + SLACK_S + self.terms.slack_s:
            return (self._late(call, bound, record.time, record),)
        return ()

    def _overdue(self, record: Record) -> Iterable[Violation]:
        found: list[Violation] = []
        for call, bounds in list(self.open.items()):
            if record.time > bounds[0] + SLACK_S + self.terms.slack_s:
                found.append(self._late(call, bounds.pop(0), record.time, record))
                if not bounds:
                    del self.open[call]
        return found

    def _late(self, call: Call, bound: float, now: float, record: Record | None) -> Violation:
        return self.broken(f"{call[0]} of {call[1]} was open at {now:.6f} s; it had to be over at {bound:.6f} s.", record)

    def _moved(self, record: Record) -> Iterable[Violation]:
        if self.trained:
            return ()
        since, self.progress, self.reported = self.progress, record.time, False
        if since >= 0 and record.time - since > self.longest_s + SLACK_S + self.terms.slack_s:
            idle_s = record.time - since
            return (
                self.broken(f"Nothing moved for {idle_s:.3f} s and nothing was reported within {self.longest_s:g} s.", record),
            )
        return ()

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        found = [self.broken(text) for text in self._silence(status)]
        if status.outcome == "idle" and self.still_since < 0:
            found += [self.broken(f"The run went idle while {call[0]} of {call[1]} was open.") for call in self.open]
        return found

    def _silence(self, status: RunStatus) -> Iterable[str]:
        if self.progress < 0 or self.still_since >= 0:
            return
        if status.outcome == "idle" and not self.reported:
            yield f"Nothing can move any more since {self.progress:.3f} s, and nobody is left to report it."
        elif status.outcome in ("steps", "time") and status.at_s - self.progress > self.longest_s + SLACK_S + self.terms.slack_s:
            idle_s = status.at_s - self.progress
            yield f"Nothing moved for {idle_s:.3f} s up to the end, and nothing was reported within {self.longest_s:g} s."
