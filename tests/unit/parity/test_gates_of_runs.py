"""Gates over steps, groups, calls and segments: each with what passes, what fails, and what says nothing."""

from __future__ import annotations

from typing import Any

import pytest
from parity_tables import LIVED, RESTARTED, call, comparison, four_pairs, group, pair, run, step

from parity.gate import Comparison
from parity.gates.readiness_order import readiness_order
from parity.gates.restored_prefixes import restored_prefixes
from parity.gates.route_digests import route_digests
from parity.gates.staging_leaks import staging_leaks
from parity.gates.training_error import training_error
from parity.gates.training_numbers import training_numbers
from parity.gates.weights import weights
from parity.profiles import BF16, EXACT, FP32
from protocol.judging import Verdict

HELD, BROKEN, UNKNOWN, NOTHING = Verdict.HELD, Verdict.BROKEN, Verdict.UNKNOWN, Verdict.NOT_APPLICABLE
STEPS = [step(1), step(2)]


def stepped(mine: list[dict[str, Any]], pairs: Any = None, theirs: Any = None, **rest: Any) -> Comparison:
    return comparison(
        pairs, reference=run(LIVED, steps=STEPS if theirs is None else theirs), restored=run(RESTARTED, steps=mine), **rest
    )


@pytest.mark.parametrize(
    ("mine", "verdict"),
    [
        (STEPS, HELD),
        ([step(1), step(2, weights="other")], BROKEN),
        ([step(1), step(2, before="other")], BROKEN),
        ([step(1, before="other"), step(2)], BROKEN),
        ([step(1, weights="other"), step(2, before="other")], BROKEN),
        ([step(1), step(2), step(2, weights="other")], BROKEN),
        ([], UNKNOWN),
    ],
)
def test_weights_are_the_references_while_all_rows_are_equal(mine: list[dict[str, Any]], verdict: Verdict) -> None:
    assert weights(stepped(mine)).verdict is verdict


def test_after_the_first_row_that_differs_only_the_chain_of_weights_is_judged() -> None:
    apart = [step(1), step(2, weights="other")]
    for changed in ({"reward": 9.0}, {"bit_identical": 9}, {"kind": "other_weights"}, {"advantage": 0.4}, {"found": "reference"}):
        found = weights(stepped(apart, four_pairs(**changed)))
        assert (found.verdict, found.value) == (HELD, 2), changed
    assert weights(stepped([step(1), step(2, before="wrong")], four_pairs(reward=9.0))).verdict is BROKEN


def test_a_reference_without_a_whole_chain_of_weights_says_nothing() -> None:
    assert weights(stepped(STEPS, theirs=[step(1), step(2, before="other")])).verdict is UNKNOWN
    assert weights(comparison()).verdict is NOTHING


@pytest.mark.parametrize(
    ("changed", "mine", "verdict"),
    [
        ({}, STEPS, HELD),
        ({"advantage": 0.50001}, STEPS, HELD),
        ({"advantage": 0.501}, STEPS, BROKEN),
        ({"advantage": float("nan")}, STEPS, BROKEN),
        ({"trainer_excess": 2e-5}, STEPS, BROKEN),
        ({"trainer_excess": float("nan")}, STEPS, BROKEN),
        ({}, [step(1), step(2, loss=0.3)], BROKEN),
        ({"max_diff": 9e-5}, [step(1), step(2, loss=0.3)], BROKEN),
        ({"max_diff": 2e-4}, [step(1), step(2, loss=0.3)], HELD),
        ({}, [step(1), step(2, reward_mean=None)], BROKEN),
        ({"reward": 9.0, "advantage": 3.0}, [step(1), step(2, loss=0.3)], HELD),
        ({"advantage": 3.0, "trainer_excess": 1.0}, [step(1, before="a", weights="b"), step(2, before="b")], NOTHING),
    ],
)
def test_training_numbers_agree_while_weights_and_rows_do(changed: dict[str, Any], mine: Any, verdict: Verdict) -> None:
    assert training_numbers(stepped(mine, four_pairs(**changed))).verdict is verdict


def test_training_numbers_that_nobody_wrote_say_nothing() -> None:
    silent = [pair(advantage=float("nan"), advantage_ref=float("nan"), trainer_compared=0)]
    assert training_numbers(comparison(silent)).verdict is NOTHING
    assert training_numbers(comparison([])).verdict is UNKNOWN


