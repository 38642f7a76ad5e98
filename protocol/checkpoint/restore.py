"""Restore: clean up, choose, read, check, install (PROTOCOL 1.2, 2.6, 3.2, 4.4).

Nothing is installed before everything that can be refused has been refused. What is on disk and cannot be used is an
error, never a silent fresh start.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from protocol.checkpoint import folders, manifest
from protocol.checkpoint.anchor import Anchor
from protocol.checkpoint.coordinator import GymCoordinator
from protocol.checkpoint.manifest import GymManifest
from protocol.checkpoint.payload import METADATA_SCHEMA, Dataloader, DataPlaneMetadata
from protocol.checkpoint.position import bootstrap_fault, snapshot_fault
from protocol.checkpoint.reconcile import Payload, read_part, read_payload, report, settle_rows
from protocol.checkpoint.targets import check_targets, restored_dispatch_index
from protocol.config import Level
from protocol.errors import MissingFile, RestoreRefused
from protocol.history import CleanupDone, RestoreChosen
from protocol.identity import DATA_PLANE
from protocol.ledger.persistence import (
    prepare_for_restart,
    turn_level_unfinished,
)
from protocol.ledger.records import Attempt, Group, LedgerFile
from protocol.messages import CANONICAL, LoadCheckpoint, LoadWeights
from protocol.run import Run
from protocol.runtime import Runtime

# --- 1. clean up: the first stage of every life, alone


async def clean_up(rt: Runtime) -> None:
    """Remove what no restore reads (unfinished saves) and fsync the folders, before anything allocates."""
    removed = await _remove_leftovers(rt, "")
    for name in await rt.files.list(""):
        if folders.is_anchor(name):
            removed += await _remove_leftovers(rt, folders.snapshot_root(name))
    rt.record(CleanupDone(removed=removed))


async def _remove_leftovers(rt: Runtime, folder: str) -> int:
    leftovers = [name for name in await rt.files.list(folder) if folders.is_leftover(name)]
    for name in leftovers:
        await rt.files.remove(f"{folder}/{name}" if folder else name)
    if leftovers:
        await rt.files.fsync_dir(folder)
    return len(leftovers)


# --- 2. choose: a pure decision over what is there


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What lies in the run's folder. ``snapshots`` of the newest anchor: sequence -> manifest (None: unreadable).

    ``bootstrap`` None: there is none, or its manifest is unreadable (then nothing below it may be committed).
    """

    steps: tuple[int, ...]  # durable trainer checkpoints
    bootstrap: dict[str, Any] | None
    snapshots: dict[int, dict[str, Any] | None]  # committed ones only


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """``source`` '' = nothing but the anchor's weights. ``discard``: anchors of a lineage that is given up, oldest first."""

    anchor: str
    step: int
    sequence: int
    source: str
    discard: tuple[str, ...] = ()

    @property
    def from_snapshot(self) -> bool:
        """Setup's proof of what is restored: without it, Gym state must be there (PROTOCOL 4.4)."""
        return self.sequence > 0


FRESH = Choice(anchor="", step=0, sequence=0, source="")


def decide_choice(found: Found, mode: str, fingerprint: str) -> Choice:
    """What to restore. Raises RestoreRefused if work is on disk that this run may not use and may not ignore."""
    anchors = [*(folders.step_folder(step) for step in sorted(found.steps)), *([folders.BOOTSTRAP] if found.bootstrap else [])]
    lineage = tuple(sorted(anchors, key=lambda name: folders.step_of(name) or 0))
    if mode == "none":
        return msgspec.structs.replace(FRESH, discard=lineage)
    if found.steps:
        step = max(found.steps)
        anchor = folders.step_folder(step)
    elif found.bootstrap is not None:
        if mode == "trainer_checkpoint":
            return msgspec.structs.replace(FRESH, discard=lineage)
        if found.bootstrap.get("fingerprint") != fingerprint:
            raise RestoreRefused(
                f"{folders.BOOTSTRAP_MANIFEST} was written by a run with other rollout semantics "
                f"(fingerprint {str(found.bootstrap.get('fingerprint'))[:12]}, this run's is {fingerprint[:12]})"
            )
        fault = bootstrap_fault(found.bootstrap)
        if fault:
            raise RestoreRefused(f"{folders.BOOTSTRAP_MANIFEST} cannot be restored: {fault}")
        step, anchor = 0, folders.BOOTSTRAP
    elif found.snapshots:
        raise RestoreRefused(f"{folders.BOOTSTRAP_MANIFEST} is unreadable, but {len(found.snapshots)} snapshots lie beside it")
    else:
        return FRESH
    if mode == "latest" and found.snapshots:
        fitting = [sequence for sequence, content in found.snapshots.items() if _fits(content, step, fingerprint)]
        _refuse_another_schema(anchor, step, found.snapshots, max(fitting, default=0))
        if not fitting:
            raise RestoreRefused(
                f"{anchor} has {len(found.snapshots)} committed snapshots, "
                f"but none of step and version {step} with this run's fingerprint"
            )
        sequence = max(fitting)
        return Choice(anchor=anchor, step=step, sequence=sequence, source=folders.snapshot_folder(anchor, sequence))
    return Choice(anchor=anchor, step=step, sequence=0, source="" if anchor == folders.BOOTSTRAP else anchor)


