"""What the simulated disk keeps through a crash."""

from __future__ import annotations

import pytest

from protocol.errors import MissingFile, ProtocolError
from sim.disk import Disk


def test_a_write_is_pending_until_fsync_and_a_name_until_fsync_dir() -> None:
    disk = Disk()
    disk.write("a", b"1")
    assert (disk.surviving("none"), disk.surviving("all")) == ({}, {"a": b"1"})
    disk.fsync("a")
    assert disk.surviving("none") == {}
    disk.fsync_dir("")
    assert disk.surviving("none") == {"a": b"1"}


def test_a_name_that_is_durable_before_its_data_survives_empty() -> None:
    disk = Disk()
    disk.write("a", b"1")
    disk.fsync_dir("")
    assert disk.surviving("none") == {"a": b""}


def test_a_name_is_durable_only_if_every_name_above_it_is() -> None:
    disk = Disk()
    disk.write("x/y/a", b"1")
    disk.fsync("x/y/a")
    disk.fsync_dir("x/y")
    disk.fsync_dir("")
    assert disk.surviving("none") == {"x/": b""}
    disk.fsync_dir("x")
    assert disk.surviving("none") == {"x/y/a": b"1"}


def test_a_folder_that_is_durable_before_its_names_survives_empty() -> None:
    """A save that syncs only the folder above leaves a final name with nothing in it: the restore must meet that."""
    disk = Disk()
    disk.write("tmp_step_1/weights", b"1")
    disk.fsync("tmp_step_1/weights")
    disk.rename("tmp_step_1", "step_1")
    disk.fsync_dir("")
    assert disk.surviving("none") == {"step_1/": b""}
    assert Disk.of(disk.surviving("none")).names("") == ("step_1",)
    disk.fsync_dir("step_1")
    assert disk.surviving("none") == disk.surviving("all") == {"step_1/weights": b"1"}


def test_a_life_folder_that_holds_nothing_but_scratch_is_no_surviving_folder() -> None:
    disk = Disk()
    disk.write("life-1/scratch/gym-0/journal", b"1")
    assert disk.surviving("all") == {}
    disk.write("life-1/log", b"1")
    disk.remove("life-1/log")
    assert disk.surviving("all") == {}
    assert disk.scratch() == {"life-1/scratch/gym-0/journal": b"1"}


def test_a_file_that_moved_between_two_folders_is_where_its_synced_folders_say() -> None:
    def moved(*synced: str) -> dict[str, bytes]:
        disk = Disk.of({"a/f": b"1", "a/x": b"", "b/y": b""})
        disk.rename("a/f", "b/f")
        for folder in synced:
            disk.fsync_dir(folder)
        return {path: data for path, data in disk.surviving("none").items() if path.endswith("f")}

    assert moved() == {"a/f": b"1"}
    assert moved("a") == {}, "the old name is gone for good, the new one is not there yet"
    assert moved("b") == {"a/f": b"1", "b/f": b"1"}
    assert moved("a", "b") == {"b/f": b"1"}


def test_a_file_made_again_under_a_removed_name_is_another_file() -> None:
    disk = Disk.of({"a": b"old"})
    disk.remove("a")
    disk.write("a", b"new")
    disk.fsync("a")
    assert disk.surviving("none") == {"a": b"old"}, "the name still points at the old file"
    disk.fsync_dir("")
    assert disk.surviving("none") == {"a": b"new"}


def test_a_renamed_folder_takes_what_is_not_synced_in_it_along() -> None:
    disk = Disk.of({"t/a": b"1"})
    disk.write("t/b", b"2")
    disk.write("t/a", b"changed")
    disk.rename("t", "u")
    disk.fsync_dir("")
    assert (disk.surviving("none"), disk.surviving("all")) == ({"u/a": b"1"}, {"u/a": b"changed", "u/b": b"2"})
    disk.fsync_dir("u")
    assert disk.surviving("none") == {"u/a": b"1", "u/b": b""}


def test_an_unsynced_overwrite_loses_to_the_old_content() -> None:
    disk = Disk.of({"a": b"old"})
    disk.write("a", b"new")
    assert (disk.surviving("none"), disk.surviving("all")) == ({"a": b"old"}, {"a": b"new"})


def test_a_rename_that_replaces_a_file_is_kept_or_lost_as_a_whole() -> None:
    disk = Disk.of({"a": b"old", "b": b"new"})
    disk.rename("b", "a")
    assert (disk.surviving("none"), disk.surviving("all")) == ({"a": b"old", "b": b"new"}, {"a": b"new"})
    disk.fsync_dir("")
    assert disk.surviving("none") == {"a": b"new"}


