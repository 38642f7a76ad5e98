"""To the data plane: rows are opaque bytes to it."""

from __future__ import annotations

from protocol.history import KeySet
from protocol.messages.base import Message


class PutSamples(Message, frozen=True):
    """Acknowledged after storage; may fail *after* having written. Reply: None."""

    partition: str
    rows: tuple[tuple[str, bytes], ...]


class GetSamples(Message, frozen=True):
    """Reply: tuple of (key, bytes) for those that resolve, in the order asked: a miss is silent, so count."""

    partition: str
    keys: tuple[str, ...]


class ListSampleIds(Message, frozen=True):
    """Reply: sorted tuple of keys."""

    partition: str


class ClearSamples(Message, frozen=True):
    """Unknown keys are ignored. Reply: None."""

    partition: str
    keys: tuple[str, ...]


class SaveCheckpoint(Message, frozen=True):
    """Write ``<folder>/<partition>.msgpack`` (sorted pairs) and ``metadata.msgpack``; nothing is fsynced. Reply: Saved."""

    folder: str
    metadata: bytes


class Saved(Message, frozen=True):
    """What was written, as the data plane counts it; ``files`` are paths below the folder."""

    canonical: KeySet
    staging: KeySet
    files: tuple[str, ...]


class LoadCheckpoint(Message, frozen=True):
    """Only on a clean data plane. Reply: the metadata bytes."""

    folder: str
