"""Durable first, visible second: the order of file effects, and what every crash on the way leaves behind."""

from __future__ import annotations

from typing import Any

import pytest
from small_world import SmallScenario, play

from protocol.checkpoint import folders
from protocol.checkpoint.publish import publish_snapshot, publish_step, sync_tree, write_files
from protocol.checkpoint.snapshot import Position, decide_lost, decide_skip
from protocol.controller.snapshot_pump import decide_fatal
from protocol.errors import Cause
from protocol.history import FileDone
from sim.disk import ALL, NONE, Disk
from sim.world import World

PAYLOAD = {
    "rollout_recovery.msgpack": b"ledger",
    "manifest.json": b"{}",
    "data_plane/rollout_staging.msgpack": b"rows",
    "gym/gym-0/policy-model/manifest.json": b"{}",
}
ROOT = "bootstrap/rollout_snapshots"
TEMPORARY, FINAL = f"{ROOT}/tmp_snapshot_000003", f"{ROOT}/snapshot_000003"


async def snapshot(rt: Any) -> None:
    await write_files(rt, TEMPORARY, PAYLOAD)
    await publish_snapshot(rt, "bootstrap", 3)


async def step(rt: Any) -> None:
    await write_files(rt, folders.temporary_step(2), PAYLOAD)
    await publish_step(rt, 2)


def effects(work: Any) -> list[str]:
    return [f"{event.op} {event.path or '.'}{' > ' + event.to if event.to else ''}" for event in play(work, {}).events(FileDone)]


def test_a_snapshot_is_synced_then_committed_then_renamed_then_hinted_at() -> None:
    assert effects(snapshot) == [
        *(f"write {TEMPORARY}/{name}" for name in sorted(PAYLOAD)),
        f"fsync {TEMPORARY}/data_plane/rollout_staging.msgpack",
        f"fsync_dir {TEMPORARY}/data_plane",
        f"fsync {TEMPORARY}/gym/gym-0/policy-model/manifest.json",
        f"fsync_dir {TEMPORARY}/gym/gym-0/policy-model",
        f"fsync_dir {TEMPORARY}/gym/gym-0",
        f"fsync_dir {TEMPORARY}/gym",
        f"fsync {TEMPORARY}/manifest.json",
        f"fsync {TEMPORARY}/rollout_recovery.msgpack",
        f"fsync_dir {TEMPORARY}",
        f"write {TEMPORARY}/COMMITTED",
        f"fsync {TEMPORARY}/COMMITTED",
        f"fsync_dir {TEMPORARY}",
        f"rename {TEMPORARY} > {FINAL}",
        f"fsync_dir {ROOT}",
        "fsync_dir bootstrap",
        f"write {ROOT}/LATEST.tmp",
        f"fsync {ROOT}/LATEST.tmp",
        f"rename {ROOT}/LATEST.tmp > {ROOT}/LATEST",
        f"fsync_dir {ROOT}",
    ]


def test_a_trainer_checkpoint_is_renamed_last_and_its_parent_synced_after_it() -> None:
    done = effects(step)
    assert done[-3:] == ["fsync_dir tmp_step_2", "rename tmp_step_2 > step_2", "fsync_dir ."]
    assert not [line for line in done if line.startswith("write") and done.index(line) > done.index("fsync_dir tmp_step_2")]


def survivors(work: Any, outcome: str) -> list[dict[str, bytes]]:
    """What each crash of this life would leave, in order; the anchor is durable beforehand."""
    disk = Disk.of({"bootstrap/manifest.json": b"{}"})
    seen: list[dict[str, bytes]] = []

    async def main(rt: Any) -> None:
        await work(rt)

    world = World(SmallScenario(), 0, 1, disk, processes={"controller": main})
    assert world.live(boundary=lambda: seen.append(dict(disk.surviving(outcome)))).outcome == "ended"
    world.bury()
    return seen


