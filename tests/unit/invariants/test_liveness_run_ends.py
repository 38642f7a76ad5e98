"""I67: every run progresses or ends with a typed error that its contract allows."""

from __future__ import annotations

import pytest
from run_files import ENDED, by_controller, judge, terms

from invariants.liveness.every_run_progresses_or_ends_typed import EveryRunProgressesOrEndsTyped
from protocol.history import (
    AnchorMade,
    GroupMoved,
    ProcessContinued,
    ProcessStalled,
    Record,
    Restored,
    RunEnded,
    SnapshotPublished,
    StallReported,
    StepCommitted,
    key_set,
)
from protocol.judging import Contract, Durable, Panel, RunStatus


def judged(*events, status, contract=None):
    return judge(EveryRunProgressesOrEndsTyped, *by_controller(*events), given=terms(contract), status=status)


def test_a_run_that_trained_all_its_steps_is_held():
    assert judged(RunEnded(3), status=ENDED) == []


def test_a_crash_discharges_the_run():
    assert judged(status=RunStatus("crashed")) == []


def test_a_run_that_ends_a_step_early_breaks_I67():
    assert "after 2 of 3 steps" in judged(RunEnded(2), status=ENDED)[0].found


def test_a_controller_that_returns_in_silence_breaks_I67():
    assert "recorded no RunEnded" in judged(status=ENDED)[0].found


@pytest.mark.parametrize("outcome", ["idle", "steps", "time"])
def test_a_stuck_run_breaks_I67_and_says_who_waits(outcome):
    found = judged(status=RunStatus(outcome, "", "group-1 waits for gym-0"))[0].found
    assert "group-1 waits for gym-0" in found


def test_a_typed_failure_is_right_only_where_the_contract_says_so():
    failed = RunStatus("failed", "RestoreRefused: gym-1 lacks agent")
    assert judged(status=failed, contract=Contract(may_end=("RestoreRefused",))) == []
    assert "RestoreRefused: gym-1 lacks agent" in judged(status=failed)[0].found
    assert judged(status=RunStatus("failed", "KeyError: 'x'"), contract=Contract(may_end=("RestoreRefused",))) != []


NOTHING = key_set(())
RESTORED = Restored("", 0, 0, 0, 0, 0, -1, 0, 0, 0, NOTHING, NOTHING, NOTHING, NOTHING, "")
PUBLISHED = GroupMoved("g", "FINALIZING", "FINALIZED")
STALLED = StallReported(600.5, "warn")
MAY_STALL = Contract(may_stall=True)


def timed(*steps, contract=None, status=ENDED):
    panel = Panel([EveryRunProgressesOrEndsTyped], terms(contract))
    for number, (time_s, event) in enumerate(steps):
        panel.feed(Record(number, time_s, "controller", 1, "main", event))
    panel.end(Durable({}), None, status, None)
    assert panel.crashed == {}
    return [violation.found for violation in panel.violations]


def test_progress_within_every_stall_timeout_is_held():
    assert timed((0, RESTORED), (600, PUBLISHED), (1200, StepCommitted(1, 1, (0,), 1, "w")), (1500, RunEnded(3))) == []


def test_a_run_that_stands_still_breaks_I67_unless_its_contract_allows_it():
    stood = [(0, RESTORED), (600.5, STALLED), (700, PUBLISHED), (701, RunEnded(3))]
    assert timed(*stood) == ["no group was published and no step committed for 700.000 s"]
    assert timed(*stood, contract=MAY_STALL) == []


def test_after_the_last_step_nothing_must_move():
    assert timed((0, RESTORED), (1, StepCommitted(3, 3, (0,), 1, "w")), (900, PUBLISHED), (901, RunEnded(3))) == []


def test_being_stuck_is_right_only_if_the_contract_allows_it_and_the_watchdog_said_it():
    stuck = RunStatus("time", at_s=3600.0)
    assert timed((0, RESTORED), (601, STALLED), contract=MAY_STALL, status=stuck) == []
    assert "no watchdog has said" in timed((0, RESTORED), contract=MAY_STALL, status=stuck)[0]
    assert len(timed((0, RESTORED), (601, STALLED), status=stuck)) == 1
    moved = [(0, RESTORED), (601, STALLED), (602, PUBLISHED)]  # what was said is about an earlier stall
    assert len(timed(*moved, contract=MAY_STALL, status=stuck)) == 1


def test_what_a_run_may_stand_still_is_measured_in_its_controllers_own_running_time():
    stood = [(0, RESTORED), (10, ProcessStalled("controller", 650.0)), (660, ProcessContinued("controller"))]
    assert timed(*stood, (1200, PUBLISHED), (1201, RunEnded(3))) == []
    assert timed(*stood, (1300, PUBLISHED), (1301, RunEnded(3))) == ["no group was published and no step committed for 650.000 s"]
    other = [(0, RESTORED), (10, ProcessStalled("gym-0", 650.0)), (660, ProcessContinued("gym-0"))]
    assert len(timed(*other, (670, PUBLISHED), (671, RunEnded(3)))) == 1


def test_a_controller_that_is_held_for_ever_is_not_to_blame():
    held = ProcessStalled("controller", 0.0)
    assert timed((0, RESTORED), (5, held), status=RunStatus("idle")) == []
    assert len(timed((0, RESTORED), (5, held), (6, ProcessContinued("controller")), status=RunStatus("idle"))) == 1
    assert len(timed((0, RESTORED), (5, ProcessStalled("gym-0", 0.0)), status=RunStatus("idle"))) == 1


def test_a_run_that_comes_back_behind_its_last_step_has_nothing_to_do():
    beyond = Restored("step_5", 0, 5, 5, 0, 10, 4, 0, 0, 0, NOTHING, NOTHING, NOTHING, NOTHING, "")
    assert judged(beyond, RunEnded(5), status=ENDED) == []
    assert "after 6 of 3 steps" in judged(beyond, RunEnded(6), status=ENDED)[0].found


STOPPING = terms(checkpointing={"must_save_by_s": 0.02}, rollout_checkpointing={"interval_s": 1.0})


@pytest.mark.parametrize(
    ("before", "steps", "right"),
    [
        ((AnchorMade("bootstrap"), SnapshotPublished("bootstrap", 1, 0, 0, 0, 0)), 0, True),
        ((SnapshotPublished("bootstrap", 1, 0, 0, 0, 0), AnchorMade("bootstrap")), 0, False),  # saved before it was due
        ((AnchorMade("bootstrap"), AnchorMade("bootstrap")), 0, False),
        ((AnchorMade("bootstrap"), SnapshotPublished("bootstrap", 1, 0, 0, 0, 0)), 1, False),
    ],
)
def test_a_run_may_stop_before_step_1_only_once_all_it_has_is_saved_after_its_deadline(before, steps, right):
    events = by_controller(*before, RunEnded(steps))
    found = judge(EveryRunProgressesOrEndsTyped, *events, given=STOPPING, status=ENDED)
    assert (found == []) is right
