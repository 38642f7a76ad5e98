"""TransferQueue's own checkpoint inside a save: what it may weigh, and the manifest that alone makes it loadable.

TransferQueue writes pickles, syncs nothing, reports success for a checkpoint without rows, and for some ways of putting
writes every row's whole batch once for each row (measured: 32 to 64 times the payload). So its files are weighed when they
are taken; and since loading one runs whatever its pickles say, none is loaded unless ``manifest.msgpack`` beside it, written
by us, names its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import msgspec

from protocol.data_plane.store import Partition
from protocol.errors import Cause, Refusal, RestoreRefused
from protocol.history import KeySet, key_set

MANIFEST_FILE = "manifest.msgpack"
FOLDER = "tq"  # below the save's folder
UNITS = "simple_storage/"  # TransferQueue's own name for what its units write
SCHEMA = 1
ROW_OVERHEAD_MAX = 256  # bytes a row costs in a unit's pickle beside its own (measured: 13 to 60)
UNIT_OVERHEAD_MAX = 4096  # bytes of an empty unit's pickle (measured: under 200)


class ListedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    size: int
    sha256: str


class ListedPartition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``sha256`` of the partition's own file, which the judges read: both say the same, or nothing is loaded."""

    keys: KeySet
    sha256: str


class NativeManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``files`` by path below the save's folder."""

    schema: int
    release: str
    storage_units: int
    files: dict[str, ListedFile]
    partitions: dict[str, ListedPartition]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def weigh(files: Mapping[str, bytes], rows: int, payload: int, units: int) -> None:
    """``files`` of TransferQueue's checkpoint by path below its own folder, of ``rows`` rows with ``payload`` bytes.

    Raises Refusal if it holds fewer bytes than its rows have, or far more, or says itself that it holds none.
    """
    said = json.loads(files.get("metadata.json", b"{}"))
    if said.get("storage_saved") is not True:
        raise Refusal("TransferQueue saved no rows (storage_saved is not true): only its SimpleStorage saves them", Cause.BROKEN)
    names = [name for name in files if name.startswith(UNITS) and name.endswith(".pkl")]
    if len(names) != units:
        raise Refusal(f"TransferQueue saved {len(names)} storage units, there are {units}", Cause.BROKEN)
    held = sum(len(files[name]) for name in names)
    most = 2 * payload + ROW_OVERHEAD_MAX * rows + UNIT_OVERHEAD_MAX * units
    if not payload <= held < most:
        raise Refusal(
            f"TransferQueue saved {held} bytes for {rows} rows of {payload} bytes: it must be as many, and less than {most} "
            "(rows that are put as one dense tensor are saved once for each row of it)",
            Cause.BROKEN,
        )


def manifest_of(files: Mapping[str, bytes], partitions: Mapping[str, bytes], keys: Mapping[str, KeySet], units: int,
                release: str) -> bytes:  # fmt: skip
    """``files`` by path below the save's folder, ``partitions`` as they are packed."""
    manifest = NativeManifest(
        schema=SCHEMA,
        release=release,
        storage_units=units,
        files={path: ListedFile(len(data), sha256(data)) for path, data in sorted(files.items())},
        partitions={name: ListedPartition(keys[name], sha256(data)) for name, data in partitions.items()},
    )
    return msgspec.msgpack.encode(manifest)


def read_manifest(data: bytes, folder: str, units: int, release: str) -> NativeManifest:
    """Raises RestoreRefused for a torn one, another schema, another number of storage units or another TransferQueue."""
    try:
        manifest = msgspec.msgpack.decode(data, type=NativeManifest)
    except msgspec.MsgspecError as error:
        raise RestoreRefused(f"{folder}/{MANIFEST_FILE} is not a schema {SCHEMA} manifest: {error}") from None
    wrong = []
    if manifest.schema != SCHEMA:
        wrong.append(f"its schema is {manifest.schema}, only {SCHEMA} can be restored")
    if manifest.storage_units != units:
        wrong.append(f"it was saved by {manifest.storage_units} storage units, there are {units}: start as many")
    if manifest.release != release:
        wrong.append(f"it was saved by TransferQueue {manifest.release}, this is {release}: install that one")
    if wrong:
        raise RestoreRefused(f"{folder}: " + "; ".join(wrong))
    return manifest


def check_file(manifest: NativeManifest, folder: str, path: str, data: bytes) -> None:
    """Raises RestoreRefused unless ``data`` is what the manifest names."""
    listed = manifest.files[path]
    if len(data) != listed.size or sha256(data) != listed.sha256:
        raise RestoreRefused(
            f"{folder}/{path} ({len(data)} bytes) is not the file of {listed.size} bytes that {MANIFEST_FILE} names"
        )


def check_partitions(manifest: NativeManifest, folder: str, partitions: Mapping[str, Partition]) -> None:
    """Raises RestoreRefused unless the partitions' own files are those of the same save."""
    for name, partition in partitions.items():
        listed = manifest.partitions.get(name)
        if listed is None:
            raise RestoreRefused(f"{folder}/{MANIFEST_FILE} names no partition {name}")
        if listed.sha256 != sha256(partition.packed()) or listed.keys != key_set(partition.keys()):
            raise RestoreRefused(f"{folder}: {MANIFEST_FILE} names {listed.keys.count} rows of {name}, its file holds others")
