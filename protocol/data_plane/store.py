"""One partition of the data plane as data, and its form in a native save.

A saved partition is a msgpack array of (key, row bytes) pairs, sorted by key: the same rows always give the
same bytes, whatever the order in which they came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from protocol.data_plane.keysum import KeySum
from protocol.errors import RestoreRefused
from protocol.history import KeySet

METADATA_FILE = "metadata.msgpack"

_encode = msgspec.msgpack.Encoder().encode
_pairs = msgspec.msgpack.Decoder(tuple[tuple[str, bytes], ...])


def partition_file(partition: str) -> str:
    """Name of a partition's file below the save's folder."""
    return f"{partition}.msgpack"


class Partition:
    """Rows by key. The bytes of a row are never looked into; a put replaces what was under its key."""

    def __init__(self, rows: Iterable[tuple[str, bytes]] = ()) -> None:
        self._rows: dict[str, bytes] = {}
        self._sum = KeySum()
        self._packed: bytes | None = None  # of the rows as they are now: an unchanged partition is saved for free
        self.put(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, rows: Iterable[tuple[str, bytes]]) -> None:
        for key, row in rows:
            if key not in self._rows:
                self._sum.add(key)
            self._rows[key] = row
            self._packed = None

    def get(self, keys: Sequence[str]) -> tuple[tuple[str, bytes], ...]:
        """Those of ``keys`` that are there, in the order asked."""
        return tuple((key, self._rows[key]) for key in keys if key in self._rows)

    def clear(self, keys: Iterable[str]) -> None:
        """Keys that are not there are ignored."""
        for key in keys:
            if self._rows.pop(key, None) is not None:
                self._sum.remove(key)
                self._packed = None

    def keys(self) -> tuple[str, ...]:
        """Sorted."""
        return tuple(sorted(self._rows))

    def key_set(self) -> KeySet:
        return self._sum.key_set()

    def packed(self) -> bytes:
        """The partition as it is saved."""
        if self._packed is None:
            self._packed = _encode(sorted(self._rows.items()))
        return self._packed


def unpack(data: bytes, partition: str) -> Partition:
    """Read a saved partition. Raises RestoreRefused if it is torn, or not sorted, or holds a key twice."""
    try:
        pairs = _pairs.decode(data)
    except msgspec.DecodeError as error:
        raise RestoreRefused(f"{partition_file(partition)} is not a saved partition: {error}") from None
    keys = [key for key, _ in pairs]
    if any(left >= right for left, right in zip(keys, keys[1:], strict=False)):
        raise RestoreRefused(f"{partition_file(partition)} is not a saved partition: its keys are not sorted and distinct")
    return Partition(pairs)
