"""Samplers: which batch may start, which groups are taken, evicted or given up, and what a restore may hold."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from ledger_samples import group

from protocol.checkpoint.targets import check_targets, restored_dispatch_index
from protocol.config import Sampler
from protocol.controller.samplers import (
    Batch,
    Shortfall,
    decide_admission,
    decide_batch,
    decide_evict,
    decide_select,
    decide_shortfall,
    decide_stale,
    shelf_of,
)
from protocol.data_plane.replay import ReplayIndex, Slot
from protocol.errors import RestoreRefused
from protocol.ledger.records import NO_TARGET

IN_ORDER = Sampler(name="in_order", max_lookahead_versions=1)
AHEAD = Sampler(name="in_order", max_lookahead_versions=3)
WINDOWED = Sampler(name="windowed", max_staleness_versions=1)
FIFO = Sampler(name="weight_fifo", max_staleness_versions=1)


def slot(ordinal: int, *, target: int = NO_TARGET, start: int = 0) -> Slot:
    return Slot(f"e0p{ordinal}i1", ordinal, target, start, start, ())


def index(slots: Sequence[Slot]) -> ReplayIndex:
    made = ReplayIndex()
    made.commit_all(slots)
    return made


def select(
    sampler: Sampler, version: int, ready: Sequence[Slot], unready: Sequence[int], need: int, at_least: int, at_once: int = 99
) -> tuple[str, ...]:
    return decide_select(sampler, version, shelf_of(sampler, index(ready)), unready, need, at_least, at_once)


def evict(sampler: Sampler, version: int, ready: Sequence[Slot], at_once: int = 99) -> tuple[str, ...]:
    return decide_evict(sampler, version, shelf_of(sampler, index(ready)), at_once)


def names(*ordinals: int) -> tuple[str, ...]:
    return tuple(f"e0p{ordinal}i1" for ordinal in ordinals)


@pytest.mark.parametrize(
    ("sampler", "version", "index", "expected"),
    [
        (IN_ORDER, 0, -1, True),
        (IN_ORDER, 0, 0, True),
        (IN_ORDER, 0, 1, False),
        (IN_ORDER, 1, 1, True),
        (AHEAD, 0, 2, True),
        (AHEAD, 0, 3, False),
        (FIFO, 0, 0, True),
        (FIFO, 0, 1, False),
        (WINDOWED, 0, 99, True),
    ],
)
def test_a_batch_starts_no_further_ahead_than_the_sampler_allows(
    sampler: Sampler, version: int, index: int, expected: bool
) -> None:
    assert decide_admission(sampler, version, index, None) is expected


def test_a_target_that_lost_a_group_is_always_admitted() -> None:
    assert decide_admission(IN_ORDER, 0, 1, Shortfall(0, 1))


@pytest.mark.parametrize(
    ("sampler", "version", "index", "targets", "expected"),
    [
        (IN_ORDER, 0, -1, {}, None),
        (IN_ORDER, 0, 1, {0: 2, 1: 2}, None),
        (IN_ORDER, 0, 1, {0: 2, 1: 1}, Shortfall(1, 1)),
        (IN_ORDER, 0, 1, {0: 1, 1: 1}, Shortfall(0, 1)),
        (IN_ORDER, 0, 1, {1: 2}, Shortfall(0, 2)),
        (IN_ORDER, 1, 1, {0: 1, 1: 2}, None),
        (IN_ORDER, 3, 2, {}, None),
        (WINDOWED, 0, 1, {NO_TARGET: 1}, None),
        (FIFO, 2, 3, {NO_TARGET: 4}, None),
        (FIFO, 2, 3, {NO_TARGET: 3}, Shortfall(NO_TARGET, 1)),
        (FIFO, 2, 3, {}, Shortfall(NO_TARGET, 2)),  # a batch at a time
        (FIFO, 2, 1, {}, None),
    ],
)
def test_what_a_batch_lost_is_replaced_first_step_first(
    sampler: Sampler, version: int, index: int, targets: dict[int, int], expected: Shortfall | None
) -> None:
    assert decide_shortfall(sampler, version, index, targets, 2) == expected


def test_a_batch_takes_its_prompts_and_the_next_target() -> None:
    assert decide_batch(IN_ORDER, 8, 4, 100, 1, None) == Batch(8, 12, 0, 2, 2, (8, 9, 10, 11), ())


def test_a_batch_of_another_sampler_is_not_stamped() -> None:
    for sampler in (WINDOWED, FIFO):
        assert decide_batch(sampler, 8, 4, 100, 1, None) == Batch(8, 12, 0, NO_TARGET, 2, (8, 9, 10, 11), ())


def test_a_top_up_passes_over_the_last_prompts_of_its_batch() -> None:
    assert decide_batch(IN_ORDER, 8, 4, 100, 2, Shortfall(1, 1)) == Batch(8, 12, 0, 1, 2, (8,), (9, 10, 11))


def test_a_top_up_of_a_target_with_nothing_left_takes_the_whole_batch() -> None:
    assert decide_batch(IN_ORDER, 8, 4, 100, 2, Shortfall(1, 4)) == Batch(8, 12, 0, 1, 2, (8, 9, 10, 11), ())


@pytest.mark.parametrize(("cursor", "to", "epoch"), [(0, 4, 0), (3, 7, 0), (6, 10, 1), (4, 8, 1), (8, 12, 1), (17, 21, 2)])
def test_a_batch_may_straddle_an_epoch_and_loses_no_prompt(cursor: int, to: int, epoch: int) -> None:
    batch = decide_batch(IN_ORDER, cursor, 4, 8, 0, None)
    assert (batch.first, batch.to, batch.epoch) == (cursor, to, epoch)
    assert batch.reserve == tuple(range(cursor, to))


def test_in_order_takes_only_its_own_target_oldest_prompt_first() -> None:
    ready = (slot(4, target=1), slot(5, target=1), slot(8, target=2))
    assert select(IN_ORDER, 1, ready, (), 2, 2) == names(4, 5)
    assert select(IN_ORDER, 2, ready, (), 2, 1) == names(8)
    assert select(IN_ORDER, 0, ready, (), 2, 1) == ()


def test_windowed_takes_the_oldest_weights_first_and_nothing_outside_its_window() -> None:
    ready = (slot(1, start=5), slot(2, start=4), slot(3, start=3), slot(4, start=4), slot(5, start=6))
    assert select(WINDOWED, 5, ready, (), 4, 1) == names(2, 4, 1)
    assert select(WINDOWED, 5, ready, (), 2, 1) == names(2, 4)


def test_weight_fifo_takes_none_that_is_younger_than_one_still_generating() -> None:
    ready = (slot(1, start=5), slot(2, start=5))
    assert select(FIFO, 5, ready, (4,), 2, 1) == ()
    assert select(FIFO, 5, ready, (5,), 2, 1) == names(1, 2)
    assert select(FIFO, 5, ready, (3,), 2, 1) == names(1, 2)  # outside the window: nobody waits for it
    assert select(FIFO, 5, (*ready, slot(3, start=4)), (4,), 3, 1) == names(3)
    assert select(FIFO, 5, (*ready, slot(3, start=4)), (5,), 3, 1) == names(3, 1, 2)
    assert select(FIFO, 5, (slot(1, start=3), slot(2, start=6)), (), 2, 1) == ()
    assert select(FIFO, 5, (), (), 2, 1) == ()


@pytest.mark.parametrize(("need", "at_least", "taken"), [(4, 3, ()), (4, 2, (0, 1)), (1, 3, (0,)), (2, 2, (0, 1))])
def test_a_step_takes_nothing_before_enough_are_there(need: int, at_least: int, taken: tuple[int, ...]) -> None:
    ready = (slot(0, target=0), slot(1, target=0))
    assert select(IN_ORDER, 0, ready, (), need, at_least) == names(*taken)


def test_what_is_taken_or_evicted_at_once_is_the_oldest_of_it() -> None:
    ready = (slot(1, start=5), slot(2, start=4), slot(3, start=2), slot(4, start=4), slot(5, start=1))
    assert select(WINDOWED, 5, ready, (), 3, 3, at_once=2) == names(2, 4)
    assert select(WINDOWED, 5, ready, (), 4, 4, at_once=2) == ()
    assert evict(WINDOWED, 5, ready, at_once=1) == names(5)
    assert evict(WINDOWED, 5, ready) == names(3, 5)


def test_what_is_too_old_is_evicted_and_nothing_else() -> None:
    stamped = (slot(0, target=0), slot(4, target=1), slot(8, target=2))
    assert evict(IN_ORDER, 1, stamped) == names(0)
    weighed = (slot(0, start=3), slot(1, start=4), slot(2, start=5))
    for sampler in (WINDOWED, FIFO):
        assert evict(sampler, 5, weighed) == names(0)


@pytest.mark.parametrize(
    ("sampler", "target", "start", "expected"),
    [
        (IN_ORDER, 4, 0, True),
        (IN_ORDER, 5, 0, False),
        (IN_ORDER, 6, 0, False),
        (WINDOWED, NO_TARGET, 3, True),
        (WINDOWED, NO_TARGET, 4, False),
        (FIFO, NO_TARGET, 3, True),
        (FIFO, NO_TARGET, 4, False),
    ],
)
def test_a_restored_group_that_can_never_be_trained_is_given_up(
    sampler: Sampler, target: int, start: int, expected: bool
) -> None:
    assert decide_stale(sampler, 5, group(target_step=target, start_weight_version=start)) is expected


@pytest.mark.parametrize(
    ("sampler", "index", "targets"),
    [
        (IN_ORDER, 3, (2, 2, 3, 3)),
        (IN_ORDER, 3, (2, 3, 3)),  # a short target is topped up
        (IN_ORDER, 3, (3, 3)),
        (IN_ORDER, 1, ()),
        (WINDOWED, 1, (NO_TARGET,) * 9),
    ],
)
def test_restored_groups_that_fit_are_accepted(sampler: Sampler, index: int, targets: tuple[int, ...]) -> None:
    check_targets(sampler, 2, index, targets, 2)
    with pytest.raises(RestoreRefused):  # the same check refuses the same groups once one of them is out of place
        check_targets(sampler, 2, index, (*targets, 9), 2)


@pytest.mark.parametrize(
    ("sampler", "index", "targets", "message"),
    [
        (IN_ORDER, 3, (1, 2, 2), "target step 1: in_order at version 2 holds 2..3"),
        (IN_ORDER, 4, (4,), "target step 4: in_order at version 2 holds 2..3"),
        (IN_ORDER, 3, (NO_TARGET,), "target step -1"),
        (IN_ORDER, 3, (2, 2, 2), "target step 2 holds 3 restored groups: a step takes 2"),
        (IN_ORDER, 4, (2, 2, 3), "the dispatch index is 4: in_order at version 2 goes to 3 at most"),
        (WINDOWED, 3, (NO_TARGET, 2), "does not stamp"),
        (FIFO, 3, (2,), "does not stamp"),
    ],
)
def test_restored_groups_that_do_not_fit_are_refused(
    sampler: Sampler, index: int, targets: tuple[int, ...], message: str
) -> None:
    with pytest.raises(RestoreRefused, match=message):
        check_targets(sampler, 2, index, targets, 2)


@pytest.mark.parametrize(
    ("sampler", "version", "persisted", "targets", "expected"),
    [
        (IN_ORDER, 2, 3, (2, 3), 3),
        (IN_ORDER, 2, 3, (), 3),  # the last dispatched batch was passed over: it is not dispatched again
        (IN_ORDER, 2, 2, (2, 3), 3),
        (IN_ORDER, 2, 1, (), 1),
        (IN_ORDER, 5, 3, (), 4),
        (WINDOWED, 2, 9, (), 1),
        (FIFO, 0, 4, (), -1),
    ],
)
def test_the_dispatch_index_goes_on_from_what_was_dispatched(
    sampler: Sampler, version: int, persisted: int, targets: tuple[int, ...], expected: int
) -> None:
    assert restored_dispatch_index(sampler, version, persisted, targets) == expected
