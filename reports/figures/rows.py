"""Figures of dispatch: rows at Gym's door, refusals and re-sends, what was given up, retired, dropped and spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated

import msgspec

from protocol.history import (
    AttemptAbandoned,
    AttemptDispatched,
    AttemptRefused,
    BudgetSpent,
    Event,
    FailureArrived,
    ForgetAccepted,
    ForgetQueued,
    GroupAttemptRaised,
    GroupDropped,
    PromptPassedOver,
    Record,
    RefusalArrived,
    RetireAccepted,
    RetireQueued,
    RolloutTimedOut,
    RowReported,
)
from reports.figures.definition import Area, Durations, Handler, Stopwatch, figure, watches


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that the controller hands to Gym instances, and the groups behind them."""

    sent: Annotated[int, figure("rows", "handed to a Gym instance, re-sent ones each time")]
    run_s: Annotated[
        dict[str, Durations],
        figure(
            "Durations",
            "/run timing by what came of the row: `completed`, `refused`, `failed` as Gym measured it; `lost` since it was sent",
        ),
    ]
    refusals: Annotated[dict[str, int], figure("rows", "refused by Gym (409), by reason")]
    resends: Annotated[int, figure("rows", "sent again under the same identity after a refusal")]
    failures: Annotated[dict[str, int], figure("rows", "failed at Gym, by cause: `infra`, `data`")]
    abandoned: Annotated[dict[str, int], figure("attempts", "given up, by why")]
    retires: Annotated[dict[str, int], figure("attempts", "queued for retire, by why")]
    retires_accepted: Annotated[int, figure("attempts", "that Gym has retired")]
    forgets: Annotated[dict[str, int], figure("rollouts", "queued for forget, by why")]
    forgets_accepted: Annotated[int, figure("rollouts", "that Gym has forgotten")]
    groups_dropped: Annotated[dict[str, int], figure("groups", "that left the ledger untrained, by cause")]
    prompts_passed_over: Annotated[dict[str, int], figure("prompts", "that will not be trained, by cause")]
    budgets_spent: Annotated[dict[str, int], figure("attempts", "charged to a budget: `row`, `infra`, `data`")]
    group_attempts_raised: Annotated[int, figure("groups", "whose rows were all replaced at once")]
    rollouts_timed_out: Annotated[int, figure("group attempts", "that ran into their request deadline")]


class RowsArea(Area):
    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()  # figures that are one number
        self._by: dict[str, Counter[str]] = {
            name: Counter()
            for name in (
                "refusals",
                "failures",
                "abandoned",
                "retires",
                "forgets",
                "groups_dropped",
                "prompts_passed_over",
                "budgets_spent",
            )
        }
        self._run: dict[str, Stopwatch] = {}
        self._refused: dict[str, None] = {}  # keys that wait for their re-send

    def handlers(self) -> Mapping[type[Event], Handler]:
        def by(name: str, field: str) -> Handler:
            counter = self._by[name]
            return lambda record, event: counter.update((getattr(event, field),))

        def one(name: str) -> Handler:
            return lambda record, event: self._counts.update((name,))

        return {
            AttemptDispatched: self._dispatched,
            AttemptRefused: self._refuse,
            AttemptAbandoned: self._abandon,
            RowReported: self._reported,
            RefusalArrived: by("refusals", "reason"),
            FailureArrived: by("failures", "cause"),
            RetireQueued: by("retires", "why"),
            RetireAccepted: one("retires_accepted"),
            ForgetQueued: by("forgets", "why"),
            ForgetAccepted: one("forgets_accepted"),
            GroupDropped: by("groups_dropped", "why"),
            PromptPassedOver: by("prompts_passed_over", "why"),
            BudgetSpent: by("budgets_spent", "budget"),
            GroupAttemptRaised: one("group_attempts_raised"),
            RolloutTimedOut: one("rollouts_timed_out"),
        }

    def _dispatched(self, record: Record, event: AttemptDispatched) -> None:
        self._counts["sent"] += 1
        if event.key in self._refused:
            del self._refused[event.key]
            self._counts["resends"] += 1

    def _refuse(self, record: Record, event: AttemptRefused) -> None:
        self._refused[event.key] = None

    def _abandon(self, record: Record, event: AttemptAbandoned) -> None:
        self._by["abandoned"][event.why] += 1
        self._refused.pop(event.key, None)

    def _reported(self, record: Record, event: RowReported) -> None:
        self._run.setdefault(event.outcome, Stopwatch()).add(event.run_s)

    def figures(self) -> Rows:
        count = self._counts
        return Rows(
            sent=count["sent"],
            run_s=watches(self._run),
            resends=count["resends"],
            retires_accepted=count["retires_accepted"],
            forgets_accepted=count["forgets_accepted"],
            group_attempts_raised=count["group_attempts_raised"],
            rollouts_timed_out=count["rollouts_timed_out"],
            **{name: dict(counter) for name, counter in self._by.items()},
        )
