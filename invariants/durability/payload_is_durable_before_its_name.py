"""I21."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from invariants.durability.payload import (
    COMMON,
    GYM,
    LEDGER,
    METADATA,
    SIDECAR,
    OnDisk,
    Payload,
    is_snapshot,
    is_step,
    snapshot_folder,
)
from invariants.durability.synced import Synced, base, is_scratch, parent
from protocol.config import Level
from protocol.history import AnchorMade, FileDone, FileIssued, Record, SnapshotPublished, TrainerCheckpointDurable
from protocol.judging import Durable, Terms, Violation

TRAINER_PARTS = (*COMMON, "policy/weights.msgpack", "training_info.json")
SNAPSHOT_PARTS = (*COMMON, "manifest.json", "COMMITTED")
NOT_DECODED = ("config.yaml", "COMMITTED")


class PayloadIsDurableBeforeItsName(OnDisk):
    """Every file of a save is durable before COMMITTED, the rename, the parent's sync and LATEST, in this order, so that whatever
    carries a final name is complete, and no step_N is ever away between an old one and a new one."""

    invariant = "I21"
    needs = (FileDone,)
    sees = (FileIssued, SnapshotPublished, TrainerCheckpointDurable, AnchorMade)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.synced = Synced()
        self.committed: dict[str, None] = {}  # folders whose COMMITTED is durable in content
        self.final: dict[str, None] = {}  # folders that were renamed to their final name in this life
        self.away: dict[str, None] = {}  # step_N that lost their name in this life

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.synced.begin(durable.files)
        return self.on_disk(durable)

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, FileDone):
            if not is_scratch(event.path):
                self._done(event)
            return ()
        if isinstance(event, FileIssued):
            return () if is_scratch(event.path) else [self.broken(text, record) for text in self._issued(event)]
        return [self.broken(text, record) for text in self._claimed(event)]

    def _done(self, event: FileDone) -> None:
        self.synced.done(event)
        if event.op == "fsync" and base(event.path) == "COMMITTED":
            self.committed[parent(event.path)] = None
        elif event.op == "rename" and (is_snapshot(base(event.to)) or is_step(event.to)):
            self.final[event.to] = None

    def _issued(self, event: FileIssued) -> Iterator[str]:
        path = event.path
        if event.op == "fsync" and base(path) == "COMMITTED":
            late = [name for name in self.synced.unsynced_below(parent(path)) if name != path]
            if late:
                yield f"COMMITTED of {parent(path)} is synced before {_some(late)}"
        elif event.op == "write":
            inside = _final_folder(path)
            if inside:
                yield f"{path} is written inside {inside}, which has its final name"
            if base(path) == "LATEST":
                yield f"{path} is written in place: a crash may tear it"
                yield from self._latest(parent(path))
        elif event.op == "rename":
            if is_snapshot(base(event.to)) or is_step(event.to):
                yield from self._published(path, event.to)
            elif base(event.to) == "LATEST":
                yield from self._latest(parent(event.to))
            if is_step(path):
                self.away[path] = None
        elif event.op == "remove" and is_step(path):
            self.away[path] = None

    def _published(self, temporary: str, final: str) -> Iterator[str]:
        late = self.synced.unsynced_below(temporary)
        if late:
            yield f"{temporary} is renamed to {base(final)} before {_some(late)} is synced"
        fresh = self.synced.fresh_below(temporary)
        if fresh:
            yield f"{temporary} is renamed to {base(final)} before the names {_some(fresh)} are synced"
        if is_snapshot(base(final)) and temporary not in self.committed:
            yield f"{temporary} is renamed to {base(final)} without a synced COMMITTED"
        if final in self.away and self.terms.job.rollout_checkpointing.restore_mode != "none":
            yield f"{final} is put back after it was taken away: in between neither the old nor the new one was there"

    def _latest(self, root: str) -> Iterator[str]:
        fresh = [name for name in self.synced.fresh_below(root) if parent(name) == root and is_snapshot(base(name))]
        if fresh:
            yield f"LATEST of {root} is written before the name {_some(fresh)} is synced"

    def _claimed(self, event: object) -> Iterator[str]:
        if isinstance(event, AnchorMade):
            manifest = f"{event.anchor}/manifest.json"
            if manifest in self.synced.unsynced or not self.synced.is_named(manifest):
                yield f"{event.anchor} is announced as made before {manifest} is durable"
            return
        if isinstance(event, SnapshotPublished):
            folder = snapshot_folder(event.anchor, event.sequence)
        else:
            assert isinstance(event, TrainerCheckpointDurable)
            folder = f"step_{event.step}"
        if folder not in self.final:
            yield f"{folder} is announced as durable without a rename to this name"
        elif not self.synced.is_named(folder):
            yield f"{folder} is announced as durable before its name, and every name above it, is synced"

    def examine(self, payload: Payload) -> Iterator[str]:
        parts = SNAPSHOT_PARTS if payload.sequence else TRAINER_PARTS
        for part in parts:
            yield from _whole(payload, part)
        if payload.sequence and payload.job(self.terms.job).level >= Level.TURN:
            yield from _whole(payload, GYM)
            yield from _gym(payload)
        yield from _belongs_together(payload)


def _whole(payload: Payload, part: str) -> Iterator[str]:
    if part not in payload.files:
        yield f"{part} is missing"
    elif part not in NOT_DECODED and payload.read(part) is None:
        yield f"{part} ({len(payload.files[part])} bytes) is torn"
    elif part.startswith("data_plane/rollout_") and "" in (payload.rows(part) or {}).values():
        yield f"{part} holds a row that is torn"


def _gym(payload: Payload) -> Iterator[str]:
    """A participant's manifest is written last and vouches for its episodes."""
    for path, data in payload.files.items():
        if not path.startswith("gym/") or not path.endswith("/manifest.json"):
            continue
        manifest = payload.read(path)
        episodes = payload.files.get(f"{parent(path)}/episodes.msgpack")
        if manifest is None:
            yield f"{path} ({len(data)} bytes) is torn"
        elif manifest["sha256"] == "" and manifest["count"] == 0:
            continue  # a participant without state of its own
        elif episodes is None:
            yield f"{parent(path)}/episodes.msgpack is missing"
        elif hashlib.sha256(episodes).hexdigest() != manifest["sha256"]:
            yield f"{parent(path)}/episodes.msgpack does not have the digest that its manifest names"
    for name, part in ((payload.read(GYM) or {}).get("instances") or {}).items():
        for participant in part["participants"]:
            if f"gym/{name}/{participant}/manifest.json" not in payload.files:
                yield f"gym/{name}/{participant}/manifest.json is missing"