def segment(run: str, name: str, tokens: int, masked: int, scored: int, kl: float, mult: float | None = None) -> tuple[Any, ...]:
    """``kl`` and ``mult``: a token's."""
    return (run, 2, 1, 0, name, tokens, masked, scored, kl * scored, (1.0 + kl if mult is None else mult) * scored)


OTHERS = segment("restored", "other", 1000, 50, 950, 0.01)


@pytest.mark.parametrize(
    ("segments", "verdict"),
    [
        ([OTHERS, segment("restored", "tail", 100, 5, 95, 0.015)], HELD),
        ([OTHERS, segment("restored", "tail", 100, 5, 95, 0.03)], BROKEN),
        ([OTHERS, segment("restored", "tail", 100, 5, 95, 0.01, mult=1.05)], BROKEN),
        ([OTHERS, segment("restored", "tail", 100, 5, 95, float("nan"))], BROKEN),
        ([OTHERS, segment("restored", "tail", 100, 40, 60, 0.0001)], UNKNOWN),
        ([OTHERS, segment("restored", "tail", 100, 0, 95, 0.01), segment("restored", "prefix", 100, 80, 20, 0.0)], UNKNOWN),
        ([OTHERS, segment("restored", "tail", 100, 0, 0, 0.0)], UNKNOWN),
        ([segment("restored", "tail", 100, 0, 95, 0.01)], UNKNOWN),
        ([segment("restored", "tail", 100, 0, 95, 0.01), segment("reference", "other", 100, 0, 100, 0.01)], HELD),
        ([segment("restored", "tail", 100, 0, 95, 0.00009), segment("reference", "other", 100, 0, 100, 0.0)], HELD),
        ([OTHERS], NOTHING),
        ([], NOTHING),
    ],
)
def test_resumed_tails_are_no_worse_than_other_rows_and_masks_hide_nothing(segments: Any, verdict: Verdict) -> None:
    assert training_error(comparison(profile=FP32, segments=segments)).verdict is verdict


@pytest.mark.parametrize(("tokens", "verdict"), [(25, HELD), (2500, BROKEN)])
def test_one_legal_difference_may_be_all_that_a_short_tail_shows(tokens: int, verdict: Verdict) -> None:
    others = segment("restored", "other", 10_000, 0, 10_000, 0.0001)
    tail = segment("restored", "tail", tokens, 0, tokens, 0.003, mult=1.01)
    assert training_error(comparison(profile=BF16, segments=[others, tail])).verdict is verdict


def test_the_masked_share_stands_beside_each_training_error() -> None:
    found = training_error(comparison(segments=[OTHERS, segment("restored", "tail", 100, 5, 95, 0.015)]))
    assert {name: figure["masked share"] for name, figure in found.figures.items()} == {
        "restored other": 0.05,
        "restored tail": 0.05,
    }


def test_under_exact_the_training_error_is_reported() -> None:
    found = training_error(comparison(profile=EXACT, segments=[OTHERS, segment("restored", "tail", 100, 5, 95, 9.0)]))
    assert (found.verdict, found.reported) == (HELD, True)
    unscored = training_error(comparison(profile=EXACT, segments=[OTHERS, segment("restored", "tail", 100, 0, 0, 0.0)]))
    assert unscored.verdict is NOTHING and "no resumed tail was scored" in unscored.why


IN_ORDER = [group(0, 0), group(1, 1), group(2, 2)]  # finished after 1, 2 and 4 s


def ordered(mine: Any, theirs: Any = IN_ORDER, fixed: bool = True, **rest: Any) -> Any:
    facts = comparison(facts={"fixed_order": fixed}).restored.facts
    pairs = four_pairs(how="")
    pairs[2]["how"] = ""
    return readiness_order(
        comparison(pairs, reference=run(groups=theirs, facts=facts), restored=run(groups=mine, facts=facts, **rest))
    )


@pytest.mark.parametrize(
    ("mine", "verdict", "tau"),
    [
        (IN_ORDER, HELD, 1.0),
        ([group(0, 0), group(1, 0, life=2), group(2, 1, life=2)], HELD, 1.0),
        ([group(0, 0), group(2, 1), group(1, 2, life=2), group(2, 3, life=2)], HELD, 1.0),
        ([group(0, 0), group(2, 1), group(1, 2)], BROKEN, 1 / 3),
        ([group(0, 0)], NOTHING, None),
        ([group(0, 0), group(1, 1, ready_s=None)], NOTHING, None),
        ([], NOTHING, None),
    ],
)
def test_a_fixed_order_of_readiness_is_held(mine: Any, verdict: Verdict, tau: float | None) -> None:
    found = ordered(mine)
    assert (found.verdict, found.value) == (verdict, pytest.approx(tau) if tau is not None else None)


