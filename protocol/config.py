"""The configuration of one run: names equal NeMo RL's keys where they exist; each default is stated once, here.

``Job`` is what the core reads. ``check`` holds the refusals of I59 in one place and reports all of them at once.
Units come last in a name: ``_s`` is seconds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

import msgspec

from protocol.errors import ConfigError


class Level(IntEnum):
    """Recovery target levels, coarse to fine; the value is the rank (PROTOCOL 2.4)."""

    ROLLOUT = 0  # the prompt group restarts
    SIBLING = 1  # sealed siblings are kept
    TURN = 2  # Gym state and completed turns are kept
    PREFIX = 3  # and the tokens of the call in flight

    @property
    def rank(self) -> int:
        return int(self)

    @classmethod
    def named(cls, name: str) -> Level:
        return cls[name.upper()]


LEVELS = tuple(level.name.lower() for level in Level)


PROCESSES_MAX = 1_000  # of one kind, and turns of an episode: more is a slip of the keyboard, and would not end
TIME_MIN_S = 1e-3  # of an interval or a time-out: below it a run does nothing but wake up
ROLLOUTS_MAX = 200_000  # live at a time: the supported size


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Sampler(Config, frozen=True):
    """PROTOCOL 1.5. ``max_lookahead_versions`` is in_order's, ``max_staleness_versions`` the others'."""

    name: str = "in_order"  # in_order | windowed | weight_fifo
    max_lookahead_versions: int = 1
    max_staleness_versions: int = 1


class NemoGymFailure(Config, frozen=True):
    rollout_timeout_s: float | None = None  # of one group attempt, its row retries included; held time is none of it
    max_row_attempts: int = 3


class RolloutFailure(Config, frozen=True):
    max_infra_attempts_per_prompt: int = 5
    max_data_attempts_per_prompt: int = 2
    backoff_base_s: float = 1.0
    max_backoff_s: float = 30.0
    max_skipped_prompts: int = 0
    nemo_gym: NemoGymFailure = NemoGymFailure()


class Watchdog(Config, frozen=True):
    interval_s: float = 30.0
    stall_timeout_s: float = 600.0
    stall_action: str = "warn"  # warn | abort
    unhealthy_probes: int = 3  # intervals in a row that a Gym instance or a worker leaves unanswered before it is reported
    reprobe_s: float = 5.0  # between two probes of one that did not answer


class Checkpointing(Config, frozen=True):
    """Trainer checkpoints ``step_N``."""

    enabled: bool = True
    save_period: int = 1  # train steps
    keep_top_k: int = 3
    must_save_by_s: float | None = None  # job deadline, from its start: before step 1 it saves a snapshot, then stops


class RolloutCheckpointing(Config, frozen=True):
    """Rollout snapshots. ``interval_s`` None turns the periodic ones off."""

    interval_s: float | None = None
    keep_latest_k: int = 2
    restore_mode: str = "latest"  # latest | trainer_checkpoint | none
    max_consecutive_failures: int = 3


class RolloutRecovery(Config, frozen=True):
    """``level_overrides``: task name -> the level at which groups of that task are restored; below TURN only, and never
    finer than ``target_level``."""

    level_overrides: dict[str, str] = {}
    gym_prepare_timeout_s: float = 300.0
    gym_spinup_timeout_s: float = 60.0  # until every participant has been found, all tries together
    drain_timeout_s: float | None = None  # None: token_capture.control_timeout_s
    reply_grace_s: float = 5.0
    resume_attempts: int = 2
    resume_retry_s: float = 1.0


class TokenCapture(Config, frozen=True):
    """``generation_prefix_*`` bound the batches in which the chunks of one inventory are staged and its routes are read."""

    enabled: bool = True
    control_timeout_s: float = 60.0  # every control call but prepare; also the lease grace
    generation_prefix_batch_size: int = 64  # chunk rows of one put, and keys of one read
    generation_prefix_token_budget: int = 65_536  # token positions of one put, and of one route read


class RouterReplay(Config, frozen=True):
    enabled: bool = False  # staged and trained rows hold the experts that each token was routed to
    read_mode: str = "grouped"  # grouped | per_call | new_chunks: how a cut reads them from the engine's loop


class Job(Config, frozen=True):
    """Everything the core reads. Load sizes are here too: they are NeMo RL's ``grpo.*`` keys."""

    num_prompts_per_step: int = 4
    num_generations_per_prompt: int = 4
    train_steps: int = 3
    target_level: str = "turn"  # rollout | sibling | turn | prefix
    seed: int = 0  # of the data, not of the schedule
    max_inflight_prompts: int | None = None  # None: num_prompts_per_step
    max_buffered_rollouts: int = 64
    min_groups_for_streaming_train: int | None = None  # None: num_prompts_per_step
    max_turns: int = 4
    gym_instances: int = 2
    generation_workers: int = 1
    num_finalizer_workers: int = 2
    rpc_timeout_s: float = 60.0  # of a call to the data plane, a finalizer or an outside service
    trainer_timeout_s: float = 1800.0  # of a call to the trainer: a long step is legal, a slow one the watchdog's to report
    weight_sync_timeout_s: float = 60.0  # of one push to all workers; who has not answered then is left out
    async_engine: bool = True
    environment_server: str = "legacy_agent"
    sampler: Sampler = Sampler()
    rollout_failure: RolloutFailure = RolloutFailure()
    watchdog: Watchdog = Watchdog()
    checkpointing: Checkpointing = Checkpointing()
    rollout_checkpointing: RolloutCheckpointing = RolloutCheckpointing()
    rollout_recovery: RolloutRecovery = RolloutRecovery()
    token_capture: TokenCapture = TokenCapture()
    router_replay: RouterReplay = RouterReplay()
    max_new_tokens: int | None = 4096  # of one model call that sets no limit of its own; None: the engine's own default

    @property
    def level(self) -> Level:
        return Level.named(self.target_level)

    def level_of(self, task_name: str) -> str:
        """Restore level of the groups of one task."""
        return self.rollout_recovery.level_overrides.get(task_name, self.target_level)

    @property
    def inflight_prompts(self) -> int:
        return self.max_inflight_prompts or self.num_prompts_per_step

    @property
    def streaming_groups(self) -> int:
        return self.min_groups_for_streaming_train or self.num_prompts_per_step

    @property
    def drain_timeout_s(self) -> float:
        return self.rollout_recovery.drain_timeout_s or self.token_capture.control_timeout_s

    @property
    def park_bound_s(self) -> float:
        """How long one park of Gym may last at most, by the limits of the calls to Gym in it: prepare, commit, the drain,
        and every attempt to resume. The cut's own calls to the data plane are not in it: one that uses up its time-out
        fails the snapshot, which is an outage and no longer a park."""
        recovery = self.rollout_recovery
        call_s = self.token_capture.control_timeout_s + recovery.reply_grace_s
        resume_s = recovery.resume_attempts * call_s + (recovery.resume_attempts - 1) * recovery.resume_retry_s
        return recovery.gym_prepare_timeout_s + recovery.reply_grace_s + call_s + self.drain_timeout_s + resume_s

    @property
    def snapshots_on(self) -> bool:
        return self.rollout_checkpointing.interval_s is not None

    @property
    def replay_is_restored(self) -> bool:
        """A sampler whose buffer a checkpoint holds with authority (PROTOCOL 1.5: weight_fifo is a shadow)."""
        return self.sampler.name != "weight_fifo"


