"""What a crash leaves to chance has one name, in words, in a plan and in a token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollproof.tokens import is_outcome, parse_plan, plan_text
from scenarios.model import InputError
from sim.explore.outcomes import FEW, disk_of, landing_of, landings, outcome_of, outcome_words
from sim.explore.points import PlanItem


@pytest.mark.parametrize("requests", range(FEW + 1))
def test_few_requests_land_in_every_combination(requests: int) -> None:
    found = landings(requests, "s")
    assert len(set(found)) == len(found) == 2**requests
    assert all(len(landing) == requests for landing in found if landing)


@given(st.integers(FEW + 1, 40), st.text("abc", max_size=5))
def test_many_requests_are_sampled_with_none_and_all_among_them(requests: int, stream: str) -> None:
    found = landings(requests, stream)
    assert len(set(found)) == len(found) == 2**FEW
    assert "" in found and "1" * requests in found
    assert all(len(landing) == requests and "1" in landing for landing in found if landing)
    assert found == landings(requests, stream)


def test_another_stream_draws_other_samples() -> None:
    assert landings(12, "0/landings/a") != landings(12, "0/landings/b")


@given(st.sampled_from(["none", "all"]), st.text("01", max_size=20))
def test_a_name_leads_back_to_its_parts(disk: str, landing: str) -> None:
    name = outcome_of(disk, landing)
    assert disk_of(name) == disk and is_outcome(name)
    assert landing_of(name) == (landing if "1" in landing else "")
    item = PlanItem("mailer", "EffectLanded", 3, 2, name)
    assert parse_plan(plan_text((item,))) == (item,)


def test_a_token_numbers_the_disk_and_says_which_requests_landed() -> None:
    assert plan_text((PlanItem("gym-0", "EffectIssued", 2, 1, "all+01"),)) == "gym-0-EffectIssued-2+1-1+01"
    assert parse_plan("gym-0-EffectIssued-2-none+10") == parse_plan("gym-0-EffectIssued-2-0+10")
    assert parse_plan("gym-0-EffectIssued-2-1+00") == parse_plan("gym-0-EffectIssued-2-1"), "no request landed"


@pytest.mark.parametrize("outcome", ["1+", "1+2", "1+1+0", "+1", "1+" + "1" * 513])
def test_a_landing_that_is_none_is_told(outcome: str) -> None:
    with pytest.raises(InputError, match="outcome"):
        parse_plan(f"gym-0-EffectIssued-2-{outcome}")
    assert not is_outcome(outcome)


def test_an_outcome_is_said_in_words() -> None:
    assert outcome_words("none") == "every unsynced write is lost"
    assert outcome_words("all+0101") == (
        "every unsynced write is kept; of the 4 requests on their way to outside services number 2, 4 still landed"
    )
    assert outcome_words("none+11").endswith("of the 2 requests on their way to outside services all still landed")
