"""Records of the recovery ledger, schema 4 (PROTOCOL 2.1, 2.6). Every field is required: a file that lacks one is refused."""

from __future__ import annotations

from enum import Enum

import msgspec

from protocol.identity import GymCheckpointEpisode, sample_id
from protocol.messages import Receipt, RowMeta

SCHEMA_VERSION = 4
NO_TARGET = -1  # of a group that its sampler does not stamp


class AttemptStatus(Enum):
    RESERVED = "RESERVED"
    DISPATCHED = "DISPATCHED"
    SEALED = "SEALED"
    ABANDONED = "ABANDONED"


class GroupStatus(Enum):
    GENERATING = "GENERATING"
    READY_TO_FINALIZE = "READY_TO_FINALIZE"
    FINALIZING = "FINALIZING"
    FINALIZED = "FINALIZED"
    FINALIZATION_UNKNOWN = "FINALIZATION_UNKNOWN"
    CLAIMED_FOR_TRAINING = "CLAIMED_FOR_TRAINING"
    APPLIED_UNCHECKPOINTED = "APPLIED_UNCHECKPOINTED"


class Attempt(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True):
    """One RL attempt of a sibling. ``restored_from``: the capture key whose saved Gym state it continues, else None."""

    rollout_id: str
    gym_attempt: int
    gym_instance_id: str  # '' until it was dispatched or restored
    restored_from: str | None
    status: AttemptStatus
    receipt: Receipt | None
    reward: float | None
    staging_keys: tuple[str, ...]  # what a sealed attempt or a continuation owns in staging

    @property
    def key(self) -> str:
        """The gate (physical) id: the capture key."""
        return GymCheckpointEpisode(self.rollout_id, self.gym_attempt).capture_key

    @property
    def may_be_in_gym(self) -> bool:
        """Gym may hold it: it was sent, or a restore installed its state."""
        return self.status is AttemptStatus.DISPATCHED or (
            self.status is AttemptStatus.RESERVED and self.restored_from is not None
        )


class Sibling(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True):
    """``row_attempts``: sends of new identities in this chain, the first one included."""

    generation_index: int
    row_attempts: int
    attempts: tuple[Attempt, ...]

    @property
    def current(self) -> Attempt:
        return self.attempts[-1]


class Group(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, kw_only=True):
    group_id: str
    ordinal: int
    epoch: int
    task_id: str
    task_name: str
    expected_generations: int
    target_step: int  # or NO_TARGET
    start_weight_version: int
    siblings: tuple[Sibling, ...]
    status: GroupStatus
    rows: tuple[RowMeta, ...]  # published canonical rows
    claimed_train_step: int | None
    restore_level: str
    group_attempt: int
    infra_spent: int
    data_spent: int

    def sample(self, generation: int) -> str:
        return sample_id(self.group_id, generation)


class OpenStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A train step that has claimed groups and is not committed. ``status``: OPEN | APPLIED_UNCHECKPOINTED."""

    train_step: int
    trainer_version: int
    expected_group_count: int
    group_ids: tuple[str, ...]
    status: str


class LedgerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``rollout_recovery.msgpack``. ``skipped``: ordinals passed over for good, sorted; ``skips``: how many of them spent
    their data budget (it counts against ``max_skipped_prompts`` over all lives)."""

    schema_version: int
    groups: tuple[Group, ...]
    open_train_step: OpenStep | None
    skipped: tuple[int, ...]
    skips: int