def _refuse_another_schema(anchor: str, step: int, snapshots: Mapping[int, dict[str, Any] | None], newest: int) -> None:
    """A snapshot of this very step in another shape may hold newer work than the ``newest`` that fits. Raises RestoreRefused."""
    for sequence, content in sorted(snapshots.items()):
        if content is None or sequence < newest or _position(content) != (step, step):
            continue
        fault = snapshot_fault(content)
        if fault:
            where = f"{folders.snapshot_folder(anchor, sequence)}/{folders.MANIFEST}"
            raise RestoreRefused(f"{where} is no snapshot's of this version: {fault}")


def _position(content: Mapping[str, Any]) -> tuple[Any, Any]:
    return content.get("base_train_step"), content.get("trainer_version")


def _fits(content: Mapping[str, Any] | None, step: int, fingerprint: str) -> bool:
    """Step, version and fingerprint must all be the anchor's."""
    if content is None:
        return False
    return _position(content) == (step, step) and content.get("fingerprint") == fingerprint


async def look(rt: Runtime) -> Found:
    """Scan the run's folder. LATEST is a hint that nobody reads."""
    names = await rt.files.list("")
    steps = tuple(step for name in names if (step := folders.step_of(name)) is not None)
    bootstrap = await _json(rt, folders.BOOTSTRAP_MANIFEST) if folders.BOOTSTRAP in names else None
    snapshots: dict[int, dict[str, Any] | None] = {}
    anchor = folders.step_folder(max(steps)) if steps else folders.BOOTSTRAP
    for name in await rt.files.list(folders.snapshot_root(anchor)):
        sequence = folders.sequence_of(name)
        path = f"{folders.snapshot_root(anchor)}/{name}"
        if sequence is not None and folders.COMMITTED in await rt.files.list(path):
            snapshots[sequence] = await _json(rt, f"{path}/{folders.MANIFEST}")
    return Found(steps=steps, bootstrap=bootstrap, snapshots=snapshots)


async def _json(rt: Runtime, path: str) -> dict[str, Any] | None:
    try:
        content = json.loads(await rt.files.read(path))
    except (MissingFile, ValueError):
        return None
    return content if isinstance(content, dict) else None


# --- 3. read, check, install


async def restore(run: Run, anchor: Anchor, coordinator: GymCoordinator) -> None:
    """Bring the controller, the trainer, the data plane and Gym to the chosen state. Raises RestoreRefused."""
    rt = run.rt
    choice = decide_choice(await look(rt), run.job.rollout_checkpointing.restore_mode, run.fingerprint)
    rt.record(RestoreChosen(anchor=choice.anchor, sequence=choice.sequence))
    for given_up in choice.discard:
        await rt.files.remove(given_up)
        await rt.files.fsync_dir("")
    run.weights = await run.ask_trainer(LoadWeights(folder=folders.weights_folder(choice.anchor) if choice.step else ""))
    if choice.anchor:
        await anchor.adopt(choice.anchor, choice.step)
    run.steps = run.version = choice.step
    run.dispatch_index = choice.step - 1
    if choice.source:
        await _restore_from(run, coordinator, choice)
    await report(run, choice.anchor, choice.sequence)


async def _restore_from(run: Run, coordinator: GymCoordinator, choice: Choice) -> None:
    rt, job, source = run.rt, run.job, choice.source
    payload = await read_payload(run, source)
    loader = _loader(await read_part(rt, source, folders.DATALOADER))
    await run.slices.groups(payload.ledger.groups, lambda part: check_prompts(part, run))
    gym = await _gym_manifest(run, choice, payload.ledger)
    metadata = _metadata(await _load_rows(run, source))
    check_metadata(metadata, run, choice, payload, loader)
    saved = gym.saved() if gym is not None else {}
    groups: list[Group] = []
    targets: list[int] = []

    def prepare(part: Sequence[Group]) -> None:
        groups.extend(prepare_for_restart(part, saved, job.replay_is_restored, choice.step))
        targets.extend(group.target_step for group in part)

    await run.slices.groups(payload.ledger.groups, prepare)
    kept = payload.slots if job.replay_is_restored else ()
    await settle_rows(run, groups, kept, saved)
    dispatch_index = restored_dispatch_index(job.sampler, choice.step, loader.dispatch_index, targets)
    check_targets(job.sampler, choice.step, dispatch_index, targets, job.num_prompts_per_step)
    if len(groups) > job.max_buffered_rollouts:
        raise RestoreRefused(f"{len(groups)} restored groups do not fit max_buffered_rollouts {job.max_buffered_rollouts}")
    if gym is not None and (gym.saved() or gym.restarted()):
        await coordinator.restore(gym.checkpoint, source, gym)
    run.ledger.install((), payload.ledger.skipped, payload.ledger.skips)
    await run.slices.groups(groups, run.ledger.install_more)  # nobody looks before the restore is over
    await run.slices.groups(kept, run.replay.commit_all)
    run.cursor, run.epoch, run.dispatch_index = loader.consumed, loader.epoch, dispatch_index


