"""Sweeps of a toy job: every point judged, sharing that agrees with the slow way, and verdicts that mean something."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import explore_toys as toys
import pytest

from protocol.judging import Contract, Verdict
from protocol.runtime import Runtime
from scenarios.model import Expect
from sim.explore.explorer import Effort, Explorer
from sim.explore.lives import Setting, run_plan
from sim.explore.points import Address, PlanItem
from sim.explore.result import SweepResult, failing
from sim.explore.sweep import sweep


def swept(main: Any = toys.count, judges: Any = toys.JUDGES, **options: Any) -> SweepResult:
    scenario = toys.scenario(expect=options.pop("expect", Expect()), contract=options.pop("contract", Contract()))
    return sweep(scenario, options.pop("seed", 1), judges, processes={"controller": main}, clean_up=toys.clean_up, **options)


def row(result: SweepResult, invariant: str) -> dict[str, Any]:
    (found,) = [entry for entry in result.judges if entry["invariant"] == invariant]
    return found


def test_every_boundary_of_life_1_is_a_point_and_every_point_is_judged() -> None:
    result = swept()
    assert result.verdict is Verdict.HELD
    assert result.crash_points == result.steps == result.judged == result.fired
    assert result.verdicts == {"held": result.judged, "broken": 0, "unknown": 0}
    assert result.not_covered == 0
    assert result.messages == []


def test_counts_of_classes_and_runs_fit_the_rows() -> None:
    result = swept()
    own = [entry for entry in result.rows if entry.shared < 0]
    assert result.classes == len(result.rows)
    assert result.runs == 1 + len(own) < 1 + result.classes, "lives that are equal after their clean-up share the rest"
    assert sum(entry.points for entry in result.rows) == result.outcomes > result.judged
    assert {entry.proof for entry in result.rows} == {"restored", "fresh-start"}


def test_the_history_hash_of_a_class_is_that_of_its_plan_run_alone() -> None:
    result = swept(verify=False)
    setting = Setting(
        scenario=toys.scenario(), seed=1, judges=toys.JUDGES, processes={"controller": toys.count}, clean_up=toys.clean_up
    )
    shared = [entry for entry in result.rows if entry.shared >= 0]
    assert shared
    for entry in shared:
        lives = run_plan(setting, (PlanItem.at(entry.address, entry.outcome),))
        assert lives[1].digest == entry.history_hash
        assert (lives[1].events, lives[1].steps) == (entry.events, entry.steps)


def test_the_same_sweep_twice_is_the_same_sweep() -> None:
    first, second = swept(verify=False), swept(verify=False)
    assert first.history_hash == second.history_hash
    assert first.rows == second.rows
    assert swept(seed=2, verify=False).history_hash != first.history_hash


def test_a_save_that_is_not_synced_is_broken_and_names_its_smallest_point() -> None:
    result = swept(toys.careless_count)
    assert result.verdict is Verdict.BROKEN
    (failure,) = failing(result)
    assert failure.invariant == "T1"
    assert "RestoreRefused" in failure.message
    (item,) = failure.plan
    assert item.outcome == "none"
    assert row(result, "T1")["broken"] == failure.points == result.verdicts["broken"] > 0
    again = run_plan(
        Setting(
            scenario=toys.scenario(),
            seed=1,
            judges=toys.JUDGES,
            processes={"controller": toys.careless_count},
            clean_up=toys.clean_up,
        ),
        failure.plan,
    )
    assert again[1].panel.verdicts()["T1"] is Verdict.BROKEN


def test_a_save_whose_inner_names_are_not_synced_leaves_an_empty_folder_and_is_broken() -> None:
    """The final name is durable, what is in it is not: as on a real disk, the folder is there and empty."""
    result = swept(toys.hasty_count, verify=False)
    assert result.verdict is Verdict.BROKEN
    (failure,) = failing(result)
    assert failure.invariant == "T1" and "step_1/count.json" in failure.message
    assert failure.plan[0].outcome == "none"


def test_a_refusal_counts_as_fired_only_if_the_contract_allows_it() -> None:
    result = swept(toys.careless_count, verify=False)
    assert {entry.proof for entry in result.rows if entry.status == "failed"} == {""}
    assert result.fired < result.judged
    allowed = swept(toys.careless_count, contract=Contract(may_end=("RestoreRefused",)), verify=False)
    assert {entry.proof for entry in allowed.rows if entry.status == "failed"} == {"refused"}
    assert allowed.fired == allowed.judged


def test_a_violation_of_life_1_counts_for_every_later_point_and_needs_no_crash() -> None:
    result = swept(judges=(*toys.JUDGES, toys.NoThirdStepInLife1))
    (failure,) = failing(result)
    assert failure.plan == ()
    assert 0 < result.verdicts["broken"] < result.judged
    assert result.verdicts["broken"] == failure.points == row(result, "T6")["broken"]
    assert row(result, "T6")["held"] > 0, "before step 3 it holds"
    assert result.verified.agreed == result.verified.reruns


def test_a_restored_life_that_hangs_is_broken_with_what_it_waits_for() -> None:
    result = swept(toys.forgetful_count)
    (failure,) = failing(result)
    assert "idle" in failure.message and "signal" in failure.message
    assert result.verdicts["broken"] == result.judged


def test_a_read_of_another_lifes_scratch_is_a_failure_of_sharing_that_the_reruns_see() -> None:
    result = swept(toys.count_reading_scratch)
    assert result.verdict is Verdict.UNKNOWN
    assert result.verified.agreed < result.verified.reruns
    assert any("another history hash" in message for message in result.messages)


@pytest.mark.parametrize("main", [toys.count_by_the_clock, toys.count_lives])
def test_a_life_that_is_not_the_same_twice_is_said_so_with_the_event_where_it_parts(main: Any) -> None:
    result = swept(main)
    assert result.verdict is Verdict.UNKNOWN
    assert result.verified.agreed == 0
    assert any("life 1 is not the same twice: they part at event" in message for message in result.messages)


def test_a_life_that_depends_on_the_hash_seed_is_seen_by_the_fresh_process() -> None:
    result = swept(toys.count_in_hash_order)
    assert result.verdict is Verdict.UNKNOWN
    assert result.verified.reruns == result.verified.agreed
    assert result.verified.fresh_process["agreed"] == 0
    assert any("(controller RestoreChosen at" in message for message in result.messages)


def test_a_read_outside_the_class_key_is_told_with_the_event_where_two_points_of_a_class_part() -> None:
    messages = swept(toys.count_reading_scratch).messages
    assert any("after the clean-up it shares with the point" in text and "they part at event" in text for text in messages)


@pytest.mark.parametrize("order", [1, -1])
def test_a_judge_that_only_the_clean_up_of_another_life_reached_was_not_reached(order: int) -> None:
    """Lives that share their second stage do not share what their clean-ups showed, whichever of them is run first."""
    setting = Setting(
        scenario=toys.scenario(),
        seed=1,
        judges=(*toys.JUDGES, toys.SeesTheCleanUpRemove),
        processes={"controller": toys.count},
        clean_up=toys.clean_up,
    )
    explorer = Explorer(setting, ("none", "all"), None)
    explorer.enumerate()
    rows = explorer.classes.rows
    for number in range(len(rows))[::order]:
        explorer.run_class(number)
    assert any(row.shared >= 0 for row in rows)
    for row in rows:
        alone = run_plan(setting, (PlanItem.at(row.address, row.outcome),))[1]
        assert alone.panel.verdicts() == row.verdicts
    assert {row.verdicts["T7"] for row in rows} == {Verdict.HELD, Verdict.NOT_REACHED}


def test_the_history_of_life_1_can_be_let_go() -> None:
    result = swept(verify=False)
    assert result.reference.events == result.events
    result.forget_life_1()
    assert result.life_1 is None and "life_1" not in result.as_json()
    with pytest.raises(AssertionError, match="let go"):
        assert result.reference


def test_reruns_and_the_fresh_process_agree_on_a_sound_job() -> None:
    verified = swept().verified
    assert verified.reruns == verified.agreed > 0
    assert verified.fresh_process == {"classes": 4, "agreed": 4}


def test_a_folder_named_sim_where_the_user_stands_is_not_taken_for_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim" / "__init__.py").write_text("raise ImportError('a stranger')")
    monkeypatch.chdir(tmp_path)
    assert swept().verified.fresh_process == {"classes": 4, "agreed": 4}


def test_no_part_of_the_cost_of_an_event_is_negative_on_a_busy_machine() -> None:
    """Half of the wall time went to others, nearly all of the rest to the core: what is left is the kernel's."""
    effort = Effort(events=1_000, core_ns=1_900_000, judge_ns=90_000, cpu_s=0.001, wall_s=0.002)
    cost = effort.us_per_event()
    assert cost == {"kernel": pytest.approx(0.0, abs=0.01), "core": 0.95, "judges": 0.05, "all": 1.0}
    assert min(cost.values()) >= 0
    assert min(replace(effort, core_ns=2_500_000).us_per_event().values()) >= 0, "clocks that disagree"