def fingerprint(job: Job, data: str) -> str:
    """What must be equal for a bootstrap snapshot to be restored: SHA-256 of the rollout's own semantics.

    Intervals, time-outs and cluster shape are left out (PROTOCOL 4.4, I61). ``data`` names the data set.
    """
    kept = (
        2,
        data,
        job.seed,
        job.num_prompts_per_step,
        job.num_generations_per_prompt,
        job.max_turns,
        job.environment_server,
        msgspec.to_builtins(job.sampler),
        job.token_capture.enabled,
        job.router_replay.enabled,
        job.max_new_tokens,
    )
    return hashlib.sha256(msgspec.json.encode(kept, order="sorted")).hexdigest()


def check(job: Job, task_names: Iterable[str] | None = None) -> list[str]:
    """Every reason why this configuration is refused at set-up (empty: it is accepted). Each begins with its key.

    ``task_names``: those of the data set, where it is known by now.
    """
    wrong: list[str] = []

    def positive(name: str, value: float | None) -> None:
        if value is not None and not 0 < value < math.inf:  # a NaN is neither
            wrong.append(f"{name} is {value}: it must be above 0")

    def waits(name: str, value: float | None) -> None:
        if value is not None and not TIME_MIN_S <= value < math.inf:
            wrong.append(f"{name} is {value}: it must be at least {TIME_MIN_S} s")

    def not_negative(name: str, value: float) -> None:
        if not 0 <= value < math.inf:
            wrong.append(f"{name} is {value}: it must be 0 or more")

    def at_most(name: str, value: int, limit: int) -> None:
        if value > limit:
            wrong.append(f"{name} is {value}: it must be at most {limit}")

    for name in ("num_prompts_per_step", "num_generations_per_prompt", "train_steps", "max_buffered_rollouts",
                 "max_turns", "gym_instances", "generation_workers", "num_finalizer_workers",
                 "max_inflight_prompts", "min_groups_for_streaming_train"):  # fmt: skip
        positive(name, getattr(job, name))
    waits("rollout_checkpointing.interval_s", job.rollout_checkpointing.interval_s)
    positive("rollout_checkpointing.keep_latest_k", job.rollout_checkpointing.keep_latest_k)
    positive("checkpointing.save_period", job.checkpointing.save_period)
    positive("checkpointing.keep_top_k", job.checkpointing.keep_top_k)
    waits("checkpointing.must_save_by_s", job.checkpointing.must_save_by_s)
    waits("rollout_recovery.gym_prepare_timeout_s", job.rollout_recovery.gym_prepare_timeout_s)
    waits("rollout_recovery.gym_spinup_timeout_s", job.rollout_recovery.gym_spinup_timeout_s)
    waits("rpc_timeout_s", job.rpc_timeout_s)
    waits("trainer_timeout_s", job.trainer_timeout_s)
    waits("weight_sync_timeout_s", job.weight_sync_timeout_s)
    positive("watchdog.unhealthy_probes", job.watchdog.unhealthy_probes)
    waits("watchdog.reprobe_s", job.watchdog.reprobe_s)
    waits("token_capture.control_timeout_s", job.token_capture.control_timeout_s)
    waits("watchdog.interval_s", job.watchdog.interval_s)
    waits("rollout_failure.nemo_gym.rollout_timeout_s", job.rollout_failure.nemo_gym.rollout_timeout_s)
    positive("token_capture.generation_prefix_batch_size", job.token_capture.generation_prefix_batch_size)
    positive("token_capture.generation_prefix_token_budget", job.token_capture.generation_prefix_token_budget)
    positive("max_new_tokens", job.max_new_tokens)
    positive("rollout_failure.nemo_gym.max_row_attempts", job.rollout_failure.nemo_gym.max_row_attempts)
    positive("rollout_failure.max_infra_attempts_per_prompt", job.rollout_failure.max_infra_attempts_per_prompt)
    positive("rollout_failure.max_data_attempts_per_prompt", job.rollout_failure.max_data_attempts_per_prompt)
    positive("rollout_checkpointing.max_consecutive_failures", job.rollout_checkpointing.max_consecutive_failures)
    positive("rollout_recovery.resume_attempts", job.rollout_recovery.resume_attempts)
    waits("rollout_recovery.drain_timeout_s", job.rollout_recovery.drain_timeout_s)
    waits("watchdog.stall_timeout_s", job.watchdog.stall_timeout_s)
    not_negative("rollout_failure.backoff_base_s", job.rollout_failure.backoff_base_s)
    not_negative("rollout_failure.max_backoff_s", job.rollout_failure.max_backoff_s)
    not_negative("rollout_failure.max_skipped_prompts", job.rollout_failure.max_skipped_prompts)
    not_negative("rollout_recovery.reply_grace_s", job.rollout_recovery.reply_grace_s)
    not_negative("rollout_recovery.resume_retry_s", job.rollout_recovery.resume_retry_s)
    for name in ("gym_instances", "generation_workers", "num_finalizer_workers", "max_turns"):
        at_most(name, getattr(job, name), PROCESSES_MAX)
    rollouts = job.num_prompts_per_step * job.num_generations_per_prompt
    at_most("num_prompts_per_step x num_generations_per_prompt", rollouts, ROLLOUTS_MAX)

    def one_of(name: str, value: str, allowed: tuple[str, ...]) -> bool:
        if value not in allowed:
            wrong.append(f"{name} is {value!r}: it must be one of {', '.join(allowed)}")
            return False
        return True

    one_of("router_replay.read_mode", job.router_replay.read_mode, ("grouped", "per_call", "new_chunks"))
    one_of("sampler.name", job.sampler.name, ("in_order", "windowed", "weight_fifo"))
    one_of("rollout_checkpointing.restore_mode", job.rollout_checkpointing.restore_mode,
           ("latest", "trainer_checkpoint", "none"))  # fmt: skip
    one_of("watchdog.stall_action", job.watchdog.stall_action, ("warn", "abort"))
    if job.sampler.max_lookahead_versions < 0:
        wrong.append(f"sampler.max_lookahead_versions is {job.sampler.max_lookahead_versions}: it must be 0 or more")
    if job.sampler.max_staleness_versions < 0:
        wrong.append(f"sampler.max_staleness_versions is {job.sampler.max_staleness_versions}: it must be 0 or more")

    if one_of("target_level", job.target_level, LEVELS):
        wrong += _level_faults(job)
    wrong += _override_faults(job, task_names)
    if not job.token_capture.enabled:
        wrong.append(
            "token_capture.enabled is false: receipts rest on captured calls, a run without capture comes with a later step"
        )
    if job.checkpointing.must_save_by_s is not None and not job.snapshots_on:
        wrong.append("checkpointing.must_save_by_s forces a snapshot: it needs rollout_checkpointing.interval_s to be set")
    rollout_s = job.rollout_failure.nemo_gym.rollout_timeout_s
    if rollout_s is not None and job.watchdog.stall_timeout_s <= rollout_s:
        wrong.append(f"rollout_failure.nemo_gym.rollout_timeout_s is {rollout_s}: it must be below "
                     f"watchdog.stall_timeout_s ({job.watchdog.stall_timeout_s})")  # fmt: skip
    batch, buffer = job.num_prompts_per_step, job.max_buffered_rollouts
    if job.streaming_groups > buffer:
        wrong.append(f"max_buffered_rollouts is {buffer}: it must be at least min_groups_for_streaming_train "
                     f"({job.streaming_groups})")  # fmt: skip
    need = batch + job.streaming_groups - 1 if job.snapshots_on else batch
    if buffer < need:
        wrong.append(f"max_buffered_rollouts is {buffer}: it must be at least {need} with num_prompts_per_step {batch}")
    if job.watchdog.stall_timeout_s <= job.watchdog.interval_s:
        wrong.append(f"watchdog.stall_timeout_s is {job.watchdog.stall_timeout_s}: it must be above "
                     f"watchdog.interval_s ({job.watchdog.interval_s})")  # fmt: skip
    if job.target_level in LEVELS and park_outlasts_stall(job):
        stall_s, park_s = job.watchdog.stall_timeout_s, job.park_bound_s
        wrong.append(f"watchdog.stall_timeout_s is {stall_s:g}: it must outlast a Gym park, which may take {park_s:g} s "
                     "(rollout_recovery.gym_prepare_timeout_s, then commit, drain and resume)")  # fmt: skip
    return wrong


