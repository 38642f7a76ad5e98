"""The cut: what a snapshot or a trainer checkpoint writes, taken inside the exclusive section of the barrier.

The data plane writes its own save there; everything else is built in memory and written after the barrier is released.
"""

from __future__ import annotations

import hashlib
import json

import msgspec

from protocol.checkpoint import folders
from protocol.data_plane.replay import Slot, manifest_digest, sidecar
from protocol.errors import SnapshotFailed
from protocol.history import CutTaken, KeySet, key_set
from protocol.identity import DATA_PLANE
from protocol.ledger.persistence import digest_without_unsealed, encode, expected_staging, periodic_copy
from protocol.ledger.records import SCHEMA_VERSION, Group, GroupStatus
from protocol.messages import CANONICAL, STAGING, ListSampleIds, SaveCheckpoint, Saved
from protocol.run import Run


class Dataloader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``train_dataloader.msgpack``: ``consumed`` prompts over all epochs."""

    schema_version: int
    consumed: int
    epoch: int
    dispatch_index: int


class DataPlaneMetadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """User metadata of a data-plane save; every field is compared at restore (PROTOCOL 3.1)."""

    schema: int
    train_steps: int
    trainer_version: int
    epoch: int
    partition: str
    sampler: str
    mode: str  # authoritative | shadow (the sampler's buffer is not restored)
    replay_digest: str
    replay_count: int
    recovery_sha256: str
    recovery_count: int
    recovery_schema: int


METADATA_SCHEMA = 2


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """``files`` are written below the snapshot's folder after the barrier is released."""

    files: dict[str, bytes]
    groups: tuple[Group, ...]
    mutation_version: int
    rolled_back: int
    step: int
    version: int
    epoch: int


async def take_cut(run: Run, role: str, folder: str, sequence: int, episodes: dict[str, tuple[str, ...]]) -> Cut:
    """Inside the exclusive section. ``episodes``: staging keys of the episodes that Gym saved for this cut.

    Raises SnapshotFailed if canonical rows, sidecar, ledger and staging do not agree.
    """
    rt, ledger = run.rt, run.ledger
    groups = periodic_copy(ledger.groups.values())
    slots = (*run.replay.slots, *run.claimed.values())
    recovery = encode(groups, ledger.skipped, ledger.skips)
    replay = sidecar(slots)
    metadata = DataPlaneMetadata(
        schema=METADATA_SCHEMA, train_steps=run.steps, trainer_version=run.version, epoch=run.epoch,
        partition=CANONICAL, sampler=run.job.sampler.name,
        mode="authoritative" if run.job.replay_is_restored else "shadow",
        replay_digest=manifest_digest(slots), replay_count=len(slots), recovery_sha256=hashlib.sha256(recovery).hexdigest(),
        recovery_count=len(groups), recovery_schema=SCHEMA_VERSION,
    )  # fmt: skip
    saved: Saved = await run.ask(
        DATA_PLANE, SaveCheckpoint(folder=folders.data_plane_folder(folder), metadata=msgspec.msgpack.encode(metadata))
    )
    expected = expected_staging(groups, episodes)
    staged = dict.fromkeys(await run.ask(DATA_PLANE, ListSampleIds(partition=STAGING)))
    missing = [key for key in expected if key not in staged]
    rows = _row_ids(slots)
    finalized = key_set(group.group_id for group in groups if group.status is GroupStatus.FINALIZED)
    rt.record(
        CutTaken(
            role=role,
            sequence=sequence,
            step=run.steps,
            version=run.version,
            committing=run.optimizer_commit_in_progress,
            mutation_version=run.barrier.version,
            canonical=saved.canonical,
            sidecar=rows,
            finalized=finalized,
            replay=key_set(slot.group_id for slot in slots),
            staging_expected=key_set(expected),
            staging_missing=len(missing),
            ledger=digest_without_unsealed(groups, ledger.skipped, ledger.skips),
            consumed=run.cursor,
            open=len(groups),
            passed=len(ledger.skipped),
        )  # fmt: skip
    )
    _check(saved.canonical, rows, finalized, slots, missing, groups)
    loader = Dataloader(schema_version=1, consumed=run.cursor, epoch=run.epoch, dispatch_index=run.dispatch_index)
    return Cut(
        files={
            folders.LEDGER: recovery,
            folders.SIDECAR: replay,
            folders.DATALOADER: msgspec.msgpack.encode(loader),
            folders.CONFIG: json.dumps(msgspec.to_builtins(run.job), indent=1, sort_keys=True).encode(),
        },
        groups=groups, mutation_version=run.barrier.version, rolled_back=len(run.claimed),
        step=run.steps, version=run.version, epoch=run.epoch,
    )  # fmt: skip


def _row_ids(slots: tuple[Slot, ...]) -> KeySet:
    return key_set(row.sample for slot in slots for row in slot.rows)


def _check(
    canonical: KeySet, rows: KeySet, finalized: KeySet, slots: tuple[Slot, ...], missing: list[str], groups: tuple[Group, ...]
) -> None:
    """The inventory checks of PROTOCOL 3.2 and 4.1. Raises SnapshotFailed with everything that disagrees."""
    wrong = [
        f"{group.group_id} is {group.status.value}"
        for group in groups
        if group.status in (GroupStatus.FINALIZING, GroupStatus.FINALIZATION_UNKNOWN, GroupStatus.APPLIED_UNCHECKPOINTED)
    ]
    if canonical != rows:
        wrong.append(f"the data plane holds {canonical.count} canonical rows, the replay index names {rows.count}")
    replay = key_set(slot.group_id for slot in slots)
    if finalized != replay:
        wrong.append(f"the ledger holds {finalized.count} finalized groups, the replay index {replay.count}")
    if missing:
        wrong.append(f"{len(missing)} staged rows are missing, such as {missing[0]}")
    if wrong:
        raise SnapshotFailed("the cut contradicts itself: " + "; ".join(wrong))
