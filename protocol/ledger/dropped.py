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
    """``retire``: capture key -> its instance. ``forget``: rollout id -> the instances that hold a mark of it."""

    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        self.retire: dict[str, str] = {}
        self.forget: dict[str, str] = {}

    def drop(self, attempt: Attempt, why: str) -> None:
        """An attempt left the ledger's current place: queue it if Gym may hold it."""
        if decide_retire(attempt) and attempt.key not in self.retire:
            self.retire[attempt.key] = attempt.gym_instance_id
            self.rt.record(RetireQueued(key=attempt.key, why=why))

    def continued(self, attempt: Attempt) -> None:
        """The continuation of a restored rollout has sealed: its mark may go."""
        if attempt.rollout_id not in self.forget:
            self.forget[attempt.rollout_id] = attempt.gym_instance_id
            self.rt.record(ForgetQueued(rollout=attempt.rollout_id, why="continued"))

    def retired(self, keys: tuple[str, ...]) -> None:
        """Gym accepted these retires: exactly they are forgotten next; a drop recorded meanwhile stays queued."""
        for key in keys:
            instance = self.retire.pop(key)
            self.rt.record(RetireAccepted(key=key))
            rollout = GymCheckpointEpisode.of(key).rollout_id
            if rollout not in self.forget:
                self.forget[rollout] = instance
                self.rt.record(ForgetQueued(rollout=rollout, why="retired"))

    def forgotten(self, rollouts: tuple[str, ...]) -> None:
        for rollout in rollouts:
            del self.forget[rollout]
            self.rt.record(ForgetAccepted(rollout=rollout))
