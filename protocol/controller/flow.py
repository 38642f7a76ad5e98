"""What the pumps share beside the state of the run: bounds, signals, and the first failure."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from protocol.controller.budgets import Permits
from protocol.errors import ProtocolError
from protocol.run import Run


class Flow:
    def __init__(self, run: Run) -> None:
        rt, job = run.rt, run.job
        self.permits = Permits(rt, job.max_buffered_rollouts, "a buffer permit")  # one a group, until it is trained or dropped
        self.slots = Permits(rt, job.inflight_prompts, "a generation slot")  # one a group while it generates
        self.rollout_permitted = True  # False while weights are pushed
        self.groups_committed = 0
        self.admission = rt.signal()  # a batch may have become admissible
        self.groups_moved = rt.signal()  # a group's first rows passed the gate, or it is over
        self.replay_changed = rt.signal()
        self.weights_synced = rt.signal()
        self.suspected: dict[str, None] = {}  # peers that a row gives reason to probe
        self.suspicion = rt.signal()
        self.failed = rt.signal()
        self.failure: ProtocolError | None = None
        self._refusals: dict[str, int] = {}  # capture key -> refusals of this life

    def count_refusal(self, key: str) -> int:
        self._refusals[key] = self._refusals.get(key, 0) + 1
        return self._refusals[key]

    def suspect(self, *peers: str) -> None:
        self.suspected.update(dict.fromkeys(peers))
        self.suspicion.set()

    async def supervised(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A task whose failure nobody waits for: a typed one ends the run."""
        try:
            await work()
        except ProtocolError as error:
            self.fail(error)

    def fail(self, error: ProtocolError) -> None:
        """The run ends with the first failure that is told here."""
        if self.failure is None:
            self.failure = error
        self.failed.set()
