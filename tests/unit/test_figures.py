"""Figures: hand-written histories whose numbers are worked out by hand, and the page that defines them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol import history as h
from protocol.history import Event, Record, key_set
from reports.figures.definition import RING, Durations, Stopwatch
from reports.figures.life import LifeFigures, RunFigures, life_figures, run_figures
from reports.figures.lines import run_figure_lines
from reports.figures.page import STRUCTS, page, rows
from reports.figures.recovery import RolloutRecovery, TrainStep
from reports.figures.snapshots import CheckpointOutcome, RolloutCheckpoint

PAGE = Path(__file__).resolve().parents[2] / "docs" / "figures.md"
NOTHING = key_set(())


def keys(count: int) -> h.KeySet:
    return key_set(f"k{index}" for index in range(count))


def records(*steps: tuple[float, Event] | tuple[float, Event, str], life: int = 1) -> list[Record]:
    """(time, event[, process]); the controller records what names no process."""
    return [
        Record(index, step[0], step[2] if len(step) > 2 else "controller", life, "", step[1])  # type: ignore[misc]
        for index, step in enumerate(steps)
    ]


def took(*values: float) -> Durations:
    watch = Stopwatch()
    for value in values:
        watch.add(value)
    return watch.figures()


def cut(role: str, replay: int = 0, ledger: int = 0, rolled_back: int = 0) -> h.CutTaken:
    return h.CutTaken(
        role=role, sequence=1, step=0, version=0, committing=False, mutation_version=1, canonical=NOTHING, sidecar=NOTHING,
        finalized=NOTHING, replay=keys(replay), staging_expected=NOTHING, staging_missing=0, ledger="", consumed=0, open=ledger,
        passed=0, rolled_back=rolled_back,
    )  # fmt: skip


def published(sequence: int) -> h.SnapshotPublished:
    return h.SnapshotPublished("bootstrap", sequence, 0, 0, 0, 0)


def test_durations_are_count_sum_mean_nearest_rank_and_maximum() -> None:
    watch = Stopwatch()
    for tenth in range(1, 21):
        watch.add(tenth / 10)
    assert watch.figures() == Durations(count=20, total_s=21.0, mean_s=1.05, p95_s=1.9, max_s=2.0)
    assert took() == Durations(count=0, total_s=0.0, mean_s=0.0, p95_s=0.0, max_s=0.0)


def test_a_percentile_is_of_the_newest_ten_thousand_and_a_maximum_of_all() -> None:
    watch = Stopwatch()
    watch.add(99.0)
    for _ in range(RING):
        watch.add(1.0)
    found = watch.figures()
    assert (RING, found.count, found.p95_s, found.max_s) == (10_000, 10_001, 1.0, 99.0)


def test_a_published_snapshot_has_its_times_and_counts() -> None:
    found = life_figures(
        records(
            (1.0, h.SnapshotStarted("bootstrap", 3, False)),
            (1.1, h.GymPhaseStarted("1.1")),
            (1.2, h.ExclusiveEntered("dispatch", 0.1)),
            (1.5, h.ExclusiveEntered("data-plane", 0.25)),
            (1.6, h.DataPlaneSaveIssued("snapshot", 3)),
            (1.9, h.DataPlaneSaveDone("snapshot", 3)),
            (1.9, cut("snapshot", replay=5, ledger=9, rolled_back=2)),
            (2.0, h.ExclusiveLeft("data-plane")),
            (2.2, h.GymPhaseEnded("1.1", "cut", 1.2)),
            (2.2, h.ExclusiveLeft("dispatch")),
            (2.5, h.ExclusiveEntered("data-plane", 0.0)),  # a trainer's cut while the files are written
            (2.5, h.DataPlaneSaveIssued("trainer", 1)),
            (2.7, h.DataPlaneSaveDone("trainer", 1)),
            (2.7, cut("trainer", replay=1, ledger=1)),
            (2.9, h.ExclusiveLeft("data-plane")),
            (3.5, published(3)),
        )
    )
    assert found.snapshots.rollout_checkpoint == (
        RolloutCheckpoint(
            snapshot_sequence=3, anchor="bootstrap", total_save=2.5, tq_save=0.3, barrier_wait=0.25, exclusive_hold=0.5,
            replay_groups=5, ledger_groups=9, rolled_back_train_groups=2, gym_parked_seconds=1.2,
        ),
    )  # fmt: skip
    assert found.barriers["data-plane"].exclusive_hold_s == took(0.5, 0.4)
    assert found.barriers["data-plane"].exclusive_wait_s == took(0.25, 0.0)
    assert found.barriers["dispatch"].exclusive_hold_s == took(1.0)
    assert found.gym.gym_parked_seconds == took(1.2)


def test_every_try_has_an_outcome_a_reason_and_its_distance_from_the_last_success() -> None:
    found = life_figures(
        records(
            (0.5, h.SnapshotSkipped("unchanged")),
            (1.0, h.SnapshotStarted("bootstrap", 1, True)),
            (1.5, published(1)),
            (2.0, h.SnapshotStarted("bootstrap", 2, False)),
            (2.5, h.SnapshotDropped(2, "a train step committed")),
            (3.0, h.SnapshotStarted("bootstrap", 3, False)),
            (3.5, h.SnapshotBroke(3, "unavailable", "SnapshotFailed", "no answer", 1)),
            (3.5, h.SnapshotStarved(3)),
            (4.0, h.SnapshotStarted("bootstrap", 4, False)),
            (4.5, published(4)),
        )
    ).snapshots

    def tried(attempt: int, outcome: str, reason: str, since: float | None) -> CheckpointOutcome:
        return CheckpointOutcome(attempt=attempt, outcome=outcome, reason=reason, seconds_since_previous_success=since)

    assert found.checkpoint_outcome == (
        tried(1, "skipped", "unchanged", None),
        tried(2, "completed", "forced", None),
        tried(3, "skipped", "lost-to-step", 1.0),
        tried(4, "failed", "unavailable", 2.0),
        tried(5, "completed", "periodic", 3.0),
    )
    assert found.outcomes == {
        "skipped": {"unchanged": 1, "lost-to-step": 1},
        "completed": {"forced": 1, "periodic": 1},
        "failed": {"unavailable": 1},
    }
    assert found.starved_warnings == 1


def test_a_snapshot_that_the_end_of_its_life_cut_off_has_no_outcome() -> None:
    found = life_figures(records((1.0, h.SnapshotStarted("bootstrap", 1, False)), (1.5, cut("snapshot")))).snapshots
    assert (found.outcomes, found.rollout_checkpoint, found.checkpoint_outcome) == ({}, (), ())


def test_mutations_that_were_kept_out_are_counted_by_kind_and_a_cancelled_checkpoint_held_nothing() -> None:
    found = life_figures(
        records(
            (0.0, h.MutationEntered("data-plane", "sibling_seals")),
            (1.0, h.MutationEntered("data-plane", "sibling_seals", 0.25)),
            (1.0, h.MutationEntered("data-plane", "sibling_seals", 0.75)),
            (1.0, h.MutationEntered("data-plane", "group_commits", 0.5)),
            (2.0, h.MutationEntered("dispatch", "dispatch", 2.0)),
            (3.0, h.ExclusiveWaited("data-plane")),
            (4.0, h.ExclusiveLeft("data-plane")),
        )
    ).barriers
    assert found["data-plane"].mutations == 4 and found["dispatch"].mutations == 1
    assert found["data-plane"].blocked_s == {"sibling_seals": took(0.25, 0.75), "group_commits": took(0.5)}
    assert found["dispatch"].blocked_s == {"dispatch": took(2.0)}
    assert found["data-plane"].exclusive_wait_s == found["data-plane"].exclusive_hold_s == took()


def test_a_recovery_says_what_became_of_the_groups_it_considered() -> None:
    restored = h.Restored("bootstrap", 1, 0, 0, 0, 0, 0, 4, 3, 1, NOTHING, NOTHING, NOTHING, NOTHING, "")
    found = life_figures(
        records(
            (0.04, restored),
            (0.1, h.GroupRecovered("e0p0i1", 3, 1)),
            (0.1, h.AttemptDispatched("e0p0i1_g3", "e0p0i1_g3r0-a1", "gym-0", 1)),
            (0.2, h.GroupRecovered("e0p1i1", 2, 2)),
            (0.2, h.GroupDropped("e0p1i1", 1, "stale")),
            (0.3, h.GroupRecovered("e0p2i1", 4, 0)),
            (0.5, h.AttemptDispatched("e0p0i1_g3", "e0p0i1_g3r1-a0", "gym-0", 2)),  # the same sibling once more
            (0.6, h.AttemptDispatched("e0p9i2_g0", "e0p9i2_g0r0-a0", "gym-0", 1)),  # of a fresh group
            (0.7, h.FinalizeDone("e0p2i1", (), (), 4)),
            (0.8, h.FinalizeDone("e0p9i2", (), (), 4)),
            (0.9, h.GroupDropped("e0p9i2", 9, "discarded")),
        )
    )
    assert found.rollout_recovery == RolloutRecovery(
        restore_s=0.04, groups_considered=3, groups_finalized=1, groups_dropped=1, siblings_reused=7, siblings_redispatched=1
    )
    assert found.rows.groups_dropped == {"stale": 1, "discarded": 1}


def test_a_train_step_counts_the_calls_that_an_earlier_life_made() -> None:
    def row(*calls: str) -> h.TrainedRow:
        return h.TrainedRow(0, 0, "s", "", "", (), "", 1.0, True, tuple((call, "", "") for call in calls))

    found = life_figures(
        records(
            (0.1, h.CallBegun("a-a1/c1", 0), "worker-0"),
            (0.2, h.CallBegun("b-a0/c0", 0), "worker-0"),
            (0.3, h.OptimizerApplied(1, "", "", (row("a-a0/c0", "a-a1/c1"), row("c-a0/c0"))), "trainer"),
            (0.4, h.OptimizerApplied(2, "", "", (row("b-a0/c0"),)), "trainer"),
        )
    )
    assert found.train_steps == (
        TrainStep(step=1, calls=3, restored_calls=2, prefix_calls=0, prefix_tokens=0),
        TrainStep(step=2, calls=1, restored_calls=0, prefix_calls=0, prefix_tokens=0),
    )


def test_a_gym_phase_counts_what_was_cut_what_could_not_be_and_what_was_on_the_wire() -> None:
    found = life_figures(
        records(
            (0.0, h.GymPhaseStarted("1.1")),
            (0.1, h.ScopeBuilt("1.1", keys(7))),
            (0.2, h.DrainEnded("1.1", 2, 0)),
            (0.3, h.ManifestBuilt("1.1", 1, keys(4), keys(1), keys(5))),
            (0.4, h.GymPhaseEnded("1.1", "cut", 0.4)),
            (1.0, h.GymPhaseStarted("1.2")),
            (1.1, h.ScopeBuilt("1.2", keys(3))),
            (1.2, h.GymPhaseEnded("1.2", "dropped", 0.2)),
        )
    ).gym
    assert [
        (one.checkpoint, one.outcome, one.gym_parked_seconds, one.candidates, one.cut, one.failed, one.skipped)
        for one in found.checkpoints
    ] == [("1.1", "cut", 0.4, 7, 4, 1, 2), ("1.2", "dropped", 0.2, 3, 0, 0, 0)]
    assert found.gym_parked_seconds == took(0.4, 0.2)


def test_doors_and_control_calls_are_timed_and_a_restarted_instance_has_an_open_door() -> None:
    found = life_figures(
        records(
            (0.0, h.AdmissionClosed("1.1"), "gym-0"),
            (0.1, h.AdmissionClosed("1.1"), "gym-1"),
            (0.5, h.AdmissionOpened("1.1", "resume"), "gym-0"),
            (0.6, h.ProcessStarted(), "gym-1"),
            (0.9, h.AdmissionOpened("1.1", "lease"), "gym-1"),
            (1.0, h.ControlIssued("prepare", "gym-0", "1.2", 2.0, 0.5)),
            (1.0, h.ControlIssued("prepare", "gym-1", "1.2", 2.0, 0.5)),
            (1.25, h.ControlDone("prepare", "gym-0", "1.2", "ok", "", "")),
            (3.5, h.ControlDone("prepare", "gym-1", "1.2", "lost", "Lost", "unavailable")),
            (4.0, h.ControlIssued("resume", "gym-0", "1.2", 2.0, 0.5)),
            (4.5, h.ControlDone("resume", "gym-0", "1.2", "ok", "", "")),
            (5.0, h.EpisodeAdmitted("a-a0", 0, 0, False, 0), "gym-0"),
            (5.0, h.EpisodeAdmitted("b-a1", 0, 1, True, 2), "gym-0"),
            (5.0, h.EpisodeRefused("c-a0", "checkpoint_parked"), "gym-0"),
        )
    ).gym
    assert found.admission_closed_s == took(0.5) and found.opened == {"resume": 1, "lease": 1}
    assert found.control_calls["prepare"].outcomes == {"ok": 1, "lost": 1}
    assert found.control_calls["prepare"].duration_s == took(0.25, 2.5)
    assert found.control_calls["resume"].duration_s == took(0.5)
    assert (found.episodes_begun, found.episodes_continued, found.episodes_refused) == (1, 1, {"checkpoint_parked": 1})


def test_who_waits_for_the_checkpoint_lock_is_timed_by_task_and_who_gives_up_is_not() -> None:
    def one(time: float, task: str, event: Event) -> Record:
        return Record(0, time, "controller", 1, task, event)

    found = life_figures(
        [
            one(1.0, "snapshot-pump", h.LockHeld("checkpoint")),
            one(1.5, "train-pump", h.LockWaits("checkpoint")),
            one(1.6, "gives-up", h.LockWaits("checkpoint")),
            one(1.7, "gives-up", h.WaitGivenUp("checkpoint")),
            one(2.0, "snapshot-pump", h.LockReleased("checkpoint")),
            one(2.0, "train-pump", h.LockHeld("checkpoint")),
            one(2.25, "train-pump", h.LockReleased("checkpoint")),
            one(3.0, "gives-up", h.LockHeld("checkpoint")),
        ]
    ).locks["checkpoint"]
    assert found.wait_s == {"train-pump": took(0.5)}
    assert found.hold_s == {"snapshot-pump": took(1.0), "train-pump": took(0.25)}


def test_a_process_that_died_or_stood_still_alone_is_timed_until_it_was_back() -> None:
    found = life_figures(
        records(
            (0.0, h.ProcessStarted(), "gym-0"),
            (1.0, h.ProcessKilled("gym-0"), "job"),
            (1.5, h.ProcessStarted(incarnation=2), "gym-0"),
            (2.0, h.ProcessStalled("worker-0", 0.0), "job"),
            (2.25, h.ProcessContinued("worker-0"), "job"),
            (3.0, h.ProcessStalled("worker-1", 0.0), "job"),
            (4.0, h.ProcessKilled("worker-1"), "job"),
        )
    ).processes
    assert (found.killed, found.stalled) == ({"gym-0": 1, "worker-1": 1}, {"worker-0": 1, "worker-1": 1})
    assert (found.down_s, found.stalled_s) == (took(0.5), took(0.25))


def test_rows_are_timed_by_outcome_and_a_refused_one_that_is_sent_again_is_a_resend() -> None:
    def sent(key: str) -> h.AttemptDispatched:
        return h.AttemptDispatched(key.rpartition("r")[0], key, "gym-0", 1)

    a, b, c = "e0p0i1_g0r0-a0", "e0p0i1_g1r0-a0", "e0p0i1_g2r0-a0"
    found = life_figures(
        records(
            (0.0, sent(a)),
            (0.0, sent(b)),
            (0.0, sent(c)),
            (0.1, h.RefusalArrived(a, "checkpoint_parked")),
            (0.1, h.RowReported(a, "refused", 0.01)),
            (0.1, h.AttemptRefused("e0p0i1_g0", a, 1, 0, 0)),
            (0.1, h.RefusalArrived(b, "checkpoint_parked")),
            (0.1, h.RowReported(b, "refused", 0.03)),
            (0.1, h.AttemptRefused("e0p0i1_g1", b, 1, 0, 0)),
            (0.2, h.AttemptAbandoned("e0p0i1_g1", b, "discarded")),
            (0.5, sent(a)),
            (0.9, h.RowReported(a, "completed", 0.4)),
            (1.0, h.FailureArrived(c, "infra")),
            (1.0, h.RowReported(c, "failed", 0.9)),
            (1.0, h.AttemptAbandoned("e0p0i1_g2", c, "row-failed")),
            (1.0, h.BudgetSpent("e0p0i1", c, "row", 2, 3)),
            (1.1, h.RetireQueued(c, "row-failed")),
            (1.2, h.RetireAccepted(c)),
            (1.2, h.ForgetQueued("e0p0i1_g2r0", "retired")),
            (1.3, h.ForgetAccepted("e0p0i1_g2r0")),
            (1.4, h.PromptPassedOver(4, "topped-up")),
            (1.5, h.GroupAttemptRaised("e0p0i1", 1)),
            (1.6, h.RolloutTimedOut("e0p0i1", 3.0, 1.0)),
        )
    ).rows
    assert (found.sent, found.resends, found.refusals) == (4, 1, {"checkpoint_parked": 2})
    assert found.run_s == {"refused": took(0.01, 0.03), "completed": took(0.4), "failed": took(0.9)}
    assert (found.failures, found.abandoned) == ({"infra": 1}, {"discarded": 1, "row-failed": 1})
    assert (found.retires, found.retires_accepted, found.forgets, found.forgets_accepted) == (
        {"row-failed": 1}, 1, {"retired": 1}, 1,
    )  # fmt: skip
    assert (found.budgets_spent, found.prompts_passed_over) == ({"row": 1}, {"topped-up": 1})
    assert (found.group_attempts_raised, found.rollouts_timed_out) == (1, 1)


def lives() -> list[list[Record]]:
    first = records((0.0, h.EpisodeAdmitted("a-a0", 0, 0, False, 0), "gym-0"), (0.5, h.TokensGenerated("a-a0/c0", 8), "worker-0"),
                    (0.6, h.FaultInjected("discard", "")), (0.7, h.StallReported(9.0, "warn")))  # fmt: skip
    second = records(
        (0.0, h.EpisodeAdmitted("b-a0", 0, 0, False, 0), "gym-0"), (0.5, h.TokensGenerated("b-a0/c0", 8), "worker-0"), life=2
    )
    return [first, second]


def test_a_run_has_the_figures_of_each_life_and_what_each_crash_cost() -> None:
    found = run_figures(lives())
    assert [(life.life, life.events, life.time_s) for life in found.lives] == [(1, 4, 0.7), (2, 2, 0.5)]
    assert (found.lives[0].faults, found.lives[0].stalls) == ({"discard": 1}, 1)
    (crash,) = found.lost_work
    assert (crash.life, crash.done.tokens, crash.lost.tokens, crash.lost.rollouts) == (1, 8, 8, 1)
    lines = run_figure_lines(msgspec.to_builtins(found))
    assert lines[-1] == "the crash of life 1 cost 8 of 8 tokens, 0 of 0 turns, 1 of 1 rollouts: done again in life 2"


def test_a_life_in_which_nothing_happened_has_figures_and_no_lines_of_them() -> None:
    found = run_figures([records((0.0, h.LifeStarted(1)))])
    assert isinstance(found.lives[0], LifeFigures) and found.lost_work == ()
    assert run_figure_lines(msgspec.to_builtins(found)) == ["figures of life 1 (seconds of its own clock)"]


# --- the page


def test_the_page_is_the_one_generated_from_the_structs() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make docs"


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_every_figure_has_a_unit_and_a_definition(kind: type[msgspec.Struct]) -> None:
    for name, unit, meaning in rows(kind):
        assert unit and meaning, f"{kind.__name__}.{name}"


def test_every_struct_that_a_run_can_print_is_on_the_page() -> None:
    described = {kind.__name__ for kind in STRUCTS}

    printed = {info.cls.__name__ for info in found_in(msgspec.inspect.type_info(RunFigures))}
    assert {"GymCheckpoint", "ControlCalls", "CheckpointOutcome"} <= printed <= described | {"Work"}  # that one is lost work's


def found_in(info: Any) -> list[Any]:
    """Every struct below one type."""
    if isinstance(info, msgspec.inspect.StructType):
        return [info, *(one for field in info.fields for one in found_in(field.type))]
    inner = [getattr(info, name) for name in ("item_type", "value_type", "type") if hasattr(info, name)]
    return [one for part in (*inner, *getattr(info, "types", ())) for one in found_in(part)]
