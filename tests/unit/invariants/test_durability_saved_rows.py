"""I13, I14, I15, I16: what a payload holds agrees with what its ledger owns."""

from __future__ import annotations

import msgspec
import pytest
from run_files import bootstrap, by_controller, checkpoint, cut, group, judge, pack, snapshot, terms

from invariants.durability.canonical_rows_are_the_sidecars import CanonicalRowsAreTheSidecars
from invariants.durability.cursor_and_reservations_share_a_prefix import CursorAndReservationsShareAPrefix
from invariants.durability.every_owned_staging_row_is_saved import EveryOwnedStagingRowIsSaved
from invariants.durability.finalized_groups_are_the_replay_groups import FinalizedGroupsAreTheReplayGroups
from protocol.history import (
    CursorMoved,
    GroupDropped,
    GroupReserved,
    Restored,
    SnapshotDropped,
    SnapshotPublished,
    TrainerCheckpointDurable,
    key_set,
)

PUBLISHED = SnapshotPublished("bootstrap", 1, 0, 0, 0, 0)
ROOT_OF_1 = "bootstrap/rollout_snapshots/snapshot_000001"
FOUR = (
    EveryOwnedStagingRowIsSaved,
    CanonicalRowsAreTheSidecars,
    FinalizedGroupsAreTheReplayGroups,
    CursorAndReservationsShareAPrefix,
)


def restored(**other):
    values = {
        "anchor": "bootstrap", "sequence": 1, "step": 0, "version": 0, "epoch": 0, "consumed": 0, "dispatch_index": 0, "open": 0,
        "sealed": 0, "continuations": 0, "canonical": key_set(()), "sidecar": key_set(()), "finalized": key_set(()),
        "replay": key_set(()), "ledger": "L",
    }  # fmt: skip
    return Restored(**{**values, **other})


@pytest.mark.parametrize("kind", FOUR)
def test_an_agreeing_payload_is_held(kind):
    groups = [group(0), group(1, "FINALIZED"), group(2, attempt="DISPATCHED")]
    start = {**bootstrap(), **snapshot(1, groups=groups, skipped=(3,)), **checkpoint(2, groups=[group(3)], skipped=(0,))}
    assert judge(kind, *by_controller(cut(), PUBLISHED), start=start) == []


@pytest.mark.parametrize("kind", FOUR)
def test_a_payload_of_another_shape_is_a_finding_and_no_crash_of_the_judge(kind):
    folder = "bootstrap/rollout_snapshots/snapshot_000001"
    files = snapshot(1, groups=[group(0, "FINALIZED")])
    files[f"{folder}/rollout_recovery.msgpack"] = pack({"groups": [{"group_id": "e0p0i1"}]})
    files[f"{folder}/replay_buffer_metadata.msgpack"] = pack({"slots": [{"group_id": "e0p0i1"}]})
    assert "another shape" in judge(kind, start={**bootstrap(), **files})[0].found


def test_a_sealed_row_that_is_not_in_the_save_breaks_I13():
    start = {**bootstrap(), **snapshot(1, groups=[group(0)], staging=[])}
    assert "e0p0i1/k0 of the sealed e0p0i1_g0r0-a0 is missing" in judge(EveryOwnedStagingRowIsSaved, start=start)[0].found


def test_a_sealed_row_with_another_digest_breaks_I13():
    one = group(0)
    one["siblings"][0]["attempts"][0]["receipt"]["calls"][0]["digest"] = "another"
    found = judge(EveryOwnedStagingRowIsSaved, start={**bootstrap(), **snapshot(1, groups=[one])})
    assert "its receipt says another" in found[0].found


def test_rows_of_a_published_group_are_not_asked_for_any_more():
    start = {**bootstrap(), **snapshot(1, groups=[group(0, "FINALIZED")], staging=[])}
    assert judge(EveryOwnedStagingRowIsSaved, start=start) == []


def test_a_saved_episode_without_its_staged_row_breaks_I13():
    gym = {"instances": {"gym-0": {"participants": [], "restarts": [], "episodes": [
        {"rollout_id": "e0p0i1_g0r0", "attempt": 0, "staging_keys": ["e0p0i1_g0r0-a0/c0"]}]}}}  # fmt: skip
    one = group(0, attempt="DISPATCHED")
    missing = judge(EveryOwnedStagingRowIsSaved, start={**bootstrap(), **snapshot(1, groups=[one], gym=gym)})
    assert "saved by gym-0 is missing" in missing[0].found
    there = snapshot(1, groups=[one], gym=gym, staging=["e0p0i1_g0r0-a0/c0"])
    assert judge(EveryOwnedStagingRowIsSaved, start={**bootstrap(), **there}) == []


