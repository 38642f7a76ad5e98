"""I21, I22, I23: what the order of file effects promises, and what a restore may read."""

from __future__ import annotations

import json

import pytest
from run_files import CRASHED, ENDED, bootstrap, by_controller, checkpoint, cut, group, judge, pack, snapshot, terms
from test_durability_saved_rows import restored

from invariants.durability.payload_is_durable_before_its_name import PayloadIsDurableBeforeItsName
from invariants.durability.the_newest_restore_point_stays import TheNewestRestorePointStays
from invariants.durability.the_newest_valid_state_is_restored import TheNewestValidStateIsRestored
from protocol.history import (
    AnchorMade,
    CleanupDone,
    ControlDone,
    FileDone,
    FileIssued,
    FileRead,
    GymPhaseEnded,
    RestoreChosen,
    RunEnded,
    SnapshotBroke,
    SnapshotDropped,
    SnapshotPublished,
    SnapshotStarted,
    TrainerCheckpointDurable,
)

ROOT = "bootstrap/rollout_snapshots"
TMP, FINAL = f"{ROOT}/tmp_snapshot_000001", f"{ROOT}/snapshot_000001"


def effect(op, path, to=""):
    return [FileIssued(op, path, to), FileDone(op, path, to)]


def effects(*lines):
    return [event for line in lines for event in effect(*line.split())]


PUBLICATION = (
    f"write {TMP}/manifest.json", f"write {TMP}/data_plane/metadata.msgpack", f"fsync {TMP}/data_plane/metadata.msgpack",
    f"fsync {TMP}/manifest.json", f"fsync_dir {TMP}/data_plane", f"fsync_dir {TMP}", f"write {TMP}/COMMITTED",
    f"fsync {TMP}/COMMITTED", f"fsync_dir {TMP}", f"rename {TMP} {FINAL}", f"fsync_dir {ROOT}", "fsync_dir bootstrap",
    f"write {ROOT}/LATEST.tmp", f"fsync {ROOT}/LATEST.tmp", f"rename {ROOT}/LATEST.tmp {ROOT}/LATEST", f"fsync_dir {ROOT}",
)  # fmt: skip
PUBLISHED = SnapshotPublished("bootstrap", 1, 0, 0, 0, 0)


def without(*left_out):
    return [line for line in PUBLICATION if line not in left_out]


def published(lines):
    return judge(PayloadIsDurableBeforeItsName, *by_controller(*effects(*lines), PUBLISHED), start=bootstrap())


def test_the_whole_order_is_held():
    assert published(PUBLICATION) == []


@pytest.mark.parametrize(
    ("left_out", "found"),
    [
        (f"fsync {TMP}/manifest.json", "COMMITTED of"),
        (f"fsync_dir {TMP}/data_plane", "before the names"),
        (f"fsync {TMP}/COMMITTED", "is renamed to snapshot_000001 before"),
        (f"fsync_dir {ROOT}", "announced as durable before its name"),
        ("fsync_dir bootstrap", "announced as durable before its name"),
        (f"rename {TMP} {FINAL}", "without a rename to this name"),
    ],
)
def test_each_missing_sync_breaks_I21(left_out, found):
    assert any(found in violation.found for violation in published(without(left_out)))


def test_a_commit_mark_that_was_never_written_breaks_I21():
    lines = without(f"write {TMP}/COMMITTED", f"fsync {TMP}/COMMITTED")
    assert "without a synced COMMITTED" in published(lines)[0].found


def test_a_hint_before_the_parents_sync_breaks_I21():
    lines = [*PUBLICATION[:10], *PUBLICATION[12:15], *PUBLICATION[10:12], PUBLICATION[15]]
    assert "LATEST of" in published(lines)[0].found


def test_a_hint_written_in_place_breaks_I21():
    assert any("is written in place" in one.found for one in published([*PUBLICATION, f"write {ROOT}/LATEST"]))


def test_a_sync_that_is_issued_and_not_done_does_not_count():
    steps = [event for event in effects(*PUBLICATION) if event != FileDone("fsync", f"{TMP}/manifest.json")]
    assert judge(PayloadIsDurableBeforeItsName, *by_controller(*steps), start=bootstrap()) != []


