"""For each class a row that is of it, and one that nearly is; and what a difference is excused by."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import pytest
from parity_samples import EXACT, LOOSE, Pair, clean_pair, drop_token

from parity.measure import measure
from parity.near_tie import Choice, near_tie
from parity.profile import Profile
from protocol.data_plane.digests import generated_digest


def measured_row(pair: Pair, step: int, generation: int, profile: Profile = LOOSE) -> Any:
    """The line of the first prompt of the step; all others must match."""
    pairs = measure(*pair.runs(), profile).pairs
    ordinal = pair.reference.row(step, generation)["ordinal"]
    its = (pairs["ordinal"] == ordinal) & (pairs["generation"] == generation)
    (line,) = pairs[its].itertuples()
    assert set(pairs[~its]["kind"]) == {"match"}
    return line


def differ(row: dict[str, Any], place: int, token: int = 5000) -> None:
    row["tokens"][place] = token


def start_of(row: dict[str, Any], call: int) -> int:
    """First token that a call generated."""
    return sum(row["calls"][: 2 * call + 1])


def install(pair: Pair, row: dict[str, Any]) -> None:
    """What the restore installed is what the row has now: life 1 itself differed."""
    line = pair.restored.call(row)
    start = start_of(row, row["keys"].index(line["key"]))
    part = slice(start, start + line["prefix_tokens"])
    line["digest"] = generated_digest(row["tokens"][part], row["generation_logprobs"][part])


# --- pre_generation -----------------------------------------------------------------------------------------------------------


def test_a_row_whose_prompt_differs_is_pre_generation() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 1)
    differ(row, row["prompt_length"] - 1)
    line = measured_row(pair, 3, 1)
    assert (line.kind, line.prompt_equal, line.excuse, line.fault) == ("pre_generation", False, "", "the prompt differs")


def test_a_row_whose_first_generated_token_differs_is_not() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 1)
    differ(row, row["prompt_length"])
    line = measured_row(pair, 3, 1)
    assert (line.kind, line.prompt_equal, line.first) == ("unrestored", True, row["prompt_length"])


def test_a_prompt_that_ends_elsewhere_is_another_prompt_though_all_tokens_match() -> None:
    pair = clean_pair()
    pair.restored.row(3, 1)["prompt_length"] -= 1
    line = measured_row(pair, 3, 1)
    assert (line.kind, line.first) == ("pre_generation", -1)


def test_a_differing_prompt_is_not_excused_by_a_restored_prefix() -> None:
    pair = clean_pair()
    differ(pair.restored.row(2, 0), 0)
    assert measured_row(pair, 2, 0).kind == "pre_generation"


# --- pre_cut and prefix_mismatch ----------------------------------------------------------------------------------------------


def cut_pair(**row_too: Any) -> tuple[Pair, dict[str, Any], int]:
    """Life 1 itself generated another third token of the prefix, and the restore installed that."""
    pair = clean_pair()
    row = pair.restored.row(2, 0)
    place = start_of(row, 1) + 2
    differ(row, place)
    install(pair, row)
    row.update(row_too)
    return pair, row, place


def test_a_difference_inside_a_proven_prefix_is_pre_cut_and_excused() -> None:
    pair, _, place = cut_pair()
    line = measured_row(pair, 2, 0)
    assert (line.kind, line.excuse, line.first, line.fault) == ("pre_cut", "pre_cut", place, "")
    assert line.proof == "5 tokens hash to what the restore installed"


def test_the_last_token_of_the_prefix_is_pre_cut_and_the_next_one_post_cut() -> None:
    pair = clean_pair()
    row = pair.restored.row(2, 0)
    differ(row, start_of(row, 1) + 4)
    install(pair, row)
    assert measured_row(pair, 2, 0).kind == "pre_cut"
    pair = clean_pair()
    row = pair.restored.row(2, 0)
    differ(row, start_of(row, 1) + 5)
    assert measured_row(pair, 2, 0).kind == "post_cut"


def test_a_difference_inside_a_prefix_that_does_not_hash_is_a_prefix_mismatch() -> None:
    pair = clean_pair()
    row = pair.restored.row(2, 0)
    differ(row, start_of(row, 1) + 2)
    line = measured_row(pair, 2, 0)
    assert (line.kind, line.excuse) == ("prefix_mismatch", "") and "hash to" in line.fault


def test_a_prefix_mismatch_is_not_hidden_by_other_weights_or_by_equal_tokens() -> None:
    pair = clean_pair()
    row = pair.restored.row(2, 0)
    row["spans"][2] = row["spans"][5] = 0
    pair.restored.call(row)["digest"] = "0" * 32
    assert measured_row(pair, 2, 0).kind == "prefix_mismatch"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"reward": 7.0}, "its reward is 7, the reference's 0"),
        ({"sample_mask": 0}, "it is masked, the reference's row is admitted"),
    ],
)
def test_a_pre_cut_whose_reward_or_admission_differs_is_not_excused(change: dict[str, Any], fault: str) -> None:
    pair, _, _ = cut_pair(**change)
    line = measured_row(pair, 2, 0)
    assert (line.kind, line.excuse, line.fault) == ("pre_cut", "", fault)


def test_a_pre_cut_whose_masks_differ_is_not_excused() -> None:
    pair, row, _ = cut_pair()
    row["token_mask"][-1] = 0
    line = measured_row(pair, 2, 0)
    assert (line.kind, line.excuse, line.fault) == ("pre_cut", "", "its masks differ from the reference's")


def test_a_pre_cut_that_differs_before_its_restored_call_too_is_not_excused() -> None:
    pair, row, _ = cut_pair()
    differ(row, start_of(row, 0))
    line = measured_row(pair, 2, 0)
    assert (line.kind, line.excuse) == ("pre_cut", "") and "before its restored call" in line.fault


def test_a_pre_cut_without_anything_to_hash_against_is_not_excused() -> None:
    pair, row, _ = cut_pair()
    pair.restored.call(row)["digest"] = ""
    line = measured_row(pair, 2, 0)
    assert (line.kind, line.excuse, line.fault) == ("pre_cut", "", "nobody wrote down what the restore installed")


def test_a_strict_profile_excuses_no_pre_cut() -> None:
    pair, _, _ = cut_pair()
    line = measured_row(pair, 2, 0, EXACT)
    assert (line.kind, line.excuse, line.proof) == ("pre_cut", "", "") and "the profile" in line.fault


def test_a_restored_call_that_more_turns_follow_has_its_classes_too() -> None:
    for offset, kind in ((1, "pre_cut"), (5, "post_cut"), (14, "post_cut")):
        pair = clean_pair()
        row = pair.restored.row(2, 1)
        differ(row, start_of(row, 0) + offset if offset < 14 else len(row["tokens"]) - 1)
        install(pair, row)
        assert measured_row(pair, 2, 1).kind == kind


# --- other_weights ------------------------------------------------------------------------------------------------------------


def test_a_row_of_other_versions_is_other_weights_whether_its_tokens_match_or_not() -> None:
    for token in (None, 5000):
        pair = clean_pair()
        row = pair.restored.row(3, 0)
        row["spans"][2] = 1
        if token:
            differ(row, len(row["tokens"]) - 1)
        line = measured_row(pair, 3, 0)
        assert (line.kind, line.spans_equal, line.spans_legal, line.compared) == ("other_weights", False, True, 0)


def test_versions_that_differ_only_after_the_first_token_did_are_no_reason() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 0)
    row["spans"][5] = row["spans"][2] = 2
    pair.reference.row(3, 0)["spans"][2] = 1
    row["spans"][2] = 1
    row["spans"][5], pair.reference.row(3, 0)["spans"][5] = 1, 2
    differ(row, start_of(row, 0))
    assert measured_row(pair, 3, 0).kind == "unrestored"


def test_a_row_that_ends_elsewhere_has_no_other_weights_for_that() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 1)
    place = start_of(row, 1) + 3
    for _ in range(3):
        drop_token(row, place)
    row["calls"][3] -= 3
    row["spans"][4] -= 3
    line = measured_row(pair, 3, 1)
    assert (line.kind, line.spans_equal, line.first) == ("unrestored", True, place)


def test_one_span_in_two_parts_is_the_same_span() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 0)
    start, end, version = row["spans"][:3]
    row["spans"][:3] = [start, start + 4, version, start + 4, end, version]
    assert measured_row(pair, 3, 0).kind == "match"


def test_a_tool_that_replied_otherwise_makes_other_weights() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 0)
    row["tools"] = "another"
    differ(row, start_of(row, 1) - 1)
    line = measured_row(pair, 3, 0)
    assert (line.kind, line.tools_equal) == ("other_weights", False)


def test_a_reply_whose_tokens_are_the_references_is_compared_whatever_its_digest_says() -> None:
    pair = clean_pair()
    pair.restored.row(3, 0)["tools"] = "another"
    line = measured_row(pair, 3, 0)
    assert (line.kind, line.tools_equal, line.compared > 0) == ("match", False, True)


def test_a_tool_that_replied_otherwise_to_another_question_does_not() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 0)
    row["tools"] = "another"
    differ(row, start_of(row, 0) + 1)
    differ(row, start_of(row, 1) - 1)
    assert measured_row(pair, 3, 0).kind == "unrestored"


def test_where_one_run_does_not_say_what_its_tools_replied_rows_are_compared() -> None:
    pair = clean_pair()
    for row in pair.reference.rows:
        row["tools"] = None
    differ(pair.restored.row(3, 0), start_of(pair.restored.row(3, 0), 1))
    line = measured_row(pair, 3, 0)
    assert (line.kind, line.tools_equal) == ("unrestored", True)


def test_a_reply_that_differs_though_its_digest_does_not_is_no_other_reply() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 0)
    differ(row, start_of(row, 1) - 1)
    assert measured_row(pair, 3, 0).kind == "unrestored"


def weights(pair: Pair, version: int) -> None:
    pair.restored.steps[version - 1]["weights"] = "another"
    pair.restored.steps[version]["before"] = "another"


def test_a_version_that_was_other_weights_by_content_makes_other_weights() -> None:
    pair = clean_pair()
    weights(pair, 2)
    pairs = measure(*pair.runs(), EXACT).pairs
    assert set(pairs.query("step == 3")["kind"]) == {"other_weights"}  # made by version 2
    assert set(pairs.query("step < 3")["kind"]) == {"match"}


def test_engines_that_draw_by_a_versions_number_are_compared_all_the_same() -> None:
    pair = clean_pair(draws="version")
    weights(pair, 2)
    assert set(measure(*pair.runs(), EXACT).pairs["kind"]) == {"match"}


def test_a_difference_before_the_other_weights_came_in_is_compared() -> None:
    pair = clean_pair()
    weights(pair, 2)
    for side in (pair.reference, pair.restored):
        side.row(3, 0)["spans"][2] = 1
    row = pair.restored.row(3, 0)
    differ(row, start_of(row, 0) + 1)
    pairs = measure(*pair.runs(), EXACT).pairs
    assert pairs.query("step == 3 and ordinal == 4")["kind"].to_list() == ["unrestored", *["other_weights"] * 3]


@pytest.mark.parametrize(
    ("spans", "in_order", "legal"),
    [
        ((1, 2), True, True),
        ((2, 1), True, False),  # falls within the row
        ((2, 3), True, False),  # newer than what the trainer had
        ((0, 2), True, False),  # a lookahead of 1 begins no row of step 3 before version 1
        ((0, 2), False, False),
        ((1, 2), False, True),
        ((-1, 2), True, False),
    ],
)
def test_which_version_spans_are_legal(spans: tuple[int, int], in_order: bool, legal: bool) -> None:
    pair = clean_pair(in_order=in_order)
    row = pair.restored.row(3, 0)
    row["spans"][2], row["spans"][5] = spans
    assert measured_row(pair, 3, 0).spans_legal is legal


@pytest.mark.parametrize("in_order", [True, False])
def test_a_worker_that_a_push_did_not_reach_draws_from_older_weights_in_order_only(in_order: bool) -> None:
    pair = clean_pair(in_order=in_order)
    pair.restored.row(3, 0)["spans"][2] = 0
    pair.restored.steps[0]["missed"] = 1  # of the push of version 1
    assert measured_row(pair, 3, 0).spans_legal is in_order


@pytest.mark.parametrize("in_order", [True, False])
def test_where_nobody_says_how_old_weights_may_be_old_ones_are_legal(in_order: bool) -> None:
    pair = clean_pair(in_order=in_order)
    for side in (pair.reference, pair.restored):
        side.facts = dataclasses.replace(side.facts, max_staleness=-1)
    pair.restored.row(3, 0)["spans"][2] = 0
    assert measured_row(pair, 3, 0).spans_legal


@pytest.mark.parametrize(
    "spans",
    [
        lambda s: s[:3],  # what is trained has no version
        lambda s: [s[0] + 1, *s[1:]],
        lambda s: [*s[:4], s[4] + 9, s[5]],  # beyond the row
        lambda s: [*s[:3], s[0], *s[4:]],  # over each other
        lambda s: s[:-1],  # no triples
    ],
)
def test_spans_that_do_not_fit_the_row_are_illegal_and_spoil_no_other_row(spans: Any) -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 0)
    row["spans"] = spans(row["spans"])
    pairs = measure(*pair.runs(), EXACT).pairs
    assert pairs.query("not spans_legal")[["step", "ordinal", "generation"]].values.tolist() == [[3, 4, 0]]


def test_rows_that_say_nothing_of_their_versions_are_compared() -> None:
    pair = clean_pair()
    for side in (pair.reference, pair.restored):
        for row in side.rows:
            row["spans"] = None
    pairs = measure(*pair.runs(), EXACT).pairs
    assert set(pairs["kind"]) == {"match"} and pairs["spans_legal"].all()


# --- near ties ----------------------------------------------------------------------------------------------------------------


def tied(generation: int, place: int, **tops: Any) -> tuple[Pair, dict[str, Any]]:
    """The reference's two likeliest tokens at ``place`` are as good as equal, and the restored run took the other one."""
    pair = clean_pair()
    row, reference = pair.restored.row(2, generation), pair.reference.row(2, generation)
    other = reference["top_second"][place]
    for name, value in {"top_margin": 0.01, **tops}.items():
        reference[name][place] = value
    differ(row, place, other)
    return pair, row


