"""I34: what a deadline measures, whose hold lasts how long, and where a checkpoint must hold."""

from __future__ import annotations

import pytest
from ledger_files import judged, terms

from invariants.gym.deadlines_stand_still import DeadlinesStandStill
from protocol.history import (
    AttemptDispatched,
    AttemptSealed,
    BudgetSpent,
    ControlDone,
    ControlIssued,
    DeadlineHeld,
    DeadlineReleased,
    DeadlineSet,
    ExclusiveEntered,
    GroupDropped,
    GroupMoved,
    RolloutTimedOut,
)

G = "e0p0i1"
KEY = f"{G}_g0r0-a0"
SET = DeadlineSet(G, 2.0)
PREPARE = ControlIssued("prepare", "gym-0", "1.1", 1.0, 1.0)
RESUMED = ControlDone("resume", "gym-0", "1.1", "ok", "", "")


def at(time_s, event):
    return ("controller", event, time_s)


def held(holder, since_s, until_s, *left):
    return [at(since_s, DeadlineHeld(holder)), at(until_s, DeadlineReleased(holder, left))]


def found(*steps):
    return judged(DeadlinesStandStill, *steps)


# --- what the deadline measures


def test_a_rollout_that_times_out_after_its_own_time_is_held():
    hold = held("checkpoint", 2, 9)
    assert found(at(1, SET), *hold, at(10, RolloutTimedOut(G, 9.0, 7.0))) == []
    assert found(at(1, SET), at(3, RolloutTimedOut(G, 2.0, 0.0))) == []


def test_two_holds_that_overlap_are_one_stretch_of_time():
    holds = [at(2, DeadlineHeld("checkpoint")), at(4, DeadlineHeld("weight-sync"))]
    ends = [at(5, DeadlineReleased("checkpoint", ("weight-sync",))), at(8, DeadlineReleased("weight-sync", ()))]
    assert found(at(1, SET), *holds, *ends, at(9, RolloutTimedOut(G, 8.0, 6.0))) == []


def test_a_hold_that_began_before_the_rollout_counts_from_its_start():
    assert found(at(1, DeadlineHeld("checkpoint")), at(2, SET), at(4, DeadlineReleased("checkpoint", ())),
                 at(6, RolloutTimedOut(G, 4.0, 2.0))) == []  # fmt: skip


def test_a_deadline_that_ticks_while_it_is_held_breaks_I34():
    text = f"{G} timed out after 1.000000 s of its own and 1.000000 s held; its limit is 2 s."
    assert found(at(1, SET), at(2, DeadlineHeld("checkpoint")), at(3, RolloutTimedOut(G, 2.0, 0.0))) == [text]


def test_a_deadline_that_fires_long_after_its_limit_breaks_I34():
    assert len(found(at(1, SET), at(4, RolloutTimedOut(G, 3.0, 0.0)))) == 1


def test_a_deadline_that_says_another_measure_breaks_I34():
    said = "the deadline measured 9.000000 s elapsed, 1.000000 s held."
    text = f"{G} timed out after 2.000000 s of its own and 7.000000 s held; {said}"
    assert found(at(1, SET), *held("checkpoint", 2, 9), at(10, RolloutTimedOut(G, 9.0, 1.0))) == [text]


def test_a_time_out_without_a_deadline_breaks_I34():
    assert found(at(1, RolloutTimedOut(G, 1.0, 0.0))) == [f"{G} timed out and had no deadline."]


@pytest.mark.parametrize(
    "event, what",
    [(AttemptDispatched(f"{G}_g0", KEY, "gym-0", 1), "dispatched"), (AttemptSealed(f"{G}_g0", KEY, KEY, "r", 1), "sealed")],
)
def test_a_rollout_that_goes_on_past_its_deadline_breaks_I34(event, what):
    text = f"{KEY} was {what} 3.000000 s into a rollout that had to time out after 2 s."
    assert found(at(1, SET), at(4, event)) == [text]
    assert found(at(1, SET), *held("checkpoint", 1.5, 3.5), at(4, event)) == []


@pytest.mark.parametrize(
    "over", [BudgetSpent(G, "", "infra", 1, 5), GroupDropped(G, 0, "discarded"), GroupMoved(G, "GENERATING", "READY_TO_FINALIZE")]
)
def test_a_rollout_that_is_over_has_no_deadline_any_more(over):
    assert found(at(1, SET), at(2, over), at(9, AttemptSealed(f"{G}_g0", KEY, KEY, "r", 1))) == []


def test_a_row_attempt_does_not_start_the_deadline_anew():
    late = at(9, AttemptSealed(f"{G}_g0", KEY, KEY, "r", 1))
    assert len(found(at(1, SET), at(2, BudgetSpent(G, KEY, "row", 2, 3)), late)) == 1


# --- holders


def test_one_holder_that_lets_go_for_another_breaks_I34():
    holds = [at(1, DeadlineHeld("checkpoint")), at(2, DeadlineHeld("weight-sync"))]
    assert found(*holds, at(3, DeadlineReleased("weight-sync", ("checkpoint",)))) == []
    assert found(*holds, at(3, DeadlineReleased("weight-sync", ()))) == ["weight-sync let go and checkpoint held no longer."]


# --- the checkpoint's hold


def test_a_checkpoint_that_holds_from_the_gate_to_the_resume_is_held():
    phase = [DeadlineHeld("checkpoint"), ExclusiveEntered("dispatch"), PREPARE, RESUMED, DeadlineReleased("checkpoint", ())]
    assert found(*phase) == []
    assert found(ExclusiveEntered("data-plane")) == []


def test_dispatch_closed_without_a_hold_breaks_I34():
    assert found(ExclusiveEntered("dispatch")) == ["Dispatch was closed; checkpoint did not hold."]
    assert found(PREPARE) == ["gym-0 was asked to park; checkpoint did not hold."]


def test_a_checkpoint_that_lets_go_while_gym_is_parked_breaks_I34():
    early = [DeadlineHeld("checkpoint"), PREPARE, DeadlineReleased("checkpoint", ()), RESUMED]
    assert found(*early) == ["checkpoint let go while gym-0 was not asked to resume."]


def test_it_applies_where_something_is_held_or_has_a_deadline():
    assert DeadlinesStandStill.applies(terms())
    assert not DeadlinesStandStill.applies(terms(target_level="sibling"))
    assert DeadlinesStandStill.applies(terms(target_level="sibling", rollout_failure={"nemo_gym": {"rollout_timeout_s": 1.0}}))
