"""PARITY-1: what was trained, against what the run that never crashed trained (what is equal by right)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from invariants.ledger.attempts import restore_point
from protocol.history import (
    AttemptSealed,
    CallBegun,
    CohortJudged,
    GroupDropped,
    OptimizerApplied,
    ProcessStarted,
    PromptPassedOver,
    Record,
    Restored,
    StepCommitted,
    TrainedRow,
    WeightsLoaded,
    WeightsSynced,
)
from protocol.identity import TRAINER, group_of_sample, ordinal_of_group, sample_of_key
from protocol.judging import BY_CHANCE, BY_VERSION, Durable, Judge, RunStatus, Terms, Violation

NO_PROMPT = hashlib.blake2b(b"tokens\x01" + bytes(4), digest_size=16).hexdigest()  # digest of no tokens
Rows = dict[tuple[int, int], TrainedRow]  # (ordinal, generation) -> row


def rows_of(rows: Iterable[TrainedRow]) -> Rows:
    return {(row.ordinal, row.generation): row for row in rows}


def substance(row: TrainedRow) -> tuple[Any, ...]:
    """A row without its physical id."""
    return (row.prompt, row.content, row.spans, row.segments, row.tools, row.reward, row.valid)


class TrainsAsTheReference(Judge):
    """Every row is trained once, on one chain of weights and with legal weight versions, and a restored run's rows, steps
    and weights equal the reference's wherever they are equal by right.

    By right: prompts always; under in_order the prompts of each step and the skipped set (unless prompts may be
    dropped); a row's content, reward and admission where its weight-version spans (of a restored call: those of its prefix
    and of its tail) and its tool replies are the reference's (a reward given relative to its siblings: where all of theirs are,
    and all were ranked together);
    weights while every row up to them is. Under a fixed-order contract: everything. Where the weights themselves and not
    their version's number fix what is drawn, a row is equal by right while these are; where chance does, no row is.
    """

    invariant = "PARITY-1"
    needs = (OptimizerApplied, StepCommitted)
    sees = (AttemptSealed, CallBegun, CohortJudged, GroupDropped, ProcessStarted, PromptPassedOver, Restored, WeightsLoaded,
            WeightsSynced)  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.size = terms.job.num_generations_per_prompt
        self.in_order = terms.job.sampler.name == "in_order"
        self.start = 0  # the step this life starts from
        self.weights = ""  # '' unknown
        self.loaded = ""  # what the trainer began this life with
        self.steps: dict[int, tuple[str, str, tuple[TrainedRow, ...]]] = {}  # step -> weights before, after, rows
        self.committed: dict[int, None] = {}
        self.trained: dict[tuple[int, int], int] = {}
        self.passed: dict[int, str] = {}
        self.apart: dict[int, None] = {}  # prompts of which some siblings were ranked without the others
        self.ranked: dict[str, dict[str, None]] = {}  # sample -> its executions against which siblings were ranked
        self.ended = False
        self.version = 0  # of the trainer's weights
        self.synced = -1  # the last version that every worker carries, -1: none in this life
        self.restarted: dict[str, None] = {}  # workers that began again in this life: they carry nothing until the next sync

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        point = restore_point(durable, self.terms)
        self.start = point.step
        ledger = durable.ledger(point.source) if point.source else None
        self.passed = dict.fromkeys(ledger["skipped"], "before this life") if ledger else {}
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is CallBegun:
            return self._begun(event, record)
        if type(event) is OptimizerApplied:
            return self._applied(event, record)
        if type(event) is StepCommitted:
            return self._committed(event, record)
        if type(event) is WeightsLoaded:
            if self.committed:  # a trainer that restarted inside a life: the next step's chain shows what it read
                return ()
            self.weights = self.loaded = event.weights
            if event.step != self.start:
                return (
                    self.broken(f"The trainer loaded weights of step {event.step}; this life starts from {self.start}.", record),
                )
        elif type(event) is CohortJudged:
            for key in event.members:
                self.ranked.setdefault(sample_of_key(key), {})[key] = None
            if len(event.members) != self.size:
                self.apart[ordinal_of_group(event.group)] = None
        elif type(event) is AttemptSealed:
            if any(key != event.key for key in self.ranked.get(event.sample, ())):  # an execution that is not trained
                self.apart[ordinal_of_group(group_of_sample(event.sample))] = None
        elif type(event) is PromptPassedOver or type(event) is GroupDropped:
            self.passed[event.ordinal] = event.why
        elif type(event) is ProcessStarted:
            if record.process == TRAINER:
                self._trainer_restarted()
            elif self.synced >= 0:
                self.restarted[record.process] = None
        elif type(event) is Restored:
            self.version = event.version
        elif type(event) is WeightsSynced:
            self.synced, self.restarted = event.version, {}
            if event.version != self.version:
                return (
                    self.broken(f"The workers were given version {event.version}; the trainer is at {self.version}.", record),
                )
        return ()

    def _begun(self, event: CallBegun, record: Record) -> Iterable[Violation]:
        """A sync sets one worker after the other: between the commit and its end both versions are right."""
        if self.synced <= event.version <= self.version or self.synced < 0 or record.process in self.restarted:
            return ()
        text = f"{event.call} began on {record.process} under version {event.version}"
        return (self.broken(f"{text}; workers carry {self.synced}, the trainer is at {self.version}.", record),)

    def _trainer_restarted(self) -> None:
        """What it had applied and nobody committed is gone with it."""
        for step in [step for step in self.steps if step not in self.committed]:
            before, _, rows = self.steps.pop(step)
            self.weights = before
            for row in rows:
                self.trained.pop((row.ordinal, row.generation), None)

    def _applied(self, event: OptimizerApplied, record: Record) -> Iterable[Violation]:
        found: list[str] = []
        step, staleness = event.step, self.terms.job.sampler.max_staleness_versions
        if step in self.steps:
            found.append(f"step {step} was applied twice")
        if self.weights and event.before != self.weights:
            found.append(f"step {step} was applied to weights {event.before}, not to {self.weights}")
        per_prompt: dict[int, int] = {}
        for row in event.rows:
            at = (row.ordinal, row.generation)
            if at in self.trained:
                found.append(f"row {at} was trained in steps {self.trained[at]} and {step}")
            self.trained[at] = step
            per_prompt[row.ordinal] = per_prompt.get(row.ordinal, 0) + 1
            if row.valid and row.spans:
                versions = [version for version, _ in row.spans]
                if versions != sorted(versions) or versions[-1] > step - 1:
                    found.append(f"row {at} of step {step} carries weight versions {versions}, the trainer was at {step - 1}")
                if not self.in_order and versions[0] < step - 1 - staleness:
                    found.append(f"row {at} of step {step} starts at version {versions[0]}, older than {staleness} allowed")
        short = [ordinal for ordinal, rows in per_prompt.items() if rows != self.size]
        if short:
            found.append(f"step {step} trained prompts {short[:4]} without exactly {self.size} siblings")
        self.steps[step] = (event.before, event.weights, event.rows)
        self.weights = event.weights
        return [self.broken(f"{text[0].upper()}{text[1:]}.", record) for text in found]

    def _committed(self, event: StepCommitted, record: Record) -> Iterable[Violation]:
        found: list[Violation] = []
        self.version = event.version
        if event.step in self.committed:
            found.append(self.broken(f"Step {event.step} was committed twice.", record))
        self.committed[event.step] = None
        applied = self.steps.get(event.step)
        if applied is None or applied[1] != event.weights:
            found.append(
                self.broken(
                    f"Step {event.step} was committed with weights {event.weights}; "
                    f"the trainer made {applied[1] if applied else 'none'}.",
                    record,
                )
            )
        return found

    def summary(self) -> Any:
        """{start, loaded, steps {step: (before, weights, rows)} of committed steps, passed, ended}."""
        steps = {step: self.steps[step] for step in self.committed if step in self.steps}
        return {
            "start": self.start,
            "loaded": self.loaded,
            "steps": steps,
            "passed": tuple(sorted(self.passed)),
            "apart": tuple(sorted(self.apart)),
            "ended": self.ended,
            "last": self._last(),
        }

    def _last(self) -> int:
        """The step with which this run is over; a job's deadline may stop it before its first one."""
        if self.terms.job.checkpointing.must_save_by_s is not None and not self.committed:
            return self.start
        return self.terms.job.train_steps

    # --- against the reference

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        self.ended = status.outcome == "ended"
        if reference is None:
            return ()
        found: list[str] = []
        theirs: dict[int, tuple[str, str, tuple[TrainedRow, ...]]] = reference["steps"]
        if self.ended and reference["ended"]:
            # A run that came back with another number of steps is over where the two still can be compared.
            last = min(self._last(), reference["last"])
            want = [step for step in sorted(theirs) if self.start < step <= last]
            if [step for step in sorted(self.committed) if step <= reference["last"]] != want:
                found.append(f"steps {sorted(self.committed)} were committed from step {self.start} on, the reference has {want}")
        everywhere = {} if self.in_order else {at: row for _, _, rows in theirs.values() for at, row in rows_of(rows).items()}
        equal_so_far = True
        for step in sorted(self.committed):
            if step not in theirs or step not in self.steps:
                break
            before, weights, rows = self.steps[step]
            ours = rows_of(rows)
            base = rows_of(theirs[step][2])
            if step == min(self.committed) and before != theirs[step][0]:
                equal_so_far = False
                if self.terms.contract.fixed_order:
                    found.append(f"step {step} started from weights {before}, the reference's from {theirs[step][0]}")
            self._compare_prompts(step, ours, base, found)
            self._compare_rows(step, ours, base if self.in_order else everywhere, reference, found)
            equal_so_far = (
                equal_so_far and sorted(ours) == sorted(base) and all(substance(ours[at]) == substance(base[at]) for at in ours)
            )
            if equal_so_far and weights != theirs[step][1]:
                found.append(
                    f"step {step} made weights {weights} from the reference's rows, the reference made {theirs[step][1]}"
                )
        self._compare_passed(reference, found)
        return [self.broken(f"{text[0].upper()}{text[1:]}.") for text in found]

    def _compare_prompts(self, step: int, ours: Rows, base: Rows, found: list[str]) -> None:
        if not self.in_order or (self.terms.contract.may_drop and not self.terms.contract.fixed_order):
            return
        prompts, want = (sorted(dict.fromkeys(ordinal for ordinal, _ in rows)) for rows in (ours, base))
        if prompts != want:
            found.append(f"step {step} trained prompts {prompts}, the reference {want}")

    def _compare_rows(self, step: int, ours: Rows, base: Rows, reference: Any, found: list[str]) -> None:
        if self.terms.drawn_by == BY_CHANCE:
            return
        fixed = self.terms.contract.fixed_order
        others = self._others(ours, base, reference["apart"]) if self.terms.relative_rewards else {}
        unknown = [*self._without_prompt(ours), *self._without_prompt(base)]
        for at, row in ours.items():
            other = base.get(at)
            if other is None:
                continue  # its prompt is not in the reference's step: said already where that is a fault
            if row.prompt != other.prompt and (fixed or row.ordinal not in unknown):
                found.append(f"row {at} of step {step} has prompt {row.prompt}, the reference's {other.prompt}")
            elif fixed:
                if substance(row) != substance(other):
                    found.append(f"row {at} of step {step} is not the reference's ({_difference(row, other)})")
            elif row.valid and other.valid and self._same_weights(row, other, reference) and row.tools == other.tools:
                if row.content != other.content or (row.reward != other.reward and row.ordinal not in others):
                    found.append(
                        f"row {at} of step {step} has the reference's spans and tools, but not its {_difference(row, other)}"
                    )

    def _same_weights(self, row: TrainedRow, other: TrainedRow, reference: Any) -> bool:
        """A call that went on under newer weights than its restored prefix is not what one weight version would have said."""
        if (row.spans, row.segments) != (other.spans, other.segments):
            return False
        versions = [version for version, _ in (*row.spans, *row.segments)]
        return self.terms.drawn_by == BY_VERSION or all(self._same_version(version, reference) for version in versions)

    def _same_version(self, version: int, reference: Any) -> bool:
        """Whether this version's weights are the reference's. Of those before this life nothing is known but what it began
        with."""
        theirs = {reference["start"]: reference["loaded"]} | {step: step_of[1] for step, step_of in reference["steps"].items()}
        ours = {step: step_of[1] for step, step_of in self.steps.items()}
        known = max(version, self.start)
        return bool(theirs.get(known, "") == (self.loaded if known == self.start else ours.get(known)))

    def _without_prompt(self, rows: Rows) -> list[int]:
        """Prompts of which no call was captured in any sibling: their masked rows cannot say what was asked."""
        valid = {row.ordinal: None for row in rows.values() if row.valid}
        return [row.ordinal for row in rows.values() if row.ordinal not in valid and row.prompt == NO_PROMPT]

    def _others(self, ours: Rows, base: Rows, apart: Iterable[int]) -> dict[int, None]:
        """Prompts whose siblings are not all the reference's, or were not all ranked together in both runs."""
        changed = [
            at[0]
            for at, row in ours.items()
            if at not in base or (row.content, row.tools, row.valid) != (base[at].content, base[at].tools, base[at].valid)
        ]
        return dict.fromkeys((*changed, *self.apart, *apart))

    def _compare_passed(self, reference: Any, found: list[str]) -> None:
        """The skipped set, up to the last prompt that both runs have trained."""
        if not self.in_order or self.terms.contract.may_drop or not (self.ended and reference["ended"]):
            return
        theirs = [row.ordinal for _, _, rows in reference["steps"].values() for row in rows]
        last = min(max(theirs, default=-1), max((ordinal for ordinal, _ in self.trained), default=-1))
        passed, want = (
            [ordinal for ordinal in sorted(ordinals) if ordinal <= last] for ordinals in (self.passed, reference["passed"])
        )
        if passed != want:
            found.append(f"prompts {passed[:6]} were passed over, in the reference {want[:6]}")


def _difference(row: TrainedRow, other: TrainedRow) -> str:
    names = ("prompt", "content", "spans", "tools", "reward", "valid")
    return ", ".join(
        f"{name} {getattr(row, name)} for {getattr(other, name)}" for name in names if getattr(row, name) != getattr(other, name)
    )