@pytest.mark.parametrize(("generation", "kind"), [(0, "post_cut"), (2, "unrestored")])
def test_a_near_tie_between_the_two_likeliest_is_excused(generation: int, kind: str) -> None:
    place = len(clean_pair().reference.row(2, generation)["tokens"]) - 2
    pair, _ = tied(generation, place)
    line = measured_row(pair, 2, generation)
    assert (line.kind, line.excuse, line.first, line.fault) == (kind, "near_tie", place, "")
    assert line.margin == pytest.approx(0.01) and line.proof.startswith("margin 0.01 is below 0.05")


@pytest.mark.parametrize(
    ("tops", "fault"),
    [
        ({"top_margin": 0.06}, "margin 0.06 is not below 0.05"),
        ({"top_second": 4999}, "the likeliest were"),
        ({"top_first": 4999}, "the likeliest were"),
        ({"top_margin": math.nan}, "nobody can say"),
        ({"top_first": -1}, "nobody can say"),
        ({"top_second": -1}, "nobody can say"),
        ({"top_margin": -0.01}, "is not below"),
    ],
)
def test_what_only_nearly_is_a_near_tie_is_not_excused(tops: dict[str, Any], fault: str) -> None:
    pair, _ = tied(2, 12, **tops)
    line = measured_row(pair, 2, 2)
    assert (line.kind, line.excuse, line.proof) == ("unrestored", "", "") and fault in line.fault


