"""To the trainer; and to the controller, from outside."""

from __future__ import annotations

from protocol.messages.base import Message


class TrainGroup(Message, frozen=True):
    """Accumulate gradients of one claimed group of an open step. Reply: rows read."""

    step: int
    group: str
    ordinal: int
    rows: tuple[str, ...]  # canonical ids


class FinishTrainStep(Message, frozen=True):
    """Apply the optimizer. Reply: the weights' digest."""

    step: int


class SaveWeights(Message, frozen=True):
    """Write ``<folder>/weights.msgpack``; nothing is fsynced. Reply: tuple of files below the folder."""

    folder: str


class LoadWeights(Message, frozen=True):
    """``folder`` '' makes new weights (step 0). Reply: the weights' digest."""

    folder: str


class DiscardGroup(Message, frozen=True):
    """Drop the open group of this prompt ordinal (-1: the oldest with a dispatched row). Reply: the group id or ''."""

    ordinal: int
