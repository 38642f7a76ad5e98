"""Batch variance of fake engines: small, keyed by the request, and off unless a scenario asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import msgspec
import pytest

from parity.compare import compare
from parity.profiles import NAMED
from parity.tables import Run
from protocol.judging import BY_CHANCE, BY_VERSION
from protocol.parts import EngineCall
from rollproof.parity_reading import pair_of_lives
from scenarios.files import load
from sim.explore.lives import Setting, run_life, run_plan
from sim.explore.points import PlanItem
from sim.fake_engine import EngineProfile, near_ties
from sim.near_ties import NearTies

VARIANCE = 0.05
CALL = EngineCall(call="e0p4i1_g0r0-a0/c0", ordinal=4, generation=0, turn=0, version=1, previous_length=0, carry=(1, 2))


def ties(variance: float = VARIANCE) -> NearTies:
    found = near_ties(EngineProfile(tokens_min=400, tokens_max=400, batch_variance=variance))
    assert found is not None
    return found


def test_without_the_knob_there_is_no_variance() -> None:
    assert near_ties(EngineProfile()) is None and near_ties(EngineProfile(batch_variance=0.0)) is None


@pytest.mark.parametrize("variance", [-0.1, 1.5])
def test_a_variance_that_is_none_is_refused(variance: float) -> None:
    with pytest.raises(msgspec.ValidationError, match="batch_variance"):
        EngineProfile.of({"batch_variance": variance})


def test_the_same_request_says_the_same_and_another_one_nearly_the_same() -> None:
    one, again, beside = (ties().continued(CALL, 1, mates) for mates in (0, 0, 3))
    assert one == again and one != beside
    shared = next((place for place, pair in enumerate(zip(one[0], beside[0], strict=False)) if pair[0] != pair[1]), 400)
    differences = [abs(left - right) for left, right in zip(one[1][:shared], beside[1][:shared], strict=True)]
    assert shared > 10 and 0 < max(differences) <= 2 * VARIANCE


def test_only_a_near_tie_falls_the_other_way() -> None:
    found = ties()
    seconds = 0
    for life in range(40):
        tokens, logprobs = found.continued(CALL, life, 0)
        for token, logprob, place in zip(tokens, logprobs, found.tops(4, 0, 0, tokens, [1] * len(tokens)), strict=True):
            assert place is not None and token in (place.first, place.second) and place.margin > 0
            clean = place.logprob_of(token)
            assert clean is not None and abs(min(clean, -(2**-15)) - logprob) <= VARIANCE + 2**-15
            if token == place.second:
                seconds += 1
                assert place.margin < VARIANCE
    assert seconds > 20


def test_after_a_tie_that_fell_the_other_way_the_answer_is_another_one() -> None:
    found = ties()
    answers = {found.continued(CALL, life, 0)[0] for life in range(40)}
    plain, other = sorted(answers)[0], sorted(answers)[-1]
    parted = next(place for place, pair in enumerate(zip(plain, other, strict=False)) if pair[0] != pair[1])
    rest = list(zip(plain[parted + 1 :], other[parted + 1 :], strict=False))
    assert rest and sum(left == right for left, right in rest) < len(rest) / 4


def test_a_call_goes_on_after_a_prefix_with_the_choices_that_stand_in_it() -> None:
    found = ties()
    whole, logprobs = next(
        answer
        for answer in (found.continued(CALL, life, 0) for life in range(200))
        if any(place and token == place.second for token, place in pairs(found, answer[0][:100]))
    )
    resumed = msgspec.structs.replace(CALL, prefix=whole[:100], prefix_logprobs=logprobs[:100], call="e0p4i1_g0r0-a1/c0")
    tail = found.continued(resumed, 2, 0)[0]
    parted = next((place for place, pair in enumerate(zip(whole[100:], tail, strict=False)) if pair[0] != pair[1]), len(tail))
    assert parted > 5
    assert found.recalled(resumed) == logprobs[:100]


def pairs(found: NearTies, tokens: Sequence[int]) -> list[tuple[int, object]]:
    return list(zip(tokens, found.tops(4, 0, 0, tokens, [1] * len(tokens)), strict=True))


def test_a_prefix_that_no_weights_said_is_not_recalled() -> None:
    found = ties()
    tokens, logprobs = found.continued(CALL, 1, 0)
    given = msgspec.structs.replace(CALL, prefix=tokens[:20], prefix_logprobs=logprobs[:20])
    assert found.recalled(given) == logprobs[:20]
    assert found.recalled(msgspec.structs.replace(given, prefix=(tokens[0] + 1, *tokens[1:20]))) is None
    assert found.recalled(msgspec.structs.replace(given, prefix_logprobs=(*logprobs[:19], logprobs[19] - 0.2))) is None
    assert found.recalled(msgspec.structs.replace(given, prefix_logprobs=logprobs[:19])) is None


# --- the scenario ------------------------------------------------------------------------------------------------------------


@cache
def runs() -> tuple[Run, Run]:
    scenario = load("near-ties").scenario
    setting = Setting(scenario=scenario, seed=0, judges=())
    plan = (PlanItem("controller", "SnapshotPublished", 2, 0, "all"),)
    return pair_of_lives(scenario, run_life(setting, 1, {}, {}, None), run_plan(setting, plan, {}))


def test_its_runs_are_drawn_by_chance_in_the_simulator_alone() -> None:
    scenario = load("near-ties").scenario
    assert scenario.terms.drawn_by == BY_CHANCE and load("prefix").scenario.terms.drawn_by == BY_VERSION
    assert scenario.in_real().terms.drawn_by == BY_VERSION


def test_its_rows_name_the_two_likeliest_tokens_of_every_trained_one() -> None:
    seconds = 0
    for run in runs():
        assert run.facts.setup["batch_variance"] == "0.0003"
        columns = ("tokens", "token_mask", "top_first", "top_second", "top_margin")
        (table,) = run.rows.batches(range(len(run.rows.index)), columns, 1000)
        for row in table.to_pylist():
            for token, mask, first, second, margin in zip(*(row[name] for name in columns), strict=True):
                assert not mask or (token in (first, second) and margin > 0)
                assert mask or (first, second) == (-1, -1)
                seconds += bool(mask and token == second)
    assert seconds > 0


def test_the_trainer_scores_a_token_alike_whatever_ran_beside_it() -> None:
    """So that a row of equal tokens has the reference's trainer logprobs, and those of its engine only nearly."""
    columns = ("step", "ordinal", "generation", "tokens", "token_mask", "generation_logprobs", "trainer_logprobs")
    tables = [next(iter(run.rows.batches(range(len(run.rows.index)), columns, 1000))).to_pylist() for run in runs()]
    rows = [{(row["step"], row["ordinal"], row["generation"]): row for row in table} for table in tables]
    apart = 0
    for key in rows[0].keys() & rows[1].keys():
        one, other = rows[0][key], rows[1][key]
        for row in (one, other):
            pairs = zip(row["token_mask"], row["generation_logprobs"], row["trainer_logprobs"], strict=True)
            assert max(abs(left - right) for mask, left, right in pairs if mask) <= 0.0003 + 2**-15
        if one["tokens"] == other["tokens"]:
            assert one["trainer_logprobs"] == other["trainer_logprobs"]
            apart += one["generation_logprobs"] != other["generation_logprobs"]
    assert apart > 10


@pytest.mark.parametrize(("profile", "verdict"), [("bf16", "HELD"), ("fp32", "BROKEN"), ("exact", "BROKEN")])
def test_its_comparison_is_held_where_near_ties_are_excused_and_only_there(profile: str, verdict: str) -> None:
    report = compare(*runs(), NAMED[profile]).as_json()
    assert report["verdict"] == verdict
    assert {excuse["excuse"] for excuse in report["excuses"]} == ({"near_tie"} if profile == "bf16" else set())


def test_a_scenario_without_variance_says_nothing_of_tops() -> None:
    scenario = load("fixed-order").scenario
    life = run_life(Setting(scenario=scenario, seed=0, judges=()), 1, {}, {}, None)
    reference, _ = pair_of_lives(scenario, life, [life])
    assert not {"top_first", "top_second", "top_margin"} & set(reference.rows.columns)