def test_an_order_that_nothing_fixes_is_reported() -> None:
    swapped = [group(0, 0), group(2, 1), group(1, 2)]
    near = [group(0, 0), group(1, 1), group(2, 2, ready_s=2.4)]
    restored = [{"life": 2, "ordinal": 1, "generation": 0, "how": "turn"}]
    for found in (ordered(swapped, fixed=False), ordered(swapped, near), ordered(swapped, recovered=restored)):
        assert (found.verdict, found.value) == (HELD, pytest.approx(1 / 3))
    weights = [{"life": 2, "ordinal": 1, "generation": 0, "how": "trainer"}]
    assert ordered(swapped, recovered=weights).verdict is BROKEN, "a restore of weights alone touches no group"
    unjudged = ordered(swapped[1:], near[1:])
    assert (unjudged.reported, unjudged.figures["pairs with an order"]) == (True, 0)


ROUTED = call(generation=1, routes="r", routes_completed="r", trained_routes="r", routes_rest="rest")


@pytest.mark.parametrize(
    ("calls", "equal", "declared", "verdict"),
    [
        ([ROUTED], 1, True, HELD),
        ([ROUTED], 1, False, HELD),
        ([ROUTED | {"routes_completed": "x"}], 1, True, BROKEN),
        ([ROUTED | {"trained_routes": "x"}], 1, True, BROKEN),
        ([ROUTED | {"trained_routes": ""}], 1, True, BROKEN),
        ([ROUTED | {"routes": ""}], 1, True, BROKEN),
        ([ROUTED, call(key="bare")], 1, True, BROKEN),
        ([ROUTED, call(key="given up", routes="r", absent=True)], 1, True, HELD),
        ([ROUTED], 0, True, BROKEN),
        ([ROUTED | {"routes_rest": "", "trained_routes": "whole"}], 1, True, HELD),
        ([ROUTED | {"routes_rest": "", "trained_routes": "whole"}], -1, False, UNKNOWN),
        ([ROUTED], -1, False, HELD),
        ([ROUTED], -1, True, UNKNOWN),
        ([call()], -1, False, NOTHING),
        ([], -1, False, NOTHING),
        ([], -1, True, UNKNOWN),
    ],
)
def test_routes_are_the_same_at_restore_completion_and_training(calls: Any, equal: int, declared: bool, verdict: Verdict) -> None:
    found = route_digests(comparison(four_pairs(routes_equal=equal), calls=calls, facts={"router_replay": declared}))
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("calls", "verdict"),
    [
        ([call()], HELD),
        ([call(), call(located=False, fault="its tokens are not at token 12")], BROKEN),
        ([call(completed=False)], BROKEN),
        (
            [call(), call(key="given up", located=False, absent=True, fault="the row is of attempt 2, the prefix of attempt 1")],
            HELD,
        ),
        ([call(located=False, absent=True)], NOTHING),
        ([call(), call()], BROKEN),
        ([], UNKNOWN),
        ([call(located=False, unsettled="column calls would settle it")], UNKNOWN),
        ([call(located=False, unsettled="column calls would settle it"), call(key="other", located=False)], BROKEN),
    ],
)
def test_every_restored_prefix_has_its_place_in_the_trained_row(calls: Any, verdict: Verdict) -> None:
    assert restored_prefixes(comparison(four_pairs(how="prefix"), calls=calls)).verdict is verdict


def test_without_a_restored_prefix_there_is_no_place_to_find() -> None:
    assert restored_prefixes(comparison([pair(), pair(how="turn")])).verdict is NOTHING


LEAK = {"life": 2, "key": "s-a0/c0-0", "where": "trained", "step": 2}


def test_a_restored_prefix_alive_in_staging_breaks() -> None:
    assert staging_leaks(comparison(calls=[call()])).verdict is HELD
    for where in ("trained", "manifest"):
        assert staging_leaks(comparison(calls=[call()], restored=run(leaks=[LEAK | {"where": where}]))).verdict is BROKEN
    foreign = run(has_history=False)
    alive = ("restored", 1, 1, 0, 0, "staging", "1 rows beside its calls were alive")
    assert staging_leaks(comparison(restored=foreign, faults=[alive])).verdict is BROKEN
    assert staging_leaks(comparison(restored=foreign)).verdict is NOTHING
    assert staging_leaks(comparison(profile=BF16)).verdict is NOTHING