def test_rows_missing_at_a_cut_break_I13_once_it_is_published():
    short = cut(staging_missing=2, staging_expected=key_set("ab"))
    assert len(judge(EveryOwnedStagingRowIsSaved, *by_controller(short, PUBLISHED))) == 1
    assert judge(EveryOwnedStagingRowIsSaved, *by_controller(short, SnapshotDropped(1, "step"))) == []
    assert judge(EveryOwnedStagingRowIsSaved, *by_controller(short)) == []


@pytest.mark.parametrize(
    ("slots", "canonical", "found"),
    [
        (["e0p0i1"], [], "which is not among the canonical rows"),
        ([], ["e0p0i1_g0"], "is in no slot of the sidecar"),
    ],
)
def test_canonical_rows_that_are_not_the_sidecars_break_I14(slots, canonical, found):
    start = {**bootstrap(), **snapshot(1, slots=slots, canonical=canonical)}
    assert found in judge(CanonicalRowsAreTheSidecars, start=start)[0].found


def test_a_trainer_cut_with_another_sidecar_breaks_I14_when_it_is_durable():
    odd = cut("trainer", canonical=key_set("a"))
    assert len(judge(CanonicalRowsAreTheSidecars, *by_controller(odd, TrainerCheckpointDurable(1)))) == 1
    assert judge(CanonicalRowsAreTheSidecars, *by_controller(odd, PUBLISHED)) == []


def test_a_restore_that_installs_other_rows_than_were_saved_breaks_I14():
    start = {**bootstrap(), **snapshot(1, groups=[group(0, "FINALIZED")])}
    right = restored(canonical=key_set(["e0p0i1_g0"]), sidecar=key_set(["e0p0i1_g0"]))
    assert judge(CanonicalRowsAreTheSidecars, *by_controller(right), start=start) == []
    assert len(judge(CanonicalRowsAreTheSidecars, *by_controller(restored()), start=start)) == 1


def test_a_finalized_group_without_a_slot_breaks_I15():
    start = {**bootstrap(), **snapshot(1, groups=[group(0, "FINALIZED")], slots=[])}
    assert "in no slot of the sidecar" in judge(FinalizedGroupsAreTheReplayGroups, start=start)[0].found


def test_a_slot_without_a_finalized_group_breaks_I15():
    start = {**bootstrap(), **snapshot(1, groups=[group(0)], slots=["e0p0i1"])}
    assert "is not FINALIZED in the ledger" in judge(FinalizedGroupsAreTheReplayGroups, start=start)[0].found


def test_a_claim_that_was_lost_between_select_and_ledger_breaks_I15_at_the_cut():
    odd = cut(finalized=key_set("a"), replay=key_set("ab"))
    assert len(judge(FinalizedGroupsAreTheReplayGroups, *by_controller(odd, PUBLISHED))) == 1


def test_a_restore_that_forgets_a_finalized_group_breaks_I15():
    start = {**bootstrap(), **snapshot(1, groups=[group(0, "FINALIZED")])}
    right = restored(finalized=key_set(["e0p0i1"]), replay=key_set(["e0p0i1"]))
    assert judge(FinalizedGroupsAreTheReplayGroups, *by_controller(right), start=start) == []
    assert len(judge(FinalizedGroupsAreTheReplayGroups, *by_controller(restored()), start=start)) == 1


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"groups": [group(0)], "consumed": 2}, "cursor 2, but 0 prompts are trained, 1 open and 0 passed over"),
        ({"groups": [group(0)], "skipped": (0,)}, "an ordinal is there twice"),
        ({"groups": [group(5)], "consumed": 1}, "ordinals [5] are not below the cursor 1"),
        ({"skipped": tuple(range(9))}, "cursor 9 is not in epoch 0"),
    ],
)
def test_a_cursor_beside_its_reservations_breaks_I16(content, found):
    start = {**bootstrap(), **snapshot(1, **content)}
    assert any(found in violation.found for violation in judge(CursorAndReservationsShareAPrefix, start=start))