def park_outlasts_stall(job: Job) -> bool:
    """Whether the watchdog could take a park for a stall; below TURN nothing parks Gym."""
    return job.level >= Level.TURN and job.watchdog.stall_timeout_s <= job.park_bound_s


def _level_faults(job: Job) -> list[str]:
    """What a target level needs and does not have (PROTOCOL 2.4)."""
    wrong: list[str] = []
    level, name = job.level, job.target_level
    if level >= Level.TURN:
        if not job.snapshots_on:
            wrong.append(f"rollout_checkpointing.interval_s is not set: target_level {name} needs periodic snapshots")
        if not job.async_engine:
            wrong.append(f"async_engine is false: target_level {name} needs an asynchronous engine")
        if job.environment_server != "legacy_agent":
            wrong.append(f"environment_server is {job.environment_server!r}: target_level {name} needs legacy_agent")
    if job.sampler.name == "weight_fifo" and (job.snapshots_on or level > Level.ROLLOUT):
        wrong.append("sampler.name weight_fifo keeps no buffer in a checkpoint: it is refused with "
                     "rollout_checkpointing.interval_s set or target_level above rollout")  # fmt: skip
    return wrong


def _override_faults(job: Job, task_names: Iterable[str] | None) -> list[str]:
    """A task may be restored more coarsely than the target, never at TURN or finer: Gym exports every live episode."""
    overrides = job.rollout_recovery.level_overrides
    if not overrides:
        return []
    if job.target_level in LEVELS and job.level >= Level.TURN:
        return [f"rollout_recovery.level_overrides names {', '.join(sorted(overrides))}: target_level {job.target_level} "
                "allows no override, since Gym saves every live episode; leave it out, or set target_level "
                "to sibling or rollout"]  # fmt: skip
    wrong: list[str] = []
    known = None if task_names is None else dict.fromkeys(task_names)
    for task, name in sorted(overrides.items()):
        key = f"rollout_recovery.level_overrides.{task}"
        if name not in LEVELS:
            wrong.append(f"{key} is {name!r}: it must be one of {', '.join(LEVELS)}")
        elif job.target_level in LEVELS and Level.named(name) > job.level:
            wrong.append(f"{key} is {name}: it must not be finer than target_level {job.target_level}")
        if known is not None and task not in known:
            wrong.append(f"{key} has no effect: the data set has the tasks {', '.join(known)}")
    return wrong


