"""BUDGET-1: what failures cost is charged, waited for, and in every save. Saves are read as files, without the core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from invariants.durability.payload import LEDGER, Payload, payloads
from invariants.ledger.attempts import groups_of, is_another_point, restore_point
from protocol.history import (
    BudgetSpent,
    CutTaken,
    FinalizeIssued,
    GroupMoved,
    PromptPassedOver,
    Record,
    RestoreChosen,
    RowsSubmitted,
)
from protocol.judging import Durable, Judge, RestorePoint, RunStatus, Terms, Violation

ROUNDING_S = 1e-9


class FailuresArePaidFor(Judge):
    """A refused publication costs its prompt an infra attempt, an infra failure is tried again only after the backoff that its
    count asks for, and every save holds what each open prompt has spent and how many prompts were skipped.
    """

    invariant = "BUDGET-1"
    needs = (CutTaken,)
    sees = (BudgetSpent, FinalizeIssued, GroupMoved, PromptPassedOver, RestoreChosen, RowsSubmitted)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.spent: dict[str, dict[str, int]] = {}  # group -> infra, data; only of groups that spent any
        self.skips = 0
        self.until_s: dict[str, float] = {}  # group -> no new attempt before
        self.owed: dict[str, None] = {}  # groups whose publication was refused and not charged yet
        self.cuts: dict[tuple[int, int], tuple[dict[str, dict[str, int]], int]] = {}
        self.point = RestorePoint("", 0, 0, "")

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        ledger = durable.ledger(self.point.source)
        self.skips = ledger.get("skips", 0) if isinstance(ledger, dict) else 0
        for group in groups_of(ledger):
            if group.get("infra_spent") or group.get("data_spent"):
                self.spent[group["group_id"]] = {"infra": group["infra_spent"], "data": group["data_spent"]}
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        match event:
            case BudgetSpent(budget="infra" | "data"):
                self.spent.setdefault(event.group, {"infra": 0, "data": 0})[event.budget] = event.spent
                self.owed.pop(event.group, None)
                if event.budget == "infra":
                    self.until_s[event.group] = record.time + self._backoff_s(event.spent)
            case PromptPassedOver(why="skipped"):
                self.skips += 1
            case GroupMoved(group=group, before="FINALIZING", after="READY_TO_FINALIZE"):
                self.owed[group] = None
            case RowsSubmitted(group=group) | FinalizeIssued(group=group):
                return [self.broken(text, record) for text in self._tried(group, record.time)]
            case RestoreChosen() if is_another_point(event, self.point):
                self.spent, self.skips = {}, 0
            case CutTaken():
                place = (event.step, event.sequence if event.role == "snapshot" else 0)
                self.cuts[place] = ({group: dict(spent) for group, spent in self.spent.items()}, self.skips)
        return ()

    def _tried(self, group: str, now_s: float) -> Iterator[str]:
        if group in self.owed:
            del self.owed[group]
            yield f"the refused publication of {group} is tried again and cost nothing."
        until_s = self.until_s.pop(group, now_s)
        if now_s < until_s - ROUNDING_S - self.terms.slack_s:
            yield f"{group} was tried again at {now_s:.3f} s, its backoff ends at {until_s:.3f} s."

    def _backoff_s(self, spent: int) -> float:
        """Doubling from the base, capped."""
        rules = self.terms.job.rollout_failure
        wait_s = rules.backoff_base_s
        for _ in range(spent - 1):
            wait_s = min(2 * wait_s, rules.max_backoff_s)
        return min(wait_s, rules.max_backoff_s)

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterator[Violation]:
        for payload in payloads(durable):
            cut = self.cuts.get((payload.step, payload.sequence))
            if cut is not None:  # else it is another life's
                for text in _differs(payload, *cut):
                    yield self.broken(f"{payload.source}: {text}.")


def _differs(payload: Payload, spent: dict[str, dict[str, int]], skips: int) -> Iterator[str]:
    ledger = payload.read(LEDGER)
    saved = ledger.get("skips", skips) if isinstance(ledger, dict) else skips
    if saved != skips:
        yield f"it counts {saved} skipped prompts, {skips} were"
    for group in payload.groups():
        name = group["group_id"]
        for budget, known in spent.get(name, {"infra": 0, "data": 0}).items():
            found = group.get(f"{budget}_spent", known)
            if found != known:
                yield f"{name} has spent {found} {budget} attempts there, {known} in the run"
