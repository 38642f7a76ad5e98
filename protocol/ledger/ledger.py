"""The recovery ledger in memory. Every change happens inside a mutation of the data-plane barrier.

Groups are frozen records, replaced whole. Two indexes make what is asked often cheap: ``place`` (capture key of a
current attempt -> group and generation) and ``pending`` (those that may be in Gym, with their instance: dispatched and
unsealed, or a continuation that waits for its dispatch), so a drain looks up only what is pending (I42). ``counts`` is what
the pumps ask of all groups at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from protocol.errors import IllegalStep
from protocol.history import (
    AttemptAbandoned,
    AttemptDispatched,
    AttemptRefused,
    AttemptReserved,
    AttemptSealed,
    BudgetSpent,
    GroupAttemptRaised,
    GroupDropped,
    GroupMoved,
    GroupReserved,
    PromptPassedOver,
)
from protocol.identity import group_id, ordinal_of_group, rollout_id
from protocol.ledger.counts import GroupCounts
from protocol.ledger.dropped import Dropped
from protocol.ledger.records import Attempt, AttemptStatus, Group, GroupStatus, OpenStep, Sibling
from protocol.ledger.transitions import (
    Abandon,
    AttemptEvent,
    Dispatch,
    GroupEvent,
    Refuse,
    Seal,
    advance,
    advance_group,
    decide_drop,
)
from protocol.messages import PromptTask, Receipt
from protocol.runtime import Runtime
from protocol.visits import LiveRecords, Visits

UNSEALED = (AttemptStatus.RESERVED, AttemptStatus.DISPATCHED)


def new_attempt(sample: str, count: int) -> Attempt:
    """The ``count``-th rollout of a sample, not yet sent."""
    return Attempt(
        rollout_id=rollout_id(sample, count), gym_attempt=0, gym_instance_id="", restored_from=None,
        status=AttemptStatus.RESERVED, receipt=None, reward=None, staging_keys=(),
    )  # fmt: skip


def rollouts_of(sibling: Sibling) -> int:
    """How many rollout ids this sibling has used: a continuation shares its predecessor's."""
    return len(dict.fromkeys(attempt.rollout_id for attempt in sibling.attempts))


