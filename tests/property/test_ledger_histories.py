"""Random histories of a ledger: its indexes always say what the groups say, and an illegal move changes nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_samples import empty_ledger, publish, receipt, reserved_in, seal_all

from protocol.errors import IllegalStep
from protocol.history import AttemptReserved
from protocol.ledger.ledger import Ledger
from protocol.ledger.persistence import decode, encode, periodic_copy, prepare_for_restart, turn_level_unfinished
from protocol.ledger.records import AttemptStatus
from protocol.ledger.transitions import Apply, Claim, Complete, Finalize, Rollback

MOVES = st.tuples(
    st.sampled_from(
        ["reserve", "dispatch", "refuse", "seal", "abandon", "mint", "complete", "finalize", "publish", "claim", "rollback",
         "apply", "release", "drop", "finish", "spend", "restart"]
    ),
    st.integers(0, 3),  # group
    st.integers(0, 1),  # sibling
)  # fmt: skip


def placed(ledger: Ledger) -> tuple[dict[str, tuple[str, int]], set[str]]:
    """``place`` and ``pending``, made again from the groups alone."""
    place: dict[str, tuple[str, int]] = {}
    pending: set[str] = set()
    for name, group in ledger.groups.items():
        for sibling in group.siblings:
            place[sibling.current.key] = (name, sibling.generation_index)
            if sibling.current.may_be_in_gym:
                pending.add(sibling.current.key)
    return place, pending


def frozen(ledger: Ledger) -> Any:
    dropped = ledger.dropped
    return (
        dict(ledger.groups), dict(ledger.place), list(ledger.pending), list(ledger.skipped), ledger.skips,
        dict(dropped.retire), dict(dropped.forget),
    )  # fmt: skip


def restart(ledger: Ledger) -> Ledger:
    """Through the file and back, at every group's own level; every second episode that Gym held was saved."""
    groups = decode(encode(periodic_copy(ledger.groups.values()), ledger.skipped, ledger.skips)).groups
    held = turn_level_unfinished(groups)
    saved = {attempt.key: (attempt.gym_instance_id, attempt.staging_keys) for attempt in held[::2]}
    following, _ = empty_ledger(ledger.rt.life + 1)
    following.install(prepare_for_restart(groups, saved, True, 9), ledger.skipped, ledger.skips)
    assert set(following.pending) == {
        f"{attempt.rollout_id}-a{attempt.gym_attempt + 1}" for attempt in held if attempt.key in saved
    }
    return following


def move(ledger: Ledger, what: str, name: str, generation: int) -> None:
    """Raises IllegalStep (or KeyError for a group that is not there) if the move may not be."""
    if what == "reserve":
        if name not in ledger.groups:
            reserved_in(ledger, int(name[3:-2]), level=("sibling", "turn")[int(name[3:-2]) % 2])
        return
    group = ledger.groups[name]
    current = group.siblings[generation].current
    match what:
        case "dispatch":
            ledger.dispatch(current.key, "gym-0")
        case "refuse":
            ledger.refuse(current.key)
        case "seal":
            ledger.seal(current.key, receipt(current.key), 1.0)
        case "abandon":
            ledger.abandon(current.key, "lost-row")
        case "mint":
            if current.status is AttemptStatus.ABANDONED:
                ledger.mint(name, generation, "lost-row", group.siblings[generation].row_attempts + 1)
        case "complete":
            ledger.move(name, Complete())
        case "finalize":
            ledger.move(name, Finalize())
        case "publish":
            publish(ledger, name)
        case "claim":
            ledger.move(name, Claim(train_step=1))
        case "rollback":
            ledger.move(name, Rollback())
        case "apply":
            ledger.move(name, Apply())
        case "release":
            if group.status.name == "APPLIED_UNCHECKPOINTED":
                ledger.release(name)
        case "drop":
            ledger.drop(name, "discarded")
        case "finish":
            if all(sibling.current.status is AttemptStatus.RESERVED for sibling in group.siblings):
                seal_all(ledger, name)
        case "spend":
            ledger.spend(name, "infra", "", group.infra_spent + 1, 5)


@settings(deadline=None, max_examples=300)
@given(st.lists(MOVES, max_size=40))
def test_the_indexes_always_equal_a_recomputation_and_no_illegal_move_changes_anything(moves: list[Any]) -> None:
    ledger, _ = empty_ledger()
    life = 1
    for what, number, generation in moves:
        name = f"e0p{number}i1"
        if what == "restart":
            unsafe = ("FINALIZING", "FINALIZATION_UNKNOWN", "APPLIED_UNCHECKPOINTED")
            if life == 1 and not any(group.status.name in unsafe for group in ledger.groups.values()):
                ledger, life = restart(ledger), 2
            continue
        if what == "reserve" and life == 2:
            continue  # its groups would carry the second life's ids
        before = frozen(ledger)
        try:
            move(ledger, what, name, generation)
        except (IllegalStep, KeyError) as error:
            if not (what == "publish" and isinstance(error, IllegalStep)):  # two moves: the first may have been made
                assert frozen(ledger) == before, what
        place, pending = placed(ledger)
        assert ledger.place == place
        assert set(ledger.pending) == pending
        assert [key for key, _ in ledger.candidates()] == list(ledger.pending)
        queued = ledger.dropped.retire
        assert not pending & set(queued), "a candidate that is queued for retire"


@settings(deadline=None, max_examples=150)
@given(st.lists(MOVES, max_size=30))
def test_a_key_is_given_out_only_once(moves: list[Any]) -> None:
    ledger, rt = empty_ledger()
    begun: set[int] = set()
    for what, number, generation in moves:
        if what == "restart" or (what == "reserve" and number in begun):
            continue  # a prompt is reserved once in a life
        if what == "reserve":
            begun.add(number)
        try:
            move(ledger, what, f"e0p{number}i1", generation)
        except (IllegalStep, KeyError):
            continue
    reserved = [event.key for event in rt.events if isinstance(event, AttemptReserved)]
    assert len(set(reserved)) == len(reserved)