def below(files: dict[str, bytes], folder: str) -> dict[str, bytes]:
    return {path.removeprefix(f"{folder}/"): data for path, data in files.items() if path.startswith(f"{folder}/")}


@pytest.mark.parametrize("outcome", [NONE, ALL])
def test_at_no_crash_is_a_committed_snapshot_incomplete(outcome: str) -> None:
    reached = set()
    for files in survivors(snapshot, outcome):
        for folder in (TEMPORARY, FINAL):
            found = below(files, folder)
            if "COMMITTED" in found:
                assert found == {**PAYLOAD, "COMMITTED": b"1"}
                reached.add(folder)
        if f"{ROOT}/LATEST" in files:
            assert below(files, FINAL) and files[f"{ROOT}/LATEST"] == b"snapshot_000003"
            reached.add("LATEST")
    assert {FINAL, "LATEST"} <= reached


@pytest.mark.parametrize("outcome", [NONE, ALL])
def test_at_no_crash_is_a_trainer_checkpoint_incomplete(outcome: str) -> None:
    found = [below(files, "step_2") for files in survivors(step, outcome)]
    assert [files for files in found if files] and all(files in ({}, PAYLOAD) for files in found)
    assert found[-1] == PAYLOAD


def test_a_missing_folder_has_nothing_to_sync_but_itself() -> None:
    assert effects(lambda rt: sync_tree(rt, "")) == ["fsync_dir ."]


@pytest.mark.parametrize(
    ("name", "step_number", "sequence", "leftover"),
    [
        ("step_12", 12, None, False),
        ("step_", None, None, False),
        ("step_x", None, None, False),
        ("tmp_step_12", None, None, True),
        ("old_step_12", None, None, True),
        ("snapshot_000123", None, 123, False),
        ("tmp_snapshot_000123", None, None, True),
        ("LATEST.tmp", None, None, True),
        ("LATEST", None, None, False),
        ("bootstrap", None, None, False),
    ],
)
def test_a_folders_name_says_what_it_is(name: str, step_number: int | None, sequence: int | None, leftover: bool) -> None:
    assert (folders.step_of(name), folders.sequence_of(name), folders.is_leftover(name)) == (step_number, sequence, leftover)
    assert folders.is_anchor(name) is (name == "bootstrap" or step_number is not None)


# --- whether a snapshot is taken, is lost, or ends the run


@pytest.mark.parametrize(
    ("committing", "unchanged", "forced", "live", "anchored", "expected"),
    [
        (False, False, False, False, True, None),
        (False, True, False, False, True, "unchanged"),
        (False, True, True, False, True, None),
        (False, True, False, True, True, None),
        (True, False, True, True, True, "commit-in-progress"),
        (False, False, False, False, False, "no-durable-anchor"),
        (False, False, True, True, False, "no-durable-anchor"),
    ],
)
def test_a_snapshot_is_skipped_only_for_a_reason(
    committing: bool, unchanged: bool, forced: bool, live: bool, anchored: bool, expected: str | None
) -> None:
    assert decide_skip(committing, unchanged, forced, live, anchored) == expected


@pytest.mark.parametrize(
    ("committing", "now", "expected"),
    [(False, (3, 3), False), (True, (3, 3), True), (False, (4, 4), True), (False, (3, 4), True), (False, (4, 3), True)],
)
def test_a_snapshot_is_lost_to_a_step_that_commits_or_is_committing(
    committing: bool, now: tuple[int, int], expected: bool
) -> None:
    assert decide_lost(committing, Position(*now), Position(3, 3)) is expected


@pytest.mark.parametrize("cause", Cause)
def test_a_contradiction_ends_the_run_at_once_and_anything_else_after_the_budget(cause: Cause) -> None:
    assert [decide_fatal(cause, consecutive, 2) for consecutive in (1, 2, 3)] == (
        [True, True, True] if cause is Cause.BROKEN else [False, False, True]
    )