def test_without_the_columns_there_is_no_excuse() -> None:
    pair, _ = tied(2, 12)
    for row in pair.reference.rows:
        row.update(top_first=None, top_second=None, top_margin=None)
    line = measured_row(pair, 2, 2)
    assert (line.excuse, line.fault) == ("", "nobody can say how likely the two tokens were")


def test_a_strict_profile_excuses_no_near_tie_and_the_margin_is_said_all_the_same() -> None:
    pair, _ = tied(2, 12)
    line = measured_row(pair, 2, 2, EXACT)
    assert (line.excuse, line.fault) == ("", "the profile excuses no near ties")
    assert line.margin == pytest.approx(0.01)


def test_a_divergence_that_is_masked_out_is_not_excused() -> None:
    pair, row = tied(2, 12)
    row["token_mask"][12] = 0
    line = measured_row(pair, 2, 2)
    assert (line.kind, line.excuse, line.mask_equal, line.fault) == (
        "unrestored",
        "",
        False,
        "its masks differ where its tokens do",
    )


def test_masks_that_differ_after_a_near_tie_are_its_consequence() -> None:
    pair, row = tied(2, 12)
    row["token_mask"][-1] = 0
    line = measured_row(pair, 2, 2)
    assert (line.excuse, line.mask_equal) == ("near_tie", True)


