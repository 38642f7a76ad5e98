"""Rollout snapshots: when one is taken, the Gym phase, the cut, publication, the failure budget (PROTOCOL 4.2, 4.3).

    checkpoint lock -> dispatch gate closed -> retire, forget -> prepare -> commit -> drain
      -> barrier: recheck, cut -> resume Gym -> gate open -> lock released -> sidecars -> publish -> prune

Publication runs outside the lock: the train loop never waits for it (I24).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from protocol.checkpoint import folders
from protocol.checkpoint.coordinator import GymCoordinator
from protocol.checkpoint.manifest import build, encode
from protocol.checkpoint.payload import Cut, take_cut
from protocol.checkpoint.publish import publish_snapshot, write_files
from protocol.config import Level
from protocol.errors import Cause, ProtocolError, SnapshotFailed
from protocol.history import (
    AnchorMade,
    GymPhaseEnded,
    GymPhaseStarted,
    ManifestBuilt,
    PruneIssued,
    SnapshotBroke,
    SnapshotDropped,
    SnapshotPublished,
    SnapshotSkipped,
    SnapshotStarted,
    SnapshotStarved,
    key_set,
)
from protocol.ledger.persistence import periodic_copy, turn_level_unfinished

if TYPE_CHECKING:
    from protocol.controller.controller import Controller

T = TypeVar("T")
STARVED_AFTER = 3  # snapshots lost to train steps in a row before a warning [I]
MANIFEST_SCHEMA = 1
BOOTSTRAP_SCHEMA = 2


class LostToStep(ProtocolError):
    """A train step committed while the snapshot was being taken: neither a failure nor a success."""


class Position(msgspec.Struct, frozen=True):
    """Where training stands; a snapshot belongs to exactly one position."""

    step: int
    version: int


def decide_skip(
    committing: bool, mutation_version: int, last_version: int, forced: bool, live_turns: bool, anchored: bool
) -> str | None:
    """Why no snapshot is taken now, or None. At TURN and finer an unchanged version skips only if no episode is live."""
    if committing:
        return "commit-in-progress"
    if mutation_version == last_version and not forced and not live_turns:
        return "unchanged"
    if not anchored:
        return "no-durable-anchor"
    return None


def decide_lost(committing: bool, now: Position, started: Position) -> bool:
    """Whether a step has committed, or is committing, since the snapshot started: the cut would belong to no anchor."""
    return committing or now != started


def decide_fatal(cause: Cause, consecutive: int, limit: int) -> bool:
    """Whether a failed snapshot ends the run: a contradiction at once, an outage after ``limit`` in a row."""
    return cause is Cause.BROKEN or consecutive > limit


class RolloutSnapshots:
    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.rt = controller.rt
        self.coordinator = GymCoordinator(controller)
        self.anchor = folders.BOOTSTRAP
        self.anchor_step = 0
        self.anchor_exists = False  # the bootstrap anchor is durable (a step's always is)
        self.sequence = 0  # the highest ever allocated under this anchor
        self.last_version = -1  # mutation version of the last published snapshot
        self._attempt = (self.anchor, 0)  # anchor and sequence of the attempt under way
        self._parked = False  # prepare was sent: Gym must be resumed
        self._checkpoints = 0
        self._failures = 0
        self._lost = 0
        self._stopping = False
        self._force = False
        self._wake = controller.rt.signal()
        self._stepped = controller.rt.signal()

    # --- the pump

    async def pump(self) -> None:
        """Periodic snapshots until a stop is requested. Without an interval it only waits for the stop."""
        interval_s = self.controller.job.rollout_checkpointing.interval_s
        while not self._stopping:
            await self.rt.first_of(self._wake.wait(), timeout_s=interval_s)
            if interval_s is None or self._stopping:
                continue
            forced, self._force = self._force, False
            await self._guarded(forced)

    def request_stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def step_committed(self) -> None:
        """A Gym phase that is open has lost: it ends before the trainer's save asks for the lock."""
        self._stepped.set()

    def anchored_to(self, step: int) -> None:
        """A trainer checkpoint became durable: snapshots belong to it from now on, and the first is due at once."""
        self.anchor, self.anchor_step, self.anchor_exists = folders.step_folder(step), step, True
        self.sequence, self.last_version = 0, -1
        self._force = True
        self._wake.set()

    async def _guarded(self, forced: bool) -> None:
        """One snapshot under the failure budget."""
        try:
            if await self._snapshot(forced):
                self._failures = self._lost = 0
        except LostToStep as lost:
            await self._remove_temporary()
            self.rt.record(SnapshotDropped(sequence=self._attempt[1], reason=str(lost)))
            self._lost += 1
            if self._lost >= STARVED_AFTER:
                self.rt.record(SnapshotStarved(lost=self._lost))
        except ProtocolError as error:
            await self._remove_temporary()
            self._failures += 1
            self.rt.record(
                SnapshotBroke(
                    sequence=self._attempt[1],
                    cause=error.cause.value,
                    error=type(error).__name__,
                    message=str(error),
                    consecutive=self._failures,
                )  # fmt: skip
            )
            limit = self.controller.job.rollout_checkpointing.max_consecutive_failures
            if decide_fatal(error.cause, self._failures, limit):
                raise SnapshotFailed(f"{self._failures} snapshots failed in a row: {error}", error.cause) from None

    # --- one snapshot

    async def _snapshot(self, forced: bool) -> bool:
        """Take and publish one; False if there was no reason to. Raises LostToStep or what failed."""
        controller = self.controller
        await controller.checkpoints.settle()
        async with controller.lock:
            anchor = self.anchor
            live = controller.job.level >= Level.TURN and bool(controller.ledger.pending)
            skip = decide_skip(
                controller.optimizer_commit_in_progress, controller.barrier.version, self.last_version, forced, live,
                controller.steps == self.anchor_step,
            )  # fmt: skip
            if skip is not None:
                self.rt.record(SnapshotSkipped(reason=skip))
                return False
            sequence = self.sequence = self.sequence + 1
            self._attempt = (anchor, sequence)
            started = self._position()
            self.rt.record(SnapshotStarted(anchor=anchor, sequence=sequence, forced=forced))
            await self._ensure_anchor()
            temporary = folders.temporary_snapshot(anchor, sequence)
            if controller.job.level >= Level.TURN:
                cut = await self._cut_with_gym(temporary, sequence, started)
            else:
                cut = await self._cut(temporary, sequence, started, {})
        await write_files(self.rt, temporary, self._with_manifest(cut, sequence))
        await publish_snapshot(self.rt, anchor, sequence)
        if anchor == self.anchor:
            self.last_version = cut.mutation_version
        self.rt.record(
            SnapshotPublished(
                anchor=anchor,
                sequence=sequence,
                step=cut.step,
                version=cut.version,
                anchor_step=_anchor_step(anchor),
                anchor_version=_anchor_step(anchor),
            )  # fmt: skip
        )
        await self._prune(anchor, sequence)
        return True

    def _position(self) -> Position:
        return Position(self.controller.steps, self.controller.version)

    def _check_not_lost(self, started: Position) -> None:
        if decide_lost(self.controller.optimizer_commit_in_progress, self._position(), started):
            raise LostToStep("a train step committed")

    async def _cut(self, folder: str, sequence: int, started: Position, episodes: dict[str, tuple[str, ...]]) -> Cut:
        async with self.controller.barrier.exclusive():
            self._check_not_lost(started)
            return await take_cut(self.controller, "snapshot", folder, sequence, episodes)

    async def _cut_with_gym(self, folder: str, sequence: int, started: Position) -> Cut:
        """The Gym phase around the cut. Gym is resumed on every path, before anything else is written."""
        controller, coordinator = self.controller, self.coordinator
        if not coordinator.participants:
            await coordinator.discover()
        self._checkpoints += 1
        checkpoint = f"{self.rt.life}.{self._checkpoints}"
        outcome, since, self._parked = "failed", self.rt.now(), False
        async with controller.gate.exclusive():
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
        return cut

    async def _park_and_cut(self, checkpoint: str, folder: str, sequence: int, started: Position) -> Cut:
        controller, coordinator = self.controller, self.coordinator
        await coordinator.retire_and_forget()
        self._check_not_lost(started)
        self._parked = True
        restarts = await self._unless_stepped(coordinator.prepare(checkpoint), started)
        ownership = await self._unless_stepped(coordinator.commit(checkpoint, folder, restarts), started)
        await self._unless_stepped(coordinator.drain(checkpoint, ownership.pending), started)
        async with controller.barrier.exclusive():
            self._check_not_lost(started)
            unsealed = turn_level_unfinished(periodic_copy(controller.ledger.groups.values()))
            manifest = build(checkpoint, coordinator.participants, ownership, unsealed)
            saved = {key: keys for key, (_, keys) in manifest.saved().items()}
            cut = await take_cut(controller, "snapshot", folder, sequence, saved)
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
            if not task.done:
                task.cancel()
                await self.rt.first_of(task.join())

    # --- files beside the cut

    async def _ensure_anchor(self) -> None:
        """At step 0 the bootstrap anchor; any other anchor is a durable ``step_N`` already."""
        if self.anchor_exists:
            return
        manifest = {"schema": BOOTSTRAP_SCHEMA, "trainer_version": 0, "fingerprint": self.controller.fingerprint}
        await self.rt.files.write(folders.BOOTSTRAP_MANIFEST, msgspec.json.encode(manifest))
        await self.rt.files.fsync(folders.BOOTSTRAP_MANIFEST)
        await self.rt.files.fsync_dir(folders.BOOTSTRAP)
        await self.rt.files.fsync_dir("")
        self.anchor_exists = True
        self.rt.record(AnchorMade(anchor=folders.BOOTSTRAP))

    def _with_manifest(self, cut: Cut, sequence: int) -> dict[str, bytes]:
        manifest = {
            "schema": MANIFEST_SCHEMA, "sequence": sequence, "base_train_step": cut.step, "trainer_version": cut.version,
            "epoch": cut.epoch, "mutation_version": cut.mutation_version, "rolled_back_train_group_count": cut.rolled_back,
            "fingerprint": self.controller.fingerprint,
        }  # fmt: skip
        return {**cut.files, folders.MANIFEST: msgspec.json.encode(manifest)}

    async def _remove_temporary(self) -> None:
        """What the attempt under way has written is of no use any more; the previous snapshot stands."""
        anchor, sequence = self._attempt
        root, name = folders.snapshot_root(anchor), f"tmp_{folders.snapshot_name(sequence)}"
        if name in await self.rt.files.list(root):
            await self.rt.files.remove(f"{root}/{name}")

    async def _prune(self, anchor: str, newest: int) -> None:
        """Keep the newest ``keep_latest_k`` of this anchor; the bootstrap ones go once a trainer anchor is durable."""
        root, keep = folders.snapshot_root(anchor), self.controller.job.rollout_checkpointing.keep_latest_k
        old = [name for name in await self.rt.files.list(root) if (folders.sequence_of(name) or newest) <= newest - keep]
        await self._remove_published(root, old)
        if self.anchor != folders.BOOTSTRAP:
            bootstrap = folders.snapshot_root(folders.BOOTSTRAP)
            names = [name for name in await self.rt.files.list(bootstrap) if folders.sequence_of(name) is not None]
            await self._remove_published(bootstrap, names)

    async def _remove_published(self, root: str, names: list[str]) -> None:
        for name in names:
            self.rt.record(PruneIssued(path=f"{root}/{name}"))
            await self.rt.files.remove(f"{root}/{name}")
        if names:
            await self.rt.files.fsync_dir(root)


def _anchor_step(anchor: str) -> int:
    return folders.step_of(anchor) or 0