async def _load_rows(run: Run, source: str) -> bytes:
    """The data plane's metadata, after it has loaded its rows. Raises RestoreRefused if a part of its save is not there."""
    try:
        metadata: bytes = await run.ask(DATA_PLANE, LoadCheckpoint(folder=folders.data_plane_folder(source)))
    except MissingFile as error:
        raise RestoreRefused(f"{source} lacks a part: {error}") from None
    return metadata


def _loader(data: bytes) -> Dataloader:
    try:
        loader = msgspec.msgpack.decode(data, type=Dataloader)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise RestoreRefused(f"{folders.DATALOADER} cannot be read: {error}") from None
    if loader.schema_version != 1:
        raise RestoreRefused(f"{folders.DATALOADER} has schema {loader.schema_version}: only 1 can be resumed")
    return loader


def _metadata(data: bytes) -> DataPlaneMetadata:
    try:
        return msgspec.msgpack.decode(data, type=DataPlaneMetadata)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise RestoreRefused(f"the data plane's metadata cannot be read: {error}") from None


def check_prompts(groups: Iterable[Group], run: Run) -> None:
    """The data set must still hold each open prompt under its ordinal. Raises RestoreRefused."""
    for group in groups:
        task = run.task_of(group.ordinal)
        if (task.task_id, task.name) != (group.task_id, group.task_name):
            raise RestoreRefused(f"prompt {group.ordinal} is task {task.task_id!r} now, the ledger says {group.task_id!r}")
        if group.expected_generations != run.job.num_generations_per_prompt:
            raise RestoreRefused(f"{group.group_id} has {group.expected_generations} siblings, the configuration asks for others")


def check_metadata(metadata: DataPlaneMetadata, run: Run, choice: Choice, payload: Payload, loader: Dataloader) -> None:
    """Everything the data plane's save says must agree with what lies beside it. Raises RestoreRefused."""
    facts: Iterable[tuple[str, object, object]] = (
        ("schema", metadata.schema, METADATA_SCHEMA),
        ("train steps", metadata.train_steps, choice.step),
        ("trainer version", metadata.trainer_version, choice.step),
        ("epoch", metadata.epoch, loader.epoch),
        ("partition", metadata.partition, CANONICAL),
        ("sampler", metadata.sampler, run.job.sampler.name),
        ("replay digest", metadata.replay_digest, payload.replay_digest),
        ("replay count", metadata.replay_count, len(payload.slots)),
        ("ledger sha256", metadata.recovery_sha256, payload.recovery_sha256),
        ("ledger groups", metadata.recovery_count, len(payload.ledger.groups)),
        ("ledger schema", metadata.recovery_schema, payload.ledger.schema_version),
        ("finalized groups", payload.finalized, payload.replay),
    )
    wrong = [f"{name}: {have} in the data plane's save, {want} beside it" for name, have, want in facts if have != want]
    if wrong:
        raise RestoreRefused(f"{choice.source} contradicts itself: " + "; ".join(wrong))


async def _gym_manifest(run: Run, choice: Choice, ledger: LedgerFile) -> GymManifest | None:
    """Gym's part of a snapshot, checked against the ledger. A trainer checkpoint has none: turn-level work restarts.

    A snapshot with turn-level groups and without it is ambiguous, and refused.
    """
    if not choice.from_snapshot:
        return None
    path = f"{choice.source}/{folders.GYM_CHECKPOINT}"
    if folders.GYM_CHECKPOINT not in await run.rt.files.list(choice.source):
        await run.slices.groups(ledger.groups, lambda part: _refuse_turn_level(part, choice.source))
        return None
    gym = manifest.decode(await run.rt.files.read(path))
    unfinished: list[Attempt] = []
    await run.slices.groups(ledger.groups, lambda part: unfinished.extend(turn_level_unfinished(part)))
    manifest.check_against_ledger(gym, unfinished)
    return gym


def _refuse_turn_level(groups: Iterable[Group], source: str) -> None:
    if any(Level.named(group.restore_level) >= Level.TURN for group in groups):
        raise RestoreRefused(f"{source} holds turn-level groups, no {folders.GYM_CHECKPOINT}, and is no trainer checkpoint")
