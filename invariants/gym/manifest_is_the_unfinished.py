"""I26: the files of a Gym-bearing snapshot, read from disk by the life that starts from it, and the manifest as it is built."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from invariants.gym.cut import FOLLOWED, CutWatch
from invariants.ledger.attempts import groups_of, keeps, restore_point, unfinished_in_gym
from protocol.config import Level
from protocol.history import (
    ExclusiveEntered,
    ExclusiveLeft,
    GymPhaseStarted,
    KeySet,
    ManifestBuilt,
    Record,
    Restored,
    SnapshotBroke,
    SnapshotPublished,
    key_set,
)
from protocol.identity import GymCheckpointEpisode
from protocol.judging import Durable, Judge, RestorePoint, Terms, Violation

STAGING = "rollout_staging"
DATA_PLANE = "data-plane"
OWNERSHIP = "OwnershipError"


class ManifestIsTheUnfinished(Judge):
    """A snapshot's saved episodes and restarts are disjoint and together exactly the unsealed turn-level attempts of its
    ledger, each on its own instance, everything a saved episode needs (staged rows, participants' records) is in the
    snapshot, and a restore continues exactly the saved ones, or is refused where the files contradict this.

    A cut whose unsealed attempts are all saved or restarting is no contradiction.
    """

    invariant = "I26"
    needs = (ManifestBuilt,)
    sees = (*FOLLOWED, ExclusiveEntered, ExclusiveLeft, GymPhaseStarted, Restored, SnapshotBroke)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.watch = CutWatch()
        self.unbuilt = False  # a Gym phase has reached its cut, and no manifest was built in it yet
        self.whole = -1  # candidates of a cut that was left without a manifest though each was saved or restarts (-1: none)
        self.point = RestorePoint("", 0, 0, "")
        self.unusable: list[str] = []  # what is wrong with the Gym part of the newest snapshot
        self.saved: int | None = None  # episodes that a restore of it continues

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    # --- the files

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        point = restore_point(durable, self.terms)
        if point.sequence == 0:
            return ()
        source = point.source
        ledger = durable.ledger(source)
        if ledger is None or not saved_at_turn(durable, source):
            return ()
        self.point = point
        found, gym = ["there is no readable gym_checkpoint.json"], durable.gym_checkpoint(source)
        try:
            if gym is not None:
                found = self._gym_part(durable, source, ledger, gym)
                self.saved = sum(len(instance["episodes"]) for instance in gym["instances"].values())
        except (KeyError, TypeError, AttributeError) as error:
            found = [f"its Gym part has another shape ({type(error).__name__}: {error})"]
        if gym is not None or any(keeps(group, Level.TURN) for group in groups_of(ledger)):
            self.unusable = found
        return [self.broken(f"{source}: {text}.") for text in found]

    def _gym_part(self, durable: Durable, source: str, ledger: Any, gym: Any) -> list[str]:
        found = self._manifest_against_ledger(gym, unfinished_in_gym(ledger))
        staging = durable.rows(source, STAGING) or {}
        for name, instance in gym["instances"].items():
            found += self._participants(durable, source, gym["checkpoint"], name, instance)
            missing = [key for episode in instance["episodes"] for key in episode["staging_keys"] if key not in staging]
            if missing:
                found.append(f"{len(missing)} staged rows of {name}'s saved episodes are missing, such as {missing[0]}")
        return found

    def _manifest_against_ledger(self, gym: Any, unfinished: dict[str, str]) -> list[str]:
        found: list[str] = []
        where: dict[str, str] = {}
        if sorted(gym["topology"]) != sorted(gym["instances"]):
            found.append(f"its topology {gym['topology']} is not its instances {sorted(gym['instances'])}")
        for name, instance in gym["instances"].items():
            for episode in (*instance["episodes"], *instance["restarts"]):
                key = key_of(episode)
                if key in where:
                    found.append(f"{key} is named twice, on {where[key]} and {name}")
                where[key] = name
        lost = [key for key in unfinished if key not in where]
        extra = [key for key in where if key not in unfinished]
        moved = [key for key, name in where.items() if unfinished.get(key, name) != name]
        if lost:
            found.append(f"{len(lost)} unsealed attempts are neither saved nor restarting, such as {lost[0]}")
        if extra:
            found.append(f"{len(extra)} episodes of the manifest are no unsealed attempts of the ledger, such as {extra[0]}")
        if moved:
            found.append(f"{moved[0]} was sent to {unfinished[moved[0]]} and is in the manifest of {where[moved[0]]}")
        return found

    def _participants(self, durable: Durable, source: str, checkpoint: str, name: str, instance: Any) -> list[str]:
        found: list[str] = []
        folder = f"{source}/gym/{name}"
        written = durable.below(folder)
        if written != sorted(instance["participants"]):
            found.append(f"{name} names participants {sorted(instance['participants'])}, its folder holds {written}")
        records: dict[str, None] = {}
        for participant in written:
            place = f"{folder}/{participant}"
            manifest = durable.json(f"{place}/manifest.json")
            if manifest is None:
                found.append(f"{name}/{participant} has no readable manifest")
                continue
            if manifest["checkpoint"] != checkpoint:
                found.append(f"{name}/{participant} wrote checkpoint {manifest['checkpoint']!r}, the snapshot is {checkpoint!r}")
            data = durable.files.get(f"{place}/episodes.msgpack", b"")
            if hashlib.sha256(data).hexdigest() != manifest["sha256"] and (data or manifest["sha256"]):
                found.append(f"{name}/{participant}: its records are not those of its manifest")
                continue
            if data:
                records.update(dict.fromkeys(durable.msgpack(f"{place}/episodes.msgpack") or ()))
        unwritten = [key_of(episode) for episode in instance["episodes"] if key_of(episode) not in records]
        if unwritten:
            found.append(f"{len(unwritten)} saved episodes of {name} are in no participant's records, such as {unwritten[0]}")
        return found

    # --- what a restore makes of them

    def _restored(self, event: Restored) -> Iterator[str]:
        if event.sequence == 0 or (event.anchor, event.sequence) != (self.point.anchor, self.point.sequence):
            return
        yield from (f"{self.point.source} was restored though {text}" for text in self.unusable)
        if not self.unusable and self.saved is not None and event.continuations != self.saved:
            yield f"{event.continuations} episodes go on after the restore, {self.point.source} holds {self.saved}"

    # --- the manifest as it is built

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is SnapshotPublished:
            return self.watch.release(event.sequence)
        if type(event) is Restored:
            return [self.broken(f"{text}.", record) for text in self._restored(event)]
        if type(event) is ExclusiveEntered:
            self.unbuilt = event.barrier == DATA_PLANE and self.watch.open
            return ()
        if type(event) is ExclusiveLeft:
            if event.barrier == DATA_PLANE and self.unbuilt:
                self.unbuilt = False
                self.whole = self._unfinished_if_whole()
            return ()
        if type(event) is SnapshotBroke:
            whole, self.whole = self.whole, -1
            if whole >= 0 and event.error == OWNERSHIP:
                text = f"A cut was refused ({event.message}); each of its {whole} unsealed attempts is saved or restarts."
                return (self.broken(text, record),)
            return ()
        if type(event) is not ManifestBuilt:
            if type(event) is GymPhaseStarted:
                self.unbuilt, self.whole = False, -1
            self.watch.follow(event)
            return ()
        self.unbuilt = False
        found: list[Violation] = []
        total = union(event.episodes, event.restarts)
        if total != event.unsealed:
            found.append(
                self.broken(
                    f"{total.count} episodes and restarts were recorded for {event.unsealed.count} unsealed attempts.", record
                )
            )
        actual = key_set(self.watch.candidates)
        if actual != event.unsealed:
            found.append(
                self.broken(f"The cut names {event.unsealed.count} unsealed attempts; the history leaves {actual.count}.", record)
            )
        self.watch.hold(event.sequence, found)
        return ()

    def _unfinished_if_whole(self) -> int:
        watch = self.watch
        owned = all((key in watch.exported) != (key in watch.restarts) for key in watch.candidates)
        return len(watch.candidates) if owned else -1


def key_of(episode: Any) -> str:
    return GymCheckpointEpisode(episode["rollout_id"], episode["attempt"]).capture_key


def union(one: KeySet, other: KeySet) -> KeySet:
    """Of disjoint sets."""
    return KeySet(one.count + other.count, f"{(int(one.digest, 16) + int(other.digest, 16)) % (1 << 128):032x}")


def saved_at_turn(durable: Durable, source: str) -> bool:
    """Whether the job that wrote this snapshot ran at level turn or finer (its own config.yaml, JSON text)."""
    try:
        job = json.loads(durable.files[f"{source}/config.yaml"])
        return Level.named(job["target_level"]) >= Level.TURN
    except (KeyError, ValueError):
        return True
