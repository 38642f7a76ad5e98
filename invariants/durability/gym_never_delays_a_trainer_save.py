"""I24."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from protocol.history import (
    ControlDone,
    ControlIssued,
    ExclusiveLeft,
    ExclusiveWaited,
    GroupDropped,
    GroupMoved,
    GroupReserved,
    GroupsClaimed,
    GymPhaseEnded,
    GymPhaseStarted,
    Record,
    RunFailed,
    StepCommitted,
    TrainerCheckpointDurable,
    TrainerSaveAsked,
    TrainerSaveIssued,
    TrainerSaveStarted,
    TrainStepIssued,
)
from protocol.judging import Durable, Judge, RunStatus, Terms, Violation

GYM_WORK = ("prepare", "renew", "commit", "retire", "forget", "restore")
DATA_PLANE = "data-plane"
CLAIM_S = 0.05  # between a group's publication and its claim: its staging is cleared first, in the same mutation


class GymNeverDelaysATrainerSave(Judge):
    """No Gym call belongs to a trainer save, no Gym fault fails it or delays it by more than one resume bound, a committed step
    ends an open Gym phase, and the train loop does not wait for a checkpoint to become durable."""

    invariant = "I24"
    needs = (TrainerSaveStarted,)
    sees = (TrainerSaveAsked, TrainerSaveIssued, TrainerCheckpointDurable, TrainStepIssued, ControlIssued, ControlDone,
            GymPhaseStarted, GymPhaseEnded, ExclusiveWaited, ExclusiveLeft, RunFailed, GroupReserved, GroupMoved, GroupDropped,
            GroupsClaimed, StepCommitted)  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        recovery, control_s = terms.job.rollout_recovery, terms.job.token_capture.control_timeout_s
        attempts = recovery.resume_attempts
        self.bound_s = attempts * (control_s + recovery.reply_grace_s) + (attempts - 1) * recovery.resume_retry_s + 1e-6
        self.asked = 0  # step of a save that waits for the checkpoint lock
        self.asked_s = 0.0
        self.saving = 0  # step of a save that holds it and is not yet issued
        self.gym_open = False
        self.lost_to = 0  # the step that committed inside the open Gym phase, 0: none
        self.calls = 0  # control calls under way
        self.cutting = False  # the data-plane barrier is asked for or held: that wait is not Gym's
        self.gym_s = 0.0  # how long Gym kept the waiting save
        self.since_s = 0.0
        self.gym_error = ""  # newest failed control call since the save was asked for
        self.train_task = ""
        self.batch = terms.job.num_prompts_per_step if terms.job.sampler.name == "in_order" else 0
        self.targets: dict[str, int] = {}  # group of this life -> the version it is trained at
        self.ready: dict[int, dict[str, None]] = {}  # that version -> its published groups
        self.issued = -1  # the save in the background, -1: none since whose issue nothing was claimed
        self.issued_s = 0.0

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, (ExclusiveWaited, ExclusiveLeft)):
            if event.barrier == DATA_PLANE:
                self._count(record.time)
                self.issued_s = max(self.issued_s, record.time)
                self.cutting = isinstance(event, ExclusiveWaited)
            return ()
        if isinstance(event, ControlIssued):
            self._count(record.time)
            self.calls += 1
            if self.lost_to and self.gym_open and event.operation in GYM_WORK:
                text = f"{event.operation} of {event.instance} was issued after step {self.lost_to} committed in its Gym phase"
                return (self.broken(text, record),)
            if self.saving and event.operation in GYM_WORK:
                return (
                    self.broken(
                        f"{event.operation} of {event.instance} was issued inside the trainer save of step {self.saving}", record
                    ),
                )
            return ()
        if isinstance(event, ControlDone):
            self._count(record.time)
            self.calls -= 1
            if event.outcome != "ok" and (self.asked or self.saving):
                self.gym_error = event.error
            return ()
        if isinstance(event, (GymPhaseStarted, GymPhaseEnded)):
            self._count(record.time)
            self.gym_open = isinstance(event, GymPhaseStarted)
            self.lost_to = 0
            return ()
        if isinstance(event, StepCommitted):
            self.lost_to = event.step if self.gym_open else 0
            return ()
        if isinstance(event, TrainStepIssued):
            self.train_task = record.task
            return ()
        if isinstance(event, (GroupReserved, GroupMoved, GroupDropped, GroupsClaimed)):
            self._group(event, record.time)
            return ()
        return [self.broken(text, record) for text in self._save(event, record)]

    def _count(self, now_s: float) -> None:
        """Time up to now is Gym's if it was asked something, or a Gym phase was open, and no cut was being taken."""
        if self.asked and (self.gym_open or self.calls > 0) and not self.cutting:
            self.gym_s += now_s - self.since_s
        self.since_s = now_s

    def _group(self, event: GroupReserved | GroupMoved | GroupDropped | GroupsClaimed, now_s: float) -> None:
        """Which groups the train loop could claim: a whole step of them is claimed at once, whatever is being saved."""
        if isinstance(event, GroupReserved):
            self.targets[event.group] = event.target
        elif isinstance(event, GroupsClaimed):
            self.issued = -1
            for group in event.groups:
                self.ready.get(self.targets.pop(group, -1), {}).pop(group, None)
        elif isinstance(event, GroupDropped):
            self.ready.get(self.targets.pop(event.group, -1), {}).pop(event.group, None)
        elif event.after == "FINALIZED" and event.before == "FINALIZING" and event.group in self.targets:
            target = self.targets[event.group]
            self.ready.setdefault(target, {})[event.group] = None
            if target == self.issued:
                self.issued_s = now_s

    def _idle(self, step: int, now_s: float) -> bool:
        """A whole step was ready for a while since the save of ``step`` was issued, no cut stood before it, nobody claimed it."""
        whole = 0 < self.batch <= len(self.ready.get(step, ()))
        last = step >= self.terms.job.train_steps  # what is ready then will never be claimed
        late = now_s > self.issued_s + CLAIM_S + self.terms.slack_s
        return self.issued == step and whole and not last and not self.cutting and late

    def _save(self, event: object, record: Record) -> Iterator[str]:
        if isinstance(event, TrainerSaveAsked):
            self.asked, self.gym_s, self.since_s, self.gym_error = event.step, 0.0, record.time, ""
        elif isinstance(event, TrainerSaveStarted):
            self._count(record.time)
            if self.gym_s > self.bound_s + self.terms.slack_s:
                took, may = f"{self.gym_s:.3f} s", f"{self.bound_s:.3f} s"
                yield f"the trainer save of step {event.step} waited {took} for Gym, one resume may take {may}"
            if self.saving:
                yield f"the trainer save of step {self.saving} was never issued, that of step {event.step} started"
            self.asked, self.saving = 0, event.step
        elif isinstance(event, TrainerSaveIssued):
            self.saving = 0
            self.issued, self.issued_s = event.step, record.time
        elif isinstance(event, TrainerCheckpointDurable):
            if self._idle(event.step, record.time):
                yield f"the train loop claimed nothing until step_{event.step} was durable, though a whole step was ready"
            if self.saving == event.step:
                yield f"step_{event.step} became durable before its save let the train loop go on"
            elif record.task == self.train_task and record.task:
                yield f"the train loop itself (task {record.task}) made step_{event.step} durable"
        elif isinstance(event, RunFailed):
            if (self.asked or self.saving) and self.gym_error and event.error == self.gym_error:
                yield f"the run failed with {event.error} of a Gym call while step {self.asked or self.saving} was being saved"

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        if status.outcome == "ended" and (self.asked or self.saving):
            return (self.broken(f"the run ended and the trainer save of step {self.asked or self.saving} was never issued"),)
        return ()