def test_a_write_into_a_published_folder_breaks_I21():
    assert "has its final name" in published([*PUBLICATION, f"write {FINAL}/manifest.json"])[0].found


def test_an_announced_checkpoint_needs_its_parents_sync():
    lines = [
        "write tmp_step_1/training_info.json",
        "fsync tmp_step_1/training_info.json",
        "fsync_dir tmp_step_1",
        "rename tmp_step_1 step_1",
    ]
    durable = TrainerCheckpointDurable(1)
    assert len(judge(PayloadIsDurableBeforeItsName, *by_controller(*effects(*lines), durable))) == 1
    assert judge(PayloadIsDurableBeforeItsName, *by_controller(*effects(*lines), *effect("fsync_dir", ""), durable)) == []


def test_a_swap_of_a_checkpoint_breaks_I21():
    lines = ["rename step_1 old_step_1", "rename tmp_step_1 step_1"]
    found = judge(PayloadIsDurableBeforeItsName, *by_controller(*effects(*lines)), start=checkpoint(1))
    assert "neither the old nor the new one" in found[0].found


def test_an_anchor_announced_before_its_manifest_is_durable_breaks_I21():
    lines = ["write bootstrap/manifest.json", "fsync bootstrap/manifest.json", "fsync_dir bootstrap"]
    made = AnchorMade("bootstrap")
    assert len(judge(PayloadIsDurableBeforeItsName, *by_controller(*effects(*lines), made))) == 1
    assert judge(PayloadIsDurableBeforeItsName, *by_controller(*effects(*lines), *effect("fsync_dir", ""), made)) == []


def test_scratch_is_nobodys_payload():
    assert (
        judge(PayloadIsDurableBeforeItsName, *by_controller(*effects("write life-1/scratch/gym-0/a", "rename tmp_step_1 step_1")))
        == []
    )


@pytest.mark.parametrize("part", ["rollout_recovery.msgpack", "manifest.json", "data_plane/rollout_staging.msgpack"])
def test_a_torn_or_missing_part_under_a_final_name_breaks_I21(part):
    whole = {**bootstrap(), **snapshot(1, groups=[group(0)])}
    assert judge(PayloadIsDurableBeforeItsName, start=whole) == []
    torn = {**whole, f"{FINAL}/{part}": whole[f"{FINAL}/{part}"][:-1]}
    gone = {name: data for name, data in whole.items() if name != f"{FINAL}/{part}"}
    assert f"{FINAL}: {part}" in judge(PayloadIsDurableBeforeItsName, start=torn)[0].found
    assert f"{FINAL}: {part} is missing" in judge(PayloadIsDurableBeforeItsName, start=gone)[0].found


def test_a_checkpoint_without_weights_breaks_I21():
    files = checkpoint(1)
    del files["step_1/policy/weights.msgpack"]
    assert "step_1: policy/weights.msgpack is missing" in judge(PayloadIsDurableBeforeItsName, start=files)[0].found


def test_a_torn_folder_without_COMMITTED_is_no_snapshot():
    files = {name: b"" for name in snapshot(1) if not name.endswith("COMMITTED")}
    assert judge(PayloadIsDurableBeforeItsName, start={**bootstrap(), **files}) == []


def test_a_ledger_of_another_cut_than_the_rows_breaks_I21():
    files = snapshot(1, groups=[group(0)])
    files[f"{FINAL}/rollout_recovery.msgpack"] = snapshot(1, groups=[group(1)])[f"{FINAL}/rollout_recovery.msgpack"]
    assert "recovery_sha256" in judge(PayloadIsDurableBeforeItsName, start=files)[0].found


def gym_files(sha256="", count=0, manifest="environment"):
    content = {"instances": {"gym-0": {"participants": ["environment"], "episodes": [], "restarts": []}}}
    return {
        **bootstrap(),
        **snapshot(1, gym=content),
        f"{FINAL}/gym/gym-0/{manifest}/manifest.json": json.dumps({"sha256": sha256, "count": count}).encode(),
    }


