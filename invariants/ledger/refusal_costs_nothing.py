"""I5: 409 checkpoint_parked is neither a failure nor an attempt. Gym's own refusals are the second witness."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from invariants.ledger.attempts import group_of, groups_of, is_another_point, restore_point, sample_of
from protocol.config import Level
from protocol.history import (
    AttemptAbandoned,
    AttemptDispatched,
    AttemptRefused,
    AttemptReserved,
    AttemptSealed,
    BudgetSpent,
    EpisodeAdmitted,
    EpisodeRefused,
    FailureArrived,
    GroupDropped,
    Record,
    RefusalArrived,
    RestoreChosen,
    StreamEnded,
)
from protocol.judging import Durable, Judge, RestorePoint, Terms, Violation

PARKED = "checkpoint_parked"
GROUP_IS_OVER = ("discarded", "group-failed", "restart", "skipped", "evicted", "stale")


class RefusalCostsNothing(Judge):
    """An attempt that Gym refused as parked is RESERVED again under the same key with every budget unchanged, and keeps that
    key until it is sent again.

    The group's end releases it; so does, before the refusal reached the ledger, the end of its stream.
    """

    invariant = "I5"
    needs = (RefusalArrived,)
    sees = (
        AttemptDispatched, AttemptRefused, AttemptReserved, AttemptSealed, AttemptAbandoned, BudgetSpent, EpisodeAdmitted,
        EpisodeRefused, FailureArrived, GroupDropped, RestoreChosen, StreamEnded,
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.sent_with: dict[str, int] = {}  # dispatched key -> row attempts at its dispatch
        self.refused_by_gym: dict[str, None] = {}  # since its last dispatch
        self.admitted: dict[str, None] = {}  # likewise
        self.heard: dict[str, None] = {}  # keys whose refusal reached the controller, likewise
        self.arrived: dict[str, str] = {}  # sample -> key whose refusal waits for the ledger
        self.reserved_again: dict[str, None] = {}  # keys refused in the ledger and not sent again
        self.spent: dict[tuple[str, str], int] = {}  # (group, infra | data)
        self.point = RestorePoint("", 0, 0, "")
        self.unknown_budgets = False

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        for group in groups_of(durable.ledger(self.point.source)):
            self.spent[group["group_id"], "infra"] = group["infra_spent"]
            self.spent[group["group_id"], "data"] = group["data_spent"]
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        kind = type(event)
        if kind is EpisodeAdmitted:
            self.admitted[event.key] = None  # type: ignore[attr-defined]
            return ()
        if kind is AttemptDispatched:
            return self._dispatched(event, record)  # type: ignore[arg-type]
        if kind is AttemptSealed:
            return self._forget(event.sample, event.key)  # type: ignore[attr-defined]
        handle = _HANDLERS.get(kind)
        return handle(self, event, record) if handle is not None else ()

    def _forget(self, sample: str, key: str) -> Iterable[Violation]:
        self.sent_with.pop(key, None)
        self.refused_by_gym.pop(key, None)
        self.reserved_again.pop(key, None)
        self.admitted.pop(key, None)
        self.heard.pop(key, None)
        if self.arrived.get(sample) == key:
            del self.arrived[sample]
        return ()

    def _dispatched(self, event: AttemptDispatched, record: Record) -> Iterable[Violation]:
        late = self.arrived.pop(event.sample, None)
        self.sent_with[event.key] = event.row_attempts
        self.refused_by_gym.pop(event.key, None)
        self.reserved_again.pop(event.key, None)
        self.admitted.pop(event.key, None)
        self.heard.pop(event.key, None)
        if late is not None:
            return (self.broken(f"{event.key} was dispatched while the refusal of {late} was not in the ledger.", record),)
        return ()

    def _gym_refused(self, event: EpisodeRefused, record: Record) -> Iterable[Violation]:
        if event.reason == PARKED:
            self.refused_by_gym[event.key] = None
        return ()

    def _arrived(self, event: RefusalArrived, record: Record) -> Iterable[Violation]:
        if event.reason == PARKED and event.key in self.sent_with:
            self.arrived[sample_of(event.key)] = event.key
            self.heard[event.key] = None
        return ()

    def _refused(self, event: AttemptRefused, record: Record) -> Iterable[Violation]:
        key, group = event.key, group_of(event.key)
        found: list[Violation] = []
        self.arrived.pop(event.sample, None)
        if key not in self.heard:
            found.append(self.broken(f"{key} became RESERVED though no refusal of it had arrived.", record))
        elif key in self.admitted:
            found.append(self.broken(f"{key} became RESERVED though Gym had admitted it.", record))
        before = self.sent_with.pop(key, event.row_attempts)
        if event.row_attempts != before:
            found.append(self.broken(f"{key}: row attempts went from {before} to {event.row_attempts} at its refusal.", record))
        if not self.unknown_budgets:
            for budget, now in (("infra", event.infra_spent), ("data", event.data_spent)):
                known = self.spent.get((group, budget), 0)
                if now != known:
                    found.append(self.broken(f"{key}: {budget} failures went from {known} to {now} at its refusal.", record))
        self.reserved_again[key] = None
        return found

    def _reserved(self, event: AttemptReserved, record: Record) -> Iterable[Violation]:
        arrived = self.arrived.pop(event.sample, None)
        if arrived is not None and arrived != event.key:
            return (self.broken(f"{event.key} ({event.why}) took the place of {arrived}, which was only refused.", record),)
        return ()

    def _abandoned(self, event: AttemptAbandoned, record: Record) -> Iterable[Violation]:
        key = event.key
        waited = self.arrived.get(event.sample) == key
        again = key in self.reserved_again
        never_sent = key not in self.sent_with and not again
        self._forget(event.sample, key)
        if event.why in GROUP_IS_OVER:
            return ()
        if waited:
            return (self.broken(f"{key} was abandoned ({event.why}) when it had only been refused.", record),)
        if again:
            return (self.broken(f"{key} was abandoned ({event.why}) after its refusal, without being sent again.", record),)
        if never_sent:
            return (self.broken(f"{key} was abandoned ({event.why}) though it was never sent in this life.", record),)
        return ()

    def _spent(self, event: BudgetSpent, record: Record) -> Iterable[Violation]:
        if event.budget != "row":
            self.spent[event.group, event.budget] = event.spent
        key = event.key
        waiting = key in self.refused_by_gym and key in self.sent_with
        if key in self.reserved_again or (event.budget == "data" and waiting) or self.arrived.get(sample_of(key)) == key != "":
            return (self.broken(f"{key} was refused as parked and cost a {event.budget} attempt ({event.spent} spent).", record),)
        return ()

    def _failed(self, event: FailureArrived, record: Record) -> Iterable[Violation]:
        if event.key in self.refused_by_gym and event.key in self.sent_with:
            return (self.broken(f"{event.key} was refused as parked by Gym and counted as a {event.cause} failure.", record),)
        return ()

    def _dropped(self, event: GroupDropped, record: Record) -> Iterable[Violation]:
        self._release(event.group)
        return ()

    def _stream_ended(self, event: StreamEnded, record: Record) -> Iterable[Violation]:
        """What had not reached the ledger by now may rightly count as lost."""
        self._release(event.group)
        return ()

    def _release(self, group: str) -> None:
        for sample in [sample for sample in self.arrived if group_of(sample) == group]:
            del self.arrived[sample]
        for key in [key for key in self.refused_by_gym if group_of(key) == group]:
            del self.refused_by_gym[key]

    def _chosen(self, event: RestoreChosen, record: Record) -> Iterable[Violation]:
        self.unknown_budgets = is_another_point(event, self.point)
        return ()


_HANDLERS: dict[type, Any] = {
    EpisodeRefused: RefusalCostsNothing._gym_refused,
    RefusalArrived: RefusalCostsNothing._arrived,
    AttemptRefused: RefusalCostsNothing._refused,
    AttemptReserved: RefusalCostsNothing._reserved,
    AttemptAbandoned: RefusalCostsNothing._abandoned,
    BudgetSpent: RefusalCostsNothing._spent,
    FailureArrived: RefusalCostsNothing._failed,
    GroupDropped: RefusalCostsNothing._dropped,
    StreamEnded: RefusalCostsNothing._stream_ended,
    RestoreChosen: RefusalCostsNothing._chosen,
}
