"""Six faults that the layer underneath is known for, and that this core does not have: each shown on a simulated life."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import pytest
from small_world import SmallScenario
from whole_job import TASKS, changed, every

from protocol.config import (
    Checkpointing,
    Job,
    NemoGymFailure,
    RolloutFailure,
    accept,
)
from protocol.history import (
    AttemptAbandoned,
    BudgetSpent,
    Event,
    FileDone,
    FinalizeDone,
    FinalizeIssued,
    GroupDropped,
    MutationLeft,
    PromptPassedOver,
    Record,
    RunFailed,
    SnapshotPublished,
    SnapshotSkipped,
    StepCommitted,
    TrainerCheckpointDurable,
)
from protocol.judging import RunStatus
from protocol.messages import STAGING
from scenarios.faults import Fault
from sim.disk import NONE, Disk
from sim.fake_data_plane import FakeDataPlane
from sim.world import World

E = TypeVar("E", bound=Event)

JOB = changed(target_level="sibling", rollout_checkpointing=every(0.2))
LOADS = {"level": ("sibling", "turn")}


@dataclass(frozen=True)
class Lived:
    status: RunStatus
    history: list[Record]
    disk: Disk

    def events(self, kind: type[E]) -> list[E]:
        return [record.event for record in self.history if isinstance(record.event, kind)]

    def times(self, kind: type[Event]) -> list[float]:
        return [record.time for record in self.history if isinstance(record.event, kind)]


def live(
    job: Job = JOB,
    *faults: Fault,
    seed: int = 0,
    number: int = 1,
    disk: Disk | None = None,
    profile: dict[str, Any] | None = None,
    boundary: Callable[[Disk], None] | None = None,
    crash: Callable[[list[Record]], bool] | None = None,
) -> Lived:
    """One life of the whole job; ``crash`` is asked after every step."""
    scenario = SmallScenario(job=accept(job), tasks=TASKS, faults=faults, profile=profile or {})
    world = World(scenario, seed, number, disk if disk is not None else Disk())
    status = world.live(
        boundary=None if boundary is None else lambda: boundary(world.disk),
        crash=None if crash is None else lambda: crash(world.history),
        max_time=600.0,
    )
    world.bury()
    return Lived(status, world.history, world.disk)


def after_life(lived: Lived) -> Disk:
    """What a crash at the end of ``lived`` leaves for the next life."""
    return Disk.of(lived.disk.surviving(NONE))


def changed(job: Job = JOB, **changes: Any) -> Job:
    return msgspec.structs.replace(job, **changes)


def fault(event: str, verb: str, occurrence: int = 1, life: int = 1, **arguments: Any) -> Fault:
    return Fault(process="controller", event=event, occurrence=occurrence, life=life, verb=verb, arguments=arguments)


# --- (a) an idle poll that moves the mutation version


@pytest.mark.parametrize(
    "profile",
    [{"trainer": {"group_s": [20.0, 20.0]}}, {"token_s": 4.0, "tokens_min": 5, "tokens_max": 6}],
    ids=["training is slow", "generation is slow"],
)
def test_while_nothing_changes_the_version_stands_still_and_snapshots_are_skipped(profile: dict[str, Any]) -> None:
    lived = live(profile=profile)
    assert lived.status.outcome == "ended", lived.status
    moved = [
        record.time for record in lived.history if isinstance(record.event, MutationLeft) and record.event.barrier == "data-plane"
    ]
    begins, ends = max(zip(moved, moved[1:], strict=False), key=lambda pair: pair[1] - pair[0])
    assert ends - begins > 10.0, "nothing was idle"
    inside = [
        (record.time, record.event)
        for record in lived.history
        if isinstance(record.event, SnapshotSkipped | SnapshotPublished) and begins + 1.0 < record.time < ends
    ]
    assert len(inside) > 30
    assert {event for _, event in inside} == {SnapshotSkipped(reason="unchanged")}


# --- (b) a checkpoint rename that is not durable, or a moment without the checkpoint


@pytest.mark.parametrize("level", LOADS["level"])
def test_a_trainer_checkpoint_is_durable_when_it_says_so_and_never_goes_away(level: str) -> None:
    there: list[set[str]] = []

    def look(disk: Disk) -> None:
        there.append({path.split("/")[0] for path in disk.surviving(NONE) if path.startswith("step_")})

    lived = live(changed(target_level=level, train_steps=3), boundary=look)
    assert lived.status.outcome == "ended", lived.status
    effects = [record.event for record in lived.history if isinstance(record.event, FileDone | TrainerCheckpointDurable)]
    for step in (1, 2, 3):
        renamed = effects.index(FileDone(op="rename", path=f"tmp_step_{step}", to=f"step_{step}"))
        durable = effects.index(TrainerCheckpointDurable(step=step))
        assert FileDone(op="fsync_dir", path="") in effects[renamed:durable]
    for before, after in zip(there, there[1:], strict=False):
        assert before <= after, f"{before - after} is gone"
    assert there[-1] == {"step_1", "step_2", "step_3"}


# --- (c) budgets and skips that a restart forgets


def crash_once(kind: type[Event], after: Callable[[Any], bool]) -> Callable[[list[Record]], bool]:
    """At the first snapshot that is published after an event of ``kind`` that ``after`` accepts, and whose cut saw it."""
    state = {"read": 0, "seen": 0}

    def crash(history: list[Record]) -> bool:
        for record in history[state["read"] :]:
            if isinstance(record.event, kind) and after(record.event):
                state["seen"] = 1
            elif isinstance(record.event, SnapshotPublished) and state["seen"]:
                state["seen"] += 1
        state["read"] = len(history)
        return state["seen"] == 3  # the second one: its cut began after the event

    return crash


@pytest.mark.parametrize("level", ["rollout", "sibling", "turn"])
def test_what_a_prompt_has_spent_is_still_spent_after_a_crash(level: str) -> None:
    failures = RolloutFailure(
        max_infra_attempts_per_prompt=3, backoff_base_s=0.05, max_backoff_s=0.5, nemo_gym=NemoGymFailure(max_row_attempts=1)
    )
    job = changed(target_level=level, rollout_failure=failures, gym_instances=2)
    slow = {"token_s": 0.1}
    begins = fault("RowsSubmitted", "break_stream", rows=0, instance="gym-0")
    first = live(job, begins, profile=slow, crash=crash_once(BudgetSpent, lambda event: event.spent == 1))
    assert first.status.outcome == "crashed"
    (spent,) = first.events(BudgetSpent)
    assert (spent.budget, spent.spent) == ("infra", 1)

    more = [fault("RowsSubmitted", "break_stream", count, 2, rows=0, instance="gym-0") for count in (1, 2, 3)]
    again = live(job, *more, number=2, disk=after_life(first), profile=slow)
    following = [event for event in again.events(BudgetSpent) if event.group == spent.group]
    assert following[0] == msgspec.structs.replace(spent, spent=2)


def test_skipped_prompts_count_over_all_lives() -> None:
    failures = RolloutFailure(max_data_attempts_per_prompt=1, max_skipped_prompts=1, backoff_base_s=0.05)
    job = changed(rollout_failure=failures, train_steps=3)
    poison: dict[str, Any] = {"operation": "Generate", "to": "worker-0", "how": "error"}
    skips = crash_once(PromptPassedOver, lambda event: event.why == "skipped")
    first = live(job, fault("RowsSubmitted", "fail_call", **poison), crash=skips)
    assert first.status.outcome == "crashed"
    assert [event.why for event in first.events(PromptPassedOver) if event.why == "skipped"] == ["skipped"]

    second_poison = fault("RowsSubmitted", "fail_call", life=2, **poison)
    again = live(job, second_poison, number=2, disk=after_life(first))
    assert [event.error for event in again.events(RunFailed)] == ["BudgetExhausted"]
    untouched = live(job, second_poison, number=2)  # the same poison alone may be skipped
    assert untouched.status.outcome == "ended"
    assert [event.why for event in untouched.events(PromptPassedOver) if event.why == "skipped"] == ["skipped"]


# --- (d) a failed trainer save that counts all the same


@pytest.mark.parametrize("level", LOADS["level"])
def test_a_failed_trainer_save_anchors_no_snapshot_and_ends_the_run_at_the_next_save(level: str) -> None:
    job = changed(target_level=level, train_steps=3)
    lived = live(job, fault("TrainerSaveAsked", "fail_call", operation="SaveWeights", to="trainer", how="error"))
    assert lived.status.outcome == "failed"
    assert [event.error for event in lived.events(RunFailed)] == ["Refusal"]
    assert lived.events(TrainerCheckpointDurable) == []
    assert [event.step for event in lived.events(StepCommitted)] == [1, 2]  # it ran on until the next save was due
    committed = lived.times(StepCommitted)[0]
    published = [record.time for record in lived.history if isinstance(record.event, SnapshotPublished) and
                 record.event.anchor != "bootstrap"]  # fmt: skip
    assert published == []
    reasons = [record.event.reason for record in lived.history if isinstance(record.event, SnapshotSkipped) and
               record.time > committed]  # fmt: skip
    assert "no-durable-anchor" in reasons
    assert not [path for path in lived.disk.surviving(NONE) if path.startswith("step_")]


def test_the_last_trainer_save_failing_ends_the_run_too() -> None:
    job = changed(train_steps=2, checkpointing=Checkpointing(save_period=2))
    lived = live(job, fault("TrainerSaveAsked", "fail_call", operation="SaveWeights", to="trainer", how="error"))
    assert [event.error for event in lived.events(RunFailed)] == ["Refusal"]


# --- (e) staged rows of abandoned attempts that stay


@pytest.mark.parametrize("level", LOADS["level"])
@pytest.mark.parametrize("seed", range(3))
def test_a_clean_run_leaves_no_staged_row_of_an_abandoned_attempt(level: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    planes: list[FakeDataPlane] = []
    monkeypatch.setattr(FakeDataPlane, "main", remembering(FakeDataPlane.main, planes))
    lived = live(
        changed(target_level=level), fault("RowsSubmitted", "break_stream", rows=1, instance="gym-0"),
        fault("RowsSubmitted", "break_stream", occurrence=3, rows=0, instance="gym-0"), seed=seed,
    )  # fmt: skip
    assert lived.status.outcome == "ended", lived.status
    abandoned = {event.key for event in lived.events(AttemptAbandoned)}
    assert abandoned
    (plane,) = planes
    staged = plane.partitions[STAGING].keys()
    assert [key for key in staged if key.split("/")[0] in abandoned] == []


def remembering(main: Any, planes: list[FakeDataPlane]) -> Any:
    async def remembered(self: FakeDataPlane) -> None:
        planes.append(self)
        await main(self)

    return remembered


# --- (f) a discard that drops a group which is being published


@pytest.mark.parametrize("level", LOADS["level"])
def test_a_discard_of_a_group_that_is_being_published_changes_nothing(level: str) -> None:
    job = changed(target_level=level)
    undisturbed = live(job)
    name = undisturbed.events(FinalizeIssued)[0].group
    ordinal = int(name[name.index("p") + 1 : name.index("i")])
    lived = live(job, fault("FinalizeIssued", "discard", ordinal=ordinal))
    assert lived.status.outcome == "ended", lived.status
    began = next(index for index, record in enumerate(lived.history) if isinstance(record.event, FinalizeIssued))
    done = next(index for index, record in enumerate(lived.history) if isinstance(record.event, FinalizeDone))
    refused = [
        record.event
        for record in lived.history[began:done]
        if isinstance(record.event, MutationLeft) and record.event.kind == "group_removals"
    ]
    assert [event.failed for event in refused] == [True], "the discard came while the group was being published"
    assert lived.events(GroupDropped) == []
    assert [event.ordinals for event in lived.events(StepCommitted)] == [
        event.ordinals for event in undisturbed.events(StepCommitted)
    ]