def accept(job: Job) -> Job:
    """Return ``job``, or raise one ConfigError that lists everything that is wrong with it."""
    wrong = check(job)
    if wrong:
        raise ConfigError("; ".join(wrong))
    return job


def set_up(given: Job | Mapping[str, Any], task_names: Iterable[str]) -> Job:
    """The job of a run that starts, from a job or from the tables of its file. Raises one ConfigError that names every fault."""
    names = tuple(task_names)
    job, wrong = (given, []) if isinstance(given, Job) else read_job(given, "")
    wrong += check(job, names)
    if wrong:
        raise ConfigError("; ".join(wrong))
    return job


def job_from(values: Mapping[str, Any], where: str = "job") -> Job:
    """Build a Job from plain tables; raises one ConfigError that names every unknown key and wrong type."""
    job, wrong = read_job(values, where)
    if wrong:
        raise ConfigError("; ".join(wrong))
    return job


def with_values(job: Job, values: Mapping[str, Any]) -> Job:
    """``job`` with other values under dotted keys. Raises ConfigError for a key or a type that it does not have."""
    tables = msgspec.to_builtins(job)
    for key, value in values.items():
        *above, last = key.split(".")
        table = tables
        for part in above:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ConfigError(f"job.{key} is not a known key: {part} is no table")
        table[last] = value
    return job_from(tables)


