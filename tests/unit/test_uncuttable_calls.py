"""A whole job whose calls ask for this and that: what is cut, what is not, and why; and the fake engine's side of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from whole_job import Lived, changed, every, live

from protocol.history import CallEnded, CallFrozen, CutAcknowledged
from protocol.messages import Sampling
from protocol.parts import EngineCall
from scenarios.files import load
from sim.fake_engine import FakeEngine

PREFIX = changed(target_level="prefix", rollout_checkpointing=every(0.12))
LONG = {"tokens_min": 16, "tokens_max": 48}
NO_WORLD: Any = None


def reasons(lived: Lived) -> Counter[str]:
    """How often each reason was given, '' for a cut."""
    assert lived.status.outcome == "ended"
    return Counter(event.reason for event in lived.events(CutAcknowledged) if event.kind != "terminal_completion")


def test_the_scenario_of_uncuttable_calls_meets_every_reason_beside_calls_that_are_cut() -> None:
    scenario = load("uncuttable").scenario
    found: Counter[str] = Counter()
    for seed in range(2):
        found += reasons(live(scenario.job, seed=seed, profile=scenario.profile))
    assert set(found) >= {
        "", "stop-strings", "bad-words", "presence-penalty", "frequency-penalty", "grammar", "seeded-draws", "dropped-output",
    }  # fmt: skip
    assert found[""] >= 10


def test_some_cuts_meet_a_prefix_that_ends_inside_a_character_and_most_do_not() -> None:
    found: Counter[str] = Counter()
    for seed in range(3):
        found += reasons(live(PREFIX, seed=seed, profile=LONG))
    assert 0 < found["inside-a-character"] / found.total() < 0.12  # siblings are cut together, so this varies


def test_without_any_output_limit_only_a_call_with_one_of_its_own_is_cut() -> None:
    profile = {**LONG, "sampling": [{"generation": [1, 2], "max_tokens": 40}]}
    lived = live(changed(PREFIX, max_new_tokens=None), profile=profile)
    found = reasons(lived)
    assert found["no-output-limit"] >= 3 and found[""] >= 3
    assert all("_g1r" in event.call and event.limit == 40 for event in lived.events(CallFrozen))


def test_what_must_not_be_cut_is_never_frozen() -> None:
    lived = live(PREFIX, profile={**LONG, "sampling": [{"grammar": "x"}]})
    assert set(reasons(lived)) == {"grammar"}
    assert lived.events(CallFrozen) == []


def test_a_call_ends_at_its_limit_whoever_says_it_and_reports_no_token_more() -> None:
    profile = {**LONG, "stop_token": True, "sampling": [{"generation": [1, 2], "max_tokens": 3}]}
    ended = [event for event in live(changed(PREFIX, max_new_tokens=20), profile=profile).events(CallEnded) if event.generated]
    assert {(event.limit, event.generated) for event in ended if event.finish == "length"} == {(3, 3), (20, 20)}
    assert all(event.generated <= event.limit and event.reported == event.generated for event in ended)
    assert {event.finish for event in ended} == {"length", "stop"}
    assert all(event.text == event.plain for event in ended)


# --- what the fake engine loses with the request that is cut


def call(prefix: tuple[int, ...] = (), **sampling: Any) -> EngineCall:
    return EngineCall(
        call="c", ordinal=1, generation=0, turn=0, version=0, previous_length=0, carry=(1, 2), prefix=prefix,
        sampling=Sampling(**sampling),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sampling", "keyed", "lost"),
    [
        ({}, False, False),
        ({"temperature": 0.3, "top_p": 0.9}, False, False),
        ({"seed": 3}, True, False),
        ({"seed": 3, "temperature": 0.0}, False, False),
        ({"seed": 3}, False, True),
        ({"presence_penalty": 1.0}, True, True),
        ({"frequency_penalty": -1.0}, True, True),
        ({"bad_words": ("x",)}, True, True),
        ({"grammar": "x"}, True, True),
    ],
)
def test_a_request_that_goes_on_gives_the_same_tokens_unless_its_options_forbid_a_cut(
    sampling: dict[str, Any], keyed: bool, lost: bool
) -> None:
    engine = FakeEngine(NO_WORLD, {**LONG, "position_keyed_draws": keyed})
    whole, _, _ = engine.continued(call(**sampling))
    tail, _, _ = engine.continued(call(whole[:7], **sampling))
    assert len(tail) == len(whole) - 7
    assert (whole[:7] + tail != whole) == lost


def test_draws_that_begin_anew_are_those_of_the_prefix() -> None:
    engine = FakeEngine(NO_WORLD, {**LONG, "position_keyed_draws": False})
    whole, _, _ = engine.continued(call(seed=3))
    tail, _, _ = engine.continued(call(whole[:7], seed=3))
    assert tail[:7] == whole[:7]


def test_a_stop_string_ends_a_call_where_it_is_first_whole_in_this_requests_text() -> None:
    engine = FakeEngine(NO_WORLD, LONG)
    whole, _, _ = engine.continued(call())
    seam = engine.text(whole[4:6])[1:-1]  # it begins in one token and ends in the next
    stopped, _, finish = engine.continued(call(stop=(seam,)))
    assert (whole[: len(stopped)], finish) == (stopped, "stop") and len(stopped) <= 6
    tail, _, _ = engine.continued(call(whole[:5], stop=(seam,)))
    assert len(tail) > 1, "its first half lies in the prefix, where nobody looks"
