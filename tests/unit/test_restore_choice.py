"""What a restart restores: the choice, the scan behind it, the clean-up before it, and what is checked after it."""

from __future__ import annotations

import hashlib
import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from ledger_samples import group, sealed_group
from small_world import play

from protocol.checkpoint.payload import METADATA_SCHEMA, Dataloader, DataPlaneMetadata
from protocol.checkpoint.reconcile import Payload
from protocol.checkpoint.restore import FRESH, Choice, Found, check_metadata, check_prompts, clean_up, decide_choice, look
from protocol.config import Job
from protocol.data_plane.replay import manifest_digest, slot_of
from protocol.errors import RestoreRefused
from protocol.history import CleanupDone, FileDone, FileIssued, FileRead, key_set
from protocol.ledger.persistence import finalized_ids
from protocol.ledger.records import GroupStatus, LedgerFile
from protocol.messages import CANONICAL, PromptTask

PRINT = "f" * 64
BOOT = {"schema": 2, "trainer_version": 0, "fingerprint": PRINT}


def content(step: int = 0, fingerprint: str = PRINT, **changes: Any) -> dict[str, Any]:
    written = {"schema": 1, "sequence": 1, "epoch": 0, "mutation_version": 3, "rolled_back_train_group_count": 0}
    return {**written, "base_train_step": step, "trainer_version": step, "fingerprint": fingerprint, **changes}


def found(*steps: int, bootstrap: dict[str, Any] | None = None, snapshots: dict[int, Any] | None = None) -> Found:
    return Found(steps=steps, bootstrap=bootstrap, snapshots=snapshots or {})


def chosen(step: int, sequence: int = 0) -> Choice:
    anchor = f"step_{step}" if step else "bootstrap"
    source = f"{anchor}/rollout_snapshots/snapshot_{sequence:06d}" if sequence else (anchor if step else "")
    return Choice(anchor=anchor, step=step, sequence=sequence, source=source)


@pytest.mark.parametrize(
    "changes, why",
    [({"schema": 2}, "its schema is 2"), ({"sequence": None}, "sequence"), ({"gym": True}, "gym")],
    ids=["another schema", "another type", "a field too many"],
)
def test_a_snapshot_of_another_shape_is_refused_and_never_passed_over_for_an_older_one(changes: dict[str, Any], why: str) -> None:
    there = found(bootstrap=BOOT, snapshots={1: content(), 2: content(**changes)})
    with pytest.raises(RestoreRefused, match=rf"snapshot_000002/manifest.json is no snapshot's of this version: .*{why}"):
        decide_choice(there, "latest", PRINT)


def test_a_snapshot_of_another_shape_that_is_older_than_the_newest_is_nobodys_business() -> None:
    there = found(bootstrap=BOOT, snapshots={1: content(schema=2), 2: content()})
    assert decide_choice(there, "latest", PRINT) == chosen(0, 2)


@pytest.mark.parametrize("changes", [{"schema": 1}, {"trainer_version": "0"}, {"step": 0}])
def test_a_bootstrap_anchor_of_another_shape_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RestoreRefused, match="bootstrap/manifest.json cannot be restored"):
        decide_choice(found(bootstrap={**BOOT, **changes}), "latest", PRINT)


@pytest.mark.parametrize("mode", ["latest", "trainer_checkpoint", "none"])
def test_an_empty_folder_is_a_fresh_start(mode: str) -> None:
    assert decide_choice(found(), mode, PRINT) == FRESH


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (found(bootstrap=BOOT), chosen(0)),
        (found(bootstrap=BOOT, snapshots={1: content(), 2: content()}), chosen(0, 2)),
        (found(3, bootstrap=BOOT), chosen(3)),
        (found(1, 3, 2, bootstrap=BOOT, snapshots={4: content(3)}), chosen(3, 4)),
        (found(12, 9), chosen(12)),
    ],
)
def test_the_newest_snapshot_under_the_newest_anchor_is_restored(there: Found, expected: Choice) -> None:
    assert decide_choice(there, "latest", PRINT) == expected


@pytest.mark.parametrize(
    "bad",
    [
        None,
        content(2),
        content(1, "another"),
        content(1, base_train_step=0),
        content(1, trainer_version=2),
        {},
    ],
    ids=["unreadable", "other step", "other fingerprint", "step only", "version only", "empty"],
)
def test_a_snapshot_that_does_not_fit_is_passed_over_but_never_all_of_them_in_silence(bad: Any) -> None:
    assert decide_choice(found(1, snapshots={3: content(1), 7: bad}), "latest", PRINT) == chosen(1, 3)
    with pytest.raises(RestoreRefused, match="step_1 has 1 committed snapshots, but none of step and version 1"):
        decide_choice(found(1, snapshots={7: bad}), "latest", PRINT)