def read_job(values: Mapping[str, Any], where: str = "job") -> tuple[Job, list[str]]:
    """A Job of what can be read in plain tables, and every key that cannot: it keeps its default."""
    wrong: list[str] = []
    return msgspec.convert(_readable(values, Job, where, wrong), Job), wrong


def removed_key(key: str, place: str) -> str | None:
    """Why a key of an earlier layer is refused (None: it is no such key): the level says how a group is recovered."""
    if not key.endswith("_granularity"):
        return None
    return f"{place} is not a known key any more: how much is recovered follows from target_level, write that instead"


def _readable(values: Mapping[str, Any], kind: Any, where: str, wrong: list[str]) -> dict[str, Any]:
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    kept: dict[str, Any] = {}
    for key, value in values.items():
        place = f"{where}.{key}" if where else key
        if key not in fields:
            unknown = f"{place} is not a known key; known are {', '.join(sorted(fields))}"
            wrong.append(removed_key(key, place) or unknown)
            continue
        inner = fields[key].type
        if isinstance(inner, type) and issubclass(inner, Config):
            if isinstance(value, Mapping):
                kept[key] = _readable(value, inner, place, wrong)
            else:
                wrong.append(f"{place} is {value!r}: it must be a table")
            continue
        try:
            kept[key] = msgspec.convert(value, inner)
        except msgspec.ValidationError as error:
            wrong.append(f"{place} is {value!r}: {error}")
    return kept
