"""What rows say of media: when it can be read, when it is the same, what a call may go on with (PROTOCOL 8).

Nothing here raises: what is wrong with media is a reason, and whose reason it is decides what it costs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from protocol.data_plane.extras import MediaItem, TensorDigest

IMAGE, VIDEO = "image", "video"
WIDTHS = {"uint8": 1, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8}  # bytes of one element
SHA256_DIGITS, HEX = 64, frozenset("0123456789abcdef")

CHANGED = "retained_media_changed"
VANISHED = "media_source_vanished"
UNREADABLE = "media_metadata_unreadable"


def span_fault(items: Sequence[MediaItem], carry: int) -> str:
    """Why these items cannot be what a call of ``carry`` carried tokens has looked at, or ''.

    The only reader of spans: of a request, of a parent's row and of a chunk."""
    end = 0
    for place, item in enumerate(items):
        where = f"item {place}"
        if item.kind not in (IMAGE, VIDEO):
            return f"{where} is {item.kind!r}: it must be {IMAGE} or {VIDEO}"
        if not item.source:
            return f"{where} names no source"
        if item.length < 1 or item.position < 0:
            return f"{where} has {item.length} places from {item.position} on"
        if item.position < end:
            return f"{where} begins at {item.position}, the one before it ends at {end}"
        end = item.position + item.length
        if end > carry:
            return f"{where} ends at {end}, the call carried {carry} tokens"
        fault = tensor_fault(item.tensors)
        if fault:
            return f"{where} {fault}"
    return ""


def tensor_fault(tensors: Sequence[TensorDigest]) -> str:
    names = [tensor.name for tensor in tensors]
    if not names or not all(names) or len(dict.fromkeys(names)) != len(names):
        return f"has the tensors {names}: each must have a name of its own, and there must be one"
    for tensor in tensors:
        if tensor.dtype not in WIDTHS:
            return f"has {tensor.name} of dtype {tensor.dtype!r}: known are {', '.join(WIDTHS)}"
        if not tensor.shape or min(tensor.shape) < 0:
            return f"has {tensor.name} of shape {list(tensor.shape)}"
        if len(tensor.sha256) != SHA256_DIGITS or not HEX.issuperset(tensor.sha256):
            return f"has no SHA-256 of {tensor.name}"
    return ""


def decide_retained(saved: Sequence[MediaItem], now: Sequence[MediaItem], carry: int) -> str:
    """Whether a call may go on from what was generated with ``saved``, if its sources give ``now``: '', or why not.

    ``CHANGED`` rejects the call; ``UNREADABLE`` says that nobody can tell, so nothing may rest on what was saved."""
    fault = span_fault(saved, carry)
    if fault:
        return f"{UNREADABLE}: {fault}"
    if now and not saved:
        return f"{UNREADABLE}: it names none of {len(now)} items"
    change = media_change(saved, now)
    return f"{CHANGED}: {change}" if change else ""


def media_change(saved: Sequence[MediaItem], now: Sequence[MediaItem]) -> str:
    """The first difference: items, then the tensors of each, then their dtypes and shapes, then their bytes; or ''."""
    places = [[(item.kind, item.source, item.position, item.length) for item in items] for items in (saved, now)]
    if places[0] != places[1]:
        return f"the items were {places[0]}, they are {places[1]}"
    for before, after in zip(saved, now, strict=True):
        was, is_now = ({tensor.name: tensor for tensor in item.tensors} for item in (before, after))
        if list(was) != list(is_now):
            return f"{before.source} had the tensors {list(was)}, it has {list(is_now)}"
        for name, tensor in was.items():
            other = is_now[name]
            if (tensor.dtype, tensor.shape) != (other.dtype, other.shape):
                return f"{name} of {before.source} was {tensor.dtype}{list(tensor.shape)}, it is {other.dtype}{list(other.shape)}"
            if tensor.sha256 != other.sha256:
                return f"{name} of {before.source} has other bytes"
    return ""


def rejects(reason: str) -> bool:
    """Whether a call that cannot go on for this reason is rejected; for any other one it starts at its turn boundary."""
    return reason.startswith((CHANGED, VANISHED))


def outcome_of(reason: str) -> str:
    """As ``MediaCompared`` says it."""
    return "kept" if not reason else "changed" if rejects(reason) else "unreadable"


def bytes_fault(items: Sequence[MediaItem], tensors: Sequence[bytes]) -> str:
    """Why the tensors are not those that the items name, or ''. It reads every byte."""
    named = [(item.source, tensor) for item in items for tensor in item.tensors]
    if len(named) != len(tensors):
        return f"there are {len(tensors)} tensors, the media name {len(named)}"
    for (source, tensor), data in zip(named, tensors, strict=True):
        if hashlib.sha256(data).hexdigest() != tensor.sha256:
            return f"{tensor.name} of {source} has other bytes than its digest says"
    return ""
