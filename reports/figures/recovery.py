"""Figures of a restart: ``timing/rollout_recovery`` of NeMo RL's telemetry, and what training took over from earlier lives."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Annotated

import msgspec

from protocol.history import (
    AttemptDispatched,
    CallBegun,
    Event,
    FinalizeDone,
    GroupDropped,
    GroupRecovered,
    OptimizerApplied,
    PrefixRestored,
    Record,
    Restored,
)
from protocol.identity import group_of_sample
from reports.figures.definition import RING, Area, Handler, figure, seconds


class RolloutRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the unfinished groups that this life restored (NeMo RL: `timing/rollout_recovery`)."""

    restore_s: Annotated[float, figure("s", "from the start of the life's processes to the restored state")]
    groups_considered: Annotated[int, figure("groups", "unfinished ones of the restored ledger that had their turn")]
    groups_finalized: Annotated[int, figure("groups", "of these, published in this life")]
    groups_dropped: Annotated[int, figure("groups", "of these, dropped in this life")]
    siblings_reused: Annotated[int, figure("rollouts", "restored as sealed, in groups that were not dropped")]
    siblings_redispatched: Annotated[
        int, figure("rollouts", "of groups that were considered, sent to Gym in this life; each once")
    ]


class TrainStep(msgspec.Struct, frozen=True, kw_only=True):
    """One applied train step."""

    step: Annotated[int, figure("number", "the train step")]
    calls: Annotated[int, figure("model calls", "in the rows that it trained")]
    restored_calls: Annotated[int, figure("model calls", "of these, begun in an earlier life")]
    prefix_calls: Annotated[int, figure("model calls", "of the others, that went on after a restored prefix")]
    prefix_tokens: Annotated[int, figure("tokens", "of these prefixes: an earlier life generated them")]


class RecoveryArea(Area):
    def __init__(self) -> None:
        self._restored_at = 0.0
        self._considered: dict[str, int] = {}  # group -> siblings that came sealed
        self._finalized = self._dropped = self._reused = 0
        self._redispatched: dict[str, None] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {
            Restored: self._restored,
            GroupRecovered: self._recovered,
            AttemptDispatched: self._dispatched,
            FinalizeDone: self._published,
            GroupDropped: self._drop,
        }

    def _restored(self, record: Record, event: Restored) -> None:
        self._restored_at = record.time

    def _recovered(self, record: Record, event: GroupRecovered) -> None:
        self._considered[event.group] = event.reused
        self._reused += event.reused

    def _dispatched(self, record: Record, event: AttemptDispatched) -> None:
        if self._considered and group_of_sample(event.sample) in self._considered:
            self._redispatched[event.sample] = None

    def _published(self, record: Record, event: FinalizeDone) -> None:
        self._finalized += event.group in self._considered

    def _drop(self, record: Record, event: GroupDropped) -> None:
        if event.group in self._considered:
            self._dropped += 1
            self._reused -= self._considered[event.group]

    def figures(self) -> RolloutRecovery:
        return RolloutRecovery(
            restore_s=seconds(self._restored_at),
            groups_considered=len(self._considered),
            groups_finalized=self._finalized,
            groups_dropped=self._dropped,
            siblings_reused=self._reused,
            siblings_redispatched=len(self._redispatched),
        )


class TrainingArea(Area):
    """Figures: a tuple of ``TrainStep``, the newest ones."""

    def __init__(self) -> None:
        self._begun: dict[str, int] = {}  # calls of this life that were not trained yet: restored tokens of each
        self._steps: deque[TrainStep] = deque(maxlen=RING)

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {CallBegun: self._call, PrefixRestored: self._restored, OptimizerApplied: self._applied}

    def _call(self, record: Record, event: CallBegun) -> None:
        self._begun[event.call] = 0  # of the execution that is answered: it is the last one

    def _restored(self, record: Record, event: PrefixRestored) -> None:
        self._begun[event.call] = event.count

    def _applied(self, record: Record, event: OptimizerApplied) -> None:
        calls = [call for row in event.rows for call, _, _ in row.calls]
        own = [self._begun.pop(call) for call in calls if call in self._begun]
        self._steps.append(
            TrainStep(
                step=event.step,
                calls=len(calls),
                restored_calls=len(calls) - len(own),
                prefix_calls=sum(1 for tokens in own if tokens),
                prefix_tokens=sum(own),
            )
        )

    def figures(self) -> tuple[TrainStep, ...]:
        return tuple(self._steps)
