"""Crash tokens: what is written is read again, and what is malformed is told precisely."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.history import KINDS
from rollproof.tokens import LENGTH_MAX, Token, check_of, code_digest, parse_plan, parse_token, plan_text, read_token
from scenarios.model import InputError
from sim.explore.points import PlanItem

ITEM = PlanItem("data-plane", "RowStagedDone", 12, 3, "all")
TOKEN = Token(scenario="fixed-order", scenario_digest="0123abcd", seed=7, level="turn", code_digest="89abcdef", plan=(ITEM,))


def resealed(text: str) -> str:
    """``text`` without its check, with the right one."""
    return f"{text}.{check_of(text)}"


def refusal(text: str) -> str:
    with pytest.raises(InputError) as error:
        read_token(text)
    return str(error.value)


def test_a_token_is_written_as_the_rules_say() -> None:
    body = "rp1.fixed-order.0123abcd.7.turn.89abcdef.data-plane-RowStagedDone-12+3-1"
    assert str(TOKEN) == resealed(body)


items = st.builds(
    PlanItem,
    st.sampled_from(["controller", "data-plane", "gym-0", "gym-11", "worker-3", "finalizer-1", "job"]),
    st.sampled_from(sorted(KINDS)),
    st.integers(1, 99_999),
    st.integers(0, 9_999),
    st.sampled_from(["none", "all"]),
)


@given(st.lists(items, min_size=1, max_size=4), st.integers(0, 10**9), st.sampled_from(["0", "3", "fifo"]))
def test_every_token_is_read_as_it_was_written(plan: list[PlanItem], seed: int, schedule: str) -> None:
    token = Token(
        scenario="a-b",
        scenario_digest="0" * 8,
        seed=seed,
        schedule=schedule,
        level="sibling",
        code_digest="f" * 8,
        plan=tuple(plan),
    )
    assert parse_token(str(token)) == token


def test_a_plan_accepts_outcomes_in_words() -> None:
    assert parse_plan("gym-0-EpisodeParked-2-none") == parse_plan("gym-0-EpisodeParked-2-0")
    assert (
        plan_text(parse_plan("gym-0-EpisodeParked-2-all~controller-Restored-1+4-0"))
        == "gym-0-EpisodeParked-2-1~controller-Restored-1+4-0"
    )


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("", "has 1 parts"),
        ("controller-Restored-1", "has 3 parts"),
        ("controller-Restord-1-none", "did you mean 'Restored'?"),
        ("controller-Restored-0-none", "'0' is no count"),
        ("controller-Restored-1+x-none", "'1+x' is no count"),
        ("controller-Restored-1-maybe", "outcome 'maybe' is unknown"),
        ("controller-Restored-1-2", "outcome '2' is unknown"),
        ("Controller-Restored-1-0", "'Controller' is no process name"),
        ("gym.0-Restored-1-0", "'gym.0' is no process name"),
        ("gym--0-Restored-1-0", "'gym--0' is no process name"),
        (f"controller-Restored-1+{'9' * 13}-0", "is no count"),
        ("controller-Restored-1-0~x", "crash plan item 2 'x'"),
    ],
)
def test_a_malformed_plan_is_told_what_is_wrong(plan: str, expected: str) -> None:
    with pytest.raises(InputError) as error:
        parse_plan(plan)
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rp1.a", "has 2 parts: it must have 8"),
        (str(TOKEN)[:-1] + ("0" if str(TOKEN)[-1] != "0" else "1"), "would be right: a character is wrong or missing"),
        (str(TOKEN).replace("fixed", "fixxed"), "would be right"),
        (resealed("rp1.a.0123.7.turn.89abcdef.controller-Restored-1-0"), "its scenario digest is '0123'"),
        (resealed("rp1.a.0123abcd.-7.turn.89abcdef.controller-Restored-1-0"), "its seed is '-7'"),
        (resealed("rp1.a.0123abcd.7.turns.89abcdef.controller-Restored-1-0"), "its level is 'turns'"),
        *(
            (resealed(f"rp1.a.0123abcd.0+{schedule}.turn.89abcdef.controller-Restored-1-0"), "it must be fifo or a number from 1")
            for schedule in ("zz", "1+2", "0", "01", "", "9" * 13)
        ),
        ("rp1.a b", "' ' is no legal character"),
        ("no-such-file", "is neither a crash token"),
        ("rp1." + "a" * LENGTH_MAX, "at most 200 characters"),
    ],
)
def test_a_malformed_token_is_told_what_is_wrong(text: str, expected: str) -> None:
    assert expected in refusal(text)


@pytest.mark.parametrize(
    "text", ["controller-Restored-{}-0", "{}-Restored-1-0", "controller-{}-1-0", "controller-Restored-1-{}", "{}"]
)
def test_what_is_wrong_and_long_is_not_said_again_whole(text: str) -> None:
    with pytest.raises(InputError) as error:
        parse_plan(text.format("7" * 5_000))
    assert len(str(error.value)) < 400
    assert len(refusal(text.format("x" * 5_000))) < 400


def test_a_plan_too_long_for_a_token_is_read_from_a_file(tmp_path: object) -> None:
    from pathlib import Path

    token = Token(scenario="a", scenario_digest="0" * 8, seed=0, level="turn", code_digest="0" * 8, plan=(ITEM,) * 9)
    assert len(str(token)) > LENGTH_MAX
    path = Path(str(tmp_path)) / "plan.token"
    path.write_text(str(token) + "\n")
    assert read_token(str(path)) == token


def test_a_token_says_its_plan_in_words() -> None:
    assert TOKEN.words() == [
        "life 1: killed 3 steps after event RowStagedDone number 12 of data-plane; every unsynced write is kept",
        "life 2: runs to its end",
    ]


def test_a_token_knows_whether_this_code_made_it() -> None:
    assert not TOKEN.version_matches
    ours = Token(scenario="a", scenario_digest="0" * 8, seed=0, level="turn", code_digest=code_digest(), plan=(ITEM,))
    assert ours.version_matches
