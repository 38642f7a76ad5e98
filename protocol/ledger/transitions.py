"""The two state machines of the ledger: a table and one function each (PROTOCOL 2.2, 2.3)."""

from __future__ import annotations

import msgspec

from protocol.errors import IllegalStep
from protocol.ledger.records import Attempt, AttemptStatus, Group, GroupStatus
from protocol.messages import Receipt, RowMeta


class AttemptEvent(msgspec.Struct, frozen=True):
    pass


class Dispatch(AttemptEvent, frozen=True):
    instance: str


class Refuse(AttemptEvent, frozen=True):
    """409 checkpoint_parked: the same identity, nothing spent."""


class Seal(AttemptEvent, frozen=True):
    receipt: Receipt
    reward: float


class Abandon(AttemptEvent, frozen=True):
    pass


ATTEMPT_LEGAL: dict[tuple[AttemptStatus, type[AttemptEvent]], AttemptStatus] = {
    (AttemptStatus.RESERVED, Dispatch): AttemptStatus.DISPATCHED,
    (AttemptStatus.DISPATCHED, Refuse): AttemptStatus.RESERVED,
    (AttemptStatus.DISPATCHED, Seal): AttemptStatus.SEALED,
    (AttemptStatus.RESERVED, Abandon): AttemptStatus.ABANDONED,
    (AttemptStatus.DISPATCHED, Abandon): AttemptStatus.ABANDONED,
}


def advance(attempt: Attempt, event: AttemptEvent) -> Attempt:
    """The attempt after ``event``. Raises IllegalStep, and nothing has changed."""
    target = ATTEMPT_LEGAL.get((attempt.status, type(event)))
    if target is None:
        raise IllegalStep(f"{type(event).__name__} is not legal for {attempt.key}, which is {attempt.status.value}")
    match event:
        case Dispatch(instance=instance):
            return msgspec.structs.replace(attempt, status=target, gym_instance_id=instance)
        case Seal(receipt=receipt, reward=reward):
            keys = tuple(call.key for call in receipt.calls)
            return msgspec.structs.replace(attempt, status=target, receipt=receipt, reward=reward, staging_keys=keys)
        case _:
            return msgspec.structs.replace(attempt, status=target)


class GroupEvent(msgspec.Struct, frozen=True):
    pass


class Complete(GroupEvent, frozen=True):
    """All siblings are sealed."""


class Finalize(GroupEvent, frozen=True):
    pass


class Publish(GroupEvent, frozen=True):
    rows: tuple[RowMeta, ...]


class Unpublish(GroupEvent, frozen=True):
    """The finalizer refused before it wrote anything."""


class LoseOutcome(GroupEvent, frozen=True):
    """The publish was sent and nobody knows whether it happened: absorbing, the run must stop."""


class Claim(GroupEvent, frozen=True):
    train_step: int


class Rollback(GroupEvent, frozen=True):
    """Snapshot copy only: a claim of an open step is undone."""


class Apply(GroupEvent, frozen=True):
    pass


GROUP_LEGAL: dict[tuple[GroupStatus, type[GroupEvent]], GroupStatus] = {
    (GroupStatus.GENERATING, Complete): GroupStatus.READY_TO_FINALIZE,
    (GroupStatus.READY_TO_FINALIZE, Finalize): GroupStatus.FINALIZING,
    (GroupStatus.FINALIZING, Publish): GroupStatus.FINALIZED,
    (GroupStatus.FINALIZING, Unpublish): GroupStatus.READY_TO_FINALIZE,
    (GroupStatus.FINALIZING, LoseOutcome): GroupStatus.FINALIZATION_UNKNOWN,
    (GroupStatus.FINALIZED, Claim): GroupStatus.CLAIMED_FOR_TRAINING,
    (GroupStatus.CLAIMED_FOR_TRAINING, Rollback): GroupStatus.FINALIZED,
    (GroupStatus.CLAIMED_FOR_TRAINING, Apply): GroupStatus.APPLIED_UNCHECKPOINTED,
}


def advance_group(group: Group, event: GroupEvent) -> Group:
    """The group after ``event``. Raises IllegalStep, and nothing has changed."""
    target = GROUP_LEGAL.get((group.status, type(event)))
    if target is None:
        raise IllegalStep(f"{type(event).__name__} is not legal for {group.group_id}, which is {group.status.value}")
    match event:
        case Complete() if any(sibling.current.status is not AttemptStatus.SEALED for sibling in group.siblings):
            raise IllegalStep(f"{group.group_id} is not complete: a sibling is not sealed")
        case Publish(rows=rows):
            versions = [row.min_version for row in rows]
            return msgspec.structs.replace(group, status=target, rows=rows, start_weight_version=min(versions))
        case Claim(train_step=step):
            return msgspec.structs.replace(group, status=target, claimed_train_step=step)
        case Rollback():
            return msgspec.structs.replace(group, status=target, claimed_train_step=None)
        case _:
            return msgspec.structs.replace(group, status=target)


TRAINING_OWNED = (GroupStatus.CLAIMED_FOR_TRAINING, GroupStatus.APPLIED_UNCHECKPOINTED)
DROPPABLE = (GroupStatus.GENERATING, GroupStatus.READY_TO_FINALIZE, GroupStatus.FINALIZED)


def decide_drop(group: Group) -> str | None:
    """Why this group may not be dropped now, or None. A publish in flight must be awaited first (latent fault f)."""
    if group.status in DROPPABLE:
        return None
    if group.status in TRAINING_OWNED:
        return f"{group.group_id} is owned by training ({group.status.value})"
    return f"{group.group_id} is being published ({group.status.value})"
