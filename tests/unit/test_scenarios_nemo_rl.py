"""A NeMo RL config over a scenario: mapped, kept, not modelled, refused (RULES 13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.files import load
from scenarios.model import InputError
from scenarios.nemo_rl import MAPPED, NOT_MODELLED, STRICT_SECTIONS, _type_of, read_config

EXAMPLE = """
defaults: base_of_another_project.yaml
grpo:
  num_generations_per_prompt: 2
  val_period: 0
async_rl:
  sampler:
    name: in_order
    max_lookahead_versions: 0
  max_inflight_prompts: ${grpo.num_prompts_per_step}
  max_buffered_rollouts: 32
  diagnostics: false
  rollout_failure:
    native:
      env_timeout_s: null
    nemo_gym:
      rollout_timeout_s: null
checkpointing:
  enabled: false
  save_period: 2
rollout_checkpointing:
  interval_s: null
policy:
  generation:
    vllm_cfg:
      async_engine: true
"""


def written(tmp_path: Path, text: str, name: str = "grpo.yaml") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def refusal(path: str) -> str:
    with pytest.raises(InputError) as error:
        read_config(path)
    return str(error.value)


def test_every_mapped_key_is_a_key_of_the_job() -> None:
    for target in MAPPED.values():
        assert _type_of(target) is not None
    assert len(set(MAPPED.values())) == len(MAPPED)


def test_modelled_and_not_modelled_keys_do_not_overlap() -> None:
    assert not [key for key in MAPPED for name in NOT_MODELLED if key == name or key.startswith(name + ".")]
    assert {name.split(".")[0] for name in NOT_MODELLED} <= set(STRICT_SECTIONS)


def test_each_key_of_the_file_goes_exactly_one_way(tmp_path: Path) -> None:
    overlay = read_config(written(tmp_path, EXAMPLE))
    assert overlay.mapped == (
        "grpo.num_generations_per_prompt",
        "async_rl.sampler.name",
        "async_rl.sampler.max_lookahead_versions",
        "async_rl.max_buffered_rollouts",
        "checkpointing.save_period",
        "policy.generation.vllm_cfg.async_engine",
    )
    assert overlay.not_modelled == (
        "defaults (base_of_another_project.yaml)",
        "grpo.val_period",
        "async_rl.diagnostics",
        "async_rl.rollout_failure.native.env_timeout_s",
    )
    assert set(overlay.kept) == set(MAPPED) - set(overlay.mapped)


def test_null_absent_and_unresolved_keys_keep_the_scenarios_value(tmp_path: Path) -> None:
    plain, laid = load("workplace").scenario.job, load("workplace", config=written(tmp_path, EXAMPLE)).scenario.job
    assert (laid.num_generations_per_prompt, laid.sampler.max_lookahead_versions, laid.checkpointing.save_period) == (2, 0, 2)
    assert (laid.num_prompts_per_step, laid.max_inflight_prompts) == (plain.num_prompts_per_step, plain.max_inflight_prompts)
    assert laid.rollout_checkpointing.interval_s == plain.rollout_checkpointing.interval_s


def test_saving_is_kept_on_unless_the_config_is_strict(tmp_path: Path) -> None:
    path = written(tmp_path, EXAMPLE)
    assert load("workplace", config=path).scenario.job.checkpointing.enabled is True
    assert load("workplace", config=path, config_strict=True).scenario.job.checkpointing.enabled is False


def test_one_warning_names_everything_without_effect(tmp_path: Path) -> None:
    overlay = read_config(written(tmp_path, EXAMPLE))
    assert "\n" not in overlay.warning
    for key in (*overlay.kept, *overlay.not_modelled):
        assert key in overlay.warning


MISSPELT = (
    "async_rl.max_inflight_promts",
    "rollout_checkpointing.interval",
    "rollout_recovery.sibling_granularity",
    "token_capture.enable",
)


@pytest.mark.parametrize("key", MISSPELT)
def test_an_unknown_key_inside_a_strict_section_is_refused(tmp_path: Path, key: str) -> None:
    section, name = key.split(".")
    message = refusal(written(tmp_path, f"{section}:\n  {name}: 1\n"))
    assert f"{key} is not a known key" in message and f"{section} has " in message


def test_an_unknown_key_elsewhere_is_only_named(tmp_path: Path) -> None:
    assert read_config(written(tmp_path, "logger:\n  wandb:\n    name: x\n")).not_modelled == ("logger.wandb.name",)


def test_all_faults_of_a_config_are_reported_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, "async_rl:\n  max_buffered_rollouts: many\n  nonsense: 1\n  watchdog: 3\n")
    message = refusal(path)
    assert message.startswith(f"{path}: ")
    for part in ("async_rl.max_buffered_rollouts is 'many'", "async_rl.nonsense is not a known key", "async_rl.watchdog is 3"):
        assert part in message


def test_a_combination_the_core_refuses_names_the_config(tmp_path: Path) -> None:
    path = written(tmp_path, "async_rl:\n  max_buffered_rollouts: 2\n")
    with pytest.raises(InputError, match="max_buffered_rollouts is 2") as error:
        load("workplace", config=path)
    assert path in str(error.value)


def test_broken_yaml_is_named_by_file_and_line(tmp_path: Path) -> None:
    path = written(tmp_path, "grpo:\n  a: [1\nb: 2\n")
    assert refusal(path).startswith(f"{path}:3: is no YAML")


def test_defaults_that_lie_beside_the_file_are_merged_below_it(tmp_path: Path) -> None:
    written(tmp_path, "grpo:\n  num_prompts_per_step: 3\n  max_num_steps: 2\n", "base.yaml")
    overlay = read_config(written(tmp_path, "defaults: base.yaml\ngrpo:\n  max_num_steps: 5\n"))
    assert overlay.values == {"num_prompts_per_step": 3, "train_steps": 5} and overlay.not_modelled == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", "holds a single value: a YAML mapping was expected"),
        ("- 1", "holds a list: a YAML mapping was expected"),
        ("grpo:\n  seed:\n    a: 1", "grpo.seed is a table: it must be a single value"),
        ("grpo.seed: 1", "grpo.seed is written as one key with a dot"),
        ("defaults: 5", "defaults is 5: it must be a file name or a list of them"),
        ("defaults: {a: b}", "it must be a file name or a list of them"),
        ("defaults: grpo.yaml", "leads back to itself"),
        ("grpo:\n  seed: " + "9" * 5000, "cannot be read as YAML (Exceeds the limit"),
        ("grpo:\n  num_prompts_per_step: ${grpo.num_prompts_per_step}", "Recursive interpolation detected"),
    ],
)
def test_a_config_that_means_nothing_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in refusal(written(tmp_path, text))


def test_defaults_whose_types_clash_are_refused(tmp_path: Path) -> None:
    written(tmp_path, "grpo: [1]", "base.yaml")
    assert "cannot be laid over its defaults base.yaml" in refusal(written(tmp_path, "defaults: base.yaml\ngrpo: {seed: 5}"))


def test_a_value_that_is_still_to_be_filled_in_keeps_the_scenarios(tmp_path: Path) -> None:
    overlay = read_config(written(tmp_path, "grpo:\n  seed: ???\n"))
    assert overlay.values == {} and "grpo.seed" in overlay.kept


# --- what was removed, and what is never supported


@pytest.mark.parametrize(
    "text, key",
    [
        ("rollout_recovery:\n  recovery_granularity: turn\n", "rollout_recovery.recovery_granularity"),
        ("rollout_recovery:\n  targets:\n    calendar:\n      sibling_granularity: null\n", "rollout_recovery.targets.calendar"),
        ("async_rl:\n  rollout_failure:\n    native:\n      retry_granularity: row\n", "async_rl.rollout_failure.native"),
        ("env:\n  nemo_gym:\n    turn_granularity: 1\n", "env.nemo_gym.turn_granularity"),
        ("rollout_granularity: group\n", "rollout_granularity"),
    ],
)
def test_a_removed_granularity_key_is_refused_wherever_it_stood(tmp_path: Path, text: str, key: str) -> None:
    assert f"{key}" in (found := refusal(written(tmp_path, text)))
    assert "is not a known key any more: how much is recovered follows from target_level" in found


def test_a_key_of_another_library_that_ends_alike_is_only_not_modelled(tmp_path: Path) -> None:
    overlay = read_config(written(tmp_path, "policy:\n  megatron_cfg:\n    recompute_granularity: selective\n"))
    assert overlay.not_modelled == ("policy.megatron_cfg.recompute_granularity",)


def test_level_overrides_are_one_table_and_reach_the_job(tmp_path: Path) -> None:
    path = written(tmp_path, "rollout_recovery:\n  level_overrides: {calendar: rollout}\n")
    job = load("sibling", config=path).scenario.job
    assert [job.level_of(name) for name in ("calendar", "email")] == ["rollout", "sibling"]


@pytest.mark.parametrize(
    "scenario, text, parts",
    [
        ("workplace", "rollout_recovery: {level_overrides: {calendar: rollout}}", ["level_overrides names calendar"]),
        ("workplace", "env: {nemo_gym: {environment_server: gymnasium}}",
         ["environment_server is 'gymnasium'", "needs legacy_agent", "env.nemo_gym.environment_server"]),
        ("workplace", "policy: {generation: {vllm_cfg: {async_engine: false}}}",
         ["async_engine is false", "policy.generation.vllm_cfg.async_engine"]),
        ("workplace", "rollout_recovery: {gym_prepare_timeout_s: 60}", ["watchdog.stall_timeout_s", "gym_prepare_timeout_s"]),
        ("trainer-only", "rollout_recovery: {target_level: turn}", ["rollout_checkpointing.interval_s is not set"]),
        ("sibling", "rollout_recovery: {level_overrides: {calendar: turn}}", ["level_overrides.calendar is turn"]),
        ("sibling", "rollout_recovery: {level_overrides: {calender: rollout}}", ["level_overrides.calender has no effect"]),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_this_entrance_too(
    tmp_path: Path, scenario: str, text: str, parts: list[str]
) -> None:
    with pytest.raises(InputError) as error:
        load(scenario, config=written(tmp_path, text))
    for part in parts:
        assert part in str(error.value)


def test_faults_of_every_kind_are_told_at_once(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "async_rl: {watchdog: {stall_timeout_s: 11}}\nrollout_recovery: {level_overrides: {calendar: rollout}}\n"
        "policy: {generation: {vllm_cfg: {async_engine: false}}}\n",
    )
    with pytest.raises(InputError) as error:
        load("workplace", config=path)
    for key in ("watchdog.stall_timeout_s is 11", "rollout_recovery.level_overrides", "async_engine is false"):
        assert key in str(error.value)
