"""COHORT-1: a reward given relative to siblings means nothing if one of them was missing, or belonged to another attempt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from invariants.ledger.attempts import current_attempts, group_of, groups_of, is_another_point, restore_point, sample_of
from protocol.history import (
    AttemptSealed,
    CohortFailed,
    CohortJudged,
    EpisodeAdmitted,
    EpisodeEnded,
    ProcessStarted,
    Record,
    ReplySent,
    RestoreChosen,
    RowsSubmitted,
    SiblingHeld,
)
from protocol.identity import sample_id
from protocol.judging import Durable, Judge, RestorePoint, Terms, Violation


def generation_of(key: str) -> int:
    """-1 for a key that names none."""
    found = sample_of(key).rpartition("_g")[2]
    return int(found) if found.isdigit() else -1


class Instance:
    """One start of one Gym instance."""

    def __init__(self) -> None:
        self.live: dict[str, None] = {}
        self.held: dict[str, int] = {}  # key -> group attempt
        self.rewarded: dict[str, None] = {}
        self.judged: dict[tuple[str, int], None] = {}
        self.failed: dict[tuple[str, int], None] = {}


class CohortsAreJudgedWhole(Judge):
    """Siblings that are rewarded against each other are rewarded in one step, when all that had not sealed have come, all of
    one group attempt, each once and before it is answered; a group attempt that has failed lets nobody in and rewards nobody.
    """

    invariant = "COHORT-1"
    needs = (CohortJudged,)
    sees = (
        AttemptSealed, CohortFailed, EpisodeAdmitted, EpisodeEnded, ProcessStarted, ReplySent, RestoreChosen, RowsSubmitted,
        SiblingHeld,
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.instances: dict[str, Instance] = {}
        self.attempt: dict[str, int] = {}  # key -> the group attempt that it was sent under
        self.sealed: dict[str, None] = {}  # samples, of the restored ledger too: nobody will send them again
        self.point = RestorePoint("", 0, 0, "")
        self.whole = terms.job.num_generations_per_prompt

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.relative_rewards

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        for group in groups_of(durable.ledger(self.point.source)):
            self.sealed.update({sample: None for sample, attempt in current_attempts(group) if attempt["receipt"] is not None})
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is ProcessStarted:
            self.instances.pop(record.process, None)
            return ()
        if type(event) is AttemptSealed:
            self.sealed[event.sample] = None
            return ()
        if type(event) is RestoreChosen:
            if is_another_point(event, self.point):
                self.whole = 0  # nothing here knows who has sealed: only what Gym was told counts
            return ()
        if type(event) is RowsSubmitted:
            self.attempt.update(dict.fromkeys(event.keys, event.group_attempt))
            return ()
        instance = self.instances.get(record.process)
        if instance is None:
            instance = self.instances[record.process] = Instance()
        return [self.broken(f"{record.process}: {text}.", record) for text in self._seen(instance, record)]

    def _seen(self, instance: Instance, record: Record) -> Iterator[str]:
        event = record.event
        if type(event) is EpisodeAdmitted:
            instance.live[event.key] = None
            cohort = (group_of(event.key), self.attempt.get(event.key, -1))
            if cohort in instance.failed:
                yield f"{event.key} was let in, attempt {cohort[1]} of {cohort[0]} has failed"
        elif type(event) is EpisodeEnded:
            instance.live.pop(event.key, None)
            instance.held.pop(event.key, None)
        elif type(event) is SiblingHeld:
            instance.held[event.key] = event.group_attempt
        elif type(event) is CohortFailed:
            instance.failed[event.group, event.group_attempt] = None
        elif type(event) is CohortJudged:
            yield from self._judged(instance, event)
        elif type(event) is ReplySent and event.key not in instance.rewarded:
            yield f"{event.key} was answered, and no cohort had been judged with it"

    def _judged(self, instance: Instance, event: CohortJudged) -> Iterator[str]:
        cohort = f"attempt {event.group_attempt} of {event.group}"
        there = {generation_of(key): key for key in event.members}
        owed = (generation for generation in range(self.whole) if sample_id(event.group, generation) not in self.sealed)
        missing = [generation for generation in dict.fromkeys((*event.expected, *owed)) if generation not in there]
        if missing:
            yield f"{cohort} was judged without generations {missing}, which had not sealed"
        for key in event.members:
            if group_of(key) != event.group or self.attempt.get(key, event.group_attempt) != event.group_attempt:
                yield f"{cohort} was judged with {key}, which was sent as attempt {self.attempt.get(key)}"
        for key in event.rewarded:
            if key not in event.members:
                yield f"{key} was rewarded in {cohort}, and is none of it"
            elif key in instance.rewarded:
                yield f"{key} was rewarded twice"
            elif key not in instance.live:
                yield f"{key} was rewarded, and does not run"
        if (event.group, event.group_attempt) in instance.failed:
            yield f"{cohort} was judged, and had failed"
        if (event.group, event.group_attempt) not in instance.judged and sorted(event.rewarded) != sorted(event.members):
            yield f"{len(event.rewarded)} of the {len(event.members)} siblings of {cohort} were rewarded, and not the others"
        for key, attempt in instance.held.items():
            if group_of(key) == event.group and attempt == event.group_attempt and generation_of(key) not in there:
                yield f"{key} had come and was left out when {cohort} was judged"
        instance.judged[event.group, event.group_attempt] = None
        instance.rewarded.update(dict.fromkeys(event.rewarded))
