"""To a finalizer."""

from __future__ import annotations

from protocol.messages.base import Coordinate, Message, PromptTask


class Receipt(Message, frozen=True):
    """What a sealed attempt owns: assembled by the controller from the completed row."""

    rollout_id: str
    key: str  # capture key
    calls: tuple[Coordinate, ...]
    digest: str


class SiblingReceipt(Message, frozen=True):
    generation: int
    sample: str
    receipt: Receipt
    reward: float


class FinalizeGroup(Message, frozen=True):
    """Verify every chain and publish exactly N canonical rows. Reply: GroupPublished."""

    group: str
    ordinal: int
    task: PromptTask
    siblings: tuple[SiblingReceipt, ...]


class RowMeta(Message, frozen=True):
    """One published canonical row. ``valid`` False: a masked placeholder (sample_mask 0)."""

    sample: str
    digest: str
    min_version: int
    max_version: int
    valid: bool
    reason: str  # why it is not valid, else ''


class GroupPublished(Message, frozen=True):
    rows: tuple[RowMeta, ...]