def test_a_bootstrap_of_other_rollout_semantics_is_refused() -> None:
    with pytest.raises(RestoreRefused, match="written by a run with other rollout semantics"):
        decide_choice(found(bootstrap={**BOOT, "fingerprint": "another"}), "latest", PRINT)


def test_a_trainer_checkpoint_stands_even_if_an_old_bootstrap_differs() -> None:
    there = found(2, bootstrap={**BOOT, "fingerprint": "another"}, snapshots={1: content(2)})
    assert decide_choice(there, "latest", PRINT) == chosen(2, 1)


def test_mode_trainer_checkpoint_passes_over_snapshots() -> None:
    assert decide_choice(found(2, snapshots={1: content(2)}), "trainer_checkpoint", PRINT) == chosen(2)
    assert not chosen(2).from_snapshot
    assert chosen(2, 1).from_snapshot


def test_a_lineage_that_is_given_up_is_removed_oldest_first() -> None:
    given_up = decide_choice(found(10, 2, 9, bootstrap=BOOT), "none", PRINT)
    assert given_up == msgspec.structs.replace(FRESH, discard=("bootstrap", "step_2", "step_9", "step_10"))
    only_bootstrap = decide_choice(found(bootstrap=BOOT, snapshots={1: content()}), "trainer_checkpoint", PRINT)
    assert only_bootstrap == msgspec.structs.replace(FRESH, discard=("bootstrap",))


# --- the scan and the clean-up


def scanned(files: dict[str, bytes]) -> Found:
    result: Found = play(look, {}, files=files).result
    return result


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_the_scan_sees_committed_snapshots_of_the_newest_anchor_only() -> None:
    root = "step_2/rollout_snapshots"
    there = scanned(
        {
            "bootstrap/manifest.json": as_json(BOOT),
            "bootstrap/rollout_snapshots/snapshot_000009/manifest.json": as_json(content()),
            "bootstrap/rollout_snapshots/snapshot_000009/COMMITTED": b"1",
            "step_1/training_info.json": b"{}",
            "step_2/training_info.json": b"{}",
            f"{root}/snapshot_000001/manifest.json": as_json(content(2)),
            f"{root}/snapshot_000001/COMMITTED": b"1",
            f"{root}/snapshot_000002/manifest.json": as_json(content(2)),  # not committed
            f"{root}/snapshot_000003/manifest.json": b"{torn",
            f"{root}/snapshot_000003/COMMITTED": b"1",
            f"{root}/snapshot_000004/COMMITTED": b"1",
            f"{root}/LATEST": b"snapshot_000004",
            "life-1/scratch/gym-0/journal": b"",
        }
    )
    assert there == Found(steps=(1, 2), bootstrap=BOOT, snapshots={1: content(2), 3: None, 4: None})


def test_a_hint_is_read_by_nobody() -> None:
    played = play(
        look, {}, files={"bootstrap/manifest.json": as_json(BOOT), "bootstrap/rollout_snapshots/LATEST": b"snapshot_000007"}
    )
    assert [event.path for event in played.events(FileRead)] == ["bootstrap/manifest.json"]


def test_the_clean_up_removes_what_no_restore_reads_and_nothing_else() -> None:
    kept = {
        "bootstrap/manifest.json": as_json(BOOT),
        "bootstrap/rollout_snapshots/snapshot_000001/COMMITTED": b"1",
        "bootstrap/rollout_snapshots/LATEST": b"snapshot_000001",
        "step_1/training_info.json": b"{}",
    }
    leftovers = {
        "tmp_step_2/training_info.json": b"{}",
        "old_step_1/training_info.json": b"{}",
        "bootstrap/rollout_snapshots/tmp_snapshot_000002/manifest.json": b"{}",
        "bootstrap/rollout_snapshots/LATEST.tmp": b"",
        "step_1/rollout_snapshots/tmp_snapshot_000001/COMMITTED": b"1",
    }
    played = play(clean_up, {}, files={**kept, **leftovers})
    emptied = {"step_1/rollout_snapshots/": b""}  # an empty folder is no leftover
    assert played.files == {**kept, **emptied}
    assert played.events(CleanupDone) == [CleanupDone(removed=5)]
    synced = [event.path for event in played.events(FileDone) if event.op == "fsync_dir"]
    assert synced == ["", "bootstrap/rollout_snapshots", "step_1/rollout_snapshots"]


