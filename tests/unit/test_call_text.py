"""A call's text over the fake tokenizer: the same however often the call was cut, and the same as in one look."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.worker.text import before_stop, call_text, spoken
from sim.fake_tokenizer import OPENS_THREE, OPENS_TWO, STOP_TEXT, UNREADABLE, FakeTokenizer, opens, piece
from sim.fake_tokenizer import STOP_TOKEN as STOP

WORD, GOING_ON = 20, 29  # " ..." and "..."
OF_TWO = next(token for token in range(100) if opens(token) == 1)
OF_THREE = next(token for token in range(200) if opens(token) == 2)
TOKENIZER = FakeTokenizer()


class Engine:
    """As much of one as a text needs."""

    def detokenizer(self, before: Any) -> Any:
        return TOKENIZER.detokenizer(before)

    def stop_tokens(self) -> tuple[int, ...]:
        return TOKENIZER.stop_tokens


ENGINE: Any = Engine()
any_token = st.one_of(st.integers(0, 49_999), st.sampled_from([STOP, WORD, GOING_ON, OF_TWO, OF_THREE]))
calls = st.lists(any_token, max_size=24)
carries = st.lists(any_token, max_size=3)
finishes = st.sampled_from(["stop", "length"])


@given(carries, calls, finishes)
def test_token_by_token_is_as_in_one_look(carry: list[int], tokens: list[int], finish: str) -> None:
    assert call_text(ENGINE, carry, tokens, finish) == TOKENIZER.answer(carry, tokens, finish)


@given(carries, calls, st.lists(st.text("aeiou ", min_size=1, max_size=2), max_size=2))
def test_a_stop_string_ends_a_call_with_the_token_that_completes_it_and_is_no_part_of_its_text(
    carry: list[int], tokens: list[int], stop: list[str]
) -> None:
    count = TOKENIZER.stops_at(carry, tokens, stop)
    if not count:
        assert not any(one in call_text(ENGINE, carry, tokens, "length") for one in stop)
        return
    text = call_text(ENGINE, carry, tokens[:count], "stop", stop)
    assert text == TOKENIZER.answer(carry, tokens[:count], "stop", stop)
    assert not any(one in text for one in stop)
    assert not TOKENIZER.stops_at(carry, tokens[: count - 1], stop)


@pytest.mark.parametrize(
    ("stop", "expected"),
    [((), "one two three"), (("two",), "one "), (("three", "e t"), "on"), (("four",), "one two three"), (("one",), "")],
)
def test_a_text_ends_before_the_first_stop_string_in_it(stop: tuple[str, ...], expected: str) -> None:
    assert before_stop("one two three", stop) == expected


@given(carries, calls, st.data())
def test_a_detokenizer_says_no_more_than_is_whole(carry: list[int], tokens: list[int], data: Any) -> None:
    """Whatever was pushed, what was said so far is how the whole text begins."""
    cut = data.draw(st.integers(0, len(tokens)))
    whole = call_text(ENGINE, carry, tokens, "length")
    assert whole.startswith(call_text(ENGINE, carry, tokens[:cut], "length"))
    assert UNREADABLE not in whole


def test_a_words_space_is_lost_only_where_nothing_stands_before() -> None:
    assert piece(WORD).startswith(" ")
    assert call_text(ENGINE, (5,), (WORD, WORD), "length") == piece(WORD) * 2
    assert call_text(ENGINE, (), (WORD, WORD), "length") == (piece(WORD) * 2)[1:]
    assert TOKENIZER.text((WORD, WORD)) == (piece(WORD) * 2)[1:]


def test_a_character_appears_with_its_last_token_and_is_unreadable_before() -> None:
    detokenizer = TOKENIZER.detokenizer((5,))
    assert [bool(detokenizer.push(token)) for token in (GOING_ON, OF_THREE, WORD, WORD, OF_TWO, WORD)] == [
        True, False, False, True, False, True,
    ]  # fmt: skip
    assert TOKENIZER.text((GOING_ON, OF_THREE, WORD)).endswith(UNREADABLE)
    assert TOKENIZER.text((GOING_ON, OF_TWO)) == piece(GOING_ON) + UNREADABLE
    assert UNREADABLE not in TOKENIZER.text((GOING_ON, OF_THREE, WORD, WORD))


@pytest.mark.parametrize(
    ("tokens", "finish", "expected"),
    [
        ((WORD, STOP), "stop", (WORD,)),
        ((WORD, STOP), "length", (WORD, STOP)),
        ((STOP, WORD), "stop", (STOP, WORD)),  # a stop string ended it
        ((STOP, STOP), "stop", (STOP,)),
        ((), "stop", ()),
    ],
)
def test_a_stopped_calls_text_loses_its_stop_token_and_nothing_else(
    tokens: tuple[int, ...], finish: str, expected: tuple[int, ...]
) -> None:
    assert tuple(spoken(tokens, finish, TOKENIZER.stop_tokens)) == expected


def test_a_stop_token_has_a_text_that_shows_when_it_is_kept() -> None:
    assert call_text(ENGINE, (5,), (WORD, STOP), "length") == piece(WORD) + STOP_TEXT
    assert call_text(ENGINE, (5,), (WORD, STOP), "stop") == piece(WORD)


def test_a_few_positions_in_a_hundred_lie_inside_a_character() -> None:
    """Often enough for a scenario to meet one, seldom enough to leave calls to cut. Each id as likely as the next."""
    two, three = 1 / OPENS_TWO, 1 / OPENS_THREE
    tokens = [(token * 7_919) % 50_000 for token in range(50_000)]
    inside = sum(UNREADABLE in TOKENIZER.text(tokens[max(0, at - 8) : at]) for at in range(1, 20_001)) / 20_000
    assert 0.03 < inside < 0.06
    assert abs(inside - (two + 2 * three)) < 0.01