def test_gym_state_that_its_manifest_does_not_vouch_for_breaks_I21():
    turn = terms(target_level="turn", rollout_checkpointing={"interval_s": 1.0})
    assert judge(PayloadIsDurableBeforeItsName, start=gym_files(), given=turn) == []
    torn = {**gym_files("ab", 1), f"{FINAL}/gym/gym-0/environment/episodes.msgpack": b"half"}
    assert "does not have the digest" in judge(PayloadIsDurableBeforeItsName, start=torn, given=turn)[0].found
    assert "episodes.msgpack is missing" in judge(PayloadIsDurableBeforeItsName, start=gym_files("ab", 1), given=turn)[0].found
    other = gym_files(manifest="agent")
    assert "gym-0/environment/manifest.json is missing" in judge(PayloadIsDurableBeforeItsName, start=other, given=turn)[0].found


# --- I22

READS = [
    FileRead(f"{FINAL}/{part}")
    for part in ("rollout_recovery.msgpack", "replay_buffer_metadata.msgpack", "train_dataloader.msgpack")
]
START = {**bootstrap(), **snapshot(1)}


def restores(*events, start=START, given=None, life=2):
    return judge(TheNewestValidStateIsRestored, *by_controller(*events), start=start, given=given, life=life)


def test_the_newest_snapshot_read_whole_is_held():
    assert restores(CleanupDone(0), RestoreChosen("bootstrap", 1), *READS, restored()) == []


def test_a_fresh_start_on_an_empty_folder_is_held():
    assert restores(RestoreChosen("", 0), restored(anchor="", sequence=0), start={}) == []


def test_a_bootstrap_anchor_alone_is_a_fresh_start_under_either_name():
    assert restores(RestoreChosen("bootstrap", 0), restored(sequence=0), start=bootstrap()) == []
    assert restores(RestoreChosen("", 0), restored(anchor="", sequence=0), start=bootstrap()) == []


def test_an_older_choice_breaks_I22():
    start = {**START, **snapshot(2)}
    assert "snapshot_000001 was chosen" in restores(RestoreChosen("bootstrap", 1), start=start)[0].found


def test_silence_about_a_snapshot_breaks_I22():
    assert "a fresh start was chosen" in restores(RestoreChosen("", 0), restored(anchor="", sequence=0))[0].found


def test_the_trainer_mode_ignores_snapshots():
    given = terms(rollout_checkpointing={"restore_mode": "trainer_checkpoint"})
    start = {**checkpoint(2), **snapshot(1, anchor="step_2")}
    assert restores(RestoreChosen("step_2", 0), start=start, given=given) == []
    assert restores(RestoreChosen("step_2", 1), start=start, given=given) != []


def test_what_was_chosen_and_never_read_breaks_I22():
    found = restores(RestoreChosen("bootstrap", 1), *READS[1:], restored())
    assert "rollout_recovery.msgpack was not read" in found[0].found


def test_another_cursor_than_the_saved_one_breaks_I22():
    start = {**bootstrap(), **snapshot(1, groups=[group(0)])}
    found = restores(RestoreChosen("bootstrap", 1), *READS, restored(consumed=5), start=start)
    assert "cursor 5 was restored, the newest valid state holds 1" in found[0].found


def test_a_dead_lifes_scratch_that_is_read_breaks_I22():
    assert "which a dead life left behind" in restores(FileRead("life-1/scratch/gym-0/sessions/k"))[0].found
    assert restores(FileRead("life-2/scratch/gym-0/sessions/k")) == []


def test_an_unfinished_save_that_is_read_breaks_I22_unless_it_is_this_lifes_own():
    path = f"{ROOT}/tmp_snapshot_000002/gym/gym-0/agent/manifest.json"
    assert "which no finished save wrote" in restores(CleanupDone(0), FileRead(path))[0].found
    assert restores(CleanupDone(0), FileDone("write", path), FileRead(path)) == []


def test_what_an_unfinished_save_left_must_be_gone_after_the_clean_up():
    left = {**START, f"{ROOT}/tmp_snapshot_000002/manifest.json": b"", "tmp_step_1/training_info.json": b""}
    removed = [FileDone("remove", f"{ROOT}/tmp_snapshot_000002"), FileDone("remove", "tmp_step_1")]
    assert restores(*removed, CleanupDone(2), start=left) == []
    assert "tmp_step_1 of an unfinished save is still there" in restores(removed[0], CleanupDone(1), start=left)[0].found


