"""Which part of each life still counts at a run's end."""

from __future__ import annotations

from parity.sources.history import tables
from parity.sources.lineage import LifeTold, counted_steps, lineage
from protocol.history import CutTaken, Event, KeySet, LifeStarted, PromptPassedOver, Record, Restored, StepCommitted

NONE = KeySet(0, "")


def life(number: int, *events: Event) -> LifeTold:
    records = [Record(0, 0.0, "job", number, "", LifeStarted(number))]
    records += [Record(index, index / 10, "controller", number, "", event) for index, event in enumerate(events, start=1)]
    return LifeTold(number=number, records=records)


def cut(role: str, sequence: int, step: int) -> CutTaken:
    return CutTaken(role, sequence, step, step, False, 0, NONE, NONE, NONE, NONE, NONE, 0, "", 0, 0, 0)


def restored(anchor: str, sequence: int, step: int) -> Restored:
    return Restored(anchor, sequence, step, step, 0, 0, 0, 0, 0, 0, NONE, NONE, NONE, NONE, "")


def committed(step: int) -> StepCommitted:
    return StepCommitted(step, step, (), 0, "")


def passed(*ordinals: int) -> list[Event]:
    return [PromptPassedOver(ordinal, "skipped") for ordinal in ordinals]


def test_a_life_counts_up_to_the_cut_that_the_next_one_went_on_from() -> None:
    lives = [
        life(1, *passed(1), cut("snapshot", 1, 0), *passed(2), cut("snapshot", 2, 0), *passed(3)),
        life(2, restored("bootstrap", 1, 0), *passed(2, 4)),
    ]
    assert [kept.count for kept in lineage(lives)] == [3, 4]
    assert sorted(tables(lives).passed.itertuples(index=False, name=None)) == [
        (1, 1, "skipped"), (2, 2, "skipped"), (2, 4, "skipped"),
    ]  # fmt: skip


def test_a_life_that_left_nothing_to_restore_is_skipped() -> None:
    lives = [
        life(1, committed(1), cut("trainer", 1, 1), *passed(1)),
        life(2, restored("step_1", 0, 1), *passed(2)),
        life(3, restored("step_1", 0, 1), *passed(3)),
    ]
    assert [kept.count for kept in lineage(lives)] == [3, 0, 3]


def test_a_fresh_start_keeps_nothing() -> None:
    lives = [life(1, *passed(1), cut("snapshot", 1, 0), committed(1)), life(2, restored("", 0, 0), committed(1))]
    assert [kept.count for kept in lineage(lives)] == [0, 3] and counted_steps(lives) == {1: 2}


def test_steps_after_the_restored_one_are_discarded_even_if_nobody_trains_them_again() -> None:
    lives = [
        life(1, committed(1), cut("trainer", 1, 1), committed(2), committed(3)),
        life(2, restored("step_1", 0, 1), committed(2)),
    ]
    assert counted_steps(lives) == {1: 1, 2: 2}


def test_a_snapshot_of_the_same_number_under_another_anchor_is_another_one() -> None:
    lives = [
        life(1, cut("snapshot", 1, 0), *passed(1), cut("snapshot", 1, 1), *passed(2)),
        life(2, restored("bootstrap", 1, 0)),
    ]
    assert [kept.count for kept in lineage(lives)] == [2, 2]