@pytest.mark.parametrize(
    ("expect", "verdict", "whole"),
    [
        (Expect(), "UNKNOWN", Verdict.UNKNOWN),
        (Expect(judges=("T1",)), "N/A", Verdict.HELD),
    ],
)
def test_a_judge_that_was_reached_nowhere_is_unknown_only_if_it_is_expected(expect: Expect, verdict: str, whole: Verdict) -> None:
    result = swept(judges=(*toys.JUDGES, toys.NeverReached), expect=expect, verify=False)
    assert row(result, "T3")["verdict"] == verdict
    assert row(result, "T3")["not_reached"] == result.judged
    assert result.verdict is whole


def test_a_judge_that_crashes_is_unknown_with_its_error() -> None:
    result = swept(judges=(*toys.JUDGES, toys.Crashes), verify=False)
    assert result.verdict is Verdict.UNKNOWN
    assert row(result, "T5")["verdict"] == "UNKNOWN"
    assert result.verdicts["unknown"] > 0
    assert any("by design" in message for message in result.messages)


def test_a_carry_joins_the_class_key_and_its_cost_is_printed() -> None:
    plain = swept(verify=False)
    carrying = swept(judges=(*toys.JUDGES, toys.CarriesTheLastStep))
    assert plain.carries == {}
    assert carrying.carries == {"T4": carrying.classes - plain.classes}
    assert carrying.carries["T4"] > 0
    assert carrying.verified.agreed == carrying.verified.reruns > 0