def test_a_restore_that_reads_beside_its_choice_breaks_I22():
    other = FileRead(f"{ROOT}/snapshot_000002/rollout_recovery.msgpack")
    assert "was read while" in restores(RestoreChosen("bootstrap", 1), other)[0].found
    assert restores(other, RestoreChosen("bootstrap", 1), *READS, restored()) == []  # looking before choosing is no restore


# --- I23


def stays(*lines, start, finish=None, given=None):
    return judge(
        TheNewestRestorePointStays, *by_controller(*effects(*lines)), start=start, finish=finish, given=given, status=ENDED
    )


@pytest.mark.parametrize(
    "line",
    [
        f"remove {FINAL}",
        f"rename {FINAL} {ROOT}/old_1",
        f"remove {ROOT}",
        f"remove {FINAL}/COMMITTED",
        "remove bootstrap",
        f"write {FINAL}/manifest.json",
    ],
)
def test_taking_the_only_restore_point_away_breaks_I23(line):
    assert "snapshot_000001, the newest durable restore point" in stays(line, start=START)[0].found


def test_the_older_one_may_go():
    assert stays(f"remove {FINAL}", start={**START, **snapshot(2), **snapshot(3)}) == []
    assert stays("remove bootstrap", start={**START, **checkpoint(1)}) == []


def test_a_run_that_has_ended_leaves_its_last_step():
    ended = ("controller", RunEnded(3))
    assert judge(TheNewestRestorePointStays, ended, start=checkpoint(3), status=ENDED) == []
    found = judge(TheNewestRestorePointStays, ended, start=checkpoint(2), status=ENDED)[0].found
    assert found == "the run ended after step 3 and step_2 is the newest that it left"
    unsaved = terms(checkpointing={"enabled": False})
    assert judge(TheNewestRestorePointStays, ended, start=bootstrap(), status=ENDED, given=unsaved) == []


def test_snapshots_of_step_0_that_outlive_one_of_a_trainer_checkpoint_break_I23():
    start = {**START, **checkpoint(1)}
    steps = by_controller(SnapshotPublished("step_1", 1, 1, 1, 1, 1), SnapshotStarted("step_1", 2, False))
    found = [one.found for one in judge(TheNewestRestorePointStays, *steps, start=start)]
    assert found == ["1 snapshots are left in bootstrap/rollout_snapshots, and one of step_1 was published since"]
    pruned = by_controller(*effects(f"remove {FINAL}"))
    assert judge(TheNewestRestorePointStays, steps[0], *pruned, steps[1], start=start) == []


def test_one_less_than_is_kept_breaks_I23():
    assert "the newest 2 are kept" in stays(f"remove {FINAL}", start={**START, **snapshot(2)})[0].found
    steps = {**checkpoint(1), **checkpoint(2), **checkpoint(3)}
    assert "the newest 3 are kept" in stays("remove step_1", start=steps)[0].found
    assert stays("remove step_1", start={**steps, **checkpoint(4)}) == []


def test_one_more_than_is_kept_breaks_I23():
    names = [f"bootstrap/rollout_snapshots/{name}" for name in ("tmp_snapshot_000003", "snapshot_000003")]
    published = SnapshotPublished("bootstrap", 3, 0, 0, 0, 0)
    there = {**START, **snapshot(2)}
    steps = by_controller(*effects(f"rename {names[0]} {names[1]}"), published)
    again = by_controller(SnapshotStarted("bootstrap", 4, False))
    pruned = by_controller(*effects(f"remove {FINAL}"))
    assert len(judge(TheNewestRestorePointStays, *steps, *again, start=there)) == 1
    assert judge(TheNewestRestorePointStays, *steps, *pruned, *again, start=there) == []


def test_a_prune_before_the_new_anchor_is_durable_breaks_I23():
    save = ["write tmp_step_1/training_info.json", "rename tmp_step_1 step_1"]
    finish = {**START, **checkpoint(1)}
    assert stays(*save, f"remove {FINAL}", start=START, finish=finish) != []
    after = by_controller(*effects(*save), *effect("fsync_dir", ""), *effects(f"remove {FINAL}"))
    assert judge(TheNewestRestorePointStays, *after, start=START, finish=checkpoint(1), status=ENDED) == []


