"""The two state machines of the ledger: the table is the machine, and what is not in it raises and changes nothing."""

from __future__ import annotations

import msgspec
import pytest
from ledger_samples import GROUP, attempt, continuation, group, receipt, row_meta, sealed_group, sibling

from protocol.errors import IllegalStep
from protocol.ledger.records import Attempt, AttemptStatus, Group, GroupStatus
from protocol.ledger.transitions import (
    ATTEMPT_LEGAL,
    GROUP_LEGAL,
    Abandon,
    Apply,
    AttemptEvent,
    Claim,
    Complete,
    Dispatch,
    Finalize,
    GroupEvent,
    LoseOutcome,
    Publish,
    Refuse,
    Rollback,
    Seal,
    Unpublish,
    advance,
    advance_group,
    decide_drop,
)

KEY = f"{GROUP}_g0r0-a0"
ATTEMPT_EVENTS: tuple[AttemptEvent, ...] = (
    Dispatch(instance="gym-2"),
    Refuse(),
    Seal(receipt=receipt(KEY, 3), reward=0.25),
    Abandon(),
)
GROUP_EVENTS: tuple[GroupEvent, ...] = (
    Complete(),
    Finalize(),
    Publish(rows=(row_meta(0, 7, 9), row_meta(1, 5, 8))),
    Unpublish(),
    LoseOutcome(),
    Claim(train_step=6),
    Rollback(),
    Apply(),
)


def held_group(status: GroupStatus) -> Group:
    claimed = 5 if status in (GroupStatus.CLAIMED_FOR_TRAINING, GroupStatus.APPLIED_UNCHECKPOINTED) else None
    return sealed_group(status, claimed_train_step=claimed)


def test_the_tables_are_exactly_the_protocol() -> None:
    attempts = {(status.name, event.__name__): after.name for (status, event), after in ATTEMPT_LEGAL.items()}
    assert attempts == {
        ("RESERVED", "Dispatch"): "DISPATCHED",
        ("DISPATCHED", "Refuse"): "RESERVED",
        ("DISPATCHED", "Seal"): "SEALED",
        ("RESERVED", "Abandon"): "ABANDONED",
        ("DISPATCHED", "Abandon"): "ABANDONED",
    }
    groups = {(status.name, event.__name__): after.name for (status, event), after in GROUP_LEGAL.items()}
    assert groups == {
        ("GENERATING", "Complete"): "READY_TO_FINALIZE",
        ("READY_TO_FINALIZE", "Finalize"): "FINALIZING",
        ("FINALIZING", "Publish"): "FINALIZED",
        ("FINALIZING", "Unpublish"): "READY_TO_FINALIZE",
        ("FINALIZING", "LoseOutcome"): "FINALIZATION_UNKNOWN",
        ("FINALIZED", "Claim"): "CLAIMED_FOR_TRAINING",
        ("CLAIMED_FOR_TRAINING", "Rollback"): "FINALIZED",
        ("CLAIMED_FOR_TRAINING", "Apply"): "APPLIED_UNCHECKPOINTED",
    }


def test_every_event_of_the_machines_is_tried_below() -> None:
    assert {type(event) for event in ATTEMPT_EVENTS} == set(AttemptEvent.__subclasses__())
    assert {type(event) for event in GROUP_EVENTS} == set(GroupEvent.__subclasses__())