async def count_for_ever(rt: Runtime) -> None:
    """It never comes to an end, restored or not."""
    await toys.count(rt)
    await rt.signal().wait()


def test_a_reference_that_never_ends_is_no_reference() -> None:
    result = swept(count_for_ever, judges=(toys.SavesAreWritten,), verify=False)
    assert result.verdict is Verdict.UNKNOWN
    assert any("the reference, did not reach its end: idle" in message for message in result.messages)


def test_what_cannot_be_sent_to_a_fresh_process_was_not_verified() -> None:
    async def local_count(rt: Runtime) -> None:
        await toys.count(rt)

    result = swept(local_count)
    assert result.verdict is Verdict.UNKNOWN
    assert any("cannot be sent to another process" in message for message in result.messages)


def test_the_parts_of_the_cost_of_an_event_add_up() -> None:
    cost = swept(verify=False).us_per_event
    assert cost["kernel"] + cost["core"] + cost["judges"] == pytest.approx(cost["all"], abs=0.05)
    assert min(cost.values()) > 0


def test_a_draw_of_points_judges_that_many_and_leaves_the_rest_uncovered() -> None:
    result = swept(points=10)
    assert result.judged == result.fired == 10
    assert result.crash_points == result.judged + result.not_covered
    assert result.classes < swept(verify=False).classes


def test_one_outcome_alone_judges_each_point_once() -> None:
    result = swept(outcomes=("none",), verify=False)
    assert result.outcomes == result.judged
    assert {entry.outcome for entry in result.rows} == {"none"}


def test_shards_together_run_every_class_once() -> None:
    whole = swept(verify=False)
    parts = [swept(shard=(index, 3), verify=False) for index in range(3)]
    keys = [entry.key for part in parts for entry in part.rows]
    assert sorted(keys) == sorted(entry.key for entry in whole.rows)


def test_fail_fast_stops_at_the_first_broken_class() -> None:
    result = swept(toys.careless_count, fail_fast=True, verify=False)
    assert result.verdict is Verdict.BROKEN
    assert result.not_covered > 0
    assert [entry.verdict for entry in result.rows].index("BROKEN") == len(result.rows) - 1


def test_two_points_of_one_class_leave_the_same_bytes() -> None:
    setting = Setting(
        scenario=toys.scenario(), seed=1, judges=toys.JUDGES, processes={"controller": toys.count}, clean_up=toys.clean_up
    )
    early = run_plan(setting, (PlanItem("controller", "FileDone", 5, 0, "all"),))[0]
    late = run_plan(setting, (PlanItem("controller", "StepCommitted", 2, 0, "all"),))[0]
    assert early.steps < late.steps
    assert early.key == late.key
    assert early.files == late.files


def test_progress_is_told_in_its_stages() -> None:
    told: list[tuple[str, int, int]] = []
    result = swept(progress=lambda stage, done, of: told.append((stage, done, of)), verify=False)
    assert told[0] == ("life-1", result.crash_points, result.crash_points)
    assert told[-1] == ("classes", result.classes, result.classes)


def test_the_json_object_is_plain_and_has_the_printed_names() -> None:
    printed = json.loads(json.dumps(swept(toys.careless_count).as_json()))
    names = "scenario level seeds version events steps crash_points classes runs outcomes judged fired not_covered us_per_event"
    more = "verdict judges verdicts violations points_per_cpu_s distinct_runs_per_cpu_s wall_s peak_rss_mib history_hash"
    assert set(f"{names} {more}".split()) <= set(printed)
    assert printed["verdict"] == "BROKEN"
    assert set(printed["us_per_event"]) == {"kernel", "core", "judges", "all"}
    assert {"invariant", "token", "message"} <= set(printed["violations"][0])


def test_the_address_of_a_class_is_where_it_was_opened() -> None:
    result = swept(verify=False)
    assert result.rows[0].address == Address("job", "LifeStarted", 1, 0)
