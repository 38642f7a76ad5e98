"""What a policy makes of its choices, and what is read of a call's arguments: alike in both worlds."""

from __future__ import annotations

from collections import Counter

import pytest

from protocol.messages import ToolCall
from scenarios.workplace_calls import COURSES, chosen_call, effects, read_arguments, reward_of

FIRST, SECOND = ToolCall("email_send_email", '{"subject": "one"}'), ToolCall("calendar_delete_event", '{"event_id": "00000007"}')
SEARCH = ToolCall("calendar_search_records", "{}")
VARIED = Counter([ToolCall(SECOND.name, '{"event_id": "0000000711"}'), ToolCall(SECOND.name, '{"event_id": "0000000712"}')])


def test_sixteen_courses_lead_through_the_ground_truth_and_end_after_it() -> None:
    during = Counter(chosen_call((FIRST, SECOND), 1, choice) for choice in range(COURSES))
    assert during == Counter({SECOND: 11, SEARCH: 1, FIRST: 1, None: 1}) + VARIED
    after = Counter(chosen_call((FIRST, SECOND), 2, choice) for choice in range(COURSES))
    assert after == Counter({None: 13, SEARCH: 1, SECOND: 1, ToolCall(SECOND.name, '{"event_id": "0000000715"}'): 1})
    assert {chosen_call((), 0, choice) for choice in range(COURSES)} == {None}


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": "\\ud800"}', "[" * 100_000])
def test_what_is_no_object_of_texts_is_read_as_no_arguments(text: str) -> None:
    assert read_arguments(text) is None


def test_a_field_that_is_no_text_is_read_as_its_json() -> None:
    assert read_arguments('{"b": {"y": 1, "x": null}, "a": "t"}') == {"b": '{"x": null, "y": 1}', "a": "t"}


def test_an_effect_counts_once_and_one_that_nobody_asked_for_counts_against_it() -> None:
    before = {"email": {"1": {"subject": "old"}, "2": {"subject": "kept"}}}
    asked = effects(before, {"email": {"2": {"subject": "new"}, "3": {"subject": "more"}}})
    assert sorted(kind for kind, *_ in asked) == ["added", "changed", "removed"]
    assert reward_of(asked, asked) == 1.0
    twice = effects(before, {"email": {"2": {"subject": "new"}, "3": {"subject": "more"}, "4": {"subject": "more"}}})
    assert reward_of(asked, twice) == pytest.approx(1 / 3)  # two are right, the added one is there twice
    assert (reward_of(Counter(), asked), reward_of(Counter(), Counter())) == (0.0, 1.0)
