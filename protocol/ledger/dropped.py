"""Retire and forget queues (PROTOCOL 2.7): in memory only, since a crash also ends Gym."""

from __future__ import annotations

from protocol.history import ForgetAccepted, ForgetQueued, RetireAccepted, RetireQueued
from protocol.identity import GymCheckpointEpisode
from protocol.ledger.records import Attempt
from protocol.runtime import Runtime


def decide_retire(attempt: Attempt) -> bool:
    """Whether a dropped attempt must be retired: Gym may hold it (dispatched, or reserved with restored state)."""
    return attempt.may_be_in_gym


class Dropped:
    """``retire``: capture key -> its instance. ``forget``: rollout id -> the instance that holds its mark; ``marked`` is
    the newest attempt of each such rollout, which a refused forget retires again."""

    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        self.retire: dict[str, str] = {}
        self.forget: dict[str, str] = {}
        self.marked: dict[str, str] = {}  # rollout id -> capture key

    def drop(self, attempt: Attempt, why: str) -> None:
        """An attempt left the ledger's current place: queue it if Gym may hold it."""
        if decide_retire(attempt) and attempt.key not in self.retire:
            self.retire[attempt.key] = attempt.gym_instance_id
            self.rt.record(RetireQueued(key=attempt.key, why=why))

    def continued(self, attempt: Attempt) -> None:
        """The continuation of a restored rollout has sealed: its mark may go."""
        self._queue_forget(attempt.key, attempt.gym_instance_id, "continued")

    def retired(self, keys: tuple[str, ...]) -> None:
        """Gym accepted these retires: exactly they are forgotten next; a drop recorded meanwhile stays queued."""
        for key in keys:
            instance = self.retire.pop(key)
            self.rt.record(RetireAccepted(key=key))
            self._queue_forget(key, instance, "retired")

    def forgotten(self, rollouts: tuple[str, ...]) -> None:
        for rollout in rollouts:
            del self.forget[rollout]
            del self.marked[rollout]
            self.rt.record(ForgetAccepted(rollout=rollout))

    def _queue_forget(self, key: str, instance: str, why: str) -> None:
        rollout = GymCheckpointEpisode.of(key).rollout_id
        self.marked[rollout] = key
        if rollout not in self.forget:
            self.forget[rollout] = instance
            self.rt.record(ForgetQueued(rollout=rollout, why=why))
