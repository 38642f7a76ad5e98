"""What a snapshot and the bootstrap anchor say of themselves: exactly these fields, exactly this schema (PROTOCOL 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

SNAPSHOT_SCHEMA = 1
BOOTSTRAP_SCHEMA = 2


class SnapshotManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``manifest.json`` of a snapshot: where training stood."""

    schema: int
    sequence: int
    base_train_step: int
    trainer_version: int
    epoch: int
    mutation_version: int
    rolled_back_train_group_count: int
    fingerprint: str


class BootstrapManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``bootstrap/manifest.json``: the anchor of a run that has no trainer checkpoint yet."""

    schema: int
    trainer_version: int
    fingerprint: str


def snapshot_fault(content: Mapping[str, Any]) -> str:
    """Why this is no manifest of a snapshot of the current schema, or ''."""
    return _fault(content, SnapshotManifest, SNAPSHOT_SCHEMA)


def bootstrap_fault(content: Mapping[str, Any]) -> str:
    """Why this is no bootstrap manifest of the current schema, or ''."""
    return _fault(content, BootstrapManifest, BOOTSTRAP_SCHEMA)


def _fault(content: Mapping[str, Any], kind: Any, schema: int) -> str:
    try:
        found = msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return "" if found.schema == schema else f"its schema is {found.schema}, only {schema} can be restored"
