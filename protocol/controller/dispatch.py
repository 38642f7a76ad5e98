"""From a reserved group to N sealed siblings: rounds of streams, and new identities for what was lost (PROTOCOL 5.3).

A round sends every sibling that is neither sealed nor under way. A row that was lost or failed in it costs one row
attempt and gets a new rollout id; one that never reached Gym keeps its own and costs nothing. A deadline bounds all rounds of
one group attempt together (PROTOCOL 1.8).
"""

from __future__ import annotations

from protocol.controller.flow import Flow
from protocol.controller.row_stream import RowStream, unsealed
from protocol.errors import Cause, ProtocolError
from protocol.history import DeadlineSet, RolloutTimedOut
from protocol.identity import gym_name
from protocol.ledger.records import Attempt, AttemptStatus, Group, Sibling
from protocol.run import Run
from protocol.tasks import cancel_all, join_all


class RowsFailed(ProtocolError):
    """The last row attempt of a sibling failed."""

    cause = Cause.INFRA


class RolloutTimeout(ProtocolError):
    """A group attempt's rollout took longer than ``rollout_timeout_s``."""

    cause = Cause.INFRA


def decide_start_over(group: Group, cohort: tuple[int, ...]) -> bool:
    """Whether every sibling of this group attempt (``cohort``: generations) was replaced, or never reached Gym."""
    return all(group.siblings[generation].current.status is not AttemptStatus.SEALED for generation in cohort)


class GroupDispatch:
    """Runs the rounds of one group until every sibling is sealed. ``moved`` is told when its first rows pass the gate."""

    def __init__(self, run: Run, flow: Flow, name: str) -> None:
        self.run = run
        self.flow = flow
        self.rt = run.rt
        self.name = name
        self.admitted = False
        self.cohort = unsealed(run.ledger.groups[name])  # of the group attempt under way

    @property
    def group(self) -> Group:
        return self.run.ledger.groups[self.name]

    def unsealed(self) -> list[Sibling]:
        return [sibling for sibling in self.group.siblings if sibling.current.status is not AttemptStatus.SEALED]

    def abandoned(self) -> list[Sibling]:
        return [sibling for sibling in self.group.siblings if sibling.current.status is AttemptStatus.ABANDONED]

    async def until_sealed(self) -> None:
        """Returns when every sibling is sealed. Raises RowsFailed, PromptFailed, BatchFailed or RolloutTimeout."""
        limit_s = self.run.job.rollout_failure.nemo_gym.rollout_timeout_s
        if limit_s is None:
            await self._rounds()
        else:
            await self._rounds_within(limit_s)

    async def _rounds_within(self, limit_s: float) -> None:
        """The rounds, retries included, under one deadline. When it expires, their streams are cancelled and awaited."""
        rt, deadlines = self.rt, self.run.deadlines
        began, held_before = rt.now(), deadlines.held_s()
        rt.record(DeadlineSet(group=self.name, limit_s=limit_s))
        rounds = rt.spawn(self._rounds(), f"rollout-{self.name}")
        expired = rt.spawn(deadlines.expired(limit_s), f"deadline-{self.name}")
        try:
            if await rt.first_of(rounds.join(), expired.join()) == 0 or rounds.done:
                await rounds.join()
                return
            elapsed_s, held_s = rt.now() - began, deadlines.held_s() - held_before
            rt.record(RolloutTimedOut(group=self.name, elapsed_s=elapsed_s, held_s=held_s))
        finally:
            await cancel_all(rt, (rounds, expired))
        raise RolloutTimeout(f"{self.name} took more than {limit_s:g} s ({elapsed_s - held_s:.3f} s, held time left out)")

    async def _rounds(self) -> None:
        if self.abandoned():
            await self._mint_after_restart()
        while self.unsealed():
            await self._round()
            if self.abandoned():
                await self._replace_lost()

    async def _mint_after_restart(self) -> None:
        """Successors of attempts that a restart abandoned; they spend no row attempt."""
        async with self.run.barrier.mutation("recovery_retries"):
            for sibling in self.abandoned():
                self.run.ledger.mint(self.name, sibling.generation_index, "restart", sibling.row_attempts)

    async def _round(self) -> None:
        """One stream per instance, each its own task; when this returns or raises, none of them is alive (I37)."""
        by_instance: dict[str, list[str]] = {}
        for sibling in self.unsealed():
            by_instance.setdefault(self._instance(sibling.current), []).append(sibling.current.key)
        streams = {
            instance: RowStream(self.run, self.flow, self.name, instance, keys, self._admit)
            for instance, keys in by_instance.items()
        }
        await join_all(
            self.rt, [self.rt.spawn(one.serve(), f"stream-{self.name}-{instance}") for instance, one in streams.items()]
        )

    def _instance(self, attempt: Attempt) -> str:
        """A continuation runs where its state was restored; anything else is spread by prompt."""
        if attempt.restored_from is not None:
            return attempt.gym_instance_id
        return gym_name(self.group.ordinal % self.run.job.gym_instances)

    def _admit(self) -> None:
        self.admitted = True
        self.flow.groups_moved.set()

    async def _replace_lost(self) -> None:
        """What the round lost: a new rollout id each. Raises RowsFailed at the last attempt."""
        ledger, limit = self.run.ledger, self.run.job.rollout_failure.nemo_gym.max_row_attempts
        async with self.run.barrier.mutation("recovery_retries"):
            lost = self.abandoned()
            for sibling in lost:
                if sibling.row_attempts >= limit:
                    raise RowsFailed(f"{sibling.current.key} did not come back in {limit} attempts")
            for sibling in lost:
                following = sibling.row_attempts + 1
                ledger.spend(self.name, "row", sibling.current.key, following, limit)
                ledger.mint(self.name, sibling.generation_index, "lost-row", following)
            self.start_cohort_over()

    def start_cohort_over(self) -> None:
        """A new group attempt, if no sibling of the old one has sealed: a verifier of cohorts keeps a failed one, and a row
        that comes under it would fail with it. Siblings that had sealed before it began were none of its cohort."""
        if decide_start_over(self.group, self.cohort):
            self.run.ledger.raise_group_attempt(self.name)
            self.cohort = unsealed(self.group)
