"""What the controller asks of a Gym that it parks, from the first prepare to the resume: what I31 adds up.

``ParkingCalls`` yields what is wrong as text; whose checkpoint it is and how long Gym may stay closed is told elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.history import (
    ControlDone,
    ControlIssued,
    DrainEnded,
    Event,
    GymPhaseEnded,
    GymPhaseStarted,
    Restored,
    RunFailed,
    StepCommitted,
)
from protocol.judging import Terms

SLACK_S = 1e-6  # rounding of summed times
REACTION_S = 0.05  # from a committed step to the cancel of what is under way: no time in virtual time, some turns of a busy loop
CLOSING = ("prepare", "restore")  # calls after which an instance has to be resumed
FOLLOWED = (ControlDone, ControlIssued, DrainEnded, GymPhaseEnded, GymPhaseStarted, Restored, RunFailed, StepCommitted)

Resume = tuple[str, str]  # instance, checkpoint


class ParkingCalls:
    """``tries``: resumes of each (instance, checkpoint) so far; ``reopened``: those that were answered."""

    def __init__(self, terms: Terms) -> None:
        job = terms.job
        self.reaction_s = REACTION_S + terms.slack_s
        self.prepare_s = job.rollout_recovery.gym_prepare_timeout_s
        self.attempts = job.rollout_recovery.resume_attempts
        self.closed_by: dict[str, str] = {}  # instance -> the last call that closes it, until a resume is asked
        self.tries: dict[Resume, int] = {}
        self.failed: dict[Resume, str] = {}  # outcome of the last resume, if it was not answered
        self.reopened: dict[Resume, None] = {}
        self.phase = ""  # checkpoint of the open Gym phase
        self.lost_at = -1.0  # when a step committed in it
        self.restored = False

    def follow(self, event: Event, time: float) -> Iterator[str]:
        if isinstance(event, ControlIssued):
            yield from self._issued(event, time)
        elif isinstance(event, ControlDone):
            yield from self._done(event, time)
        elif isinstance(event, DrainEnded):
            if self._lost(time):
                yield f"The drain of {event.checkpoint} went on after the step that committed at {self.lost_at:.6f} s."
        elif isinstance(event, GymPhaseStarted):
            self.phase, self.lost_at = event.checkpoint, -1.0
        elif isinstance(event, StepCommitted):
            if self.phase and self.lost_at < 0:
                self.lost_at = time
        elif isinstance(event, GymPhaseEnded):
            self.phase, self.lost_at = "", -1.0
            yield from self._asked_again()
        elif isinstance(event, Restored):
            self.restored = True
            yield from self._asked_again()
        elif isinstance(event, RunFailed):
            if not self.restored:
                yield from self._asked_again()
            for instance, operation in self.closed_by.items():
                yield f"The run ended and nobody had asked {instance} to resume after its {operation}."

    def _lost(self, time: float) -> bool:
        """A step has committed in this phase, and not just now."""
        return self.lost_at >= 0 and time > self.lost_at + self.reaction_s

    def _issued(self, event: ControlIssued, time: float) -> Iterator[str]:
        resume = (event.instance, event.checkpoint)
        if event.operation == "resume":
            self.closed_by.pop(event.instance, None)
            self.tries[resume] = self.tries.get(resume, 0) + 1
            self.failed.pop(resume, None)
            if resume in self.reopened:
                yield f"{event.instance} was asked to resume {event.checkpoint} again; it had done so."
            return
        if event.operation in CLOSING:
            self.closed_by[event.instance] = event.operation
            self.tries.pop(resume, None)
            self.reopened.pop(resume, None)
        if event.operation == "prepare" and abs(event.deadline_s - self.prepare_s) > SLACK_S:
            yield (
                f"prepare of {event.instance} was given {event.deadline_s:g} s; "
                f"gym_prepare_timeout_s, which bounds it alone, is {self.prepare_s:g} s."
            )
        if self._lost(time):
            yield f"{event.operation} of {event.instance} was asked after the step that committed at {self.lost_at:.6f} s."

    def _done(self, event: ControlDone, time: float) -> Iterator[str]:
        resume = (event.instance, event.checkpoint)
        if event.operation == "resume":
            if event.outcome == "ok":
                self.reopened[resume] = None
            elif event.outcome != "cancelled":
                self.failed[resume] = event.outcome
        elif self._lost(time):
            yield f"{event.operation} of {event.instance} went on after the step that committed at {self.lost_at:.6f} s."

    def _asked_again(self) -> Iterator[str]:
        """What failed transiently is tried as often as the configuration says, before the lease has to help."""
        for (instance, checkpoint), outcome in self.failed.items():
            tries = self.tries.get((instance, checkpoint), 0)
            if tries < self.attempts:
                yield f"The resume of {checkpoint} by {instance} was {outcome} and tried {tries} times, not {self.attempts}."
        self.failed = {}
