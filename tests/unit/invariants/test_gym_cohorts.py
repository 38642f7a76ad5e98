"""COHORT-1: the smallest histories that break it, and those that must not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from run_files import judge, terms

from invariants.gym.cohorts_are_judged_whole import CohortsAreJudgedWhole
from protocol.history import (
    CohortFailed,
    CohortJudged,
    EpisodeAdmitted,
    EpisodeEnded,
    ProcessStarted,
    ReplySent,
    RowsSubmitted,
    SiblingHeld,
)

G = "e0p0i1"
A, B, C = (f"{G}_g{generation}r0-a0" for generation in range(3))
B2 = f"{G}_g1r1-a0"
RELATIVE = msgspec.structs.replace(terms(), relative_rewards=True)


def found(*events: Any) -> list[str]:
    steps = [("controller" if isinstance(event, RowsSubmitted) else "gym-0", event) for event in events]
    return [violation.found.removeprefix("gym-0: ") for violation in judge(CohortsAreJudgedWhole, *steps, given=RELATIVE)]


def sent(*keys: str, attempt: int = 0) -> list[Any]:
    return [
        RowsSubmitted(G, "gym-0", keys, attempt),
        *(EpisodeAdmitted(key, 0, int(key.partition("_g")[2][0]), False, 0) for key in keys),
    ]


def judged(*members: str, rewarded: tuple[str, ...] | None = None, expected: tuple[int, ...] = (0, 1), attempt: int = 0) -> Any:
    return CohortJudged(G, attempt, members, members if rewarded is None else rewarded, expected)


def over(key: str) -> list[Any]:
    return [ReplySent(key, 0.5, 1), EpisodeEnded(key, "replied")]


WHOLE = [*sent(A, B), SiblingHeld(A, 0), judged(A, B), *over(A), *over(B)]


@pytest.mark.parametrize(
    "steps",
    [
        WHOLE,
        [*WHOLE, *sent(B2), judged(A, B2, rewarded=(B2,), expected=(1,)), *over(B2)],  # B's reply was lost
        [*sent(B), judged(B, expected=(1,)), *over(B)],  # A had sealed in an earlier life
        [*sent(A, B), CohortFailed(G, 0, "x"), EpisodeEnded(A, "failed"), *sent(A, B, attempt=1), judged(A, B, attempt=1)],
        [*sent(A, B), CohortFailed(G, 0, "x"), ProcessStarted(2), *sent(A, B), judged(A, B)],  # a restart forgets
    ],
)
def test_cohorts_judged_whole_are_held(steps: list[Any]) -> None:
    assert found(*steps) == []


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([*sent(A, B), judged(A)], f"attempt 0 of {G} was judged without generations [1], which had not sealed."),
        ([*sent(A), *over(A)], f"{A} was answered, and no cohort had been judged with it."),
        (
            [*sent(A, B), judged(A, B, rewarded=(A,))],
            f"1 of the 2 siblings of attempt 0 of {G} were rewarded, and not the others.",
        ),
        ([*WHOLE[:4], judged(A, B, rewarded=(B,)), judged(A, B, rewarded=(B,))], f"{B} was rewarded twice."),
        ([*sent(A), judged(A, B)], f"{B} was rewarded, and does not run."),
        ([*sent(A), *sent(B, attempt=1), judged(A, B)], f"attempt 0 of {G} was judged with {B}, which was sent as attempt 1."),
        ([*sent(A, B), CohortFailed(G, 0, "x"), judged(A, B)], f"attempt 0 of {G} was judged, and had failed."),
        ([*sent(A), CohortFailed(G, 0, "x"), *sent(B)], f"{B} was let in, attempt 0 of {G} has failed."),
        ([*sent(A, B, C), SiblingHeld(C, 0), judged(A, B)], f"{C} had come and was left out when attempt 0 of {G} was judged."),
        ([*sent(A, B, C), judged(A, B, rewarded=(A, B, C))], f"{C} was rewarded in attempt 0 of {G}, and is none of it."),
    ],
)
def test_a_cohort_judged_in_part_late_or_twice_breaks_COHORT_1(steps: list[Any], told: str) -> None:
    assert told in found(*steps)


def test_an_answer_before_any_judgment_breaks_COHORT_1_once() -> None:
    assert len(found(*sent(A), *over(A))) == 1


def test_it_applies_where_rewards_are_relative() -> None:
    assert CohortsAreJudgedWhole.applies(RELATIVE) and not CohortsAreJudgedWhole.applies(terms())
