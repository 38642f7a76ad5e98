"""Bounds and budgets: permits of the buffer, slots of generation, and what a failure costs (PROTOCOL 1.3, 1.10)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum

from protocol.config import RolloutFailure
from protocol.errors import Cause
from protocol.runtime import Runtime, Signal, Task


class Permits:
    """A counting semaphore, first come first served; a cancelled waiter leaves the line and loses nothing.

    Who must decide again before it takes any waits for ``released`` and uses ``take_now``. ``what`` names them.
    """

    def __init__(self, rt: Runtime, count: int, what: str = "a permit") -> None:
        self.rt = rt
        self.free = count
        self.what = what
        self.takers: dict[Task, None] = {}  # who acquired and has not released
        self.line: deque[Signal] = deque()
        self.released = rt.signal()
        self.released.what = what

    async def acquire(self, count: int = 1) -> None:
        turn = self.rt.signal()
        turn.what, turn.owed_by = self.what, self.awaited_by
        self.line.append(turn)
        try:
            while self.line[0] is not turn or self.free < count:
                await turn.wait()
            self.free -= count
            self.takers[self.rt.task()] = None
        finally:
            self.line.remove(turn)
            self._wake()

    def awaited_by(self, waiting: Task) -> Sequence[Sequence[Task]]:
        """``Signal.owed_by``: any taker may give some back."""
        return tuple((taker,) for taker in self.takers)

    def take_now(self, count: int) -> None:
        """Take without waiting; the caller has seen that they are free."""
        self.free -= count

    def release(self, count: int = 1) -> None:
        self.free += count
        if self.takers:
            self.takers.pop(self.rt.task(), None)
        self.released.set()
        self._wake()

    def _wake(self) -> None:
        if self.line:
            self.line[0].set()


class AfterFailure(Enum):
    RETRY = "retry"
    SKIP = "skip"
    STOP = "stop"


def decide_failure(rules: RolloutFailure, cause: Cause, infra_spent: int, data_spent: int, skipped: int) -> AfterFailure:
    """What follows a failed group attempt; ``*_spent`` already count it. A parked refusal never comes here."""
    if cause is Cause.DATA:
        if data_spent < rules.max_data_attempts_per_prompt:
            return AfterFailure.RETRY
        return AfterFailure.SKIP if skipped < rules.max_skipped_prompts else AfterFailure.STOP
    return AfterFailure.RETRY if infra_spent < rules.max_infra_attempts_per_prompt else AfterFailure.STOP


def backoff_s(rules: RolloutFailure, spent: int) -> float:
    """Seconds before the next attempt after ``spent`` infra failures: doubling, capped."""
    return min(rules.backoff_base_s * 2.0 ** max(spent - 1, 0), rules.max_backoff_s)