def test_a_near_tie_does_not_excuse_that_a_row_is_not_admitted() -> None:
    pair, row = tied(2, 12)
    row["sample_mask"] = 0
    line = measured_row(pair, 2, 2)
    assert (line.excuse, line.fault) == ("", "it is masked, the reference's row is admitted")


def test_a_row_that_only_goes_on_longer_has_no_near_tie() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 2)
    drop_token(row, len(row["tokens"]) - 1)
    row["calls"][3] -= 1
    row["spans"][4] -= 1
    line = measured_row(pair, 3, 2)
    assert (line.kind, line.first, line.fault) == ("unrestored", len(row["tokens"]), "one of the rows ends here")


def test_a_margin_of_nothing_at_all_is_a_tie() -> None:
    assert near_tie(Choice(reference=4, restored=5, top_first=5, top_second=4, margin=0.0), 0.1)[1] == ""


# --- other ways to be unequal -------------------------------------------------------------------------------------------------


def test_masks_that_differ_on_equal_tokens_are_said_and_not_compared() -> None:
    pair = clean_pair()
    pair.restored.row(3, 1)["token_mask"][-1] = 0
    line = measured_row(pair, 3, 1)
    assert (line.kind, line.mask_equal, line.compared) == ("match", False, 0)


def test_routes_and_media_of_matching_rows_are_compared_call_by_call() -> None:
    pair = clean_pair(media=True)
    pair.restored.row(2, 0)["routes_sorted"][1] = "shifted"
    pair.restored.row(2, 1)["routes"][1] = "only in another order"
    pair.restored.row(3, 1)["media"] = pair.restored.row(3, 1)["media"][:1]
    pairs = measure(*pair.runs(), EXACT).pairs
    assert pairs.query("routes_equal != 1")[["step", "ordinal", "generation"]].values.tolist() == [[2, 2, 0]]
    assert pairs.query("media_equal != 1")[["step", "ordinal", "generation"]].values.tolist() == [[3, 4, 1]]


