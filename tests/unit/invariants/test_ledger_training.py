"""I10, I11, I12, PARITY-1: which prompts are trained, in which groups and steps, and against the reference."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from ledger_files import attempt, group, judged, panel, snapshot, terms
from run_files import cut

from invariants.ledger.every_prompt_once import EveryPromptOnce
from invariants.ledger.groups_are_whole import GroupsAreWhole
from invariants.ledger.one_open_step import OneOpenStep
from invariants.ledger.training import NO_PROMPT, TrainsAsTheReference
from protocol.history import (
    AttemptSealed,
    CallBegun,
    CohortJudged,
    CursorMoved,
    FaultInjected,
    FinalizeDone,
    GroupDropped,
    GroupEvicted,
    GroupMoved,
    GroupReserved,
    GroupsClaimed,
    OptimizerApplied,
    OptimizerIssued,
    ProcessStarted,
    PromptPassedOver,
    RestoreChosen,
    SnapshotPublished,
    SnapshotStarted,
    StepCommitted,
    TrainedRow,
    TrainStepIssued,
    WeightsLoaded,
    WeightsSynced,
)
from protocol.judging import BY_CHANCE, BY_VERSION, BY_WEIGHTS, Contract, RunStatus

CRASHED = RunStatus("crashed")
DROPPING = Contract(may_drop=True)


def name(ordinal, life=1):
    return f"e0p{ordinal}i{life}"


def row(ordinal, generation, *, life=1, step=1, **other: Any):
    values = {
        "ordinal": ordinal, "generation": generation, "sample": f"{name(ordinal, life)}_g{generation}", "prompt": f"p{ordinal}",
        "content": f"c{ordinal}.{generation}", "spans": ((step - 1, 4),), "tools": "t", "reward": 0.5, "valid": True,
    }  # fmt: skip
    return TrainedRow(**{**values, **other})


def rows(*ordinals, **other: Any):
    return tuple(row(ordinal, generation, **other) for ordinal in ordinals for generation in (0, 1))


def applied(step, trained):
    return ("trainer", OptimizerApplied(step, f"w{step - 1}", f"w{step}", trained))


def committed(step, *ordinals, weights=None):
    return StepCommitted(step, step, ordinals, 2 * len(ordinals), weights or f"w{step}")


def step_of(step, *ordinals):
    return [applied(step, rows(*ordinals, step=step)), committed(step, *ordinals)]


def reserved(first, *ordinals, target, to=None, life=1):
    moved = CursorMoved(first, to if to is not None else first + len(ordinals), 0, target)
    return [moved, *(GroupReserved(name(ordinal, life), ordinal, 0, target, 2) for ordinal in ordinals)]


WHOLE = [*reserved(0, 0, 1, target=0), *reserved(2, 2, 3, target=1), *step_of(1, 0, 1), *step_of(2, 2, 3)]


# --- I10


def test_a_run_that_trains_each_prompt_once_in_its_step_is_held():
    assert judged(EveryPromptOnce, *WHOLE) == []


def test_a_prompt_trained_twice_breaks_I10():
    found = judged(EveryPromptOnce, *WHOLE[:6], *step_of(1, 0, 1), *step_of(2, 1, 2))
    assert found[0] == "Prompt 1 was trained in steps 1 and 2."


def test_a_step_with_prompts_of_another_target_breaks_I10():
    found = judged(EveryPromptOnce, *WHOLE[:6], *step_of(1, 0, 2), status=CRASHED)
    assert found == ["Prompt 2 was trained in step 1 but is stamped for target step 1."]


def test_a_short_step_breaks_I10():
    found = judged(EveryPromptOnce, *WHOLE[:6], *step_of(1, 0), status=CRASHED)
    assert "Step 1 trained prompts (0,), not 2 different ones." in found


def test_a_step_committed_twice_or_skipped_breaks_I10():
    found = judged(EveryPromptOnce, *WHOLE[:6], *step_of(2, 2, 3), status=CRASHED)
    assert found[0] == "The optimizer applied step 2 after step 0."


def test_a_commit_of_other_prompts_than_the_trainer_read_breaks_I10():
    found = judged(EveryPromptOnce, *WHOLE[:6], applied(1, rows(2, 3)), committed(1, 0, 1), status=CRASHED)
    assert found == ["Step 1 was committed with prompts (0, 1), the trainer read (2, 3)."]


def test_a_cursor_that_jumps_loses_prompts_and_breaks_I10():
    found = judged(EveryPromptOnce, *reserved(0, 0, 1, target=0), *reserved(3, 3, 4, target=1), status=CRASHED)
    assert found == ["The cursor went to [3, 5) when 2 prompts were consumed."]


def test_a_prompt_taken_and_never_reserved_breaks_I10_at_the_end():
    found = judged(EveryPromptOnce, *WHOLE, *reserved(4, 4, target=2, to=6))
    assert found == ["Prompts [5] were taken from the loader and neither trained, passed over nor open at the end."]


def test_a_prompt_reserved_twice_breaks_I10():
    found = judged(EveryPromptOnce, *WHOLE[:3], GroupReserved("e0p0i1x", 0, 0, 0, 2), status=CRASHED)
    assert found == [f"Prompt 0 was reserved as e0p0i1x, but it is open as {name(0)}."]


def test_a_run_that_ends_early_breaks_I10():
    assert "The run ended after step 1 of 2." in judged(EveryPromptOnce, *WHOLE[:6], *step_of(1, 0, 1))


DISCARDED = [GroupDropped(name(1), 1, "discarded"), PromptPassedOver(1, "discarded"), *reserved(4, 4, target=0, to=6)]


def test_a_dropped_prompt_needs_a_contract_or_a_fault_that_asks_for_it():
    steps = [*WHOLE[:6], *DISCARDED, PromptPassedOver(5, "topped-up"), *step_of(1, 0, 4), *step_of(2, 2, 3)]
    assert judged(EveryPromptOnce, *steps) == [f"Prompt 1 ({name(1)}) was given up (discarded), which this run may not do."]
    assert judged(EveryPromptOnce, *steps, given=terms(DROPPING)) == []
    assert judged(EveryPromptOnce, ("job", FaultInjected("discard", "armed")), *steps) == []


def test_an_eviction_is_right_only_beyond_the_staleness():
    windowed = terms(sampler={"name": "windowed", "max_staleness_versions": 1})
    assert judged(EveryPromptOnce, GroupEvicted(name(0), 0, 0, 2), given=windowed, status=CRASHED) == []
    found = judged(EveryPromptOnce, GroupEvicted(name(0), 0, 1, 2), given=windowed, status=CRASHED)
    assert found == [f"{name(0)} was evicted at version 2; it starts at 1, fresh enough."]


def open_group(ordinal, target=0):
    return group(ordinal, attempt(f"{name(ordinal)}_g0r0-a0", "RESERVED"), target=target)


RESTORED = snapshot(open_group(0), open_group(1), open_group(2, 1), open_group(3, 1))


def test_a_restored_run_trains_what_the_restore_point_holds_open():
    assert judged(EveryPromptOnce, *step_of(1, 0, 1), *step_of(2, 2, 3), start=RESTORED, life=2) == []


def test_a_restored_run_that_goes_on_from_another_cursor_breaks_I10():
    found = judged(EveryPromptOnce, *reserved(2, 2, 3, target=1, life=2), start=RESTORED, life=2, status=CRASHED)
    assert found[0] == "The cursor went to [2, 4) when 4 prompts were consumed."
    assert found[1] == f"Prompt 2 was reserved as {name(2, 2)}, but it is open as {name(2)}."


def test_a_restore_point_that_lost_a_group_breaks_I10_before_anything_happens():
    found = judged(EveryPromptOnce, start=snapshot(open_group(0), consumed=2), status=CRASHED)
    assert len(found) == 1 and "1 are trained, but 0 steps train 0" in found[0]


def test_passed_over_prompts_of_the_restore_point_are_accounted_for():
    assert judged(EveryPromptOnce, start=snapshot(open_group(0), skipped=(1,)), status=CRASHED) == []


def test_what_was_restored_from_elsewhere_is_not_judged():
    steps = [RestoreChosen("step_1", 1), *reserved(9, 9, target=7)]
    assert judged(EveryPromptOnce, *steps, start=RESTORED, life=2) == []


def test_a_cut_that_lost_a_group_breaks_I10_when_it_is_published():
    lost = [*WHOLE[:6], SnapshotStarted("bootstrap", 1, False), cut(consumed=4, open=3, passed=0)]
    published = SnapshotPublished("bootstrap", 1, 0, 0, 0, 0)
    assert judged(EveryPromptOnce, *lost, status=CRASHED) == []
    assert judged(EveryPromptOnce, *lost, published, status=CRASHED) == [
        "A snapshot cut holds 4 consumed, 3 open, 0 passed over; the history says 4, 4, 0."
    ]
    other = [*lost, SnapshotStarted("step_1", 1, False), published]
    assert judged(EveryPromptOnce, *other, status=CRASHED) == []


# --- I11


def finalized(samples, valid=2):
    return FinalizeDone(name(0), samples, ("r0", "r1"), valid)


BOTH = (f"{name(0)}_g0", f"{name(0)}_g1")


def test_a_whole_group_in_order_is_held():
    assert judged(GroupsAreWhole, finalized(BOTH), applied(1, rows(0))) == []


@pytest.mark.parametrize("samples", [BOTH[:1], BOTH[::-1], (BOTH[0], BOTH[0])])
def test_a_short_or_disordered_group_breaks_I11(samples):
    assert judged(GroupsAreWhole, finalized(samples)) == [
        f"{name(0)} has {len(samples)} rows {list(samples)}, not g0..g1 in order."
    ]


def test_a_trainer_that_reads_fewer_rows_breaks_I11():
    assert judged(GroupsAreWhole, finalized(BOTH), applied(1, rows(0)[:1]))[0].startswith("Step 1 read other rows")


def test_a_masked_row_that_is_trained_as_valid_breaks_I11():
    assert judged(GroupsAreWhole, finalized(BOTH, 1), applied(1, rows(0))) == [
        f"Step 1 read 2 valid rows of {name(0)}; 1 were published."
    ]


def canonical(mask):
    return {sample: {"sample": sample, "group": name(0), "sample_mask": mask} for sample in BOTH}


FINAL = group(0, attempt(f"{name(0)}_g0r0-a0", "SEALED", receipt="r"), status="FINALIZED")


def test_the_restored_rows_are_whole_and_masked_as_the_ledger_says():
    assert judged(GroupsAreWhole, start=snapshot(FINAL, canonical=canonical(1))) == []
    assert len(judged(GroupsAreWhole, start=snapshot(FINAL, canonical=canonical(0)))) == 2
    assert judged(GroupsAreWhole, start=snapshot(FINAL))[0] == f"The restored data plane has no row {BOTH[0]}."


# --- I12


def claimed(step, *ordinals, expected=2):
    return GroupsClaimed(step, tuple(name(ordinal) for ordinal in ordinals), expected)


def moved(ordinal, before, after):
    return GroupMoved(name(ordinal), before, after)


CLAIM, APPLIED = "CLAIMED_FOR_TRAINING", "APPLIED_UNCHECKPOINTED"
CLAIMS = [moved(0, "FINALIZED", CLAIM), claimed(1, 0), moved(1, "FINALIZED", CLAIM), claimed(1, 1)]
END = [applied(1, rows(0, 1)), moved(0, CLAIM, APPLIED), moved(1, CLAIM, APPLIED), committed(1, 0, 1)]


def test_a_streamed_step_that_completes_its_claim_is_held():
    issued = TrainStepIssued(1, (name(0),))
    assert judged(OneOpenStep, *CLAIMS, issued, OptimizerIssued(1), *END, claimed(2, 2, 3)) == []


def test_an_incomplete_claim_that_is_applied_breaks_I12():
    found = judged(OneOpenStep, *CLAIMS[:2], OptimizerIssued(1))
    assert found == ["Step 1 was applied with 1 of 2 groups claimed (open step 1)."]


def test_two_open_steps_break_I12():
    assert judged(OneOpenStep, claimed(1, 0), claimed(2, 1))[0] == "Step 2 claimed groups while step 1 was open."


def test_a_trainer_that_reads_an_unclaimed_group_breaks_I12():
    found = judged(OneOpenStep, *CLAIMS, OptimizerIssued(1), applied(1, rows(0, 2)))
    assert found == [f"Step 1: the trainer read ['{name(2)}'] unclaimed and left out ['{name(1)}']."]


def test_a_claim_of_a_group_that_is_not_finalized_breaks_I12():
    found = judged(OneOpenStep, moved(0, "GENERATING", "READY_TO_FINALIZE"), claimed(1, 0))
    assert found == [f"{name(0)} was claimed for step 1 while it was READY_TO_FINALIZE."]


def test_a_claimed_group_that_is_dropped_breaks_I12():
    assert "while step 1 owned it" in judged(OneOpenStep, *CLAIMS, GroupDropped(name(0), 0, "discarded"))[0]


def test_a_claim_persisted_without_its_step_breaks_I12():
    half = group(0, attempt(f"{name(0)}_g0r0-a0", "SEALED", receipt="r"), status=CLAIM)
    assert judged(OneOpenStep, start=snapshot(half)) == ["On disk 1 groups are owned by training, the open step names 0."]
    assert judged(OneOpenStep, start=snapshot(half, open_step={"group_ids": [name(0)]})) == []


# --- PARITY-1

LOADED = ("trainer", WeightsLoaded(0, "w0"))
REFERENCE = [LOADED, *step_of(1, 0, 1), *step_of(2, 2, 3)]


def reference(*steps):
    judge = panel(TrainsAsTheReference, *(steps or REFERENCE)).judges[0]
    return judge.summary()


def against(*steps, contract=None, status=None, **job):
    values = {"given": terms(contract, **job), "reference": reference(), "life": 2}
    return judged(TrainsAsTheReference, LOADED, *steps, **values, **({"status": status} if status else {}))


def other(step, trained, weights=None):
    return [
        ("trainer", OptimizerApplied(step, f"w{step - 1}", weights or f"w{step}", trained)),
        committed(step, *_ordinals(trained), weights=weights),
    ]


def _ordinals(trained):
    return tuple(dict.fromkeys(row.ordinal for row in trained))


def test_a_run_equal_to_the_reference_under_other_ids_is_held():
    assert against(*other(1, rows(0, 1, life=2)), *other(2, rows(2, 3, life=2, step=2))) == []


def test_rows_under_other_weight_versions_are_not_compared():
    moved = rows(2, 3, life=2, step=2, spans=((0, 4),), content="x", reward=0.1)
    assert against(*other(1, rows(0, 1)), *other(2, moved, "v2")) == []


def test_rows_under_other_weight_versions_break_a_fixed_order():
    moved = rows(2, 3, life=2, step=2, spans=((0, 4),))
    found = against(*other(1, rows(0, 1)), *other(2, moved), contract=Contract(fixed_order=True))
    assert len(found) == 4 and "spans ((0, 4),) for ((1, 4),)" in found[0]


def test_another_content_under_the_same_spans_and_tools_breaks_PARITY_1():
    found = against(*other(1, (*rows(0), row(1, 0), row(1, 1, content="x"))), *other(2, rows(2, 3, step=2)))
    assert found == ["Row (1, 1) of step 1 has the reference's spans and tools, but not its content x for c1.1."]


def onto(before, step, trained, weights):
    return [("trainer", OptimizerApplied(step, before, weights, trained)), committed(step, *_ordinals(trained), weights=weights)]


def drawn(by, *steps):
    given = msgspec.structs.replace(terms(), drawn_by=by)
    return judged(TrainsAsTheReference, LOADED, *steps, given=given, reference=reference(), life=2)


def test_where_weights_fix_what_is_drawn_rows_are_compared_under_equal_weights_alone():
    cascade = [
        *other(1, (*rows(0), row(1, 0), row(1, 1, tools="u", content="x")), "v1"),
        *onto("v1", 2, rows(2, 3, step=2, content="y"), "v2"),
    ]
    assert drawn(BY_WEIGHTS, *cascade) == []
    assert len(drawn(BY_VERSION, *cascade)) == 4
    same = [*other(1, rows(0, 1)), *other(2, (*rows(2, step=2), row(3, 0, step=2), row(3, 1, step=2, content="y")))]
    assert drawn(BY_WEIGHTS, *same) == [
        "Row (3, 1) of step 2 has the reference's spans and tools, but not its content y for c3.1."
    ]
    first = [*other(1, (*rows(0), row(1, 0), row(1, 1, content="x")), "v1"), *onto("v1", 2, rows(2, 3, step=2), "v2")]
    assert drawn(BY_WEIGHTS, *first) == [
        "Row (1, 1) of step 1 has the reference's spans and tools, but not its content x for c1.1."
    ]


def test_where_chance_draws_no_row_is_compared_and_steps_are():
    drawn_otherwise = [
        *other(1, rows(0, 1, content="x", reward=0.1), "v1"),
        *onto("v1", 2, rows(2, 3, step=2, content="y"), "v2"),
    ]
    assert drawn(BY_CHANCE, *drawn_otherwise) == []
    assert drawn(BY_CHANCE, *other(1, rows(0, 2), "v1"))[:1] == [
        "Steps [1] were committed from step 0 on, the reference has [1, 2]."
    ]


def test_another_reward_or_prompt_breaks_PARITY_1():
    assert "reward 0.9 for 0.5" in against(*other(1, (*rows(0), row(1, 0), row(1, 1, reward=0.9))), status=CRASHED)[0]
    assert "has prompt q" in against(*other(1, (*rows(0), row(1, 0), row(1, 1, prompt="q"))), status=CRASHED)[0]


def test_a_relative_reward_is_compared_where_all_siblings_are_the_references_and_were_ranked_together():
    def relative(*steps):
        given = msgspec.structs.replace(terms(), relative_rewards=True)
        return judged(TrainsAsTheReference, LOADED, *steps, given=given, reference=reference(), life=2, status=CRASHED)

    better = (*rows(0), row(1, 0), row(1, 1, reward=0.9))
    apart = ("gym-0", CohortJudged(name(1), 0, (f"{name(1)}_g1r0-a0",), (f"{name(1)}_g1r0-a0",), (1,)))
    whole = tuple(f"{name(1)}_g{generation}r0-a0" for generation in (0, 1))
    assert "reward 0.9 for 0.5" in relative(*other(1, better))[0]
    assert "reward 0.9 for 0.5" in relative(("gym-0", CohortJudged(name(1), 0, whole, whole, (0, 1))), *other(1, better))[0]
    assert relative(apart, *other(1, better)) == []
    sibling = (*rows(0), row(1, 0, spans=((0, 3),), content="x"), row(1, 1, reward=0.9))
    assert relative(*other(1, sibling)) == []
    assert "content x" in relative(*other(1, (*rows(0), row(1, 0), row(1, 1, content="x"))))[0]


def test_a_reward_relative_to_an_execution_that_is_not_trained_is_compared_with_nothing():
    given = msgspec.structs.replace(terms(), relative_rewards=True)
    better = (*rows(0), row(1, 0), row(1, 1, reward=0.9))

    def found(sealed):
        ranked = ("gym-0", CohortJudged(name(1), 0, (f"{name(1)}_g0r0-a0", f"{name(1)}_g1r0-a0"), (), (0, 1)))
        seal = AttemptSealed(f"{name(1)}_g0", sealed, sealed, "r", 1)
        steps = (LOADED, ranked, ("controller", seal), *other(1, better))
        return judged(TrainsAsTheReference, *steps, given=given, reference=reference(), life=2, status=CRASHED)

    assert "reward 0.9 for 0.5" in found(f"{name(1)}_g0r0-a0")[0]
    assert found(f"{name(1)}_g0r1-a0") == []


def test_a_group_of_which_no_call_was_captured_cannot_say_its_prompt():
    masked = rows(1, prompt=NO_PROMPT, valid=False, spans=(), content="", tools="", reward=0.0)
    assert [text for text in against(*other(1, (*rows(0), *masked)), status=CRASHED) if "prompt" in text] == []
    other_prompt = rows(1, prompt="q", valid=False, spans=(), content="", tools="", reward=0.0)
    assert "has prompt q" in against(*other(1, (*rows(0), *other_prompt)), status=CRASHED)[0]
    half = (*rows(0), masked[0], row(1, 1))
    assert f"has prompt {NO_PROMPT}" in against(*other(1, half), status=CRASHED)[0]


def test_a_run_that_comes_back_with_more_or_fewer_steps_is_compared_up_to_the_shorter_one():
    ended = RunStatus("ended")
    first, second = other(1, rows(0, 1, life=2)), other(2, rows(2, 3, life=2, step=2))
    assert against(*first, train_steps=1, status=ended) == []
    more = other(3, rows(4, 5, life=2, step=3))
    assert against(*first, *second, *more, train_steps=3, status=ended) == []
    assert "the reference has [1, 2]" in against(*first, train_steps=2, status=ended)[0]


def test_other_prompts_in_a_step_break_PARITY_1_unless_prompts_may_be_dropped():
    swapped = [*other(1, rows(0, 2), "v1"), *other(2, rows(1, 3, step=1), "v2")]
    found = [text for text in against(*swapped) if "trained prompts" in text]
    assert found == [
        "Step 1 trained prompts [0, 2], the reference [0, 1].",
        "Step 2 trained prompts [1, 3], the reference [2, 3].",
    ]
    assert [text for text in against(*swapped, contract=DROPPING) if "trained prompts" in text] == []


def test_other_weights_from_equal_rows_break_PARITY_1():
    found = against(*other(1, rows(0, 1), "v1"), status=CRASHED)
    assert found == ["Step 1 made weights v1 from the reference's rows, the reference made w1."]


def test_a_run_with_fewer_steps_breaks_PARITY_1():
    assert against(*other(1, rows(0, 1))) == ["Steps [1] were committed from step 0 on, the reference has [1, 2]."]


def test_a_row_trained_twice_breaks_PARITY_1():
    found = judged(TrainsAsTheReference, LOADED, *step_of(1, 0, 1), *other(2, rows(1, 2, step=2)))
    assert found == ["Row (1, 0) was trained in steps 1 and 2.", "Row (1, 1) was trained in steps 1 and 2."]


def test_a_broken_chain_of_weights_breaks_PARITY_1():
    found = judged(TrainsAsTheReference, ("trainer", WeightsLoaded(0, "u")), *step_of(1, 0, 1))
    assert found == ["Step 1 was applied to weights w0, not to u."]


def test_a_commit_with_weights_the_trainer_did_not_make_breaks_PARITY_1():
    found = judged(TrainsAsTheReference, LOADED, applied(1, rows(0, 1)), committed(1, 0, 1, weights="v"))
    assert found == ["Step 1 was committed with weights v; the trainer made w1."]


@pytest.mark.parametrize(("sampler", "spans"), [("in_order", ((2, 4),)), ("in_order", ((1, 2), (0, 2))), ("windowed", ((0, 4),))])
def test_illegal_weight_versions_break_PARITY_1(sampler, spans):
    trained = ("trainer", OptimizerApplied(3 if sampler == "windowed" else 2, "w", "v", rows(0, 1, spans=spans)))
    found = judged(TrainsAsTheReference, trained, given=terms(sampler={"name": sampler}), status=CRASHED)
    assert len(found) == 4


def test_the_wrong_weights_for_the_restore_point_break_PARITY_1():
    found = judged(TrainsAsTheReference, ("trainer", WeightsLoaded(1, "w1")), status=CRASHED)
    assert found == ["The trainer loaded weights of step 1; this life starts from 0."]


# --- the weights that calls begin under


def begun(version, worker="worker-0"):
    return (worker, CallBegun("e0p0i1_g0r0-a0/c0", version))


def test_calls_begin_under_the_version_that_their_worker_carries():
    steps = [WeightsSynced(0), begun(0), *step_of(1, 0, 1), begun(0), begun(1, "worker-1"), WeightsSynced(1), begun(1)]
    assert judged(TrainsAsTheReference, *steps, status=CRASHED) == []


def test_a_call_under_another_version_breaks_the_parity_of_rows():
    late = judged(TrainsAsTheReference, WeightsSynced(0), *step_of(1, 0, 1), WeightsSynced(1), begun(0), status=CRASHED)
    assert late == ["e0p0i1_g0r0-a0/c0 began on worker-0 under version 0; workers carry 1, the trainer is at 1."]


def test_a_sync_of_another_version_breaks_the_parity_of_rows():
    found = judged(TrainsAsTheReference, WeightsSynced(0), *step_of(1, 0, 1), WeightsSynced(0), status=CRASHED)
    assert found == ["The workers were given version 0; the trainer is at 1."]


def test_a_worker_that_began_again_carries_nothing_until_the_next_sync():
    steps = [WeightsSynced(0), *step_of(1, 0, 1), WeightsSynced(1), ("worker-0", ProcessStarted()), begun(0)]
    assert judged(TrainsAsTheReference, *steps, status=CRASHED) == []