def test_a_cut_between_cursor_and_reservation_breaks_I16():
    moved = CursorMoved(0, 1, 0, 1)
    reserved = GroupReserved("e0p0i1", 0, 0, 1, 1)
    between = by_controller(restored(), moved, cut(consumed=1), PUBLISHED)
    after = by_controller(restored(), moved, reserved, cut(consumed=1, open=1), PUBLISHED)
    assert len(judge(CursorAndReservationsShareAPrefix, *between)) == 1
    assert judge(CursorAndReservationsShareAPrefix, *after) == []


def test_a_dropped_group_counts_as_passed_over():
    steps = by_controller(
        restored(), CursorMoved(0, 1, 0, 1), GroupReserved("e0p0i1", 0, 0, 1, 1), GroupDropped("e0p0i1", 0, "discarded"),
        cut(consumed=1, passed=1), PUBLISHED,
    )  # fmt: skip
    assert judge(CursorAndReservationsShareAPrefix, *steps) == []


def test_a_group_in_another_epoch_than_its_ordinal_breaks_I16():
    found = judge(
        CursorAndReservationsShareAPrefix, *by_controller(GroupReserved("e0p9i1", 9, 0, 1, 1)), given=terms(data_length=8)
    )
    assert "is in epoch 0, not 1" in found[0].found


def test_a_cursor_that_jumps_breaks_I16():
    steps = by_controller(restored(), CursorMoved(0, 1, 0, 1), CursorMoved(2, 3, 0, 1))
    assert "moved from 2 to 3, it stood at 1" in judge(CursorAndReservationsShareAPrefix, *steps)[0].found


def test_a_slot_that_is_younger_than_its_rows_breaks_I14():
    files = snapshot(1, groups=[group(0, "FINALIZED")])
    place = f"{ROOT_OF_1}/replay_buffer_metadata.msgpack"
    content = msgspec.msgpack.decode(files[place])
    content["slots"][0]["start_weight_version"] = 0
    files[place] = pack(content)
    assert judge(CanonicalRowsAreTheSidecars, start={**bootstrap(), **files}) == []
    content["slots"][0]["start_weight_version"] = 1
    files[place] = pack(content)
    assert "is listed from version 1" in judge(CanonicalRowsAreTheSidecars, start={**bootstrap(), **files})[0].found


def test_a_dispatch_index_below_a_stamped_group_breaks_I16():
    stamped = {**bootstrap(), **snapshot(1, groups=[{**group(0), "target_step": 0}])}
    assert judge(CursorAndReservationsShareAPrefix, start=stamped) == []
    late = {**bootstrap(), **snapshot(1, groups=[{**group(0), "target_step": 1}])}
    assert "dispatch index 0" in judge(CursorAndReservationsShareAPrefix, start=late)[0].found


def test_a_manifest_that_names_fewer_rows_than_the_record_goes_on_from_breaks_I13():
    def saved(rows):
        episode = {"rollout_id": "e0p0i1_g0r0", "attempt": 0, "staging_keys": rows}
        gym = {"instances": {"gym-0": {"participants": ["agent"], "episodes": [episode], "restarts": []}}}
        record = {"e0p0i1_g0r0-a0": {"turn": 2, "calls": [{"key": "c0", "digest": "d0"}, {"key": "c1", "digest": "d1"}]}}
        records = {f"{ROOT_OF_1}/gym/gym-0/agent/episodes.msgpack": pack(record)}
        return {**bootstrap(), **snapshot(1, staging=["c0", "c1"], gym=gym), **records}

    assert judge(EveryOwnedStagingRowIsSaved, start=saved(["c0", "c1"])) == []
    assert "the manifest names 1 rows" in judge(EveryOwnedStagingRowIsSaved, start=saved(["c0"]))[0].found


def test_a_call_that_was_not_captured_is_owned_by_nobody_whether_its_row_was_stored_or_not():
    one = group(0, keys=("k0", "k1"))
    one["siblings"][0]["attempts"][0]["receipt"]["calls"][0]["digest"] = ""
    for staging in (["e0p0i1/k0", "e0p0i1/k1"], ["e0p0i1/k1"]):
        assert judge(EveryOwnedStagingRowIsSaved, start={**bootstrap(), **snapshot(1, groups=[one], staging=staging)}) == []
    without = {**bootstrap(), **snapshot(1, groups=[one], staging=["e0p0i1/k0"])}
    assert "e0p0i1/k1 of the sealed" in judge(EveryOwnedStagingRowIsSaved, start=without)[0].found
