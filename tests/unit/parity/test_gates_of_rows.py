"""Gates over pairs of rows: each with what passes, what fails, and what says nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from parity_tables import RESTARTED, call, comparison, four_pairs, group, pair, run

from parity.gates.bit_identical import bit_identical
from parity.gates.exactly_once import exactly_once
from parity.gates.generation_logprobs import generation_logprobs
from parity.gates.masks_and_lengths import masks_and_lengths
from parity.gates.media import media
from parity.gates.other_weights import other_weights
from parity.gates.own_history import own_history
from parity.gates.provenance import provenance
from parity.gates.rewards_and_admission import rewards_and_admission
from parity.gates.sound_rows import sound_rows
from parity.gates.spearman import spearman
from parity.gates.token_ids import token_ids
from parity.gates.what_was_trained import what_was_trained
from parity.profiles import BF16, EXACT, FP32, QWEN3
from protocol.judging import Verdict

HELD, BROKEN, UNKNOWN, NOTHING = Verdict.HELD, Verdict.BROKEN, Verdict.UNKNOWN, Verdict.NOT_APPLICABLE
NAN = float("nan")
TIE: dict[str, Any] = {"kind": "post_cut", "first": 12, "excuse": "near_tie", "proof": "1 and 2, as scored", "margin": 0.01}
PREFIX: dict[str, Any] = {"kind": "pre_cut", "first": 8, "excuse": "pre_cut", "proof": "digest d", "prefix_tokens": 5}
ALONE = [pair(found="reference", kind=""), pair(found="restored", kind="", generation=1)]
OTHER = four_pairs(kind="other_weights", reward=7.0, tokens=3, mask_equal=False, spans_equal=False)


@pytest.mark.parametrize("kind", ["pre_generation", "pre_cut", "prefix_mismatch", "post_cut", "unrestored", "", "new"])
@pytest.mark.parametrize("profile", [EXACT, FP32, BF16], ids=lambda profile: profile.name)
def test_tokens_that_differ_without_an_excuse_break_under_every_profile(kind: str, profile: Any) -> None:
    found = token_ids(comparison(four_pairs(kind=kind, first=3), profile=profile))
    assert (found.verdict, found.found) == (BROKEN, 1)
    assert found.findings[0].startswith("step 2, prompt 1, sibling 1: ")


@pytest.mark.parametrize("excuse", [TIE, PREFIX], ids=["near tie", "pre-cut"])
def test_an_excuse_with_its_proof_holds_only_where_the_profile_has_it(excuse: dict[str, Any]) -> None:
    pairs = four_pairs(**excuse)
    verdicts = {profile.name: token_ids(comparison(pairs, profile=profile)).verdict for profile in (EXACT, FP32, BF16, QWEN3)}
    assert verdicts == {"exact": BROKEN, "fp32": BROKEN, "bf16": HELD, "gpu-qwen3-1.7b": HELD}


@pytest.mark.parametrize(
    "excuse",
    [
        TIE | {"proof": ""},
        TIE | {"margin": BF16.near_tie_margin},
        TIE | {"margin": NAN},
        TIE | {"margin": -1.0},
        TIE | {"kind": "pre_cut"},
        TIE | {"kind": "prefix_mismatch"},
        TIE | {"kind": "pre_generation"},
        TIE | {"prompt_equal": False},
        PREFIX | {"proof": ""},
        PREFIX | {"kind": "post_cut"},
        PREFIX | {"kind": "pre_generation"},
        PREFIX | {"excuse": "because"},
    ],
    ids=str,
)
def test_an_excuse_that_does_not_fit_is_none(excuse: dict[str, Any]) -> None:
    assert token_ids(comparison(four_pairs(**excuse), profile=BF16)).verdict is BROKEN


def test_equal_tokens_pass_and_rows_without_a_counterpart_say_nothing() -> None:
    assert token_ids(comparison()).verdict is HELD
    assert token_ids(comparison(OTHER)).verdict is HELD
    assert token_ids(comparison(ALONE)).verdict is UNKNOWN
    assert token_ids(comparison([])).verdict is UNKNOWN


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, HELD),
        ({"mask_equal": False}, BROKEN),
        ({"tokens": 19}, BROKEN),
        (PREFIX | {"mask_equal": False}, BROKEN),
        (PREFIX | {"tokens": 30}, HELD),
        (PREFIX | {"tokens": 30, "proof": ""}, BROKEN),
        (TIE | {"mask_equal": False, "tokens": 30}, HELD),
        (TIE | {"proof": "", "mask_equal": False}, BROKEN),
        (TIE | {"rest": 12, "rest_masked": 12}, BROKEN),
        (TIE | {"rest": 12, "rest_masked": 2}, HELD),
        (TIE | {"rest": 12, "rest_masked": 12, "masked_ref": 30, "generated_ref": 60}, HELD),
        (TIE | {"rest": 12, "rest_masked": 12, "proof": ""}, HELD),  # its tokens break, and nothing else is known of it
        ({"kind": "other_weights", "rest": 12, "rest_masked": 12}, BROKEN),
    ],
)
def test_masks_and_lengths_are_held_unless_the_row_parted_at_a_near_tie(changed: dict[str, Any], verdict: Verdict) -> None:
    assert masks_and_lengths(comparison(four_pairs(**changed), profile=BF16)).verdict is verdict


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, HELD),
        ({"reward": 0.5}, BROKEN),
        ({"reward": NAN}, BROKEN),
        ({"reward": NAN, "reward_ref": NAN}, BROKEN),
        ({"reward": NAN, "reward_ref": NAN, "sample_mask": 0, "sample_mask_ref": 0}, HELD),
        ({"sample_mask": 0}, BROKEN),
        (PREFIX | {"reward": 0.5}, BROKEN),
        (TIE | {"reward": 0.5, "sample_mask": 0}, HELD),
        (TIE | {"proof": "", "reward": 0.5}, BROKEN),
    ],
)
def test_rewards_are_held_unless_the_row_parted_at_a_near_tie(changed: dict[str, Any], verdict: Verdict) -> None:
    assert rewards_and_admission(comparison(four_pairs(**changed), profile=BF16)).verdict is verdict


@pytest.mark.parametrize("gate", [masks_and_lengths, rewards_and_admission])
def test_without_rows_to_compare_masks_and_rewards_say_nothing(gate: Any) -> None:
    assert gate(comparison([pair(kind="other_weights", first=3)])).verdict is UNKNOWN
    assert gate(comparison(OTHER)).verdict is HELD, "a row of other weights is not held to the reference's reward"


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [({}, BROKEN), ({"reward": 1.0}, HELD), ({"first": 7}, HELD), ({"tokens": 19}, HELD), ({"tools_equal": False}, HELD)],
)
def test_other_weights_that_did_the_same_are_rewarded_the_same(changed: dict[str, Any], verdict: Verdict) -> None:
    pairs = four_pairs(**{"kind": "other_weights", "spans_equal": False, "reward": 0.5} | changed)
    assert rewards_and_admission(comparison(pairs)).verdict is verdict


def test_a_digest_of_replies_that_differs_beside_equal_tokens_is_no_match() -> None:
    found = token_ids(comparison(four_pairs(tools_equal=False)))
    assert found.verdict is BROKEN
    assert found.findings == (
        "step 2, prompt 1, sibling 1: its tokens are the reference's, the digest of its tool replies is not",
    )
    assert token_ids(comparison(four_pairs(tools_equal=False, kind="other_weights", first=3))).verdict is HELD


@pytest.mark.parametrize(("relative", "verdict"), [(True, HELD), (False, BROKEN)])
def test_a_sibling_rewarded_against_one_that_went_another_way_is_not_compared(relative: bool, verdict: Verdict) -> None:
    pairs = four_pairs(**TIE | {"reward": 9.0})
    pairs[2]["reward"] = 0.25
    assert rewards_and_admission(comparison(pairs, profile=BF16, facts={"relative_rewards": relative})).verdict is verdict


def test_few_rows_of_other_weights_pass_many_say_nothing_and_an_illegal_span_breaks() -> None:
    few = other_weights(comparison(OTHER))
    assert (few.verdict, few.value) == (HELD, 0.25)
    assert other_weights(comparison([pair(kind="other_weights") for _ in range(3)])).verdict is UNKNOWN
    assert other_weights(comparison(ALONE)).verdict is UNKNOWN
    for kind in ("match", "other_weights"):
        assert other_weights(comparison(four_pairs(kind=kind, spans_legal=False))).verdict is BROKEN


def test_a_fixed_order_has_no_row_of_other_weights() -> None:
    assert other_weights(comparison(OTHER, facts={"fixed_order": True})).verdict is BROKEN
    assert other_weights(comparison(facts={"fixed_order": True})).verdict is HELD


@pytest.mark.parametrize(
    ("profile", "changed", "verdict"),
    [
        (EXACT, {}, HELD),
        (EXACT, {"max_diff": 1e-7, "over": 1}, BROKEN),
        (FP32, {"max_diff": 9e-5}, HELD),
        (FP32, {"max_diff": 2e-4, "over": 1}, BROKEN),
        (FP32, {"max_diff": NAN}, BROKEN),
        (FP32, {"not_finite": 1}, BROKEN),
        (BF16, {"compared": 1000, "max_diff": 0.4, "over": 10}, HELD),
        (BF16, {"compared": 1000, "max_diff": 0.6, "over": 1}, BROKEN),
        (BF16, {"compared": 1000, "max_diff": 0.4, "over": 11}, BROKEN),
    ],
)
def test_logprobs_are_held_to_the_largest_difference_and_to_the_share_within(
    profile: Any, changed: dict[str, Any], verdict: Verdict
) -> None:
    found = generation_logprobs(comparison([pair(compared=0), pair(**changed)], profile=profile))
    assert found.verdict is verdict


@pytest.mark.parametrize("gate", [generation_logprobs, bit_identical])
def test_without_logprobs_nothing_is_known_of_them(gate: Any) -> None:
    assert gate(comparison([pair(compared=0, bit_identical=0)])).verdict is UNKNOWN


def test_the_share_of_equal_bits_is_held_only_where_the_profile_has_a_minimum() -> None:
    most = [pair(compared=1000, bit_identical=991)]
    found = {profile.name: bit_identical(comparison(most, profile=profile)) for profile in (EXACT, FP32, BF16, QWEN3)}
    assert {name: (gate.verdict, gate.reported) for name, gate in found.items()} == {
        "exact": (BROKEN, False), "fp32": (HELD, True), "bf16": (HELD, True), "gpu-qwen3-1.7b": (HELD, False),
    }  # fmt: skip
    assert bit_identical(comparison([pair(compared=1000, bit_identical=985)], profile=QWEN3)).verdict is HELD, "1,000 are few"
    assert bit_identical(comparison([pair(compared=100_000, bit_identical=98_500)], profile=QWEN3)).verdict is BROKEN
    assert bit_identical(comparison([pair(compared=10**6, bit_identical=10**6 - 1)], profile=EXACT)).verdict is BROKEN
    assert bit_identical(comparison([pair(compared=1000, bit_identical=980)], profile=QWEN3)).verdict is BROKEN


def test_spearman_is_reported_and_undefined_for_constants() -> None:
    found = spearman(comparison(sample=[(-1.0, -1.0), (-2.0, -3.0), (-3.0, -2.0)]))
    assert (found.verdict, found.value, found.reported) == (HELD, pytest.approx(0.5), True)
    for sample in ([(-1.0, -1.0)] * 5, [(-1.0, -1.0), (-1.0, -2.0)], []):
        found = spearman(comparison(sample=sample))
        assert (found.verdict, found.value) == (NOTHING, None) and found.why.startswith("undefined: ")


def test_media_are_compared_where_there_are_any() -> None:
    assert media(comparison(four_pairs(media_equal=1))).verdict is HELD
    assert media(comparison(four_pairs(media_equal=0))).verdict is BROKEN
    assert media(comparison()).verdict is NOTHING
    assert media(comparison(facts={"media": True})).verdict is UNKNOWN


LOOKED = call(media_saved="m", media="m", trained_media="m")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"media_saved": "x"}, "its prefix was generated with media x, it went on with m"),
        ({"media": ""}, "its prefix was generated with media m, it went on with none"),
        ({"trained_media": ""}, "it went on with media m, its trained row has none"),
        ({"trained_media": "x", "absent": True}, ""),
    ],
)
def test_a_restored_call_has_the_media_of_its_cut_whatever_the_reference_looked_at(changed: Any, said: str) -> None:
    found = media(comparison(calls=[LOOKED, LOOKED | {"key": "s-a0/c1"} | changed], facts={"media": True}))
    assert found.verdict is (BROKEN if said else HELD)
    assert (not found.findings and not said) or found.findings[0] == f"prompt 1, sibling 0, call s-a0/c1: {said}"


def test_the_same_steps_prompts_and_siblings_pass() -> None:
    found = what_was_trained(comparison())
    assert (found.verdict, found.value, found.limit) == (HELD, 2, 2)


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (RESTARTED[:2], "step 2: the restored run never trained it"),
        ((*RESTARTED, (2, 3, 2, 0), (2, 3, 2, 1)), "step 3: only the restored run trained it"),
        (RESTARTED[:3], "step 2, prompt 1: 1 siblings (0 to 0), not 2 (0 to 1)"),
        ((*RESTARTED[:3], (2, 2, 1, 2)), "step 2, prompt 1: 2 siblings (0 to 2), not 2 (0 to 1)"),
        ((*RESTARTED[:2], (2, 2, 5, 0), (2, 2, 5, 1)), "step 2: prompts 1 are missing, prompts 5 are not the reference's"),
    ],
)
def test_what_was_not_trained_or_was_too_much_is_named(places: Any, said: str) -> None:
    found = what_was_trained(comparison(restored=run(places)))
    assert (found.verdict, found.findings) == (BROKEN, (said,))


def test_nothing_trained_or_a_reference_that_never_ended_says_nothing() -> None:
    assert what_was_trained(comparison(restored=replace(run(()), has_history=False))).verdict is UNKNOWN
    assert what_was_trained(comparison(facts={"ended": False})).verdict is UNKNOWN


SWAPPED = ((1, 1, 1, 0), (1, 1, 1, 1), (2, 2, 0, 0), (2, 2, 0, 1))
ANOTHER = ((1, 1, 0, 0), (1, 1, 0, 1), (2, 2, 7, 0), (2, 2, 7, 1))


def test_without_an_order_only_the_whole_run_counts() -> None:
    facts: dict[str, Any] = {"in_order": False}
    free = comparison(facts=facts).restored.facts
    assert what_was_trained(comparison(facts=facts, restored=run(SWAPPED, facts=free))).verdict is HELD
    assert what_was_trained(comparison(restored=run(SWAPPED))).verdict is BROKEN
    lost = what_was_trained(comparison(facts=facts, restored=run(ANOTHER, facts=free)))
    assert (lost.verdict, lost.found) == (BROKEN, 2)


def test_a_prompt_still_under_way_at_the_end_is_nobodys_fault() -> None:
    free = comparison(facts={"in_order": False}).restored.facts

    def judged(mine: list[Any], theirs: list[Any]) -> Verdict:
        restored = run(ANOTHER, facts=free, groups=mine)
        return what_was_trained(comparison(reference=run(facts=free, groups=theirs), restored=restored)).verdict

    mine, theirs = [group(0, 0), group(7, 1), group(1, 2, ready_s=None)], [group(0, 0), group(1, 1), group(7, 2, ready_s=None)]
    assert judged(mine, theirs) is HELD
    assert judged(mine, theirs[:2]) is HELD, "the reference never came to prompt 7"
    assert judged([group(0, 0), group(7, 1)], theirs) is BROKEN, "prompt 1 was not under way, and 7 was"


@pytest.mark.parametrize("why", ["evicted", "skipped"])
def test_a_prompt_passed_over_for_a_cause_counts_as_trained(why: str) -> None:
    facts: dict[str, Any] = {"in_order": False}
    free = comparison(facts=facts).restored.facts
    passed = [{"life": 2, "ordinal": 1, "why": why}]
    theirs = run((*ANOTHER[:2], (1, 2, 7, 0), (1, 2, 7, 1), (1, 1, 1, 0), (1, 1, 1, 1)), facts=free)
    assert what_was_trained(comparison(reference=theirs, restored=run(ANOTHER, facts=free, passed=passed))).verdict is HELD
    passed[0]["why"] = ""
    assert what_was_trained(comparison(reference=theirs, restored=run(ANOTHER, facts=free, passed=passed))).verdict is BROKEN


def test_what_an_earlier_life_passed_over_and_a_later_one_trained_is_trained() -> None:
    assert (
        what_was_trained(comparison(restored=run(RESTARTED, passed=[{"life": 1, "ordinal": 1, "why": "evicted"}]))).verdict
        is HELD
    )
    assert (
        what_was_trained(comparison(restored=run(RESTARTED, passed=[{"life": 2, "ordinal": 1, "why": "evicted"}]))).verdict
        is BROKEN
    )


def test_a_run_that_may_drop_prompts_is_held_to_steps_and_siblings() -> None:
    facts = comparison(facts={"may_drop": True}).restored.facts
    assert what_was_trained(comparison(restored=run(ANOTHER, facts=facts))).verdict is HELD
    assert what_was_trained(comparison(restored=run(ANOTHER[:3], facts=facts))).verdict is BROKEN


def test_a_later_life_supersedes_what_it_trained_again() -> None:
    again = ((1, 1, 0, 0), (1, 1, 0, 1), (1, 2, 1, 0), (1, 2, 1, 1), *RESTARTED[2:])
    found = exactly_once(comparison(restored=run(again)))
    assert (found.verdict, found.figures) == (HELD, {"superseded": 2})
    assert what_was_trained(comparison(restored=run(again))).verdict is HELD


def test_a_row_trained_twice_breaks_whoever_did_it() -> None:
    twice = [{"run": "restored", "life": 2, "step": 2, "ordinal": 1, "generation": 0}]
    assert exactly_once(comparison(duplicates=twice)).verdict is BROKEN
    assert exactly_once(comparison(duplicates=[twice[0] | {"run": "reference"}])).verdict is UNKNOWN
    between = exactly_once(comparison(restored=run((*RESTARTED, (2, 3, 0, 0)))))
    assert between.findings == (
        "prompt 0, sibling 0: trained at step 1 of life 1, step 3 of life 2, and nothing discarded either",
    )
    assert exactly_once(comparison(restored=run(()))).verdict is UNKNOWN


def test_provenance_is_broken_by_a_fault_of_the_restored_run_and_unknown_by_the_references() -> None:
    def telling(*faults: Any) -> Any:
        found = comparison(faults=faults)
        for side in (found.reference, found.restored):
            side.rows.table = side.rows.table.append_column("calls", [[[5, 15]] * 4])  # type: ignore[attr-defined]
        return provenance(found)

    fault = (2, 2, 1, 0, "provenance", "its calls do not add up to its tokens")
    assert telling().verdict is HELD
    assert telling(("restored", *fault)).findings == ("step 2, prompt 1, sibling 0: its calls do not add up to its tokens",)
    assert telling(("reference", *fault)).verdict is UNKNOWN
    assert provenance(comparison()).verdict is NOTHING


@pytest.mark.parametrize(("gate", "what"), [(sound_rows, "row"), (own_history, "told")])
def test_what_a_row_shows_by_itself_breaks_and_of_the_references_is_unknown(gate: Any, what: str) -> None:
    fault = (2, 2, 1, 0, what, "its reward is no finite number")
    assert gate(comparison()).verdict is HELD
    found = gate(comparison(faults=[("restored", *fault)]))
    assert (found.verdict, found.findings) == (BROKEN, ("step 2, prompt 1, sibling 0: its reward is no finite number",))
    assert gate(comparison(faults=[("reference", *fault)])).verdict is UNKNOWN
    assert gate(comparison(faults=[("restored", 2, 2, 1, 0, "provenance", "")])).verdict is HELD
    unread = comparison()
    assert gate(replace(unread, measured=replace(unread.measured, faults=None))).verdict is UNKNOWN


def test_without_a_history_nobody_tells_of_a_row() -> None:
    assert own_history(comparison(restored=run(RESTARTED, has_history=False))).verdict is NOTHING


def test_how_old_weights_may_be_is_said_where_nobody_knows_it() -> None:
    found = comparison(facts={"max_staleness": -1})
    assert "max_staleness" not in other_weights(found).why, "its rows say nothing of their weights"
    found.restored.rows.table = found.restored.rows.table.append_column("spans", [[[5, 15, 0]] * 4])  # type: ignore[attr-defined]
    assert "max_staleness" in other_weights(found).why
    assert "max_staleness" not in other_weights(comparison(facts={"max_staleness": 1})).why


@pytest.mark.parametrize("told", [True, False])
def test_a_prompt_of_another_epoch_is_another_prompt_where_both_runs_say_theirs(told: bool) -> None:
    found = comparison()
    rows = found.restored.rows
    rows.index["epoch"] = [0, 0, 1, 1]
    if not told:
        del found.reference.rows.index["epoch"]
    gate = what_was_trained(found)
    assert gate.findings == (("step 2, prompt 1: of epoch 1, in the reference of 0",) if told else ())
