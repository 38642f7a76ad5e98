"""Which contents and names a run's folder has for good, as the judges follow them."""

from __future__ import annotations

from invariants.durability.synced import Synced
from protocol.history import FileDone


def after(*operations):
    synced = Synced()
    for op, path, *to in operations:
        synced.done(FileDone(op, path, *to))
    return synced


WRITTEN = (("write", "tmp_a/part"), ("write", "tmp_a/gym/b/records"))


def test_what_lies_below_a_renamed_folder_moves_with_it_as_it_was():
    synced = after(*WRITTEN, ("fsync", "tmp_a/part"), ("rename", "tmp_a", "a"))
    assert synced.unsynced_below("a") == ["a/gym/b/records"]
    assert synced.unsynced_below("tmp_a") == synced.fresh_below("tmp_a") == []
    assert sorted(synced.fresh_below("a")) == ["a/gym", "a/gym/b", "a/gym/b/records", "a/part"]


def test_a_renamed_file_takes_its_unsynced_content_along_and_replaces_the_other():
    synced = after(("write", "LATEST"), ("fsync", "LATEST"), ("write", "tmp_LATEST"), ("rename", "tmp_LATEST", "LATEST"))
    assert synced.unsynced == {"LATEST": None}
    assert synced.fresh == {"": {"LATEST": None}}


def test_nothing_of_a_removed_folder_or_file_is_left_to_sync():
    synced = after(*WRITTEN, ("write", "other"), ("remove", "tmp_a"), ("remove", "other"))
    assert (synced.unsynced, synced.fresh, synced.folders) == ({}, {}, {"": None})
