"""The judges' own view of what lies on disk: every payload that a restore might choose, read without the core.

A *payload* is the content of one committed snapshot folder or of one trainer checkpoint (``docs/design.md`` section 2).
What a judge finds out about one is remembered by content: many lives start from files that share their bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from protocol.config import Job
from protocol.judging import Durable, Judge, RunStatus, Violation

LEDGER = "rollout_recovery.msgpack"
SIDECAR = "replay_buffer_metadata.msgpack"
DATALOADER = "train_dataloader.msgpack"
METADATA = "data_plane/metadata.msgpack"
CANONICAL = "data_plane/rollout_data.msgpack"
STAGING = "data_plane/rollout_staging.msgpack"
GYM = "gym_checkpoint.json"

COMMON = (LEDGER, SIDECAR, DATALOADER, "config.yaml", METADATA, CANONICAL, STAGING)


class RowHead(msgspec.Struct, frozen=True, gc=False):
    """What a judge reads of a staged or canonical row: the rest is skipped."""

    digest: str


_row_head = msgspec.msgpack.Decoder(RowHead).decode


class Payload:
    """One payload. ``sequence`` 0: the trainer checkpoint ``source``. ``files`` are paths below ``source``.

    ``remembered`` is its ``Durable``'s: what is found out about a part is found out once for all payloads that share it."""

    def __init__(self, anchor: str, sequence: int, remembered: Callable[[Any, Callable[[], Any]], Any]) -> None:
        self.remembered = remembered
        self.anchor = anchor
        self.sequence = sequence
        self.step = 0 if anchor == "bootstrap" else int(anchor[5:])
        self.source = anchor if sequence == 0 else snapshot_folder(anchor, sequence)
        self.files: dict[str, bytes] = {}
        self._decoded: dict[str, Any] = {}

    def key(self) -> tuple[Any, ...]:
        """Equal keys, equal content (``hash`` of bytes is computed once for each object)."""
        return (self.anchor, self.sequence, tuple((path, hash(data)) for path, data in self.files.items()))

    def read(self, path: str) -> Any:
        """Plain data of a part, or None: missing or unreadable."""
        if path not in self._decoded:
            data = self.files.get(path)
            try:
                if data is None:
                    self._decoded[path] = None
                else:
                    self._decoded[path] = json.loads(data) if path.endswith(".json") else msgspec.msgpack.decode(data)
            except (ValueError, msgspec.DecodeError):
                self._decoded[path] = None
        return self._decoded[path]

    def rows(self, partition: str) -> dict[str, str] | None:
        """Key -> digest of each row of a partition file ('' where the row itself is unreadable); None without the file."""
        name = f"rows of {partition}"
        if name not in self._decoded:
            pairs = self.read(partition)
            self._decoded[name] = _row_digests(pairs) if isinstance(pairs, list) else None
        found: dict[str, str] | None = self._decoded[name]
        return found

    def groups(self) -> list[dict[str, Any]]:
        ledger = self.read(LEDGER)
        return list(ledger.get("groups") or ()) if isinstance(ledger, dict) else []

    def job(self, otherwise: Job) -> Job:
        """The job of the life that wrote it, by its own config.yaml (JSON text); ``otherwise`` where that is none."""
        try:
            tables = msgspec.json.decode(self.files["config.yaml"])
            return msgspec.convert(tables, Job) if "target_level" in tables else otherwise
        except (KeyError, TypeError, msgspec.MsgspecError):
            return otherwise

    def slots(self) -> list[dict[str, Any]]:
        sidecar = self.read(SIDECAR)
        return list(sidecar.get("slots") or ()) if isinstance(sidecar, dict) else []


def _row_digests(pairs: list[Any]) -> dict[str, str]:
    return {str(pair[0]): _digest_of(pair[1]) for pair in pairs if isinstance(pair, list) and len(pair) == 2}


def _digest_of(row: bytes) -> str:
    try:
        return _row_head(row).digest
    except (msgspec.DecodeError, TypeError):
        return ""


def snapshot_folder(anchor: str, sequence: int) -> str:
    return f"{anchor}/rollout_snapshots/snapshot_{sequence:06d}"


def is_step(name: str) -> bool:
    return name.startswith("step_") and name[5:].isdigit()


def is_snapshot(name: str) -> bool:
    return name.startswith("snapshot_") and name[9:].isdigit()


def payloads(durable: Durable) -> list[Payload]:
    """Every trainer checkpoint and every committed snapshot, oldest first."""
    found: list[Payload] = durable.once("payloads", lambda: _collect(durable))
    return found


def _collect(durable: Durable) -> list[Payload]:
    files = durable.files
    found: dict[tuple[str, int], Payload] = {}
    for path in sorted(files):
        anchor, _, rest = path.partition("/")
        if not (anchor == "bootstrap" or is_step(anchor)):
            continue
        sequence = 0
        if rest.startswith("rollout_snapshots/"):
            folder, _, rest = rest[18:].partition("/")
            if not rest or not is_snapshot(folder):
                continue
            sequence = int(folder[9:])
        elif anchor == "bootstrap":
            continue
        payload = found.get((anchor, sequence))
        if payload is None:
            payload = found[(anchor, sequence)] = Payload(anchor, sequence, durable.remembered)
        if rest and not rest.endswith("/"):  # an empty folder is no part of a payload, but makes one that lacks its parts
            payload.files[rest] = files[path]
    kept = [payload for payload in found.values() if payload.sequence == 0 or "COMMITTED" in payload.files]
    return sorted(kept, key=lambda payload: (payload.step, payload.sequence))


class OnDisk(Judge):
    """Base of the judges that look at every payload on disk: where a life starts, and where it ends.

    ``examine`` depends on the payload and on ``terms`` only, so its findings are remembered by content.
    """

    def examine(self, payload: Payload) -> Iterator[str]:
        """Yield what is wrong with it."""
        raise NotImplementedError

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        return self.on_disk(durable)

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        return self.on_disk(durable)

    def on_disk(self, durable: Durable) -> list[Violation]:
        found = []
        for payload in payloads(durable):
            for text in durable.remembered((self.invariant, payload.key()), partial(self._guarded, payload)):
                found.append(self.broken(f"{payload.source}: {text}"))
        return found

    def _guarded(self, payload: Payload) -> tuple[str, ...]:
        try:
            return tuple(self.examine(payload))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            # A file that decodes but has another shape is a finding about the file, not a fault of the judge.
            return (f"a part has another shape than docs/design.md gives it ({type(error).__name__}: {error})",)
