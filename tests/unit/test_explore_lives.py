"""One life and plans of lives, on a toy job."""

from __future__ import annotations

from dataclasses import replace

import explore_toys as toys
import msgspec
import pytest

from invariants.liveness.every_run_progresses_or_ends_typed import EveryRunProgressesOrEndsTyped
from protocol.history import ProcessStarted, Restored, StepCommitted
from protocol.judging import Verdict
from scenarios.faults import Fault
from sim.explore.lives import Budget, Life, OpenLife, Setting, end_of_clean_up, history_hash, run_life, run_plan
from sim.explore.points import Address, PlanItem


def setting(main: object = toys.count, **changes: object) -> Setting:
    return Setting(
        scenario=toys.scenario(),
        seed=1,
        judges=toys.JUDGES,
        processes={"controller": main},  # type: ignore[dict-item]
        clean_up=toys.clean_up,
        **changes,  # type: ignore[arg-type]
    )


def committed(life: Life) -> list[int]:
    return [record.event.step for record in life.history if isinstance(record.event, StepCommitted)]


def test_a_life_without_a_crash_runs_to_its_end_and_is_judged() -> None:
    life = run_life(setting(), 1, {}, {}, None)
    assert life.status.outcome == "ended"
    assert life.fired is None and life.address is None
    assert committed(life) == [1, 2, 3, 4]
    assert life.panel.verdicts() == {"T1": Verdict.HELD, "T2": Verdict.HELD}


def test_a_restored_life_goes_on_where_the_disk_says() -> None:
    first, second = run_plan(setting(), (PlanItem("controller", "StepCommitted", 3),))
    assert first.status.outcome == "crashed" and first.fired
    assert committed(first) == [1, 2, 3]
    assert committed(second) == [3, 4]
    assert second.panel.verdicts()["T1"] is Verdict.HELD


def test_an_address_of_an_earlier_event_of_the_same_step_is_the_same_point() -> None:
    canonical, _ = run_plan(setting(), (PlanItem("controller", "WeightsSynced", 2),))
    earlier, _ = run_plan(setting(), (PlanItem("controller", "StepCommitted", 2),))
    assert earlier.fired
    assert canonical.steps == earlier.steps
    assert earlier.address == canonical.address
    assert earlier.address == Address("controller", "FileIssued", 7, 0), "the last event that the step recorded"


def test_steps_are_counted_on_from_the_step_that_recorded_the_event() -> None:
    at_once, _ = run_plan(setting(), (PlanItem("job", "LifeStarted", 1),))
    later, _ = run_plan(setting(), (PlanItem("job", "LifeStarted", 1, 7),))
    assert (at_once.steps, later.steps) == (1, 8)


def test_an_address_that_does_not_fire_is_said_so_and_no_life_follows() -> None:
    lives = run_plan(setting(), (PlanItem("controller", "StepCommitted", 9),))
    assert [life.fired for life in lives] == [False]
    assert lives[0].status.outcome == "ended"


def test_a_second_crash_and_a_third_life() -> None:
    lives = run_plan(
        setting(),
        (PlanItem("controller", "StepCommitted", 2), PlanItem("controller", "FileRead", 1, 0, "all")),
    )
    assert [life.status.outcome for life in lives] == ["crashed", "crashed", "ended"]
    assert committed(lives[2]) == [2, 3, 4]
    assert [life.number for life in lives] == [1, 2, 3]


def test_a_crash_in_the_clean_up_is_a_crash_like_another() -> None:
    lives = run_plan(
        setting(),
        (PlanItem("controller", "FileDone", 2, 0, "all"), PlanItem("controller", "FileDone", 1, 0, "none")),
    )
    assert [life.status.outcome for life in lives] == ["crashed", "crashed", "ended"]
    assert not any(isinstance(record.event, ProcessStarted) for record in lives[1].history)
    assert "tmp_1/count.json" in lives[1].files, "the removal was not yet durable"


def test_what_the_disk_keeps_is_what_the_outcome_says() -> None:
    rename = PlanItem("controller", "FileDone", 5)  # the name step_1 is there and not yet durable
    lost, after_lost = run_plan(setting(), (rename._replace(outcome="none"),))
    kept, after_kept = run_plan(setting(), (rename._replace(outcome="all"),))
    assert lost.history == kept.history
    assert "step_1/count.json" in kept.files and "step_1/count.json" not in lost.files
    assert not any(isinstance(record.event, Restored) for record in after_lost.history)
    assert any(isinstance(record.event, Restored) for record in after_kept.history)