def test_a_removed_tree_is_there_after_a_crash_until_its_folder_is_synced() -> None:
    disk = Disk.of({"t/u/a": b"1", "t/b": b"2"})
    disk.remove("t")
    assert (disk.surviving("none"), disk.surviving("all")) == ({"t/u/a": b"1", "t/b": b"2"}, {})
    disk.write("t/c", b"3")
    disk.fsync("t/c")
    disk.fsync_dir("")
    assert disk.surviving("none") == {"t/": b""}  # the new t is durable, the name in it is not


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("missing", "x", MissingFile),
        ("t", "missing/x", MissingFile),
        ("t", "full", ProtocolError),
        ("t", "file", ProtocolError),
        ("file", "t", ProtocolError),
        ("t", "t/inside", ProtocolError),
        ("file", "life-1/scratch/file", ProtocolError),
        ("life-1", "kept", ProtocolError),
    ],
)
def test_a_refused_rename_changes_nothing(old: str, new: str, error: type[Exception]) -> None:
    disk = Disk.of({"t/a": b"1", "full/b": b"2", "file": b"3"}, {"life-1/scratch/s": b"4"})
    before = (disk.full_key(), disk.scratch())
    with pytest.raises(error):
        disk.rename(old, new)
    assert (disk.full_key(), disk.scratch(), disk.version) == (*before, 0)


def test_a_folder_may_replace_an_empty_one() -> None:
    disk = Disk.of({"t/a": b"1", "empty/b": b"2"})
    disk.remove("empty/b")
    disk.rename("t", "empty")
    assert disk.surviving("all") == {"empty/a": b"1"}


@pytest.mark.parametrize("path", ["/a", "a//b", "a/../b", "./a", "a/"])
def test_a_path_that_leaves_the_runs_folder_is_refused(path: str) -> None:
    with pytest.raises(ProtocolError):
        Disk().write(path, b"")


def test_missing_files_raise_and_a_missing_folder_lists_empty() -> None:
    disk = Disk.of({"a/b": b""})
    for operation in (disk.read, disk.fsync, disk.remove, disk.fsync_dir):
        with pytest.raises(MissingFile):
            operation("a/missing")
    assert disk.names("missing") == ()
    assert disk.names("") == ("a",)


def test_scratch_survives_but_is_in_no_key_and_moves_no_version() -> None:
    disk = Disk.of({"a": b"1"})
    before = (disk.version, disk.key("none"), disk.key("all"), disk.full_key())
    disk.write("life-1/scratch/data-plane/rows", b"rows")
    disk.fsync("life-1/scratch/data-plane/rows")
    disk.write("life-1/scratch/data-plane/rows", b"more")
    disk.rename("life-1/scratch/data-plane/rows", "life-1/scratch/data-plane/kept")
    for folder in ("life-1/scratch/data-plane", "life-1/scratch", "life-1", ""):
        disk.fsync_dir(folder)
    assert (disk.version, disk.key("none"), disk.key("all"), disk.full_key()) == before
    assert disk.scratch() == {"life-1/scratch/data-plane/kept": b"more"}
    assert disk.surviving("all") == {"a": b"1"}


def test_a_file_of_a_life_that_is_not_scratch_survives_like_any_other() -> None:
    disk = Disk()
    disk.write("life-1/scratch/s", b"1")
    disk.write("life-1/log", b"2")
    disk.fsync("life-1/log")
    disk.fsync_dir("life-1")
    disk.fsync_dir("")
    assert disk.version == 4
    assert disk.surviving("none") == {"life-1/log": b"2"}


def test_an_operation_that_changes_nothing_moves_no_version() -> None:
    disk = Disk.of({"t/a": b"1"})
    disk.write("t/a", b"1")
    disk.fsync("t/a")
    disk.fsync_dir("t")
    disk.rename("t/a", "t/a")
    assert disk.version == 0


def test_the_key_does_not_depend_on_how_the_files_came_to_be() -> None:
    made, given = Disk(), Disk.of({"x/a": b"1", "b": b"2"})
    made.write("tmp/a", b"1")
    made.write("b", b"0")
    made.write("b", b"2")
    made.rename("tmp", "x")
    assert made.key("all") == given.key("all") == given.key("none")
    assert made.key("none") != given.key("none")
    assert made.full_key() != given.full_key()


def test_the_full_key_sees_what_is_pending_below_a_pending_name() -> None:
    one, two = Disk(), Disk()
    for disk in (one, two):
        disk.write("t/a", b"1")
    one.fsync("t/a")  # neither survives now, but a later fsync_dir would tell them apart
    assert one.key("none") == two.key("none")
    assert one.key("all") == two.key("all")
    assert one.full_key() != two.full_key()


def test_a_capture_shares_its_bytes() -> None:
    data = b"x" * 1000
    disk = Disk()
    disk.write("a", data)
    captured = disk.surviving("all")
    assert captured["a"] is data
    assert Disk.of(captured).read("a") is data
    disk.write("a", b"later")
    assert captured["a"] is data


def test_half_synced_renames_may_hold_a_folder_inside_itself_and_still_end() -> None:
    disk = Disk.of({"a/b/f": b"1", "a/g": b"2"})
    disk.rename("a/b", "b")
    disk.rename("a", "b/a")
    disk.fsync_dir("b")
    assert disk.surviving("all") == {"b/f": b"1", "b/a/g": b"2"}
    assert disk.surviving("none") == {"a/g": b"2", "a/b/f": b"1"}


def test_an_unknown_outcome_is_refused() -> None:
    with pytest.raises(ProtocolError, match="must be one of none, all"):
        Disk().surviving("some")
