"""Receipts: what a sealed attempt owns, assembled by the controller from the completed row."""

from __future__ import annotations

import hashlib

import msgspec

from protocol.messages import Coordinate, Receipt


def receipt_of(rollout_id: str, key: str, calls: tuple[Coordinate, ...]) -> Receipt:
    """The receipt of one completed row; its digest (SHA-256 hex) covers every coordinate, root first."""
    digest = hashlib.sha256(msgspec.msgpack.encode((rollout_id, key, calls))).hexdigest()
    return Receipt(rollout_id=rollout_id, key=key, calls=calls, digest=digest)
