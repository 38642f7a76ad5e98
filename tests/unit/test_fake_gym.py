import json
from typing import Any

import pytest

from protocol.gym.records import not_plain
from protocol.messages import PromptTask, ToolCall
from scenarios.workplace_calls import DOMAINS
from sim.environments.workplace import FakeWorkplace, apply_call, seed_tables
from sim.fake_engine import FakeEngine


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, json.dumps(arguments))


CREATE = call("calendar_create_event", event_name="review", participant_email="hana@example.com")
RENAME = call("calendar_update_event", event_id="00000252", field="event_name", new_value="Forum")
DELETE = call("customer_relationship_manager_delete_customer", customer_id="00000009")
TRUTH = (CREATE, RENAME, DELETE)


class NoWorld:
    """A Runtime that nothing here waits with."""


def task(*truth: ToolCall) -> PromptTask:
    return PromptTask("t", "workplace", "Please do it", (), truth)


def workplace(**profile: Any) -> FakeWorkplace:
    return FakeWorkplace(NoWorld(), profile)  # type: ignore[arg-type]


def reward(truth: tuple[ToolCall, ...], *done: ToolCall) -> float:
    place = workplace()
    state = place.seed(task(*truth), 3, 0)
    for made in done:
        apply_call(state["resources"]["tables"], made)
    return place.reward(task(*truth), state, ())


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        (TRUTH, 1.0),
        ((DELETE, CREATE, RENAME), 1.0),
        ((CREATE, RENAME), 2 / 3),
        ((), 0.0),
        ((CREATE, CREATE, RENAME, DELETE), 1 / 3),
        ((*TRUTH, call("email_send_email", recipient="x")), 2 / 3),
        ((CREATE, call("calendar_update_event", event_id="00000252", field="event_name", new_value="Party"), DELETE), 1 / 3),
    ],
)
def test_a_lost_doubled_wrong_or_unasked_effect_shows_in_the_reward(done: tuple[ToolCall, ...], expected: float) -> None:
    assert reward(TRUTH, *done) == pytest.approx(expected)


def test_a_task_that_changes_nothing_is_solved_by_changing_nothing() -> None:
    look = call("email_search_emails", query="x")
    assert reward((look,), look) == 1.0
    assert reward((look,), CREATE) == 0.0


def test_the_same_call_twice_makes_two_records() -> None:
    tables = seed_tables(task(), 0)
    before = dict(tables["email"])
    for _ in range(2):
        apply_call(tables, call("email_send_email", recipient="x"))
    added = sorted(int(name) for name in tables["email"] if name not in before)
    assert added == [max(int(name) for name in before) + 1, max(int(name) for name in before) + 2]


@pytest.mark.parametrize(
    "made",
    [
        call("weather_get_forecast"),
        call("calendar_dance_event"),
        ToolCall("calendar_create_event", "{not json"),
        ToolCall("calendar_create_event", "[1]"),
        call("calendar_delete_event", event_id="99999999"),
        call("calendar_delete_event"),
        call("calendar_update_event", event_id="00000252"),
        call("email_reply_email", email_id="99999999", body="x"),
    ],
)
def test_what_cannot_be_done_is_an_error_reply_and_changes_nothing(made: ToolCall) -> None:
    tables = seed_tables(task(*TRUTH), 0)
    before = json.dumps(tables)
    assert apply_call(tables, made).startswith("error: ")
    assert json.dumps(tables) == before


def test_every_domain_is_seeded_and_the_ids_of_the_ground_truth_exist() -> None:
    tables = seed_tables(task(*TRUTH), 3)
    assert list(tables) == list(DOMAINS)
    assert all(len(table) >= 3 for table in tables.values())
    assert "00000252" in tables["calendar"] and "00000009" in tables["customer_relationship_manager"]
    assert tables == seed_tables(task(*TRUTH), 3) != seed_tables(task(*TRUTH), 4)


def test_arguments_that_json_reads_but_cannot_write_do_not_reach_the_state() -> None:
    state = workplace().seed(task(), 0, 0)
    apply_call(
        state["resources"]["tables"], ToolCall("calendar_create_event", '{"start": NaN, "guests": ["a", 1], "all_day": true}')
    )
    assert not_plain(state) == ""


def test_siblings_differ_and_rewards_lie_on_both_sides() -> None:
    place, engine = workplace(), FakeEngine(NoWorld())  # type: ignore[arg-type]
    given = task(*TRUTH)
    rewards = []
    for generation in range(64):
        state = place.seed(given, 3, generation)
        for turn in range(4):
            made = place.decide(given, state, turn, engine.answer(3, generation, turn, 0)[0])
            if made is None:
                break
            apply_call(state["resources"]["tables"], made)
        rewards.append(place.reward(given, state, ()))
    assert min(rewards) == 0.0 and max(rewards) == 1.0
    assert len(set(rewards)) >= 3
    assert 0.3 < sum(rewards) / len(rewards) < 0.9


def test_a_small_share_of_turns_cannot_be_saved_unless_the_profile_says_otherwise() -> None:
    turns = [(ordinal, generation, turn) for ordinal in range(40) for generation in range(8) for turn in range(3)]
    share = sum(bool(workplace().cannot_save(*turn)) for turn in turns) / len(turns)
    assert 1 / 40 < share < 1 / 15
    assert not any(workplace(unsavable=0).cannot_save(*turn) for turn in turns)
    chosen = workplace(unsavable=[[1, 2, 0]])
    assert [turn for turn in turns if chosen.cannot_save(*turn)] == [(1, 2, 0)]


def test_prompts_are_capped_and_never_empty() -> None:
    place = workplace()
    long = PromptTask("t", "workplace", "word " * 500, (), ())
    assert len(place.prompt_tokens(long, 0)) == 96
    assert len(place.prompt_tokens(PromptTask("t", "workplace", "", (), ()), 0)) == 1
    assert all(0 <= token < 50_000 for token in place.prompt_tokens(task(), 0))


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ({"a": [1, "x", None, True, 0.5]}, ""),
        ({"a": float("nan")}, "state.a is nan"),
        ({"a": [float("inf")]}, "state.a[0] is inf"),
        ({"a": {1: 2}}, "state.a has the key 1, which is no string"),
        ({"a": b"x"}, "state.a is a bytes"),
    ],
)
def test_a_record_is_plain_json_or_is_named(value: Any, wrong: str) -> None:
    assert not_plain(value) == wrong