class Ledger:
    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        self.visits = Visits(rt)
        self.groups: LiveRecords[Group] = LiveRecords(self.visits, lambda group: len(group.siblings))
        self.place: dict[str, tuple[str, int]] = {}
        self.pending: dict[str, str] = {}
        self.counts = GroupCounts()
        self.open_step: OpenStep | None = None
        self.skipped: dict[int, None] = {}  # ordinals passed over, for whatever reason
        self.skips = 0  # prompts that spent their data budget
        # Capture keys given up in this life, of which Gym may still stage rows: by live group, and of groups that are gone.
        self.abandoned: dict[str, list[str]] = {}
        self.orphaned: dict[str, None] = {}
        self.dropped = Dropped(rt)
        self.settled = rt.signal()  # an attempt left `pending`: a drain looks again

    # --- reading

    def find(self, key: str) -> tuple[Group, Sibling] | None:
        """The group and sibling whose current attempt carries this capture key."""
        place = self.place.get(key)
        if place is None:
            return None
        group = self.groups[place[0]]
        return group, group.siblings[place[1]]

    def must_find(self, key: str) -> tuple[Group, Sibling]:
        """As ``find``; raises IllegalStep."""
        found = self.find(key)
        if found is None:
            raise IllegalStep(f"{key} is not a current attempt of the ledger")
        return found

    def candidates(self) -> tuple[tuple[str, str], ...]:
        """(capture key, instance) of every attempt that may be in Gym, in order of dispatch."""
        return tuple(self.pending.items())

    def targets(self) -> Mapping[int, int]:
        """Live groups of each target step."""
        return self.counts.targets

    def group_of(self, ordinal: int) -> str | None:
        """The live group of a prompt."""
        return self.counts.names.get(ordinal)

    def oldest_in_gym(self) -> str | None:
        """The group of the lowest ordinal that may be in Gym."""
        return min((self.place[key][0] for key in self.pending), key=ordinal_of_group, default=None)

    # --- groups

    def reserve(self, task: PromptTask, ordinal: int, epoch: int, target: int, version: int, siblings: int, level: str) -> Group:
        """A new group for one prompt, one attempt a sibling."""
        name = group_id(epoch, ordinal, self.rt.life)
        group = Group(
            group_id=name, ordinal=ordinal, epoch=epoch, task_id=task.task_id, task_name=task.name,
            expected_generations=siblings, target_step=target, start_weight_version=version,
            siblings=tuple(
                Sibling(generation_index=i, row_attempts=1, attempts=(new_attempt(f"{name}_g{i}", 0),)) for i in range(siblings)
            ),
            status=GroupStatus.GENERATING, rows=(), claimed_train_step=None, restore_level=level, group_attempt=0,
            infra_spent=0, data_spent=0,
        )  # fmt: skip
        self.rt.record(GroupReserved(group=name, ordinal=ordinal, epoch=epoch, target=target, siblings=siblings))
        for sibling in group.siblings:
            self.rt.record(AttemptReserved(sample=group.sample(sibling.generation_index), key=sibling.current.key, why="new"))
        self._put(group)
        return group

    def install(self, groups: Iterable[Group], skipped: Iterable[int], skips: int) -> None:
        """What a restore read and prepared; the ledger must be empty. Many groups follow by ``install_more``."""
        assert not self.groups, "a restore installs into an empty ledger"
        self.install_more(groups)
        self.skipped = dict.fromkeys(skipped)
        self.skips = skips

    def install_more(self, groups: Iterable[Group]) -> None:
        for group in groups:
            self._put(group)

    def move(self, name: str, event: GroupEvent) -> Group:
        before = self.groups[name]
        after = advance_group(before, event)
        self.groups[name] = after
        self.counts.moved(before, after)
        self.rt.record(GroupMoved(group=name, before=before.status.value, after=after.status.value))
        return after

    def release(self, name: str) -> None:
        """A trained group leaves the ledger."""
        group = self.groups.pop(name)
        assert group.status is GroupStatus.APPLIED_UNCHECKPOINTED, f"{name} is {group.status.value}"
        for sibling in group.siblings:
            self._unplace(sibling.current)
        self._left(group)

    def release_all(self, names: Iterable[str]) -> None:
        for name in names:
            self.release(name)

    def drop(self, name: str, why: str, *, passed_over: bool = True) -> Group:
        """A group leaves the ledger untrained; what Gym may hold of it is queued for retire. Raises IllegalStep."""
        group = self.groups[name]
        refused = decide_drop(group)
        if refused is not None:
            raise IllegalStep(refused)
        for sibling in group.siblings:
            attempt = sibling.current
            if attempt.status in UNSEALED:
                self.abandon(attempt.key, why)
            self._unplace(attempt)
        del self.groups[name]
        self._left(group)
        self.rt.record(GroupDropped(group=name, ordinal=group.ordinal, why=why))
        if passed_over:
            self.pass_over(group.ordinal, why)
        return group

    def pass_over(self, ordinal: int, why: str) -> None:
        """This prompt will not be trained."""
        self.skipped[ordinal] = None
        self.skips += why == "skipped"
        self.rt.record(PromptPassedOver(ordinal=ordinal, why=why))

    # --- attempts

    def dispatch(self, key: str, instance: str) -> Attempt:
        group, sibling = self.must_find(key)
        attempt = self._apply(group, sibling, Dispatch(instance=instance))
        self.rt.record(
            AttemptDispatched(
                sample=group.sample(sibling.generation_index), key=key, instance=instance, row_attempts=sibling.row_attempts
            )
        )
        return attempt

    def refuse(self, key: str) -> Attempt:
        """A parked refusal: RESERVED again, same identity, every budget unchanged."""
        group, sibling = self.must_find(key)
        attempt = self._apply(group, sibling, Refuse())
        self.rt.record(
            AttemptRefused(
                sample=group.sample(sibling.generation_index),
                key=key,
                row_attempts=sibling.row_attempts,
                infra_spent=group.infra_spent,
                data_spent=group.data_spent,
            )  # fmt: skip
        )
        self.settled.set()
        return attempt

    def seal(self, key: str, receipt: Receipt, reward: float) -> Attempt:
        """DISPATCHED -> SEALED. The same seal again changes nothing; another one, or another attempt's, is IllegalStep."""
        group, sibling = self.must_find(key)
        current = sibling.current
        if current.status is AttemptStatus.SEALED and current.receipt == receipt and current.reward == reward:
            return current
        if (receipt.key, receipt.rollout_id) != (current.key, current.rollout_id):
            raise IllegalStep(f"a receipt of {receipt.key} cannot seal {current.key}")
        attempt = self._apply(group, sibling, Seal(receipt=receipt, reward=reward))
        self.rt.record(
            AttemptSealed(
                sample=group.sample(sibling.generation_index),
                key=receipt.key,
                current=current.key,
                receipt=receipt.digest,
                rows=len(receipt.calls),
            )
        )
        if attempt.restored_from is not None:
            self.dropped.continued(attempt)
        self.settled.set()
        return attempt

    def abandon(self, key: str, why: str, *, held_by_gym: bool = True) -> None:
        """The current attempt is given up. ``held_by_gym`` False: Gym itself said that it ended."""
        group, sibling = self.must_find(key)
        before = sibling.current
        self._apply(group, sibling, Abandon())
        self.abandoned.setdefault(group.group_id, []).append(key)
        self.rt.record(AttemptAbandoned(sample=group.sample(sibling.generation_index), key=key, why=why))
        if held_by_gym:
            self.dropped.drop(before, why)
        self.settled.set()

    def mint(self, name: str, generation: int, why: str, row_attempts: int) -> Attempt:
        """A new current attempt under a new rollout id, after one that was abandoned."""
        group = self.groups[name]
        sibling = group.siblings[generation]
        assert sibling.current.status is AttemptStatus.ABANDONED, f"{sibling.current.key} is {sibling.current.status.value}"
        attempt = new_attempt(group.sample(generation), rollouts_of(sibling))
        self._unplace(sibling.current)
        self._put_sibling(
            group, msgspec.structs.replace(sibling, attempts=(*sibling.attempts, attempt), row_attempts=row_attempts)
        )
        self.rt.record(AttemptReserved(sample=group.sample(generation), key=attempt.key, why=why))
        return attempt

    def spend(self, name: str, budget: str, key: str, spent: int, limit: int) -> None:
        """Record a budget's new value (``infra`` and ``data`` live on the group, ``row`` on the sibling)."""
        group = self.groups[name]
        if budget == "infra":
            self.groups[name] = msgspec.structs.replace(group, infra_spent=spent)
        elif budget == "data":
            self.groups[name] = msgspec.structs.replace(group, data_spent=spent)
        self.rt.record(BudgetSpent(group=name, key=key, budget=budget, spent=spent, limit=limit))

    def raise_group_attempt(self, name: str) -> None:
        """Every row of a cohort is replaced: cohort verifiers keep failed group attempts."""
        group = self.groups[name]
        self.groups[name] = msgspec.structs.replace(group, group_attempt=group.group_attempt + 1)
        self.rt.record(GroupAttemptRaised(group=name, group_attempt=group.group_attempt + 1))

    # --- inside

    def _apply(self, group: Group, sibling: Sibling, event: AttemptEvent) -> Attempt:
        attempt = advance(sibling.current, event)
        self._put_sibling(group, msgspec.structs.replace(sibling, attempts=(*sibling.attempts[:-1], attempt)))
        return attempt

    def _put_sibling(self, group: Group, sibling: Sibling) -> None:
        siblings = list(group.siblings)
        siblings[sibling.generation_index] = sibling
        self._index(group.group_id, sibling)
        self.groups[group.group_id] = msgspec.structs.replace(group, siblings=tuple(siblings))

    def _put(self, group: Group) -> None:
        self.groups[group.group_id] = group
        self.counts.came(group)
        for sibling in group.siblings:
            self._index(group.group_id, sibling)

    def _left(self, group: Group) -> None:
        self.counts.left(group)
        self.orphaned.update(dict.fromkeys(self.abandoned.pop(group.group_id, ())))

    def _index(self, name: str, sibling: Sibling) -> None:
        attempt = sibling.current
        self.place[attempt.key] = (name, sibling.generation_index)
        if attempt.may_be_in_gym:
            self.pending[attempt.key] = attempt.gym_instance_id
        else:
            self.pending.pop(attempt.key, None)

    def _unplace(self, attempt: Attempt) -> None:
        self.place.pop(attempt.key, None)
        self.pending.pop(attempt.key, None)