def test_a_restore_point_that_is_gone_at_the_end_breaks_I23():
    assert "what is left at the end is nothing" in stays(start=START, finish=bootstrap())[0].found


def test_a_lineage_that_the_trainer_mode_gives_up_is_not_counted_among_the_kept():
    given = terms(rollout_checkpointing={"restore_mode": "trainer_checkpoint"})
    names = [f"bootstrap/rollout_snapshots/{name}" for name in ("tmp_snapshot_000003", "snapshot_000003")]
    published, again = SnapshotPublished("bootstrap", 3, 0, 0, 0, 0), SnapshotStarted("bootstrap", 4, False)
    there = {**START, **snapshot(2)}
    steps = by_controller(*effects(f"rename {names[0]} {names[1]}"), published, again)
    assert judge(TheNewestRestorePointStays, *by_controller(*effects("remove bootstrap")), *steps, start=there, given=given) == []
    assert len(judge(TheNewestRestorePointStays, *steps, start=there, given=given)) == 1


def test_a_mode_that_throws_lineages_away_has_no_I23():
    given = terms(rollout_checkpointing={"restore_mode": "none"})
    assert not TheNewestRestorePointStays.applies(given)
    assert TheNewestRestorePointStays.applies(terms())


GOOD_CUT = [SnapshotStarted("bootstrap", 1, False), cut(), ControlDone("resume", "gym-0", "1.1", "lost", "Lost", "unavailable")]


@pytest.mark.parametrize("phase", [[GymPhaseEnded("1.1", "cut", 0.1)], []])
def test_a_failed_resume_that_undoes_a_good_cut_breaks_I23(phase):
    broke = SnapshotBroke(1, "unavailable", "Lost", "gym-0: no answer", 1)
    found = judge(TheNewestRestorePointStays, *by_controller(*GOOD_CUT, *phase, broke), status=CRASHED)
    assert "because a resume failed" in found[0].found


def test_a_cut_that_broke_for_a_reason_of_its_own_is_held():
    phase = GymPhaseEnded("1.1", "failed", 0.1)
    broke = SnapshotBroke(1, "unavailable", "SnapshotFailed", "the cut contradicts itself", 1)
    assert judge(TheNewestRestorePointStays, *by_controller(*GOOD_CUT, phase, broke), status=CRASHED) == []
    assert judge(TheNewestRestorePointStays, *by_controller(*GOOD_CUT, GymPhaseEnded("1.1", "cut", 0.1), PUBLISHED)) == []


def test_a_failed_snapshot_that_leaves_its_folder_breaks_I23():
    broke = SnapshotBroke(1, "unavailable", "Lost", "", 1)
    started, again = SnapshotStarted("bootstrap", 1, False), SnapshotStarted("bootstrap", 2, False)
    left = by_controller(started, *effects(f"write {TMP}/manifest.json"), broke, again)
    removed = by_controller(started, *effects(f"write {TMP}/manifest.json", f"remove {TMP}"), broke, again)
    assert "is still there when snapshot 2 starts" in judge(TheNewestRestorePointStays, *left)[-1].found
    assert judge(TheNewestRestorePointStays, *removed) == []


def test_what_gym_wrote_for_a_snapshot_that_is_given_up_is_removed():
    written = (("gym-0", done) for done in effects(f"write {TMP}/gym/gym-0/agent/manifest.json"))
    written, dropped = [*written], by_controller(SnapshotDropped(1, "a train step committed"))
    assert "was given up and nobody removed it" in judge(TheNewestRestorePointStays, *written, *dropped)[0].found
    assert judge(TheNewestRestorePointStays, *written, *by_controller(*effects(f"remove {TMP}")), *dropped) == []


def test_an_unreadable_manifest_is_no_restore_point():
    torn = {**bootstrap(), **snapshot(1), f"{FINAL}/manifest.json": pack({})}
    assert stays(f"remove {FINAL}", start=torn, finish=bootstrap()) == []
