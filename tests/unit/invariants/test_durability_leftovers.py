"""I49: staged rows that nothing needs any more are in no save."""

from __future__ import annotations

from run_files import bootstrap, by_controller, checkpoint, cut, group, judge, snapshot

from invariants.durability.no_staged_row_is_left_behind import NoStagedRowIsLeftBehind
from protocol.history import (
    AttemptDispatched,
    FinalizeDone,
    GroupDropped,
    GroupsClaimed,
    OptimizerIssued,
    RowStagedDone,
    RowStagedIssued,
    StagingCleared,
    StepCommitted,
)

ROW = "e0p0i1_g0r0-a0/c0"
NAME = "e0p0i1"

SENT = ("controller", AttemptDispatched(f"{NAME}_g0", f"{NAME}_g0r0-a0", "gym-0", 1))


def staged(key=ROW):
    return [SENT, ("worker-0", RowStagedIssued(key)), ("worker-0", RowStagedDone(key, 3, "d"))]


def step(number):
    return by_controller(OptimizerIssued(number), StepCommitted(number, number, (), 1, "w"))


def found(*steps, rows=(ROW,), saved=None):
    finish = {**bootstrap(), **(saved if saved is not None else snapshot(1, groups=[group(1)], staging=[*rows]))}
    return judge(NoStagedRowIsLeftBehind, *steps, finish=finish)


PUBLISHED = FinalizeDone(NAME, (f"{NAME}_g0",), ("r",), 1)


def test_a_row_of_a_published_group_in_a_later_save_breaks_I49():
    assert "1 staged rows that nothing needs" in found(*staged(), *by_controller(PUBLISHED, cut()))[0].found


def test_a_row_that_was_staged_after_its_group_was_published_may_still_be_there():
    assert found(*by_controller(PUBLISHED), *staged(), *by_controller(cut())) == []


def test_a_row_of_an_execution_that_nobody_sent_stays_until_a_restore():
    stray = f"{NAME}_g0r999-a0/c0"
    assert found(*staged(stray), *by_controller(PUBLISHED, cut()), rows=(stray,)) == []
    assert len(found(*staged(), *staged(stray), *by_controller(PUBLISHED, cut()), rows=(ROW, stray))) == 1


def test_a_row_of_an_open_group_belongs_into_the_save():
    assert found(*staged(), *by_controller(cut())) == []


def test_a_put_without_an_answer_may_land_after_the_clean_up():
    assert found(("worker-0", RowStagedIssued(ROW)), *by_controller(PUBLISHED, cut())) == []


def test_a_row_of_a_dropped_group_goes_when_its_rows_are_cleared():
    dropped = by_controller(GroupDropped(NAME, 0, "discarded"))
    assert found(*staged(), *dropped, *by_controller(cut())) == []
    assert len(found(*staged(), *dropped, *by_controller(StagingCleared(NAME, 1), cut()))) == 1


def test_a_row_of_a_dropped_group_goes_with_the_second_step_at_the_latest():
    dropped = by_controller(GroupDropped(NAME, 0, "discarded"))
    assert found(*staged(), *dropped, *step(1), *by_controller(cut())) == []
    assert len(found(*staged(), *dropped, *step(1), *step(2), *by_controller(cut()))) == 1


def test_a_late_row_of_a_trained_group_goes_with_the_step_after_it():
    trained = [*by_controller(GroupsClaimed(1, (NAME,), 1)), *step(1)]
    assert found(*trained, *staged(), *by_controller(cut())) == []
    assert len(found(*trained, *staged(), *step(2), *by_controller(cut()))) == 1


def test_a_trainer_checkpoint_is_looked_at_too():
    saved = checkpoint(2, groups=[group(3)], staging=[ROW])
    assert len(found(*staged(), *by_controller(PUBLISHED, cut(role="trainer", sequence=2, step=2)), saved=saved)) == 1


def test_a_save_of_an_earlier_life_is_not_judged_again():
    assert found(*staged(), *by_controller(PUBLISHED)) == []
