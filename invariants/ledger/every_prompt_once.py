"""I10: exactly-once training, over all lives of a lineage. Prompts are counted by ordinal, never by group id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from invariants.ledger.attempts import current_attempts, group_of, groups_of, is_another_point, keeps, restore_point
from protocol.config import Level
from protocol.history import (
    AttemptDispatched,
    CursorMoved,
    CutTaken,
    FaultInjected,
    GroupDropped,
    GroupEvicted,
    GroupReserved,
    OptimizerApplied,
    PromptPassedOver,
    Record,
    RestoreChosen,
    Restored,
    SnapshotPublished,
    SnapshotStarted,
    StepCommitted,
    TrainerCheckpointDurable,
)
from protocol.judging import Durable, Judge, RestorePoint, RunStatus, Terms, Violation, held_until_published


class EveryPromptOnce(Judge):
    """Every prompt taken from the loader is trained in exactly one committed step, passed over for a stated reason, or still
    open, and steps 1 to the last commit once each with exactly the groups they need.

    The lineage before this life is what the restore point's files say: cursor, open groups, skipped ordinals, step.
    """

    invariant = "I10"
    needs = (GroupReserved, StepCommitted)
    sees = (
        AttemptDispatched, CursorMoved, CutTaken, FaultInjected, GroupDropped, GroupEvicted, OptimizerApplied, PromptPassedOver,
        Restored, RestoreChosen, SnapshotPublished, SnapshotStarted, TrainerCheckpointDurable,
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.prompts = terms.job.num_prompts_per_step
        self.in_order = terms.job.sampler.name == "in_order"
        self.counts_add_up = terms.job.replay_is_restored  # else published groups are not in the restored ledger
        self.point = RestorePoint("", 0, 0, "")
        self.judged = True
        self.step = 0  # last committed one
        self.start = 0  # the cursor that this life began with
        self.consumed = 0
        self.open: dict[int, str] = {}  # ordinal -> group
        self.target: dict[int, int] = {}
        self.passed: dict[int, str] = {}  # ordinal -> why
        self.trained: dict[int, int] = {}  # ordinal -> step, of this life
        self.applied: dict[int, tuple[int, ...]] = {}  # step -> ordinals the trainer read
        self.discard_asked = False
        self.too_old: dict[str, int] = {}  # restored unfinished groups that can never be trained -> their age or target
        self.pending: dict[int, list[Violation]] = {}  # snapshot sequence -> findings about its cut
        self.pending_step: dict[int, list[Violation]] = {}  # likewise for trainer checkpoints

    # --- the lineage before this life

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        point = self.point = restore_point(durable, self.terms)
        self.step = point.step
        if not point.source:
            return ()
        ledger, loader = durable.ledger(point.source), durable.dataloader(point.source)
        if ledger is None or loader is None:
            self.judged = False  # what a torn restore point means is I21's and I22's
            return ()
        found: list[Violation] = []
        self.start = self.consumed = loader["consumed"]
        self.passed = dict.fromkeys(sorted(ledger["skipped"]), "before this life")
        for group in groups_of(ledger):
            ordinal = group["ordinal"]
            if ordinal in self.open or ordinal in self.passed:
                found.append(self.broken(f"{point.source}: prompt {ordinal} is there twice ({group['group_id']})."))
            self.open[ordinal] = group["group_id"]
            self.target[ordinal] = group["target_step"]
            self._note_age(group, point.step)
        beyond = [ordinal for ordinal in (*self.open, *self.passed) if ordinal >= self.consumed]
        if beyond:
            found.append(self.broken(f"{point.source}: prompts {beyond[:4]} are there, but the cursor is at {self.consumed}."))
        gone = self.consumed - len(self.open) - len(self.passed)
        if self.counts_add_up and gone != point.step * self.prompts:
            found.append(
                self.broken(
                    f"{point.source}: {self.consumed} prompts consumed, {len(self.open)} open, {len(self.passed)} passed over: "
                    f"{gone} are trained, but {point.step} steps train {point.step * self.prompts}."
                )
            )
        return found

    def _note_age(self, group: dict[str, Any], version: int) -> None:
        """A group that keeps a sealed sibling keeps its age: one that is too old for every step to come is to be dropped."""
        if group["status"] != "GENERATING" or not keeps(group, Level.SIBLING):
            return
        sampler, name = self.terms.job.sampler, group["group_id"]
        if self.in_order:
            if group["target_step"] < version:
                self.too_old[name] = group["target_step"]
        elif any(attempt["status"] == "SEALED" for _, attempt in current_attempts(group)):
            start = group.get("start_weight_version", version)
            if start < version - sampler.max_staleness_versions:
                self.too_old[name] = start

    # --- this life

    def _dispatched(self, event: AttemptDispatched, record: Record) -> Iterable[Violation]:
        age = self.too_old.pop(group_of(event.sample), None)
        if age is None or self.step != self.point.step:
            return ()
        text = f"{group_of(event.sample)} was sent on at version {self.step}; it is of {age}, too old for any step to come"
        return (self.broken(f"{text}.", record),)

    def on(self, record: Record) -> Iterable[Violation]:
        if not self.judged:
            return ()
        event = record.event
        return _HANDLERS[type(event)](self, event, record) or ()

    def _cursor(self, event: CursorMoved, record: Record) -> Iterable[Violation]:
        before, self.consumed = self.consumed, event.to
        if event.first != before or event.to <= before:
            return (self.broken(f"The cursor went to [{event.first}, {event.to}) when {before} prompts were consumed.", record),)
        return ()

    def _reserved(self, event: GroupReserved, record: Record) -> Iterable[Violation]:
        ordinal, found = event.ordinal, ""
        if ordinal in self.open:
            if self.open[ordinal] == event.group:
                return ()
            found = f"is open as {self.open[ordinal]}"
        elif ordinal in self.trained:
            found = f"was trained in step {self.trained[ordinal]}"
        elif ordinal in self.passed:
            found = f"was passed over ({self.passed[ordinal]})"
        elif ordinal < self.start:
            found = "was trained before this life"
        self.open[ordinal] = event.group
        self.target[ordinal] = event.target
        return (self.broken(f"Prompt {ordinal} was reserved as {event.group}, but it {found}.", record),) if found else ()

    def _evicted(self, event: GroupEvicted, record: Record) -> Iterable[Violation]:
        sampler, version = self.terms.job.sampler, event.trainer_version
        if self.in_order:
            target = self.target.get(event.ordinal, -1)
            if target >= version:
                return (self.broken(f"{event.group} was evicted at version {version}, before its target step {target}.", record),)
        elif event.start_version >= version - sampler.max_staleness_versions:
            return (
                self.broken(
                    f"{event.group} was evicted at version {version}; it starts at {event.start_version}, fresh enough.",
                    record,
                ),
            )
        return ()

    def _dropped(self, event: GroupDropped, record: Record) -> Iterable[Violation]:
        return self._leaves(event.ordinal, event.why, event.group, record)

    def _passed_over(self, event: PromptPassedOver, record: Record) -> Iterable[Violation]:
        return self._leaves(event.ordinal, event.why, self.open.get(event.ordinal, "no group"), record)

    def _leaves(self, ordinal: int, why: str, group: str, record: Record) -> Iterable[Violation]:
        if ordinal in self.trained:
            return (
                self.broken(
                    f"Prompt {ordinal} ({group}) was given up ({why}) after step {self.trained[ordinal]} trained it.", record
                ),
            )
        if ordinal in self.passed:
            return ()
        known = self.open.pop(ordinal, None)
        self.target.pop(ordinal, None)
        self.passed[ordinal] = why
        if known is None and ordinal < self.start:
            return (self.broken(f"Prompt {ordinal} was given up ({why}), but it was not open.", record),)
        if not self._allowed(why):
            return (self.broken(f"Prompt {ordinal} ({group}) was given up ({why}), which this run may not do.", record),)
        return ()

    def _allowed(self, why: str) -> bool:
        if why in ("evicted", "stale", "topped-up") or self.terms.contract.may_drop:
            return True
        if why == "skipped":
            return self.terms.job.rollout_failure.max_skipped_prompts > 0
        return why == "discarded" and self.discard_asked

    def _fault(self, event: FaultInjected, record: Record) -> Iterable[Violation]:
        if "discard" in event.fault:
            self.discard_asked = True
        return ()

    def _applied(self, event: OptimizerApplied, record: Record) -> Iterable[Violation]:
        self.applied[event.step] = tuple(sorted(dict.fromkeys(row.ordinal for row in event.rows)))
        if event.step != self.step + 1:
            return (self.broken(f"The optimizer applied step {event.step} after step {self.step}.", record),)
        return ()

    def _committed(self, event: StepCommitted, record: Record) -> Iterable[Violation]:
        found: list[str] = []
        step, ordinals = event.step, event.ordinals
        if step != self.step + 1 or event.version != step:
            found.append(f"step {step} (version {event.version}) was committed after step {self.step}")
        if len(dict.fromkeys(ordinals)) != self.prompts or len(ordinals) != self.prompts:
            found.append(f"step {step} trained prompts {ordinals}, not {self.prompts} different ones")
        if event.rows != self.prompts * self.terms.job.num_generations_per_prompt:
            found.append(f"step {step} trained {event.rows} rows")
        read = self.applied.pop(step, None)
        if read != tuple(sorted(ordinals)):
            found.append(f"step {step} was committed with prompts {ordinals}, the trainer read {read}")
        for ordinal in ordinals:
            target = self.target.get(ordinal, -1)
            if ordinal in self.trained:
                found.append(f"prompt {ordinal} was trained in steps {self.trained[ordinal]} and {step}")
            elif ordinal not in self.open:
                found.append(f"prompt {ordinal} was trained in step {step} but was {self.passed.get(ordinal, 'not open')}")
            elif self.in_order and target != step - 1:
                found.append(f"prompt {ordinal} was trained in step {step} but is stamped for target step {target}")
            self.trained[ordinal] = step
            self.open.pop(ordinal, None)
            self.target.pop(ordinal, None)
        self.step = step
        return [self.broken(f"{text[0].upper()}{text[1:]}.", record) for text in found]

    # --- what the core says of itself, against what was counted here

    def _chosen(self, event: RestoreChosen, record: Record) -> Iterable[Violation]:
        if is_another_point(event, self.point):
            self.judged = False
        return ()

    def _restored(self, event: Restored, record: Record) -> Iterable[Violation]:
        if (event.step, event.version, event.consumed) != (self.step, self.step, self.consumed):
            return (
                self.broken(
                    f"Restored to step {event.step}, version {event.version}, {event.consumed} prompts consumed; "
                    f"the files say step {self.step}, {self.consumed} consumed.",
                    record,
                ),
            )
        if self.in_order and event.open != len(self.open):
            return (self.broken(f"Restored {event.open} open groups; the files hold {len(self.open)}.", record),)
        return ()

    def _cut(self, event: CutTaken, record: Record) -> Iterable[Violation]:
        found: list[Violation] = []
        counted = (self.consumed, len(self.open), len(self.passed))
        if self.counts_add_up and not event.committing and (event.consumed, event.open, event.passed) != counted:
            found.append(
                self.broken(
                    f"A {event.role} cut holds {event.consumed} consumed, {event.open} open, {event.passed} passed over; "
                    f"the history says {counted[0]}, {counted[1]}, {counted[2]}.",
                    record,
                )
            )
        pending, place = (self.pending, event.sequence) if event.role == "snapshot" else (self.pending_step, event.step)
        pending[place] = found
        return ()

    def _started(self, event: SnapshotStarted, record: Record) -> Iterable[Violation]:
        self.pending.pop(event.sequence, None)
        return ()

    def _published(self, event: SnapshotPublished, record: Record) -> Iterable[Violation]:
        return held_until_published(self.pending, event.sequence)

    def _durable(self, event: TrainerCheckpointDurable, record: Record) -> Iterable[Violation]:
        return held_until_published(self.pending_step, event.step)

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        if status.outcome != "ended" or not self.judged:
            return ()
        found: list[Violation] = []
        stopped = self.step == 0 and self.terms.job.checkpointing.must_save_by_s is not None  # rightly or not: I67
        if self.step < self.terms.job.train_steps and not stopped:
            found.append(self.broken(f"The run ended after step {self.step} of {self.terms.job.train_steps}."))
        lost = [
            ordinal
            for ordinal in range(self.start, self.consumed)
            if ordinal not in self.trained and ordinal not in self.open and ordinal not in self.passed
        ]
        if lost:
            found.append(
                self.broken(
                    f"Prompts {lost[:6]} were taken from the loader and neither trained, passed over nor open at the end."
                )
            )
        if self.in_order:
            late = [ordinal for ordinal, target in self.target.items() if 0 <= target < self.step]
            if late:
                found.append(self.broken(f"Prompts {late[:6]} are still open though their target step was trained."))
        return found


_HANDLERS: dict[type, Any] = {
    AttemptDispatched: EveryPromptOnce._dispatched,
    CursorMoved: EveryPromptOnce._cursor,
    CutTaken: EveryPromptOnce._cut,
    FaultInjected: EveryPromptOnce._fault,
    GroupDropped: EveryPromptOnce._dropped,
    GroupEvicted: EveryPromptOnce._evicted,
    GroupReserved: EveryPromptOnce._reserved,
    OptimizerApplied: EveryPromptOnce._applied,
    PromptPassedOver: EveryPromptOnce._passed_over,
    Restored: EveryPromptOnce._restored,
    RestoreChosen: EveryPromptOnce._chosen,
    SnapshotPublished: EveryPromptOnce._published,
    SnapshotStarted: EveryPromptOnce._started,
    StepCommitted: EveryPromptOnce._committed,
    TrainerCheckpointDurable: EveryPromptOnce._durable,
}
