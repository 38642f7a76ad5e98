"""I59."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from invariants.durability.payload import OnDisk, Payload
from invariants.ledger.attempts import current_attempts, groups_of, is_another_point, restore_point
from protocol.config import Job
from protocol.history import FileIssued, LifeStarted, ProcessStarted, Record, RestoreChosen, Restored, RunEnded, RunFailed
from protocol.judging import Durable, RestorePoint, RunStatus, Terms, Violation

RANKS = {"rollout": 0, "sibling": 1, "turn": 2, "prefix": 3}
TURN = RANKS["turn"]


class RefusedAtSetUp(OnDisk):
    """A configuration that is not supported is refused at set-up with a message that names each key at fault, before anything
    is read or written; a supported one is accepted, and the restore level that it asks for is what each group carries and
    decides which of its sealed siblings a restore keeps.

    What must be refused is what the scenario declares; of every other one this judge reads the rules itself.
    """

    invariant = "I59"
    needs = (LifeStarted,)
    sees = (ProcessStarted, FileIssued, RestoreChosen, Restored, RunEnded, RunFailed)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.wrong = () if terms.contract.refused else tuple(unsupported(terms.job))
        self.started = False  # the clean-up is over
        self.acted = ""  # what a process did first
        self.over = False  # refused, or found to be accepted
        self.point = RestorePoint("", 0, 0, "")
        self.kept: int | None = None  # sealed attempts that the levels of the newest state keep; None: not known

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is FileIssued:
            if self.started and not self.acted:
                self.acted = f"{event.op} {event.path} of {record.process}"
        elif isinstance(event, ProcessStarted):
            self.started = True
        elif isinstance(event, RunFailed):
            return self._failed(event, record)
        elif isinstance(event, (RestoreChosen, Restored, RunEnded)):
            if isinstance(event, RestoreChosen) and is_another_point(event, self.point):
                self.kept = None  # I22 judges that
            if isinstance(event, Restored) and self.kept not in (None, event.sealed):
                found = f"{event.sealed} sealed attempts were kept, the restore levels of the newest state keep {self.kept}"
                return (self.broken(found, record),)
            self.acted = self.acted or f"{type(event).__name__} of {record.process}"
            return self._accepted(record)
        return ()

    def _failed(self, event: RunFailed, record: Record) -> Iterable[Violation]:
        if event.error != "ConfigError":
            return ()
        if self.over:  # already told that it was accepted
            return (self.broken(f"the configuration was refused when the run was under way: {event.message}", record),)
        self.over = True
        refused = self.terms.contract.refused
        found = []
        if self.acted:
            found.append(f"the configuration was refused only after {self.acted}")
        if not refused and not self.wrong:
            found.append(f"a supported configuration was refused: {event.message}")
        keys = refused or tuple(key for key, _ in self.wrong)
        unnamed = [key for key in dict.fromkeys(keys) if not names(event.message, key)]
        if unnamed:
            found.append(f"the refusal does not name {', '.join(unnamed)}: {event.message}")
        return [self.broken(text, record) for text in found]

    def _accepted(self, record: Record) -> Iterable[Violation]:
        if self.over:
            return ()
        self.over = True
        if self.terms.contract.refused:
            return (self.broken(f"accepted a configuration with {', '.join(self.terms.contract.refused)}", record),)
        return [self.broken(f"accepted though {key} {why}", record) for key, why in self.wrong]

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        if self.point.source:
            self.kept = sealed_kept(durable.ledger(self.point.source), self.terms.job)
        return super().obligations(durable, external)

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        found = list(super().end(durable, external, status, reference))
        if self.terms.contract.refused and not self.over:
            found.append(self.broken(f"{', '.join(self.terms.contract.refused)} was never refused ({status.outcome})"))
        return found

    def examine(self, payload: Payload) -> Iterator[str]:
        """The level that each saved group carries is the one that was asked for."""
        if self.terms.contract.refused:
            return
        jobs = (self.terms.job, payload.job(self.terms.job))  # a life may have asked for another level than the one before
        for group in payload.groups():
            asked = {level_of(job, group["task_name"]): None for job in jobs}
            if group["restore_level"] not in asked:
                found = f"{group['group_id']} carries restore level {group['restore_level']}"
                yield f"{found}, the configuration asks for {' or '.join(asked)}"


def names(message: str, key: str) -> bool:
    """A refusal is one fault after another; each begins with its key."""
    return any(re.match(rf"(job\.)?{re.escape(key)}(?!\w)", fault) for fault in message.split("; "))


def sealed_kept(ledger: Any, job: Job) -> int | None:
    """Sealed attempts that a restart keeps: all of a published group, those of a group restored at SIBLING or finer, none
    of one restored at ROLLOUT. None: the ledger has another shape."""
    replay = job.sampler.name != "weight_fifo"
    try:
        return sum(
            1
            for group in groups_of(ledger)
            if (group["status"] == "FINALIZED" and replay)
            or (group["status"] != "FINALIZED" and RANKS[group["restore_level"]] > RANKS["rollout"])
            for _, attempt in current_attempts(group)
            if attempt["status"] == "SEALED"
        )
    except (KeyError, TypeError, AttributeError):
        return None


def level_of(job: Job, task_name: str) -> str:
    return job.rollout_recovery.level_overrides.get(task_name, job.target_level)


def unsupported(job: Job) -> Iterator[tuple[str, str]]:
    """(key, why) of everything that set-up must refuse, read from PROTOCOL 1.3, 1.5, 1.9, 2.4 and 5 alone."""
    rank = RANKS.get(job.target_level)
    if rank is None:
        yield "target_level", "is none"
        return
    periodic = job.rollout_checkpointing.interval_s is not None
    if rank >= TURN:
        if not periodic:
            yield "rollout_checkpointing.interval_s", "is not set at this level"
        if not job.async_engine:
            yield "async_engine", "is false at this level"
        if not job.token_capture.enabled:
            yield "token_capture.enabled", "is false at this level"
        if job.environment_server != "legacy_agent":
            yield "environment_server", "is not legacy_agent at this level"
        if job.rollout_recovery.level_overrides:
            yield "rollout_recovery.level_overrides", "is set at this level"
        if not job.watchdog.stall_timeout_s > longest_park_s(job):
            yield "watchdog.stall_timeout_s", f"does not outlast a park of {longest_park_s(job):g} s"
    for task, level in job.rollout_recovery.level_overrides.items():
        if RANKS.get(level, TURN + 1) > rank:
            yield f"rollout_recovery.level_overrides.{task}", "is finer than the target, or no level"
    if job.sampler.name == "weight_fifo" and (periodic or rank > RANKS["rollout"]):
        yield "sampler.name", "keeps no buffer in a checkpoint"
    rollout_s = job.rollout_failure.nemo_gym.rollout_timeout_s
    if not job.watchdog.stall_timeout_s > max(job.watchdog.interval_s, rollout_s or 0.0):
        yield "watchdog.stall_timeout_s", "is not above the watchdog's interval and every rollout deadline"
    batch = job.num_prompts_per_step
    streamed = job.min_groups_for_streaming_train or batch
    if job.max_buffered_rollouts < max(streamed, batch + streamed - 1 if periodic else batch):
        yield "max_buffered_rollouts", "is too small for a batch and a streamed step"


def longest_park_s(job: Job) -> float:
    """Prepare, commit, drain and resume, each at its own limit."""
    rules, control_s = job.rollout_recovery, job.token_capture.control_timeout_s
    waits_s = [rules.gym_prepare_timeout_s + rules.reply_grace_s, control_s + rules.reply_grace_s]
    waits_s.append(rules.drain_timeout_s or control_s)
    waits_s += [control_s + rules.reply_grace_s] * rules.resume_attempts + [rules.resume_retry_s] * (rules.resume_attempts - 1)
    return sum(waits_s)
