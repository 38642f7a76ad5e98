"""I17, I18, I20: cuts, commits, mutations and exclusive sections."""

from __future__ import annotations

import json

import pytest
from run_files import ENDED, bootstrap, by_controller, checkpoint, cut, judge, snapshot
from test_durability_saved_rows import PUBLISHED, restored

from invariants.durability.every_change_moves_the_mutation_version import EveryChangeMovesTheMutationVersion
from invariants.durability.mutations_never_overlap_an_exclusive_section import MutationsNeverOverlapAnExclusiveSection
from invariants.durability.no_cut_inside_an_optimizer_commit import NoCutInsideAnOptimizerCommit
from protocol.history import (
    AttemptDispatched,
    CommitFlagCleared,
    CommitFlagSet,
    ExclusiveEntered,
    ExclusiveLeft,
    ExclusiveWaited,
    GroupMoved,
    MutationEntered,
    MutationLeft,
    OptimizerApplied,
    RunFailed,
    SnapshotBroke,
    SnapshotDropped,
    SnapshotPublished,
    SnapshotSkipped,
    StepCommitted,
    key_set,
)

DATA = "data-plane"
MOVED = GroupMoved("e0p0i1", "GENERATING", "READY_TO_FINALIZE")


def section(version, *inside, failed=False):
    return [MutationEntered(DATA, "other"), *inside, MutationLeft(DATA, "other", version, failed)]


def test_a_cut_inside_the_commit_flag_breaks_I17():
    steps = by_controller(CommitFlagSet(1), cut(), CommitFlagCleared(1), PUBLISHED)
    assert "commit of step 1 was in progress" in judge(NoCutInsideAnOptimizerCommit, *steps)[0].found


def test_a_cut_between_optimizer_and_counters_breaks_I17_though_no_flag_is_up():
    steps = [("trainer", OptimizerApplied(1, "w0", "w1", ())), *by_controller(cut(), PUBLISHED)]
    assert "after step 1 was applied" in judge(NoCutInsideAnOptimizerCommit, *steps)[0].found


def test_a_cut_after_the_counters_moved_is_held():
    applied = ("trainer", OptimizerApplied(1, "w0", "w1", ()))
    rest = by_controller(StepCommitted(1, 1, (0,), 1, "w1"), CommitFlagCleared(1), cut(step=1, version=1),
                         SnapshotPublished("step_1", 1, 1, 1, 1, 1))  # fmt: skip
    assert judge(NoCutInsideAnOptimizerCommit, *by_controller(CommitFlagSet(1)), applied, *rest) == []


def test_a_wrong_cut_that_is_given_up_is_not_judged():
    steps = by_controller(CommitFlagSet(1), cut(), SnapshotDropped(1, "step"), CommitFlagCleared(1), cut(sequence=2),
                          SnapshotPublished("bootstrap", 2, 0, 0, 0, 0))  # fmt: skip
    assert judge(NoCutInsideAnOptimizerCommit, *steps) == []


def test_a_snapshot_under_another_anchor_breaks_I17():
    steps = by_controller(cut(step=1, version=1), SnapshotPublished("bootstrap", 1, 1, 1, 0, 0))
    assert "its anchor bootstrap at (0, 0)" in judge(NoCutInsideAnOptimizerCommit, *steps)[0].found


def test_a_manifest_of_another_step_breaks_I17_from_the_files_alone():
    start = snapshot(1)
    moved = {name.replace("bootstrap", "step_2"): data for name, data in start.items()}
    assert "the anchor is at 2" in judge(NoCutInsideAnOptimizerCommit, start=moved)[0].found
    assert judge(NoCutInsideAnOptimizerCommit, start={**bootstrap(), **start}) == []


WAITED, ENTERED, LEFT = ExclusiveWaited(DATA), ExclusiveEntered(DATA), ExclusiveLeft(DATA)
IN, OUT = MutationEntered(DATA, "other"), MutationLeft(DATA, "other", 1, False)


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ((WAITED, ENTERED, IN), "while its exclusive section is held"),
        ((WAITED, IN), "while its exclusive section waits"),
        ((IN, WAITED, ENTERED), "with 1 mutations inside"),
        ((WAITED, ENTERED, WAITED), "a second checkpoint asked"),
        ((ENTERED, ENTERED), "entered exclusively twice"),
    ],
)
def test_an_overlap_breaks_I18(steps, found):
    assert found in judge(MutationsNeverOverlapAnExclusiveSection, *by_controller(*steps))[0].found


def test_a_published_cut_outside_an_exclusive_section_breaks_I18():
    found = judge(MutationsNeverOverlapAnExclusiveSection, *by_controller(WAITED, ENTERED, LEFT, cut(), PUBLISHED))
    assert "was not held exclusively" in found[0].found
    assert judge(MutationsNeverOverlapAnExclusiveSection, *by_controller(WAITED, ENTERED, cut(), LEFT, PUBLISHED)) == []


