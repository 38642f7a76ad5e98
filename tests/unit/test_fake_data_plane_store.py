"""One partition as data, and its form in a native save."""

from __future__ import annotations

import msgspec
import pytest

from protocol.data_plane.store import Partition, unpack
from protocol.errors import RestoreRefused
from protocol.history import key_set


def test_a_get_answers_in_the_order_asked_and_says_nothing_of_what_is_missing() -> None:
    partition = Partition([("a", b"1"), ("b", b"2")])
    assert partition.get(["b", "x", "a"]) == (("b", b"2"), ("a", b"1"))


def test_a_put_replaces_and_counts_its_key_once() -> None:
    partition = Partition([("a", b"1")])
    partition.put([("a", b"2"), ("b", b"3")])
    assert partition.get(["a"]) == (("a", b"2"),)
    assert partition.key_set() == key_set(["a", "b"])


def test_clearing_what_is_not_there_changes_nothing() -> None:
    partition = Partition([("a", b""), ("b", b"2")])
    partition.clear(["x", "a", "a"])
    assert partition.keys() == ("b",)
    assert partition.key_set() == key_set(["b"])


def test_the_saved_form_does_not_depend_on_the_order_of_puts() -> None:
    assert Partition([("a", b"1"), ("b", b"2")]).packed() == Partition([("b", b"2"), ("a", b"1")]).packed()
    assert Partition([("b", b"2"), ("a", b"1")]).packed() == msgspec.msgpack.encode([["a", b"1"], ["b", b"2"]])


def test_every_change_changes_the_saved_form() -> None:
    partition = Partition([("a", b"1")])
    forms = [partition.packed()]
    partition.put([("a", b"2")])
    forms.append(partition.packed())
    partition.put([("b", b"1")])
    forms.append(partition.packed())
    partition.clear(["a"])
    forms.append(partition.packed())
    assert len(set(forms)) == len(forms)


def test_a_saved_partition_is_read_back_as_it_was() -> None:
    partition = Partition([("b", b"2"), ("a", b"")])
    read = unpack(partition.packed(), "rollout_data")
    assert read.get(["a", "b"]) == (("a", b""), ("b", b"2"))
    assert read.key_set() == partition.key_set()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        Partition([("a", b"1"), ("b", b"2")]).packed()[:-1],
        msgspec.msgpack.encode([["b", b"2"], ["a", b"1"]]),
        msgspec.msgpack.encode([["a", b"2"], ["a", b"1"]]),
        msgspec.msgpack.encode([["a", b"2", 1]]),
        msgspec.msgpack.encode({"a": b"1"}),
    ],
)
def test_a_file_that_no_save_writes_is_refused(data: bytes) -> None:
    with pytest.raises(RestoreRefused, match="rollout_staging.msgpack is not a saved partition"):
        unpack(data, "rollout_staging")