def _belongs_together(payload: Payload) -> Iterator[str]:
    """The data plane's metadata vouches for the ledger and the sidecar of the same cut."""
    metadata, ledger, sidecar = payload.read(METADATA), payload.read(LEDGER), payload.read(SIDECAR)
    if metadata is None or ledger is None or sidecar is None:
        return
    facts = (
        ("recovery_sha256", hashlib.sha256(payload.files[LEDGER]).hexdigest()),
        ("recovery_count", len(ledger["groups"])),
        ("recovery_schema", ledger["schema_version"]),
        ("replay_digest", sidecar["manifest_digest"]),
        ("replay_count", len(sidecar["slots"])),
        ("train_steps", payload.step),
    )
    for name, found in facts:
        if metadata[name] != found:
            yield f"{METADATA} says {name} {metadata[name]}, the payload has {found}"
    manifest = payload.read("manifest.json")
    if payload.sequence and manifest is not None and manifest["sequence"] != payload.sequence:
        yield f"manifest.json says sequence {manifest['sequence']}"


def _final_folder(path: str) -> str:
    """The published folder that ``path`` lies in, or ''."""
    parts = path.split("/", 3)
    if len(parts) > 2 and parts[1] == "rollout_snapshots":
        return "/".join(parts[:3]) if len(parts) > 3 and is_snapshot(parts[2]) else ""
    return parts[0] if len(parts) > 1 and is_step(parts[0]) else ""


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
