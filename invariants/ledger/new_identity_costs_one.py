"""I6: what a send may cost, and that a restart neither spends nor gives back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from invariants.ledger.attempts import groups_of, is_another_point, restore_point
from protocol.history import AttemptDispatched, AttemptReserved, BudgetSpent, Record, RestoreChosen
from protocol.identity import sample_id
from protocol.judging import Durable, Judge, RestorePoint, Terms, Violation


class NewIdentityCostsOne(Judge):
    """Each send of a new identity spends exactly one row attempt, a refused, continued or restarted one none, and no budget
    is exceeded, charged twice or reset.

    A group that failed whole starts a new chain of row attempts; what it spent itself goes on counting over all lives.
    """

    invariant = "I6"
    needs = (AttemptDispatched,)
    sees = (AttemptReserved, BudgetSpent, RestoreChosen)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.sends: dict[str, int] = {}  # sample -> identities of its chain, the current one included
        self.spent: dict[tuple[str, str], int] = {}  # (group, infra | data) -> spent
        self.charged: dict[str, None] = {}  # keys that cost a row attempt
        self.point = RestorePoint("", 0, 0, "")
        self.elsewhere = False  # restored from a point that this judge did not read
        self.limits = {
            "row": terms.job.rollout_failure.nemo_gym.max_row_attempts,
            "infra": terms.job.rollout_failure.max_infra_attempts_per_prompt,
            "data": terms.job.rollout_failure.max_data_attempts_per_prompt,
        }

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        for group in groups_of(durable.ledger(self.point.source)):
            name = group["group_id"]
            self.spent[name, "infra"] = group["infra_spent"]
            self.spent[name, "data"] = group["data_spent"]
            for sibling in group["siblings"]:
                sends = sibling.get("row_attempts")
                if sends is not None:
                    self.sends[sample_id(name, sibling["generation_index"])] = sends
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is AttemptDispatched:
            return self._dispatched(event, record)
        if type(event) is AttemptReserved:
            if event.why == "lost-row":
                if event.sample in self.sends:
                    self.sends[event.sample] += 1
            elif event.why in ("new", "retry"):
                self.sends[event.sample] = 1
        elif type(event) is BudgetSpent:
            return self._spent(event, record)
        elif type(event) is RestoreChosen and is_another_point(event, self.point):
            self.elsewhere = True
            self.sends.clear()
            self.spent.clear()
        return ()

    def _dispatched(self, event: AttemptDispatched, record: Record) -> Iterable[Violation]:
        known = self.sends.setdefault(event.sample, event.row_attempts)
        if event.row_attempts != known:
            self.sends[event.sample] = event.row_attempts
            return (
                self.broken(f"{event.key} was sent with {event.row_attempts} row attempts spent; its chain has {known}.", record),
            )
        if known > self.limits["row"]:
            return (self.broken(f"{event.key} is send {known} of its chain; {self.limits['row']} are allowed.", record),)
        return ()

    def _spent(self, event: BudgetSpent, record: Record) -> Iterable[Violation]:
        found: list[Violation] = []
        limit = self.limits.get(event.budget, event.limit)
        if event.spent > limit or event.limit != limit:
            found.append(
                self.broken(
                    f"{event.group} spent {event.spent} of {event.limit} {event.budget} attempts; the limit is {limit}.", record
                )
            )
        if event.budget == "row":
            if event.key and event.key in self.charged:
                found.append(self.broken(f"{event.key} was charged a second row attempt.", record))
            self.charged[event.key] = None
            return found
        known = self.spent.get((event.group, event.budget), None if self.elsewhere else 0)
        if known is not None and event.spent != known + 1:
            found.append(self.broken(f"{event.group}: {event.budget} failures went from {known} to {event.spent}.", record))
        self.spent[event.group, event.budget] = event.spent
        return found
