"""What every event is made of: the record around it, and sets of keys by count and digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec


class KeySet(msgspec.Struct, frozen=True, gc=False):
    """A set of keys as count and order-free digest: sum of BLAKE2b-128 of each key, modulo 2^128, in hex."""

    count: int
    digest: str


def key_digest(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest(), "big")


def key_set(keys: Iterable[str]) -> KeySet:
    """Digest and count of distinct ``keys``."""
    total = count = 0
    for key in keys:
        total += key_digest(key)
        count += 1
    return KeySet(count, f"{total % (1 << 128):032x}")


class Event(msgspec.Struct, frozen=True, gc=False, tag=True):
    pass


class Record(msgspec.Struct, frozen=True, gc=False):
    """One event of the history. ``time`` in seconds; ``task`` is the name of the task that recorded it."""

    sequence: int
    time: float
    process: str
    life: int
    task: str
    event: Event


_encode = msgspec.msgpack.Encoder().encode


def record_bytes(record: Record) -> bytes:
    """Canonical bytes of one record, the sequence number left out (it is the record's place)."""
    return _encode((record.time, record.process, record.life, record.task, record.event))
