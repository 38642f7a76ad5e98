"""TransferQueue's checkpoint is weighed when it is taken, and loaded only as the manifest names it."""

from __future__ import annotations

import json

import msgspec
import pytest

from protocol.data_plane.store import Partition
from protocol.errors import Refusal, RestoreRefused
from real.data_plane.native_save import check_file, check_partitions, manifest_of, read_manifest, weigh

ROWS = Partition([("a", b"1"), ("b", b"22")])
FILES = {"tq/metadata.json": b"{}", "tq/simple_storage/su_0.pkl": b"rows"}


def checkpoint(*units: int, saved: object = True) -> dict[str, bytes]:
    """As TransferQueue writes it, with that many bytes in each unit."""
    files = {f"simple_storage/su_{number}.pkl": bytes(size) for number, size in enumerate(units)}
    return {**files, "controller_state.pkl": bytes(10_000), "metadata.json": json.dumps({"storage_saved": saved}).encode()}


def manifest(units: int = 1, release: str = "0.1.11") -> bytes:
    return manifest_of(FILES, {"rollout_data": ROWS.packed()}, {"rollout_data": ROWS.key_set()}, units, release)


@pytest.mark.parametrize("held", [4096, 4096 + 64 * 60, 2 * 4096 + 64 * 256 + 4095])
def test_a_checkpoint_of_about_its_payload_is_taken(held: int) -> None:
    assert weigh(checkpoint(held), rows=64, payload=4096, units=1) is None


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (checkpoint(64 * 64 * 4096), "saved once for each row"),
        (checkpoint(64 * 4096 - 1), "must be as many"),
        (checkpoint(64 * 4096, saved=False), "saved no rows"),
        (checkpoint(64 * 4096, saved="yes"), "saved no rows"),
        ({}, "saved no rows"),
        (checkpoint(32 * 4096, 32 * 4096), "saved 2 storage units, there are 1"),
        (checkpoint(), "saved 0 storage units"),
    ],
)
def test_one_that_is_none_is_refused(files: dict[str, bytes], says: str) -> None:
    with pytest.raises(Refusal, match=says):
        weigh(files, rows=64, payload=64 * 4096, units=1)


def test_a_manifest_reads_back() -> None:
    read = read_manifest(manifest(), "f", 1, "0.1.11")
    assert [(path, listed.size) for path, listed in read.files.items()] == [(path, len(FILES[path])) for path in sorted(FILES)]
    assert check_partitions(read, "f", {"rollout_data": ROWS}) is None


@pytest.mark.parametrize("length", range(len(manifest())))
def test_a_torn_manifest_is_refused_at_every_length(length: int) -> None:
    with pytest.raises(RestoreRefused):
        read_manifest(manifest()[:length], "f", 1, "0.1.11")


def test_other_units_and_another_release_are_both_named() -> None:
    with pytest.raises(RestoreRefused, match=r"saved by 2 storage units, there are 1.*saved by TransferQueue 0\.1\.12"):
        read_manifest(manifest(2, "0.1.12"), "f", 1, "0.1.11")


def test_another_schema_is_refused() -> None:
    other = msgspec.msgpack.decode(manifest()) | {"schema": 2}
    with pytest.raises(RestoreRefused, match="schema is 2"):
        read_manifest(msgspec.msgpack.encode(other), "f", 1, "0.1.11")


@pytest.mark.parametrize("data", [b"rowz", b"row", b"", b"rows "])
def test_a_file_that_is_not_the_listed_one_is_refused(data: bytes) -> None:
    read = read_manifest(manifest(), "f", 1, "0.1.11")
    assert check_file(read, "f", "tq/simple_storage/su_0.pkl", b"rows") is None
    with pytest.raises(RestoreRefused, match="su_0.pkl"):
        check_file(read, "f", "tq/simple_storage/su_0.pkl", data)


@pytest.mark.parametrize("rows", [[("a", b"1")], [("a", b"1"), ("b", b"23")], [("a", b"1"), ("c", b"22")]])
def test_rows_of_another_save_are_refused(rows: list[tuple[str, bytes]]) -> None:
    read = read_manifest(manifest(), "f", 1, "0.1.11")
    with pytest.raises(RestoreRefused, match="its file holds others"):
        check_partitions(read, "f", {"rollout_data": Partition(rows)})
    with pytest.raises(RestoreRefused, match="names no partition"):
        check_partitions(read, "f", {"rollout_staging": ROWS})
