"""One rollout snapshot: whether it is taken, the Gym phase, the cut, publication (PROTOCOL 4.2).

    checkpoint lock -> deadlines held -> dispatch gate closed -> retire, forget -> prepare -> commit -> drain
      -> barrier: recheck, cut -> resume Gym -> gate open -> deadlines released -> lock released -> sidecars -> publish -> prune

Publication runs outside the lock: the train loop never waits for it (I24).
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

import msgspec

from protocol.checkpoint import folders
from protocol.checkpoint.anchor import Anchor
from protocol.checkpoint.coordinator import GymCoordinator
from protocol.checkpoint.manifest import build, encode
from protocol.checkpoint.payload import Cut, take_cut
from protocol.checkpoint.position import BOOTSTRAP_SCHEMA, SNAPSHOT_SCHEMA, BootstrapManifest, SnapshotManifest
from protocol.checkpoint.publish import publish_snapshot, write_files
from protocol.checkpoint.trainer import TrainerCheckpoints
from protocol.config import Level
from protocol.controller.deadlines import CHECKPOINT
from protocol.errors import ProtocolError
from protocol.history import (
    AnchorMade,
    GymPhaseEnded,
    GymPhaseStarted,
    ManifestBuilt,
    PruneIssued,
    SnapshotPublished,
    SnapshotSkipped,
    SnapshotStarted,
    key_set,
)
from protocol.ledger.persistence import turn_level_unfinished
from protocol.ledger.records import Attempt
from protocol.run import Run
from protocol.tasks import cancel_all

T = TypeVar("T")
UNCHANGED = "unchanged"  # the only skip that loses nothing


class LostToStep(ProtocolError):
    """A train step committed while the snapshot was being taken: neither a failure nor a success."""


class Position(msgspec.Struct, frozen=True):
    """Where training stands; a snapshot belongs to exactly one position."""

    step: int
    version: int


def decide_skip(committing: bool, unchanged: bool, forced: bool, live_turns: bool, anchored: bool) -> str | None:
    """Why no snapshot is taken now, or None. At TURN and finer an unchanged version skips only if no episode is live."""
    if committing:
        return "commit-in-progress"
    if unchanged and not forced and not live_turns:
        return UNCHANGED
    if not anchored:
        return "no-durable-anchor"
    return None


def decide_lost(committing: bool, now: Position, started: Position) -> bool:
    """Whether a step has committed, or is committing, since the snapshot started: the cut would belong to no anchor."""
    return committing or now != started


class RolloutSnapshots:
    """Takes and publishes one snapshot at a time."""

    def __init__(self, run: Run, anchor: Anchor, checkpoints: TrainerCheckpoints) -> None:
        self.run = run
        self.rt = run.rt
        self.anchor = anchor
        self.checkpoints = checkpoints
        self.coordinator = GymCoordinator(run)
        self.attempt = (anchor.name, 0)  # anchor and sequence of the attempt under way
        self._published: tuple[str, int] | None = None  # anchor and mutation version of the last one
        self._parked = False  # prepare was sent: Gym must be resumed
        self._phases = 0
        self._stepped = run.rt.signal()

    def step_committed(self) -> None:
        """A Gym phase that is open has lost: it ends before the trainer's save asks for the lock."""
        self._stepped.set()

    async def take(self, forced: bool) -> str | None:
        """Take and publish one. Returns None, or why there was none to take. Raises LostToStep or what failed."""
        run, anchor = self.run, self.anchor
        await self.checkpoints.settle()
        async with run.lock:
            live = run.job.level >= Level.TURN and bool(run.ledger.pending)
            unchanged = self._published == (anchor.name, run.barrier.version)
            skip = decide_skip(run.optimizer_commit_in_progress, unchanged, forced, live, run.steps == anchor.step)
            if skip is not None:
                self.rt.record(SnapshotSkipped(reason=skip))
                return skip
            anchor.sequence += 1
            name, sequence = self.attempt = (anchor.name, anchor.sequence)
            anchor.in_use = name
            started = self._position()
            self.rt.record(SnapshotStarted(anchor=name, sequence=sequence, forced=forced))
            await self._ensure_anchor()
            temporary = folders.temporary_snapshot(name, sequence)
            if run.job.level >= Level.TURN:
                cut = await self._cut_with_gym(temporary, sequence, started)
            else:
                cut = await self._cut(temporary, sequence, started, {})
        await write_files(self.rt, temporary, self._with_manifest(cut, sequence))
        await publish_snapshot(self.rt, name, sequence)
        self._published = (name, cut.mutation_version)
        step = folders.step_of(name) or 0
        self.rt.record(
            SnapshotPublished(
                anchor=name, sequence=sequence, step=cut.step, version=cut.version, anchor_step=step, anchor_version=step
            )
        )
        await self._prune(name)
        return None

    def _position(self) -> Position:
        return Position(self.run.steps, self.run.version)

    def _check_not_lost(self, started: Position) -> None:
        if decide_lost(self.run.optimizer_commit_in_progress, self._position(), started):
            raise LostToStep("a train step committed")

    async def _cut(self, folder: str, sequence: int, started: Position, episodes: dict[str, tuple[str, ...]]) -> Cut:
        async with self.run.barrier.exclusive():
            self._check_not_lost(started)
            return await take_cut(self.run, "snapshot", folder, sequence, episodes)

    async def _cut_with_gym(self, folder: str, sequence: int, started: Position) -> Cut:
        """The Gym phase around the cut. Gym is resumed on every path, before anything else is written."""
        run, coordinator = self.run, self.coordinator
        if coordinator.unsure:
            await self._unless_stepped(coordinator.discover_again(), started)
        self._phases += 1
        checkpoint = f"{self.rt.life}.{self._phases}"
        outcome, since, self._parked = "failed", self.rt.now(), False
        run.deadlines.hold(CHECKPOINT)  # before the gate closes: a rollout that waits for it is not late
        try:
            async with run.gate.exclusive():
                self.rt.record(GymPhaseStarted(checkpoint=checkpoint))
                try:
                    cut = await self._park_and_cut(checkpoint, folder, sequence, started)
                    outcome = "cut"
                except LostToStep:
                    outcome = "dropped"
                    raise
                finally:
                    # A resume that fails after a good cut costs nothing but time: the lease reopens Gym.
                    if self._parked:
                        await coordinator.resume(checkpoint)
                    self.rt.record(GymPhaseEnded(checkpoint=checkpoint, outcome=outcome, parked_s=self.rt.now() - since))
        finally:
            run.deadlines.release(CHECKPOINT)
        return cut

    async def _park_and_cut(self, checkpoint: str, folder: str, sequence: int, started: Position) -> Cut:
        run, coordinator = self.run, self.coordinator
        self._check_not_lost(started)  # the wait for the gate was a window
        await self._unless_stepped(coordinator.reopen(), started)
        await self._unless_stepped(coordinator.retire_and_forget(), started)
        self._parked = True
        restarts = await self._unless_stepped(coordinator.prepare(checkpoint), started)
        async with coordinator.lease_kept(checkpoint) as lease:
            ownership = await self._unless_stepped(coordinator.commit(checkpoint, folder, restarts), started)
            await self._unless_stepped(lease.guarded(partial(coordinator.drain, checkpoint, ownership.pending)), started)
            async with run.barrier.exclusive():
                self._check_not_lost(started)
                unsealed: list[Attempt] = []
                await run.slices.groups(run.ledger.groups.values(), lambda part: unsealed.extend(turn_level_unfinished(part)))
                manifest = build(checkpoint, coordinator.participants, ownership, unsealed)
                saved = {key: keys for key, (_, keys) in manifest.saved().items()}
                cut = await take_cut(run, "snapshot", folder, sequence, saved)
                lease.check()
                self.rt.record(
                    ManifestBuilt(
                        checkpoint=checkpoint,
                        sequence=sequence,
                        episodes=key_set(saved),
                        restarts=key_set(manifest.restarted()),
                        unsealed=key_set(attempt.key for attempt in unsealed),
                    )  # fmt: skip
                )
        return msgspec.structs.replace(cut, files={**cut.files, folders.GYM_CHECKPOINT: encode(manifest)})

    async def _unless_stepped(self, work: Coroutine[Any, Any, T], started: Position) -> T:
        """Do ``work`` unless a step commits meanwhile: then it is cancelled, awaited, and LostToStep raised."""
        task = self.rt.spawn(work, "gym-phase")
        try:
            over = await self.rt.first_of(task.join(), self._stepped.wait())
            self._check_not_lost(started)
            assert over == 0, "only a committed step sets this signal"
            result: T = await task.join()
            return result
        finally:
            await cancel_all(self.rt, (task,))

    # --- files beside the cut

    async def _ensure_anchor(self) -> None:
        """At step 0 the bootstrap anchor; any other anchor is a durable ``step_N`` already."""
        if self.anchor.exists:
            return
        manifest = BootstrapManifest(schema=BOOTSTRAP_SCHEMA, trainer_version=0, fingerprint=self.run.fingerprint)
        await self.rt.files.write(folders.BOOTSTRAP_MANIFEST, msgspec.json.encode(manifest))
        await self.rt.files.fsync(folders.BOOTSTRAP_MANIFEST)
        await self.rt.files.fsync_dir(folders.BOOTSTRAP)
        await self.rt.files.fsync_dir("")
        self.anchor.exists = True
        self.rt.record(AnchorMade(anchor=folders.BOOTSTRAP))

    def _with_manifest(self, cut: Cut, sequence: int) -> dict[str, bytes]:
        manifest = SnapshotManifest(
            schema=SNAPSHOT_SCHEMA, sequence=sequence, base_train_step=cut.step, trainer_version=cut.version, epoch=cut.epoch,
            mutation_version=cut.mutation_version, rolled_back_train_group_count=cut.rolled_back,
            fingerprint=self.run.fingerprint,
        )  # fmt: skip
        return {**cut.files, folders.MANIFEST: msgspec.json.encode(manifest)}

    async def give_up(self) -> None:
        """Remove what the attempt under way has written; the previous snapshot stands."""
        anchor, sequence = self.attempt
        root, name = folders.snapshot_root(anchor), f"tmp_{folders.snapshot_name(sequence)}"
        if name in await self.rt.files.list(root):
            await self.rt.files.remove(f"{root}/{name}")

    async def _prune(self, anchor: str) -> None:
        """Keep the newest ``keep_latest_k`` of this anchor; the bootstrap ones go once a trainer anchor is durable."""
        root, keep = folders.snapshot_root(anchor), self.run.job.rollout_checkpointing.keep_latest_k
        published = [name for name in await self.rt.files.list(root) if folders.sequence_of(name) is not None]
        await self._remove_published(root, published[:-keep])
        if self.anchor.name != folders.BOOTSTRAP:
            bootstrap = folders.snapshot_root(folders.BOOTSTRAP)
            names = [name for name in await self.rt.files.list(bootstrap) if folders.sequence_of(name) is not None]
            await self._remove_published(bootstrap, names)

    async def _remove_published(self, root: str, names: list[str]) -> None:
        for name in names:
            self.rt.record(PruneIssued(path=f"{root}/{name}"))
            await self.rt.files.remove(f"{root}/{name}")
        if names:
            await self.rt.files.fsync_dir(root)
