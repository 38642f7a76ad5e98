"""The ledger on disk: what is written, what is refused, and what a restart makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from ledger_samples import GROUP, attempt, continuation, group, receipt, row_meta, sealed_group, sibling

from protocol.errors import RestoreRefused
from protocol.ledger.persistence import (
    decode,
    digest_without_unsealed,
    encode,
    expected_staging,
    periodic_copy,
    prepare_for_restart,
    refuse_full_step,
    turn_level_unfinished,
)
from protocol.ledger.receipts import receipt_of
from protocol.ledger.records import AttemptStatus, Group, GroupStatus, LedgerFile, OpenStep
from protocol.ledger.transitions import Claim, advance_group

LEVELS = ("rollout", "sibling", "turn")
RESERVED, DISPATCHED, SEALED, ABANDONED = AttemptStatus
SAVED = f"{GROUP}_g0r0-a0"


def mixed_group(level: str) -> Group:
    """Siblings: reserved, sent, sealed, a waiting continuation, one sent again, an abandoned one."""
    return group(
        sibling(attempt(RESERVED, 0), generation=0),
        sibling(attempt(DISPATCHED, 1), generation=1),
        sibling(attempt(SEALED, 2), generation=2),
        sibling(attempt(ABANDONED, 3), continuation(RESERVED, 3), generation=3),
        sibling(attempt(ABANDONED, 4), continuation(DISPATCHED, 4), generation=4),
        sibling(attempt(ABANDONED, 5), generation=5),
        level=level,
    )


def current(held: Group) -> list[tuple[str, AttemptStatus]]:
    return [(one.current.key.removeprefix(f"{GROUP}_"), one.current.status) for one in held.siblings]


# --- encode and decode


def test_a_ledger_reads_back_as_it_was_written() -> None:
    groups = (
        mixed_group("turn"),
        msgspec.structs.replace(sealed_group(GroupStatus.READY_TO_FINALIZE), group_id="e0p4i1", ordinal=4),
    )
    file = decode(encode(groups, (7, 5), 1))
    assert file == LedgerFile(schema_version=4, groups=groups, open_train_step=None, skipped=(5, 7), skips=1)


def test_every_field_of_every_record_is_required() -> None:
    whole = msgspec.msgpack.decode(encode((sealed_group(GroupStatus.FINALIZED),), (), 0))
    places: list[Callable[[Any], Any]] = [
        lambda file: file,
        lambda file: file["groups"][0],
        lambda file: file["groups"][0]["siblings"][0],
        lambda file: file["groups"][0]["siblings"][0]["attempts"][0],
    ]
    tried = 0
    for place in places:
        for name in place(whole):
            torn = msgspec.msgpack.decode(msgspec.msgpack.encode(whole))
            del place(torn)[name]
            with pytest.raises(RestoreRefused, match=f"missing required field `{name}`"):
                decode(msgspec.msgpack.encode(torn))
            tried += 1
    assert tried == 5 + 16 + 3 + 8


@pytest.mark.parametrize("version", [1, 2, 3, 5])
def test_only_the_current_schema_can_be_resumed(version: int) -> None:
    file = LedgerFile(schema_version=version, groups=(), open_train_step=None, skipped=(), skips=0)
    with pytest.raises(RestoreRefused, match=f"has schema {version}: only 4 can be resumed"):
        decode(msgspec.msgpack.encode(file))


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x81", encode((), (), 0)[:-3]])
def test_what_is_no_ledger_is_refused(data: bytes) -> None:
    with pytest.raises(RestoreRefused, match="is not a schema 4 ledger"):
        decode(data)


def test_an_unknown_field_is_refused() -> None:
    raw = msgspec.msgpack.decode(encode((), (), 0))
    with pytest.raises(RestoreRefused, match="unknown field `granularity`"):
        decode(msgspec.msgpack.encode({**raw, "granularity": "turn"}))


@pytest.mark.parametrize(
    "place",
    [
        lambda group: group["siblings"][0]["attempts"][0]["receipt"],
        lambda group: group["siblings"][0]["attempts"][0]["receipt"]["calls"][0],
        lambda group: group["rows"][0],
    ],
    ids=["receipt", "call", "row"],
)
def test_an_unknown_field_inside_a_record_is_refused_too(place: Callable[[Any], Any]) -> None:
    raw = msgspec.msgpack.decode(encode((sealed_group(GroupStatus.FINALIZED),), (), 0))
    place(raw["groups"][0])["granularity"] = "turn"
    with pytest.raises(RestoreRefused, match="group 0 is not in the form that this schema is written in"):
        decode(msgspec.msgpack.encode(raw))


@pytest.mark.parametrize(
    "changes", [{"restored_from": SAVED}, {"gym_attempt": 1}, {"gym_attempt": 2, "restored_from": SAVED}],
    ids=["a first attempt", "a later attempt", "a step left out"],
)  # fmt: skip
def test_an_attempt_continues_the_one_before_it_or_none(changes: dict[str, Any]) -> None:
    held = group(sibling(attempt(DISPATCHED, **changes)))
    with pytest.raises(RestoreRefused, match=r"says that it continues (None|e0p3i1_g0r0-a0)"):
        decode(encode((held,), (), 0))


def test_an_open_train_step_is_never_resumed() -> None:
    step = OpenStep(train_step=3, trainer_version=2, expected_group_count=2, group_ids=(GROUP,), status="OPEN")
    file = LedgerFile(schema_version=4, groups=(), open_train_step=step, skipped=(), skips=0)
    with pytest.raises(RestoreRefused, match="an open train step 3 was persisted"):
        decode(msgspec.msgpack.encode(file))


def with_receipt(held: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(held, receipt=msgspec.structs.replace(held.receipt, **changes))


SEALED_ONE = attempt(SEALED)
CONTRADICTIONS: dict[str, tuple[tuple[Group, ...], str]] = {
    "a gap in the siblings": ((group(sibling(attempt(generation=1), generation=1)),), "generation indices are not 0..0"),
    "siblings out of order": (
        (group(sibling(attempt(generation=1), generation=1), sibling(attempt(), generation=0)),),
        "generation indices are not 0..1",
    ),
    "a sibling too few": ((group(sibling(attempt()), expected_generations=2),), "generation indices are not 0..1"),
    "one attempt id twice": (
        (group(sibling(attempt(ABANDONED), attempt(DISPATCHED))),),
        "an attempt id appears twice",
    ),
    "one attempt id in two siblings": (
        (group(sibling(attempt()), sibling(attempt(), generation=1)),),
        "an attempt id appears twice",
    ),
    "sealed without a receipt": ((group(sibling(attempt(SEALED, receipt=None))),), "is SEALED without a receipt"),
    "reserved with a receipt": (
        (group(sibling(attempt(RESERVED, receipt=receipt(SAVED)))),),
        "is RESERVED with a receipt",
    ),
    "abandoned with a receipt": (
        (group(sibling(attempt(ABANDONED, receipt=receipt(SAVED)), attempt(replaced=1))),),
        "is ABANDONED with a receipt",
    ),
    "a receipt of another attempt": (
        (group(sibling(with_receipt(SEALED_ONE, key="another-a0"))),),
        f"the receipt of {SAVED} names another-a0",
    ),
    "a receipt of other rows": (
        (group(sibling(msgspec.structs.replace(SEALED_ONE, staging_keys=("another",)))),),
        f"the receipt of {SAVED} does not name its staging keys",
    ),
    "ready with an unsealed sibling": (
        (group(sibling(attempt(DISPATCHED)), status=GroupStatus.READY_TO_FINALIZE),),
        "is READY_TO_FINALIZE with an unsealed sibling",
    ),
    "finalized with an unsealed sibling": (
        (group(sibling(attempt()), status=GroupStatus.FINALIZED, rows=(row_meta(),)),),
        "is FINALIZED with an unsealed sibling",
    ),
    "finalized without its rows": (
        (sealed_group(GroupStatus.FINALIZED, rows=()),),
        f"its canonical rows are not {GROUP}_g0..{GROUP}_g1",
    ),
    "finalized with rows out of order": (
        (sealed_group(GroupStatus.FINALIZED, rows=(row_meta(1), row_meta(0))),),
        "its canonical rows are not",
    ),
    "being published": ((sealed_group(GroupStatus.FINALIZING),), "was persisted as FINALIZING"),
    "published with unknown outcome": (
        (sealed_group(GroupStatus.FINALIZATION_UNKNOWN),),
        "was persisted as FINALIZATION_UNKNOWN",
    ),
    "claimed": ((sealed_group(GroupStatus.CLAIMED_FOR_TRAINING),), "was persisted as CLAIMED_FOR_TRAINING"),
    "applied": ((sealed_group(GroupStatus.APPLIED_UNCHECKPOINTED),), "was persisted as APPLIED_UNCHECKPOINTED"),
    "one group twice": ((group(), group()), "a group id appears twice"),
}


@pytest.mark.parametrize(("groups", "message"), CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_a_ledger_that_contradicts_itself_is_refused_and_says_where(groups: tuple[Group, ...], message: str) -> None:
    with pytest.raises(RestoreRefused, match="contradicts itself") as raised:
        decode(encode(groups, (), 0))
    assert message in str(raised.value)


# --- the copy that a snapshot writes


@pytest.mark.parametrize("level", LEVELS)
def test_a_snapshot_leaves_the_live_group_as_it_is(level: str) -> None:
    live = mixed_group(level)
    before = msgspec.msgpack.encode(live)
    periodic_copy([live])
    assert msgspec.msgpack.encode(live) == before


@pytest.mark.parametrize("level", ["rollout", "sibling"])
def test_below_turn_a_snapshot_abandons_what_gym_may_hold(level: str) -> None:
    (copy,) = periodic_copy([mixed_group(level)])
    assert current(copy) == [
        ("g0r0-a0", RESERVED),
        ("g1r0-a0", ABANDONED),
        ("g2r0-a0", SEALED),
        ("g3r0-a1", ABANDONED),
        ("g4r0-a1", ABANDONED),
        ("g5r0-a0", ABANDONED),
    ]
    assert turn_level_unfinished([copy]) == ()


def test_at_turn_a_snapshot_writes_what_gym_may_hold_as_it_is() -> None:
    live = mixed_group("turn")
    assert periodic_copy([live]) == (live,)
    unfinished = [held.key.removeprefix(f"{GROUP}_") for held in turn_level_unfinished([live])]
    assert unfinished == ["g1r0-a0", "g3r0-a1", "g4r0-a1"]


def test_a_snapshot_rolls_a_claim_back() -> None:
    finalized = sealed_group(GroupStatus.FINALIZED)
    assert periodic_copy([advance_group(finalized, Claim(train_step=2))]) == (finalized,)


def test_only_open_turn_level_groups_need_gym_state() -> None:
    done = sealed_group(GroupStatus.READY_TO_FINALIZE, level="turn")
    assert turn_level_unfinished([done, mixed_group("sibling")]) == ()


# --- staging


def test_staging_owes_a_payload_its_sealed_rows_and_its_saved_episodes() -> None:
    sealed = attempt(SEALED, 2).staging_keys
    saved = {f"{GROUP}_g1r0-a0": (f"{GROUP}_g1r0-a0/c0",)}
    assert expected_staging([mixed_group("turn")], saved) == (*sealed, f"{GROUP}_g1r0-a0/c0")


def test_staging_owes_nothing_of_a_call_that_was_not_captured() -> None:
    whole = receipt(f"{GROUP}_g0r0-a0")
    calls = (msgspec.structs.replace(whole.calls[0], digest="", cumulative=""), whole.calls[1])
    sealed = attempt(SEALED, receipt=receipt_of(whole.rollout_id, whole.key, calls), reward=0.0,
                     staging_keys=tuple(call.key for call in calls))  # fmt: skip
    assert expected_staging([group(sibling(sealed))], {}) == (whole.calls[1].key,)


def test_a_published_group_owes_its_canonical_rows_and_no_staged_ones() -> None:
    assert expected_staging([sealed_group(GroupStatus.FINALIZED)], {}) == ()
    assert len(expected_staging([sealed_group(GroupStatus.READY_TO_FINALIZE)], {})) == 4


# --- a trainer checkpoint


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        (GroupStatus.GENERATING, None),
        (GroupStatus.READY_TO_FINALIZE, None),
        (GroupStatus.FINALIZED, None),
        (GroupStatus.FINALIZING, f"{GROUP} is FINALIZING"),
        (GroupStatus.FINALIZATION_UNKNOWN, f"{GROUP} is FINALIZATION_UNKNOWN"),
        (GroupStatus.CLAIMED_FOR_TRAINING, f"{GROUP} is CLAIMED_FOR_TRAINING"),
        (GroupStatus.APPLIED_UNCHECKPOINTED, f"{GROUP} is APPLIED_UNCHECKPOINTED"),
    ],
)
def test_a_trainer_checkpoint_refuses_what_is_half_done(status: GroupStatus, refused: str | None) -> None:
    assert refuse_full_step([sealed_group(status)], None) == refused


def test_a_trainer_checkpoint_refuses_an_open_step() -> None:
    step = OpenStep(train_step=3, trainer_version=2, expected_group_count=2, group_ids=(), status="OPEN")
    assert refuse_full_step([], step) == "train step 3 is open"


# --- what a restart makes of it


def restarted(held: Group, saved: dict[str, tuple[str, tuple[str, ...]]] | None = None, replay: bool = True) -> Group:
    (out,) = prepare_for_restart([held], saved or {}, replay, 9)
    return out


def test_at_rollout_the_whole_group_starts_over() -> None:
    out = restarted(periodic_copy([mixed_group("rollout")])[0])
    assert current(out) == [
        ("g0r0-a0", RESERVED),
        ("g1r0-a0", ABANDONED),
        ("g2r0-a0", ABANDONED),
        ("g3r0-a1", ABANDONED),
        ("g4r0-a1", ABANDONED),
        ("g5r0-a0", ABANDONED),
    ]
    given_up = out.siblings[2].current
    assert (given_up.receipt, given_up.reward, given_up.staging_keys) == (None, None, ())


@pytest.mark.parametrize(("level", "version"), [("rollout", 9), ("sibling", 4), ("turn", 4)])
def test_a_group_that_keeps_nothing_is_as_young_as_its_new_weights(level: str, version: int) -> None:
    half = group(sibling(attempt(SEALED)), sibling(attempt(RESERVED, 1), generation=1), level=level)
    assert restarted(half).start_weight_version == version
    nothing = group(sibling(attempt(RESERVED)), sibling(attempt(DISPATCHED, 1), generation=1), level=level)
    assert restarted(nothing).start_weight_version == 9


def test_at_sibling_the_sealed_ones_are_kept() -> None:
    out = restarted(periodic_copy([mixed_group("sibling")])[0])
    assert [status for _, status in current(out)] == [RESERVED, ABANDONED, SEALED, ABANDONED, ABANDONED, ABANDONED]
    assert out.siblings[2] == mixed_group("sibling").siblings[2]
    assert out.start_weight_version == 4  # its sealed rows are that old


def test_at_turn_a_saved_episode_goes_on_as_the_next_attempt_where_it_was() -> None:
    keys = (f"{GROUP}_g1r0-a0/c0", f"{GROUP}_g1r0-a0/c1")
    out = restarted(mixed_group("turn"), {f"{GROUP}_g1r0-a0": ("gym-1", keys)})
    before, after = out.siblings[1].attempts
    assert (before.key, before.status) == (f"{GROUP}_g1r0-a0", ABANDONED)
    assert after == attempt(
        RESERVED, 1, gym_attempt=1, gym_instance_id="gym-1", restored_from=f"{GROUP}_g1r0-a0", staging_keys=keys
    )
    assert after.may_be_in_gym


def test_a_continuation_that_was_saved_again_goes_on_once_more() -> None:
    for status, generation in ((RESERVED, 3), (DISPATCHED, 4)):
        key = f"{GROUP}_g{generation}r0-a1"
        out = restarted(mixed_group("turn"), {key: ("gym-1", ())})
        held = out.siblings[generation].attempts
        assert [one.key.removeprefix(f"{GROUP}_g{generation}") for one in held] == ["r0-a0", "r0-a1", "r0-a2"], status
        assert [one.status for one in held] == [ABANDONED, ABANDONED, RESERVED]
        assert held[-1].restored_from == key


def test_what_was_sent_and_not_saved_starts_over_and_what_was_not_sent_keeps_its_identity() -> None:
    out = restarted(mixed_group("turn"))
    assert current(out) == [
        ("g0r0-a0", RESERVED),
        ("g1r0-a0", ABANDONED),
        ("g2r0-a0", SEALED),
        ("g3r0-a1", ABANDONED),
        ("g4r0-a1", ABANDONED),
        ("g5r0-a0", ABANDONED),
    ]
    assert [one.row_attempts for one in out.siblings] == [1] * 6


@pytest.mark.parametrize("level", LEVELS)
def test_a_restart_keeps_every_budget(level: str) -> None:
    spent = msgspec.structs.replace(
        mixed_group(level),
        group_attempt=2, infra_spent=3, data_spent=1,
        siblings=tuple(msgspec.structs.replace(one, row_attempts=2) for one in mixed_group(level).siblings),
    )  # fmt: skip
    out = restarted(periodic_copy([spent])[0])
    assert (out.group_attempt, out.infra_spent, out.data_spent) == (2, 3, 1)
    assert [one.row_attempts for one in out.siblings] == [2] * 6


def test_a_published_group_is_kept_with_its_rows() -> None:
    for level in LEVELS:
        finalized = sealed_group(GroupStatus.FINALIZED, level=level)
        assert restarted(finalized) == finalized


def test_without_a_replay_buffer_a_published_group_starts_over() -> None:
    out = restarted(sealed_group(GroupStatus.FINALIZED, level="sibling"), replay=False)
    assert (out.status, out.rows) == (GroupStatus.GENERATING, ())
    assert [status for _, status in current(out)] == [ABANDONED, ABANDONED]
    assert expected_staging([out], {}) == ()


@pytest.mark.parametrize(("level", "status"), [("rollout", GroupStatus.GENERATING), ("sibling", GroupStatus.READY_TO_FINALIZE),
                                              ("turn", GroupStatus.READY_TO_FINALIZE)])  # fmt: skip
def test_a_complete_group_waits_for_its_publication_unless_it_restarts_whole(level: str, status: GroupStatus) -> None:
    assert restarted(sealed_group(GroupStatus.READY_TO_FINALIZE, level=level)).status is status


# --- the digest of I20


def test_the_digest_sees_a_seal_and_not_a_dispatch() -> None:
    sent, unsent, done = (group(sibling(attempt(status))) for status in (DISPATCHED, RESERVED, SEALED))
    assert digest_without_unsealed([sent], (), 0) == digest_without_unsealed([unsent], (), 0)
    assert digest_without_unsealed([done], (), 0) != digest_without_unsealed([unsent], (), 0)
    assert digest_without_unsealed([sent], (3,), 0) != digest_without_unsealed([sent], (), 0)
    assert digest_without_unsealed([sent], (), 1) != digest_without_unsealed([sent], (), 0)
    spent = msgspec.structs.replace(sent, infra_spent=1)
    assert digest_without_unsealed([spent], (), 0) != digest_without_unsealed([sent], (), 0)


def test_the_digest_does_not_depend_on_the_order_of_groups() -> None:
    other = msgspec.structs.replace(group(), group_id="e0p4i1", ordinal=4)
    assert digest_without_unsealed([group(), other], (), 0) == digest_without_unsealed([other, group()], (), 0)