def test_without_routes_there_is_nothing_to_compare() -> None:
    assert set(measure(*clean_pair(routes=False).runs(), EXACT).pairs["routes_equal"]) == {-1}


def test_how_a_row_came_over_is_said_of_the_life_that_trained_it() -> None:
    pair = clean_pair()
    pair.restored.recovered[0]["life"] = 1
    pairs = measure(*pair.runs(), EXACT).pairs
    assert pairs.query("step == 2")["how"].to_list() == ["", "prefix", "turn", "sealed", "prefix", "prefix", "turn", "sealed"]
    assert set(pairs.query("step != 2")["how"]) == {""}


def test_a_foreign_row_that_knows_the_hash_of_its_prefix_is_judged_by_it() -> None:
    pair = clean_pair()
    row = pair.restored.row(3, 0)
    row["prefix_ids_sha256"] = "0" * 64
    assert measured_row(pair, 3, 0).kind == "prefix_mismatch"


def test_what_is_spoilt_in_one_row_is_measured_in_no_other() -> None:
    """Every class at once, whatever stands beside it in a batch."""
    pair, _, _ = cut_pair()
    other = clean_pair()
    spoilt = copy.deepcopy(other.restored.row(3, 2))
    differ(spoilt, len(spoilt["tokens"]) - 1)
    pair.restored.rows[pair.restored.rows.index(pair.restored.row(3, 2))] = spoilt
    pair.restored.row(3, 3)["spans"][2] = 1
    pair.restored.facts = dataclasses.replace(pair.restored.facts, name="spoilt")
    kinds = measure(*pair.runs(), LOOSE).pairs["kind"].value_counts()
    assert dict(kinds) == {"match": 21, "pre_cut": 1, "unrestored": 1, "other_weights": 1}
