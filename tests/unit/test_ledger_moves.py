"""The ledger in memory: each move, its events, the two indexes, and what an illegal move leaves behind."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from ledger_samples import (
    GROUP,
    attempt,
    continuation,
    empty_ledger,
    group,
    publish,
    receipt,
    reserved_in,
    seal_all,
    sibling,
)

from protocol.errors import IllegalStep
from protocol.history import AttemptRefused, AttemptSealed, BudgetSpent, ForgetQueued, PromptPassedOver, RetireQueued
from protocol.ledger.dropped import decide_retire
from protocol.ledger.ledger import Ledger, new_attempt, rollouts_of
from protocol.ledger.records import AttemptStatus, GroupStatus
from protocol.ledger.transitions import Apply, Claim

FIRST, SECOND = f"{GROUP}_g0r0-a0", f"{GROUP}_g1r0-a0"


def state(ledger: Ledger) -> Any:
    dropped = ledger.dropped
    return (
        dict(ledger.groups), dict(ledger.place), list(ledger.pending), list(ledger.skipped), ledger.skips,
        dict(dropped.retire), dict(dropped.forget),
    )  # fmt: skip


def test_a_reserved_group_has_one_unsent_attempt_a_sibling() -> None:
    ledger, rt = empty_ledger()
    made = reserved_in(ledger)
    assert (made.group_id, made.status, made.restore_level) == (GROUP, GroupStatus.GENERATING, "sibling")
    assert [held.current for held in made.siblings] == [new_attempt(f"{GROUP}_g0", 0), new_attempt(f"{GROUP}_g1", 0)]
    assert ledger.place == {FIRST: (GROUP, 0), SECOND: (GROUP, 1)}
    assert ledger.candidates() == ()
    assert rt.kinds() == ["GroupReserved", "AttemptReserved", "AttemptReserved"]


def test_candidates_are_what_gym_may_hold_in_order_of_dispatch() -> None:
    ledger, _ = empty_ledger()
    reserved_in(ledger)
    ledger.dispatch(SECOND, "gym-1")
    ledger.dispatch(FIRST, "gym-0")
    assert ledger.candidates() == ((SECOND, "gym-1"), (FIRST, "gym-0"))
    ledger.seal(SECOND, receipt(SECOND), 1.0)
    assert ledger.candidates() == ((FIRST, "gym-0"),)


def test_a_refusal_costs_nothing_and_says_so() -> None:
    ledger, rt = empty_ledger()
    reserved_in(ledger)
    before = ledger.groups[GROUP]
    ledger.dispatch(FIRST, "gym-0")
    refused = ledger.refuse(FIRST)
    assert (refused.key, refused.status) == (FIRST, AttemptStatus.RESERVED)
    after = ledger.groups[GROUP]
    assert (after.infra_spent, after.data_spent, after.siblings[0].row_attempts) == (0, 0, before.siblings[0].row_attempts)
    assert ledger.candidates() == ()
    assert ledger.dropped.retire == {}
    assert rt.events[-1] == AttemptRefused(sample=f"{GROUP}_g0", key=FIRST, row_attempts=1, infra_spent=0, data_spent=0)


def test_a_replaced_row_gets_a_counted_rollout_and_the_old_one_is_retired() -> None:
    ledger, rt = empty_ledger()
    reserved_in(ledger)
    ledger.dispatch(FIRST, "gym-0")
    ledger.abandon(FIRST, "lost-row")
    ledger.spend(GROUP, "row", FIRST, 2, 3)
    minted = ledger.mint(GROUP, 0, "lost-row", 2)
    assert minted.key == f"{GROUP}_g0r1-a0"
    assert ledger.dropped.retire == {FIRST: "gym-0"}
    assert ledger.find(FIRST) is None
    found = ledger.find(minted.key)
    assert found is not None and found[1].row_attempts == 2
    assert rt.events[-2] == BudgetSpent(group=GROUP, key=FIRST, budget="row", spent=2, limit=3)


def test_what_gym_itself_ended_is_not_retired() -> None:
    ledger, _ = empty_ledger()
    reserved_in(ledger)
    ledger.dispatch(FIRST, "gym-0")
    ledger.abandon(FIRST, "row-failed", held_by_gym=False)
    assert ledger.dropped.retire == {}


def test_what_was_never_sent_is_not_retired() -> None:
    ledger, _ = empty_ledger()
    reserved_in(ledger)
    ledger.drop(GROUP, "discarded")
    assert ledger.dropped.retire == {}
    assert ledger.place == {}


def test_a_continuation_counts_as_the_same_rollout() -> None:
    held = sibling(attempt(AttemptStatus.ABANDONED), continuation())
    assert rollouts_of(held) == 1
    assert rollouts_of(sibling(attempt(AttemptStatus.ABANDONED), attempt(replaced=1))) == 2


def test_a_sealed_continuation_lets_its_mark_go() -> None:
    ledger, rt = empty_ledger()
    ledger.install([group(sibling(attempt(AttemptStatus.ABANDONED), continuation()))], (), 0)
    key = f"{GROUP}_g0r0-a1"
    assert ledger.candidates() == ((key, "gym-1"),)
    ledger.dispatch(key, "gym-1")
    ledger.seal(key, receipt(key), 1.0)
    assert ledger.dropped.forget == {f"{GROUP}_g0r0": "gym-1"}
    assert rt.events[-1] == ForgetQueued(rollout=f"{GROUP}_g0r0", why="continued")


def test_a_dropped_continuation_is_retired_where_it_was_installed() -> None:
    ledger, rt = empty_ledger()
    ledger.install([group(sibling(attempt(AttemptStatus.ABANDONED), continuation()))], (), 0)
    ledger.drop(GROUP, "discarded")
    assert ledger.dropped.retire == {f"{GROUP}_g0r0-a1": "gym-1"}
    assert RetireQueued(key=f"{GROUP}_g0r0-a1", why="discarded") in rt.events
    assert ledger.candidates() == ()


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (attempt(), False),
        (attempt(AttemptStatus.DISPATCHED), True),
        (continuation(), True),
        (attempt(AttemptStatus.SEALED), False),
        (attempt(AttemptStatus.ABANDONED), False),
    ],
)
def test_a_dropped_attempt_is_retired_only_if_gym_may_hold_it(held: Any, expected: bool) -> None:
    assert decide_retire(held) is expected


def test_exactly_the_accepted_retires_are_forgotten_next() -> None:
    ledger, rt = empty_ledger()
    reserved_in(ledger)
    for key in (FIRST, SECOND):
        ledger.dispatch(key, "gym-0")
        ledger.abandon(key, "lost-row")
    ledger.dropped.retired((FIRST,))  # the second drop came while the retire was on its way
    assert ledger.dropped.retire == {SECOND: "gym-0"}
    assert ledger.dropped.forget == {f"{GROUP}_g0r0": "gym-0"}
    ledger.dropped.forgotten((f"{GROUP}_g0r0",))
    assert ledger.dropped.forget == {}
    assert rt.kinds()[-3:] == ["RetireAccepted", "ForgetQueued", "ForgetAccepted"]


def test_the_seal_names_the_current_key_of_its_sibling() -> None:
    ledger, rt = empty_ledger()
    reserved_in(ledger)
    ledger.dispatch(FIRST, "gym-0")
    made = receipt(FIRST)
    ledger.seal(FIRST, made, 1.0)
    assert rt.events[-1] == AttemptSealed(sample=f"{GROUP}_g0", key=FIRST, current=FIRST, receipt=made.digest, rows=2)


@pytest.mark.parametrize(("why", "skips"), [("skipped", 1), ("discarded", 0), ("stale", 0), ("evicted", 0)])
def test_only_a_skip_counts_against_the_skips(why: str, skips: int) -> None:
    ledger, rt = empty_ledger()
    reserved_in(ledger)
    ledger.drop(GROUP, why)
    assert (ledger.skips, list(ledger.skipped)) == (skips, [3])
    assert rt.events[-1] == PromptPassedOver(ordinal=3, why=why)


def test_a_trained_group_leaves_the_ledger_and_is_not_passed_over() -> None:
    ledger, _ = empty_ledger()
    reserved_in(ledger)
    seal_all(ledger, GROUP)
    publish(ledger, GROUP)
    ledger.move(GROUP, Claim(train_step=1))
    ledger.move(GROUP, Apply())
    ledger.release(GROUP)
    assert (ledger.groups, ledger.place, ledger.pending, ledger.skipped) == ({}, {}, {}, {})


@pytest.mark.parametrize(
    "move",
    [
        lambda ledger: ledger.dispatch("no such key", "gym-0"),
        lambda ledger: ledger.dispatch(FIRST, "gym-0"),
        lambda ledger: ledger.refuse(SECOND),
        lambda ledger: ledger.seal(SECOND, receipt(SECOND), 1.0),
        lambda ledger: ledger.move(GROUP, Claim(train_step=1)),
    ],
    ids=["unknown key", "dispatched twice", "refused unsent", "sealed unsent", "claimed while generating"],
)
def test_an_illegal_move_raises_and_changes_nothing(move: Any) -> None:
    ledger, rt = empty_ledger()
    reserved_in(ledger)
    ledger.dispatch(FIRST, "gym-0")
    before, events = state(ledger), len(rt.events)
    with pytest.raises(IllegalStep):
        move(ledger)
    assert state(ledger) == before
    assert len(rt.events) == events


@pytest.mark.parametrize("status", [status for status in GroupStatus if status.name not in
                                    ("GENERATING", "READY_TO_FINALIZE", "FINALIZED")])  # fmt: skip
def test_a_drop_that_may_not_be_changes_nothing(status: GroupStatus) -> None:
    ledger, rt = empty_ledger()
    reserved_in(ledger)
    seal_all(ledger, GROUP)
    ledger.groups[GROUP] = msgspec.structs.replace(ledger.groups[GROUP], status=status)
    before, events = state(ledger), len(rt.events)
    with pytest.raises(IllegalStep):
        ledger.drop(GROUP, "discarded")
    assert state(ledger) == before
    assert len(rt.events) == events


@pytest.mark.parametrize(("budget", "field"), [("infra", "infra_spent"), ("data", "data_spent")])
def test_a_budget_of_a_prompt_lives_in_its_group(budget: str, field: str) -> None:
    ledger, _ = empty_ledger()
    reserved_in(ledger)
    ledger.spend(GROUP, budget, "", 2, 5)
    assert getattr(ledger.groups[GROUP], field) == 2


def test_a_replaced_cohort_raises_the_group_attempt() -> None:
    ledger, rt = empty_ledger()
    reserved_in(ledger)
    ledger.raise_group_attempt(GROUP)
    assert ledger.groups[GROUP].group_attempt == 1
    assert rt.kinds()[-1] == "GroupAttemptRaised"