@pytest.mark.parametrize("event", ATTEMPT_EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("status", AttemptStatus)
def test_an_attempt_moves_as_the_table_says_or_not_at_all(status: AttemptStatus, event: AttemptEvent) -> None:
    before = attempt(status)
    bytes_before = msgspec.msgpack.encode(before)
    target = ATTEMPT_LEGAL.get((status, type(event)))
    if target is None:
        with pytest.raises(IllegalStep, match=f"{type(event).__name__} is not legal for {before.key}, which is {status.value}"):
            advance(before, event)
    else:
        after = advance(before, event)
        assert after.status is target
        assert (after.key, after.restored_from) == (before.key, before.restored_from)
    assert msgspec.msgpack.encode(before) == bytes_before


@pytest.mark.parametrize("event", GROUP_EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("status", GroupStatus)
def test_a_group_moves_as_the_table_says_or_not_at_all(status: GroupStatus, event: GroupEvent) -> None:
    before = held_group(status)
    bytes_before = msgspec.msgpack.encode(before)
    target = GROUP_LEGAL.get((status, type(event)))
    if target is None:
        with pytest.raises(IllegalStep, match=f"{type(event).__name__} is not legal for {GROUP}, which is {status.value}"):
            advance_group(before, event)
    else:
        after = advance_group(before, event)
        assert after.status is target
        assert after.siblings == before.siblings
    assert msgspec.msgpack.encode(before) == bytes_before


def test_a_dispatch_names_its_instance_and_changes_nothing_else() -> None:
    before = attempt()
    assert advance(before, Dispatch(instance="gym-2")) == msgspec.structs.replace(
        before, status=AttemptStatus.DISPATCHED, gym_instance_id="gym-2"
    )


def test_a_refusal_keeps_the_identity() -> None:
    sent = attempt(AttemptStatus.DISPATCHED)
    assert advance(sent, Refuse()) == msgspec.structs.replace(sent, status=AttemptStatus.RESERVED)


def test_a_refused_continuation_is_still_held_by_gym() -> None:
    refused = advance(continuation(AttemptStatus.DISPATCHED), Refuse())
    assert refused == continuation()
    assert refused.may_be_in_gym


def test_a_seal_owns_exactly_the_keys_of_its_receipt() -> None:
    made = receipt(KEY, 3)
    after = advance(attempt(AttemptStatus.DISPATCHED), Seal(receipt=made, reward=0.25))
    assert (after.receipt, after.reward) == (made, 0.25)
    assert after.staging_keys == (f"{KEY}/c0", f"{KEY}/c1", f"{KEY}/c2")


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (attempt(), False),
        (attempt(AttemptStatus.DISPATCHED), True),
        (attempt(AttemptStatus.SEALED), False),
        (attempt(AttemptStatus.ABANDONED), False),
        (continuation(), True),
        (continuation(AttemptStatus.DISPATCHED), True),
        (continuation(AttemptStatus.SEALED), False),
        (continuation(AttemptStatus.ABANDONED), False),
    ],
)
def test_gym_may_hold_what_was_sent_and_what_a_restore_installed(held: Attempt, expected: bool) -> None:
    assert held.may_be_in_gym is expected


@pytest.mark.parametrize("status", [AttemptStatus.RESERVED, AttemptStatus.DISPATCHED, AttemptStatus.ABANDONED])
def test_a_group_is_not_complete_while_one_sibling_is_not_sealed(status: AttemptStatus) -> None:
    half = group(sibling(attempt(AttemptStatus.SEALED)), sibling(attempt(status, 1), generation=1))
    with pytest.raises(IllegalStep, match="a sibling is not sealed"):
        advance_group(half, Complete())
    assert half.status is GroupStatus.GENERATING


def test_a_published_group_is_as_old_as_its_oldest_call() -> None:
    after = advance_group(held_group(GroupStatus.FINALIZING), Publish(rows=(row_meta(0, 7, 9), row_meta(1, 5, 8))))
    assert after.start_weight_version == 5
    assert [row.sample for row in after.rows] == [f"{GROUP}_g0", f"{GROUP}_g1"]


def test_a_claim_that_is_rolled_back_leaves_no_trace() -> None:
    finalized = held_group(GroupStatus.FINALIZED)
    claimed = advance_group(finalized, Claim(train_step=6))
    assert claimed.claimed_train_step == 6
    assert advance_group(claimed, Rollback()) == finalized


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (GroupStatus.GENERATING, None),
        (GroupStatus.READY_TO_FINALIZE, None),
        (GroupStatus.FINALIZED, None),
        (GroupStatus.FINALIZING, "is being published (FINALIZING)"),
        (GroupStatus.FINALIZATION_UNKNOWN, "is being published (FINALIZATION_UNKNOWN)"),
        (GroupStatus.CLAIMED_FOR_TRAINING, "is owned by training (CLAIMED_FOR_TRAINING)"),
        (GroupStatus.APPLIED_UNCHECKPOINTED, "is owned by training (APPLIED_UNCHECKPOINTED)"),
    ],
)
def test_only_what_nobody_else_works_on_may_be_dropped(status: GroupStatus, reason: str | None) -> None:
    assert decide_drop(held_group(status)) == (None if reason is None else f"{GROUP} {reason}")