def test_a_clean_folder_is_left_alone() -> None:
    played = play(clean_up, {}, files={"step_1/training_info.json": b"{}"})
    assert played.events(FileIssued) == []
    assert played.events(CleanupDone) == [CleanupDone(removed=0)]


# --- what is checked before anything is installed


JOB = Job(num_generations_per_prompt=2)
TASKS = tuple(PromptTask(f"t{index}", "workplace", "", (), ()) for index in range(5))
CONTROLLER: Any = SimpleNamespace(job=JOB, task_of=lambda ordinal: TASKS[ordinal % 5])


def ledger_file(*groups: Any) -> LedgerFile:
    return LedgerFile(schema_version=4, groups=groups, open_train_step=None, skipped=(), skips=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"task_id": "t4"}, "prompt 3 is task 't3' now, the ledger says 't4'"), ({"task_name": "other"}, "prompt 3"),
     ({"ordinal": 4}, "prompt 4 is task 't4' now, the ledger says 't3'")],
)  # fmt: skip
def test_a_prompt_that_is_not_where_it_was_is_refused(change: dict[str, Any], message: str) -> None:
    check_prompts((group(),), CONTROLLER)
    with pytest.raises(RestoreRefused, match=message):
        check_prompts((group(**change),), CONTROLLER)


def test_another_number_of_siblings_is_refused() -> None:
    with pytest.raises(RestoreRefused, match="e0p3i1 has 3 siblings"):
        check_prompts((sealed_group(GroupStatus.READY_TO_FINALIZE, siblings=3),), CONTROLLER)


FINALIZED = sealed_group(GroupStatus.FINALIZED)
SLOT = slot_of(FINALIZED.group_id, 3, 0, FINALIZED.rows)
RECOVERY = b"the ledger's bytes"
METADATA = DataPlaneMetadata(
    schema=METADATA_SCHEMA, train_steps=2, trainer_version=2, epoch=1, partition=CANONICAL, sampler="in_order",
    mode="authoritative", replay_digest=manifest_digest([SLOT]), replay_count=1,
    recovery_sha256="", recovery_count=1, recovery_schema=4,
)  # fmt: skip


def checked(metadata: DataPlaneMetadata, ledger: LedgerFile, slots: tuple[Any, ...] = (SLOT,)) -> None:
    loader = Dataloader(schema_version=1, consumed=8, epoch=1, dispatch_index=2)
    payload = Payload(
        ledger=ledger, recovery_sha256=hashlib.sha256(RECOVERY).hexdigest(), slots=slots, replay_digest=manifest_digest(slots),
        replay=key_set(slot.group_id for slot in slots), finalized=key_set(finalized_ids(ledger.groups)),
    )  # fmt: skip
    check_metadata(metadata, CONTROLLER, chosen(2), payload, loader)


def agreeing() -> DataPlaneMetadata:
    return msgspec.structs.replace(METADATA, recovery_sha256=hashlib.sha256(RECOVERY).hexdigest())


def test_a_save_that_agrees_with_what_lies_beside_it_is_accepted() -> None:
    checked(agreeing(), ledger_file(FINALIZED))
    with pytest.raises(RestoreRefused, match="ledger sha256"):
        checked(METADATA, ledger_file(FINALIZED))


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("schema", 1, "schema"),
        ("train_steps", 1, "train steps"),
        ("trainer_version", 3, "trainer version"),
        ("epoch", 0, "epoch"),
        ("partition", "another", "partition"),
        ("sampler", "windowed", "sampler"),
        ("replay_digest", "0", "replay digest"),
        ("replay_count", 2, "replay count"),
        ("recovery_sha256", "0", "ledger sha256"),
        ("recovery_count", 2, "ledger groups"),
        ("recovery_schema", 3, "ledger schema"),
    ],
)
def test_every_field_of_a_data_planes_save_is_compared(field: str, value: Any, name: str) -> None:
    with pytest.raises(RestoreRefused, match=f"step_2 contradicts itself: {name}: {value}"):
        checked(msgspec.structs.replace(agreeing(), **{field: value}), ledger_file(FINALIZED))


def test_finalized_groups_and_replay_slots_are_the_same() -> None:
    with pytest.raises(RestoreRefused, match="finalized groups"):
        checked(agreeing(), ledger_file(sealed_group(GroupStatus.READY_TO_FINALIZE)))
