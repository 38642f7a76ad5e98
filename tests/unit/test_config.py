"""The configuration: what is refused, all at once and by name; what is not; and what makes a run another run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.config import (
    LEVELS,
    TIME_MIN_S,
    Checkpointing,
    Job,
    Level,
    NemoGymFailure,
    RolloutCheckpointing,
    RolloutFailure,
    RolloutRecovery,
    Sampler,
    TokenCapture,
    Watchdog,
    accept,
    check,
    fingerprint,
    job_from,
    set_up,
)
from protocol.errors import ConfigError

SNAPSHOTS = RolloutCheckpointing(interval_s=120.0)
ACCEPTED = Job(rollout_checkpointing=SNAPSHOTS)


def changed(**changes: Any) -> Job:
    return msgspec.structs.replace(ACCEPTED, **changes)


def test_levels_are_ordered_from_coarse_to_fine() -> None:
    assert LEVELS == ("rollout", "sibling", "turn", "prefix")
    assert Level.ROLLOUT < Level.SIBLING < Level.TURN < Level.PREFIX
    assert [Level.named(name).rank for name in LEVELS] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "job",
    [
        ACCEPTED,
        *(changed(target_level=level) for level in ("rollout", "sibling", "turn")),
        Job(target_level="rollout"),
        Job(target_level="sibling"),
        changed(sampler=Sampler(name="windowed", max_staleness_versions=0)),
        changed(sampler=Sampler(name="in_order", max_lookahead_versions=0)),
        Job(target_level="rollout", sampler=Sampler(name="weight_fifo")),
        changed(target_level="sibling", environment_server="gymnasium"),
        changed(target_level="rollout", async_engine=False),
        changed(num_prompts_per_step=4, max_buffered_rollouts=7),
        Job(target_level="sibling", num_prompts_per_step=4, max_buffered_rollouts=4),
        changed(num_prompts_per_step=4, min_groups_for_streaming_train=1, max_buffered_rollouts=4),
        changed(max_inflight_prompts=1),
        changed(rollout_failure=RolloutFailure(max_skipped_prompts=3)),
        changed(watchdog=Watchdog(stall_action="abort")),
        changed(target_level="sibling", watchdog=Watchdog(stall_timeout_s=40.0)),  # nothing parks Gym below turn
        changed(target_level="sibling", rollout_recovery=RolloutRecovery(level_overrides={"calendar": "rollout"})),
        changed(target_level="rollout", rollout_recovery=RolloutRecovery(level_overrides={"calendar": "rollout"})),
        *(changed(rollout_checkpointing=RolloutCheckpointing(interval_s=1.0, restore_mode=mode))
          for mode in ("latest", "trainer_checkpoint", "none")),
    ],
)  # fmt: skip
def test_a_supported_configuration_is_accepted(job: Job) -> None:
    assert check(job) == []
    assert accept(job) is job


@pytest.mark.parametrize(
    ("job", "keys"),
    [
        *(
            (changed(**{name: bad}), [name])
            for name in ("num_prompts_per_step", "num_generations_per_prompt", "train_steps", "max_turns", "gym_instances",
                         "generation_workers", "num_finalizer_workers", "max_inflight_prompts")
            for bad in (0, -1)
        ),
        (changed(min_groups_for_streaming_train=-1), ["min_groups_for_streaming_train"]),
        (changed(rollout_checkpointing=RolloutCheckpointing(interval_s=0.0)), ["rollout_checkpointing.interval_s"]),
        (changed(rollout_checkpointing=RolloutCheckpointing(interval_s=1.0, keep_latest_k=0)),
         ["rollout_checkpointing.keep_latest_k"]),
        (changed(rollout_checkpointing=RolloutCheckpointing(interval_s=1.0, restore_mode="newest")),
         ["rollout_checkpointing.restore_mode"]),
        (changed(checkpointing=Checkpointing(save_period=0)), ["checkpointing.save_period"]),
        (changed(checkpointing=Checkpointing(keep_top_k=0)), ["checkpointing.keep_top_k"]),
        (changed(rollout_recovery=RolloutRecovery(gym_prepare_timeout_s=0.0)), ["rollout_recovery.gym_prepare_timeout_s"]),
        (changed(token_capture=TokenCapture(control_timeout_s=0.0)), ["token_capture.control_timeout_s"]),
        (changed(rollout_failure=RolloutFailure(nemo_gym=NemoGymFailure(max_row_attempts=0))),
         ["rollout_failure.nemo_gym.max_row_attempts"]),
        (changed(sampler=Sampler(name="newest")), ["sampler.name"]),
        (changed(sampler=Sampler(max_lookahead_versions=-1)), ["sampler.max_lookahead_versions"]),
        (changed(sampler=Sampler(max_staleness_versions=-1)), ["sampler.max_staleness_versions"]),
        (changed(watchdog=Watchdog(stall_action="ignore")), ["watchdog.stall_action"]),
        (changed(watchdog=Watchdog(interval_s=600.0)), ["watchdog.stall_timeout_s"]),
        (changed(watchdog=Watchdog(stall_timeout_s=300.0)), ["watchdog.stall_timeout_s"]),
        (changed(watchdog=Watchdog(stall_timeout_s=561.0)), ["watchdog.stall_timeout_s"]),
        (changed(rollout_recovery=RolloutRecovery(drain_timeout_s=200.0)), ["watchdog.stall_timeout_s"]),
        (changed(token_capture=TokenCapture(control_timeout_s=80.0)), ["watchdog.stall_timeout_s"]),
        (changed(rollout_recovery=RolloutRecovery(level_overrides={"calendar": "sibling"})), ["rollout_recovery.level_"]),
        (changed(rollout_recovery=RolloutRecovery(level_overrides={"calendar": "turn"})), ["rollout_recovery.level_overrides"]),
        (changed(target_level="sibling", rollout_recovery=RolloutRecovery(level_overrides={"calendar": "turn", "mail": "x"})),
         ["rollout_recovery.level_overrides.calendar is turn", "rollout_recovery.level_overrides.mail is 'x'"]),
        (changed(target_level="branch"), ["target_level"]),
        (Job(target_level="turn"), ["rollout_checkpointing.interval_s"]),
        (changed(token_capture=TokenCapture(enabled=False)), ["token_capture.enabled"]),
        (changed(async_engine=False), ["async_engine"]),
        (changed(environment_server="gymnasium"), ["environment_server"]),
        (changed(target_level="rollout", sampler=Sampler(name="weight_fifo")), ["sampler.name weight_fifo"]),
        (Job(target_level="sibling", sampler=Sampler(name="weight_fifo")), ["sampler.name weight_fifo"]),
        (changed(num_prompts_per_step=4, max_buffered_rollouts=6), ["max_buffered_rollouts"]),
        (Job(target_level="sibling", num_prompts_per_step=4, max_buffered_rollouts=3), ["max_buffered_rollouts"]),
        (changed(min_groups_for_streaming_train=65), ["max_buffered_rollouts"]),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(job: Job, keys: list[str]) -> None:
    wrong = check(job)
    assert wrong
    for key in keys:
        assert any(line.startswith(key) or key in line for line in wrong), (key, wrong)
    with pytest.raises(ConfigError) as raised:
        accept(job)
    assert str(raised.value) == "; ".join(wrong)


def test_a_good_configuration_next_to_each_refused_one_is_accepted() -> None:
    """The bounds themselves: one step back from each refusal by size or time."""
    assert check(changed(watchdog=Watchdog(stall_timeout_s=561.5))) == []
    assert check(changed(num_prompts_per_step=1, max_buffered_rollouts=1)) == []
    assert check(changed(watchdog=Watchdog(interval_s=599.0))) == []


def test_all_faults_are_reported_at_once() -> None:
    job = Job(
        target_level="turn", async_engine=False, environment_server="gymnasium", train_steps=0,
        sampler=Sampler(name="newest"), watchdog=Watchdog(interval_s=700.0), token_capture=TokenCapture(enabled=False),
    )  # fmt: skip
    text = "; ".join(check(job))
    for key in ("async_engine", "environment_server", "train_steps", "sampler.name", "watchdog.stall_timeout_s",
                "token_capture.enabled", "rollout_checkpointing.interval_s"):  # fmt: skip
        assert key in text


# --- from plain tables


def test_a_table_fills_in_what_it_names_and_nothing_else() -> None:
    job = job_from({"train_steps": 7, "sampler": {"name": "windowed"}, "rollout_checkpointing": {"interval_s": 5}})
    assert job == Job(train_steps=7, sampler=Sampler(name="windowed"), rollout_checkpointing=RolloutCheckpointing(interval_s=5.0))


def test_every_unknown_key_and_wrong_type_is_named_at_once() -> None:
    values = {
        "train_step": 7,
        "num_prompts_per_step": "four",
        "sampler": {"name": 3, "lookahead": 1},
        "watchdog": "on",
        "rollout_failure": {"nemo_gym": {"max_row_attempts": 1.5, "retries": 2}},
        "rollout_checkpointing": {"interval_s": None},
    }
    with pytest.raises(ConfigError) as raised:
        job_from(values)
    text = str(raised.value)
    for part in (
        "job.train_step is not a known key; known are ",
        "job.num_prompts_per_step is 'four'",
        "job.sampler.name is 3",
        "job.sampler.lookahead is not a known key; known are max_lookahead_versions, max_staleness_versions, name",
        "job.watchdog is 'on': it must be a table",
        "job.rollout_failure.nemo_gym.max_row_attempts is 1.5",
        "job.rollout_failure.nemo_gym.retries is not a known key",
    ):
        assert part in text
    assert "interval_s" not in text


@pytest.mark.parametrize("value", [1e-300, 0.000999, 0.0, -1.0, float("nan"), float("inf")])
def test_an_interval_or_a_time_out_that_ends_no_sooner_than_it_begins_is_refused_by_its_key(value: float) -> None:
    job = changed(
        rollout_checkpointing=RolloutCheckpointing(interval_s=value),
        rollout_recovery=RolloutRecovery(gym_prepare_timeout_s=value, drain_timeout_s=value),
        token_capture=TokenCapture(control_timeout_s=value),
        watchdog=Watchdog(interval_s=value, stall_timeout_s=value),
    )
    wrong = check(job)
    for key in ("rollout_checkpointing.interval_s", "rollout_recovery.gym_prepare_timeout_s", "rollout_recovery.drain_timeout_s",
                "token_capture.control_timeout_s", "watchdog.interval_s", "watchdog.stall_timeout_s"):  # fmt: skip
        assert f"{key} is {value}: it must be at least 0.001 s" in wrong


def test_the_shortest_interval_is_accepted() -> None:
    assert check(changed(rollout_checkpointing=RolloutCheckpointing(interval_s=TIME_MIN_S))) == []


@pytest.mark.parametrize("key", ["turn_granularity", "sibling_granularity"])
def test_a_removed_granularity_key_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"job.rollout_recovery.{key} is not a known key any more: .* target_level"):
        job_from({"rollout_recovery": {key: "turn"}})


def test_an_override_that_names_no_task_of_the_data_set_is_refused_since_it_has_no_effect() -> None:
    job = changed(target_level="sibling", rollout_recovery=RolloutRecovery(level_overrides={"calender": "rollout"}))
    assert check(job, ["calendar", "mail"]) == [
        "rollout_recovery.level_overrides.calender has no effect: the data set has the tasks calendar, mail"
    ]
    assert check(job, ["calender"]) == []


def test_a_group_is_restored_at_the_level_of_its_task() -> None:
    job = changed(target_level="sibling", rollout_recovery=RolloutRecovery(level_overrides={"calendar": "rollout"}))
    assert [job.level_of(name) for name in ("calendar", "mail")] == ["rollout", "sibling"]


def test_set_up_names_what_it_cannot_read_and_what_it_does_not_support_in_one_refusal() -> None:
    tables = {"target_level": "turn", "rollout_recovery": {"recovery_granularity": "turn"}, "seeds": 3, "async_engine": False}
    with pytest.raises(ConfigError) as raised:
        set_up(tables, ["calendar"])
    for part in (
        "rollout_recovery.recovery_granularity is not a known key any more", "seeds is not a known key",
        "async_engine is false", "rollout_checkpointing.interval_s is not set",
    ):  # fmt: skip
        assert part in str(raised.value)


def test_set_up_takes_a_job_and_the_tables_it_was_written_to() -> None:
    assert set_up(ACCEPTED, ()) == set_up(msgspec.to_builtins(ACCEPTED), ()) == ACCEPTED


def test_a_configuration_survives_being_written_out() -> None:
    assert job_from(msgspec.to_builtins(ACCEPTED)) == ACCEPTED


# --- the fingerprint


@pytest.mark.parametrize(
    "job",
    [
        changed(rollout_checkpointing=RolloutCheckpointing(interval_s=1.0, keep_latest_k=9, max_consecutive_failures=0)),
        changed(rollout_recovery=RolloutRecovery(gym_prepare_timeout_s=1.0, drain_timeout_s=3.0)),
        changed(token_capture=TokenCapture(control_timeout_s=1.0)),
        changed(watchdog=Watchdog(interval_s=1.0, stall_action="abort")),
        changed(checkpointing=Checkpointing(save_period=5, keep_top_k=9)),
        changed(gym_instances=7),
        changed(generation_workers=7),
        changed(num_finalizer_workers=7),
        changed(max_buffered_rollouts=100, max_inflight_prompts=1),
        changed(train_steps=99),
        changed(rollout_failure=RolloutFailure(max_skipped_prompts=5)),
        changed(target_level="sibling"),
        changed(target_level="sibling", rollout_recovery=RolloutRecovery(level_overrides={"calendar": "rollout"})),
    ],
)
def test_an_operational_change_leaves_the_fingerprint_alone(job: Job) -> None:
    assert fingerprint(job, "data") == fingerprint(ACCEPTED, "data")


@pytest.mark.parametrize(
    "job",
    [
        changed(seed=1),
        changed(num_prompts_per_step=8),
        changed(num_generations_per_prompt=8),
        changed(max_turns=ACCEPTED.max_turns + 1),
        changed(environment_server="gymnasium"),
        changed(sampler=Sampler(name="windowed")),
        changed(sampler=Sampler(max_lookahead_versions=2)),
        changed(token_capture=TokenCapture(enabled=False)),
    ],
)
def test_a_change_of_what_is_rolled_out_is_another_fingerprint(job: Job) -> None:
    assert fingerprint(job, "data") != fingerprint(ACCEPTED, "data")


def test_another_data_set_is_another_fingerprint() -> None:
    assert fingerprint(ACCEPTED, "data") != fingerprint(ACCEPTED, "other data")
    assert len(fingerprint(ACCEPTED, "data")) == 64
