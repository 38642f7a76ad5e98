"""The cut: what a snapshot or a trainer checkpoint writes, taken inside the exclusive section of the barrier.

The data plane writes its own save there; everything else is built in memory and written after the barrier is released.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain

import msgspec

from protocol.checkpoint import folders
from protocol.data_plane.keysum import KeySum
from protocol.data_plane.replay import SidecarWriter, place_of
from protocol.errors import SnapshotFailed
from protocol.history import CutTaken, DataPlaneSaveDone, DataPlaneSaveIssued, KeySet
from protocol.identity import DATA_PLANE
from protocol.ledger.persistence import LedgerDigest, LedgerWriter, expected_staging, finalized_ids, periodic_copy
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
    inventory = Inventory(run, episodes)
    await inventory.gather()
    recovery, recovery_sha256 = inventory.ledger.done()
    replay, replay_digest = inventory.sidecar.done()
    metadata = DataPlaneMetadata(
        schema=METADATA_SCHEMA, train_steps=run.steps, trainer_version=run.version, epoch=run.epoch,
        partition=CANONICAL, sampler=run.job.sampler.name,
        mode="authoritative" if run.job.replay_is_restored else "shadow",
        replay_digest=replay_digest, replay_count=inventory.sidecar.groups.count, recovery_sha256=recovery_sha256,
        recovery_count=len(ledger.groups), recovery_schema=SCHEMA_VERSION,
    )  # fmt: skip
    rt.record(DataPlaneSaveIssued(role=role, sequence=sequence))
    saved: Saved = await run.ask(
        DATA_PLANE, SaveCheckpoint(folder=folders.data_plane_folder(folder), metadata=msgspec.msgpack.encode(metadata))
    )
    rt.record(DataPlaneSaveDone(role=role, sequence=sequence))
    missing, expected = await inventory.missing(await run.ask(DATA_PLANE, ListSampleIds(partition=STAGING)))
    rows, groups = inventory.sidecar.rows.key_set(), inventory.sidecar.groups.key_set()
    finalized = inventory.finalized.key_set()
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
            replay=groups,
            staging_expected=expected,
            staging_missing=len(missing),
            ledger=inventory.digest.done(ledger.skipped, ledger.skips),
            consumed=run.cursor,
            open=len(ledger.groups),
            passed=len(ledger.skipped),
            rolled_back=len(run.claimed),
        )  # fmt: skip
    )
    _check(saved.canonical, rows, finalized, groups, missing, inventory.unsafe)
    loader = Dataloader(schema_version=1, consumed=run.cursor, epoch=run.epoch, dispatch_index=run.dispatch_index)
    return Cut(
        files={
            folders.LEDGER: recovery,
            folders.SIDECAR: replay,
            folders.DATALOADER: msgspec.msgpack.encode(loader),
            folders.CONFIG: json.dumps(msgspec.to_builtins(run.job), indent=1, sort_keys=True).encode(),
        },
        mutation_version=run.barrier.version, rolled_back=len(run.claimed),
        step=run.steps, version=run.version, epoch=run.epoch,
    )  # fmt: skip


UNSAFE = (GroupStatus.FINALIZING, GroupStatus.FINALIZATION_UNKNOWN, GroupStatus.APPLIED_UNCHECKPOINTED)


class Inventory:
    """Ledger and replay index as a cut writes them, gathered in slices: the exclusive section keeps both as they are."""

    def __init__(self, run: Run, episodes: dict[str, tuple[str, ...]]) -> None:
        self.run = run
        self.ledger = LedgerWriter(len(run.ledger.groups), run.ledger.skipped, run.ledger.skips)
        self.digest = LedgerDigest()
        self.finalized = KeySum()
        self.unsafe: list[str] = []
        self.sidecar = SidecarWriter(run.replay.count + len(run.claimed))
        self._episodes = episodes
        self._copies: list[Group] = []
        self._expected: dict[str, None] = {}

    async def gather(self) -> None:
        run, slices = self.run, self.run.slices
        await slices.groups(run.ledger.groups.values(), self._take)
        await slices.groups(await slices.ordered(self._copies, lambda group: group.ordinal), self.digest.add)
        self._copies = []
        await slices.groups(await slices.ordered(chain(run.replay.held, run.claimed.values()), place_of), self.sidecar.add)

    def _take(self, live: Sequence[Group]) -> None:
        groups = periodic_copy(live)
        self.ledger.add(groups)
        self._copies.extend(groups)
        self._expected.update(dict.fromkeys(expected_staging(groups, {})))
        self.finalized.add_all(finalized_ids(groups))
        self.unsafe.extend(f"{group.group_id} is {group.status.value}" for group in groups if group.status in UNSAFE)

    async def missing(self, staged: tuple[str, ...]) -> tuple[list[str], KeySet]:
        """The staging keys that the payload and its episodes need and that are not staged; and all that they need."""
        slices, have, expected, missing = self.run.slices, dict[str, None](), KeySum(), list[str]()

        def need(keys: Sequence[str]) -> None:
            for key in keys:
                expected.add(key)
            missing.extend(key for key in keys if key not in have)

        await slices.keys(self._episodes.values(), lambda part: self._expected.update(dict.fromkeys(chain.from_iterable(part))))
        await slices.keys(staged, lambda part: have.update(dict.fromkeys(part)))
        await slices.keys(self._expected, need)
        return missing, expected.key_set()


def _check(canonical: KeySet, rows: KeySet, finalized: KeySet, replay: KeySet, missing: list[str], unsafe: list[str]) -> None:
    """The inventory checks of PROTOCOL 3.2 and 4.1. Raises SnapshotFailed with everything that disagrees."""
    wrong = list(unsafe)
    if canonical != rows:
        wrong.append(f"the data plane holds {canonical.count} canonical rows, the replay index names {rows.count}")
    if finalized != replay:
        wrong.append(f"the ledger holds {finalized.count} finalized groups, the replay index {replay.count}")
    if missing:
        wrong.append(f"{len(missing)} staged rows are missing, such as {missing[0]}")
    if wrong:
        raise SnapshotFailed("the cut contradicts itself: " + "; ".join(wrong))
