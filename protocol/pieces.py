"""A msgpack file in pieces: the bytes of a record whose one long list is encoded item by item, and never whole at once."""

from __future__ import annotations

import struct

import msgspec

FIXED_MAX, SHORT_MAX = 15, 65_535  # longest lists of the two short forms of msgpack


def list_header(count: int) -> bytes:
    """What stands before ``count`` encoded items."""
    if count <= FIXED_MAX:
        return struct.pack(">B", 0x90 | count)
    if count <= SHORT_MAX:
        return struct.pack(">BH", 0xDC, count)
    return struct.pack(">BI", 0xDD, count)


def split_around_list(data: bytes, name: str) -> tuple[bytes, bytes]:
    """``data``, a record with an empty list under ``name``: what stands before the list, and after it."""
    marker = msgspec.msgpack.encode(name) + list_header(0)
    before, found, after = data.partition(marker)
    assert found, f"the record has no empty list named {name}"
    return before + marker[:-1], after