def test_scratch_of_every_earlier_life_still_lies_there() -> None:
    lives = run_plan(setting(), (PlanItem("controller", "StepCommitted", 1), PlanItem("controller", "StepCommitted", 1)))
    assert sorted(lives[2].scratch) == [f"life-{number}/scratch/controller/note" for number in (1, 2, 3)]
    assert not any(path.startswith("life-") for path in lives[1].files)


def test_a_life_that_runs_out_of_steps_is_a_liveness_violation() -> None:
    first, second = run_plan(setting(toys.forgetful_count), (PlanItem("controller", "StepCommitted", 1),))
    assert second.status.outcome == "idle"
    assert "signal" in second.status.waiting
    short = run_life(setting(budget=Budget(steps=10)), 1, {}, {}, None)
    assert short.status.outcome == "steps"
    assert short.panel.verdicts()["T1"] is Verdict.BROKEN


def test_the_history_hash_is_made_from_the_records_alone() -> None:
    open_life = OpenLife(setting(), 1, {}, {})
    assert open_life.clean() is None
    life = open_life.close(open_life.rest(), None)
    assert end_of_clean_up(life.history) == open_life.cut
    assert life.digest == history_hash(life.history)
    assert history_hash(life.history[:-1]) != life.digest


def test_the_first_life_of_two_runs_is_the_same_in_every_byte() -> None:
    assert run_life(setting(), 1, {}, {}, None).digest == run_life(setting(), 1, {}, {}, None).digest


def test_a_plan_and_a_sweep_give_a_restored_life_the_same_budget() -> None:
    """Else a life that never ends would run on longer when it is replayed, and its history hash would be another."""
    reference = run_life(setting(), 1, {}, {}, None)
    after = setting().after(reference)
    assert after.budget_of(1) == setting().budget, "life 1 is the same life whatever is known about it"
    assert after.budget_of(2) == Budget.after(reference)
    plan = (PlanItem("controller", "StepCommitted", 1),)
    alone, known = run_plan(setting(toys.restless_count), plan), run_plan(setting(toys.restless_count).after(reference), plan, {})
    assert [life.status.outcome for life in alone] == ["crashed", "steps"]
    assert alone[1].digest == known[1].digest
    assert alone[1].steps < Budget().steps


def test_a_life_that_never_advances_virtual_time_ends_by_its_step_budget() -> None:
    stuck = replace(setting(toys.spin), judges=(EveryRunProgressesOrEndsTyped,), budget=Budget.of(toys.scenario().job))
    life = run_life(stuck, 1, {}, {}, None)
    assert (life.status.outcome, life.now) == ("steps", 0.0)
    (violation,) = life.panel.violations
    assert violation.invariant == "I67"
    assert violation.found.startswith("the step budget ran out; error: none; waiting: controller/main at spin waits for ")


def test_an_interrupt_while_processes_start_leaves_no_coroutine_behind() -> None:
    life = OpenLife(setting(), 1, {}, {})
    assert life.clean() is None

    def interrupted() -> None:
        life.world.kernel.spawn(toys.count(None), "main", "controller")  # type: ignore[arg-type]
        raise KeyboardInterrupt

    life.world.start = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        life.rest()
    assert life.world.kernel.fenced and not life.world.kernel.tasks


def test_a_restored_life_with_faults_of_its_own_may_take_as_many_steps_as_any() -> None:
    plain = setting()
    reference = run_life(plain, 1, {}, {}, None)
    whole = Budget.of(plain.scenario.job).steps

    def steps(life: int) -> int:
        fault = Fault(process="controller", event="StepCommitted", life=life, verb="discard", arguments={"ordinal": -1})
        scenario = msgspec.structs.replace(plain.scenario, faults=(fault,))
        return replace(plain, scenario=scenario).after(reference).budget_of(2).steps

    assert Budget.after(reference).steps < whole
    assert (steps(1), steps(2), steps(0)) == (Budget.after(reference).steps, whole, whole)