def test_a_checkpoint_that_is_over_and_left_a_side_closed_breaks_I18():
    broke, kind = SnapshotBroke(1, "unavailable", "Lost", "no answer", 1), MutationsNeverOverlapAnExclusiveSection
    asked, entered, left = ExclusiveWaited("dispatch"), ExclusiveEntered("dispatch"), ExclusiveLeft("dispatch")
    assert judge(kind, *by_controller(asked, entered, left, broke, asked, left, broke)) == []
    for steps in ((asked, entered, broke), (asked, broke), (asked, RunFailed("Lost", "infra", ""))):
        (violation,) = judge(kind, *by_controller(*steps))
        assert violation.found.endswith("and dispatch is still closed for a checkpoint that is over")
    assert judge(kind, ("controller", asked), ("another", broke)) == []


def test_a_dispatch_that_slips_past_the_closed_gate_breaks_I18():
    sent = AttemptDispatched("e0p0i1_g0", "e0p0i1_g0r0-a0", "gym-0", 1)
    closed, opened = ExclusiveEntered("dispatch"), ExclusiveLeft("dispatch")
    assert "while dispatch was held" in judge(MutationsNeverOverlapAnExclusiveSection, *by_controller(closed, sent))[0].found
    assert judge(MutationsNeverOverlapAnExclusiveSection, *by_controller(closed, opened, sent)) == []


@pytest.mark.parametrize(
    "steps",
    [
        (IN, WAITED, OUT, ENTERED, LEFT, IN, OUT),
        (IN, WAITED, LEFT, IN, OUT, OUT),  # a cancelled wait leaves the flag clear
        (WAITED, ENTERED, MutationEntered("dispatch", "dispatch"), LEFT),  # another barrier
    ],
)
def test_sections_that_take_turns_are_held(steps):
    assert judge(MutationsNeverOverlapAnExclusiveSection, *by_controller(*steps)) == []


def test_a_version_that_does_not_move_with_a_failed_mutation_breaks_I20():
    steps = by_controller(*section(1, MOVED), *section(1, MOVED, failed=True))
    assert "left version 1, before it was 1" in judge(EveryChangeMovesTheMutationVersion, *steps)[0].found


def test_versions_that_count_every_exit_are_held():
    steps = by_controller(restored(), *section(7, MOVED), *section(8, failed=True), *section(9, MOVED))
    assert judge(EveryChangeMovesTheMutationVersion, *steps) == []


def test_a_change_outside_a_mutation_breaks_I20_after_the_restore_only():
    assert judge(EveryChangeMovesTheMutationVersion, *by_controller(MOVED, restored())) == []
    found = judge(EveryChangeMovesTheMutationVersion, *by_controller(restored(), MOVED))
    assert "outside a mutation" in found[0].found


def test_equal_versions_with_different_cuts_break_I20():
    second = [cut(sequence=2, ledger="M"), SnapshotPublished("bootstrap", 2, 0, 0, 0, 0)]
    found = judge(EveryChangeMovesTheMutationVersion, *by_controller(*section(1), cut(), PUBLISHED, *second))
    assert "differ in ledger" in found[0].found


def test_equal_versions_with_equal_cuts_are_held():
    second = [cut(sequence=2), SnapshotPublished("bootstrap", 2, 0, 0, 0, 0)]
    assert judge(EveryChangeMovesTheMutationVersion, *by_controller(*section(1), cut(), PUBLISHED, *second)) == []


def test_a_trainer_cut_is_compared_with_trainer_cuts_only():
    steps = by_controller(*section(1), cut(), PUBLISHED, cut("trainer", ledger="M", replay=key_set("a")))
    assert judge(EveryChangeMovesTheMutationVersion, *steps) == []


def test_a_cut_that_says_another_version_breaks_I20():
    found = judge(EveryChangeMovesTheMutationVersion, *by_controller(*section(3), cut(mutation_version=2), PUBLISHED))
    assert "the barrier stands at 3" in found[0].found


def test_a_changed_ledger_that_is_skipped_as_unchanged_breaks_I20():
    skipped = SnapshotSkipped("unchanged")
    found = judge(
        EveryChangeMovesTheMutationVersion, *by_controller(*section(1, MOVED), cut(), *section(2, MOVED), PUBLISHED, skipped)
    )
    assert "skipped as unchanged after 1 changes" in found[0].found
    assert judge(EveryChangeMovesTheMutationVersion, *by_controller(*section(1, MOVED), cut(), PUBLISHED, skipped)) == []


def test_an_idle_poll_that_moves_the_version_breaks_I20():
    idle = [event for version in range(1, 61) for event in section(version)]
    busy = [event for version in range(1, 61) for event in section(version, MOVED)]
    assert (
        "60 mutations moved the version"
        in judge(EveryChangeMovesTheMutationVersion, *by_controller(*idle), status=ENDED)[0].found
    )
    assert judge(EveryChangeMovesTheMutationVersion, *by_controller(*busy), status=ENDED) == []


def test_a_trainer_checkpoint_says_the_step_of_its_name():
    for version, findings in ((2, 0), (3, 1)):
        files = checkpoint(2) | {"step_2/training_info.json": json.dumps({"step": 2, "trainer_version": version}).encode()}
        assert len(judge(NoCutInsideAnOptimizerCommit, start=files, finish={})) == findings
