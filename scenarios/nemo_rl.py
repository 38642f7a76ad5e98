"""A NeMo RL single-controller YAML laid over a scenario (RULES 13).

Every leaf of the file is mapped onto a key of the job, kept from the scenario, or named as not modelled. Inside
``STRICT_SECTIONS`` a key that is neither mapped nor on ``NOT_MODELLED`` is refused: a misspelt recovery switch
must not be ignored in silence.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import yaml  # type: ignore[import-untyped]
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigKeyError,
    InterpolationKeyError,
    InterpolationToMissingValueError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)
from yaml import MarkedYAMLError, YAMLError

from protocol.config import Config, Job, removed_key
from scenarios.model import InputError

STRICT_SECTIONS = ("async_rl", "rollout_checkpointing", "rollout_recovery", "token_capture")

# NeMo RL's key -> the job's key. Both sides are dotted.
MAPPED: dict[str, str] = {
    "grpo.num_prompts_per_step": "num_prompts_per_step",
    "grpo.num_generations_per_prompt": "num_generations_per_prompt",
    "grpo.max_num_steps": "train_steps",
    "grpo.seed": "seed",
    "async_rl.sampler.name": "sampler.name",
    "async_rl.sampler.max_lookahead_versions": "sampler.max_lookahead_versions",
    "async_rl.sampler.max_staleness_versions": "sampler.max_staleness_versions",
    "async_rl.min_groups_for_streaming_train": "min_groups_for_streaming_train",
    "async_rl.max_inflight_prompts": "max_inflight_prompts",
    "async_rl.max_buffered_rollouts": "max_buffered_rollouts",
    "async_rl.rollout_failure.max_infra_attempts_per_prompt": "rollout_failure.max_infra_attempts_per_prompt",
    "async_rl.rollout_failure.max_data_attempts_per_prompt": "rollout_failure.max_data_attempts_per_prompt",
    "async_rl.rollout_failure.backoff_base_s": "rollout_failure.backoff_base_s",
    "async_rl.rollout_failure.max_backoff_s": "rollout_failure.max_backoff_s",
    "async_rl.rollout_failure.max_skipped_prompts": "rollout_failure.max_skipped_prompts",
    "async_rl.rollout_failure.nemo_gym.rollout_timeout_s": "rollout_failure.nemo_gym.rollout_timeout_s",
    "async_rl.rollout_failure.nemo_gym.max_row_attempts": "rollout_failure.nemo_gym.max_row_attempts",
    "async_rl.watchdog.interval_s": "watchdog.interval_s",
    "async_rl.watchdog.stall_timeout_s": "watchdog.stall_timeout_s",
    "async_rl.watchdog.stall_action": "watchdog.stall_action",
    "checkpointing.enabled": "checkpointing.enabled",
    "checkpointing.save_period": "checkpointing.save_period",
    "checkpointing.keep_top_k": "checkpointing.keep_top_k",
    "rollout_checkpointing.interval_s": "rollout_checkpointing.interval_s",
    "rollout_checkpointing.keep_latest_k": "rollout_checkpointing.keep_latest_k",
    "rollout_checkpointing.restore_mode": "rollout_checkpointing.restore_mode",
    "rollout_checkpointing.max_consecutive_failures": "rollout_checkpointing.max_consecutive_failures",
    "rollout_recovery.target_level": "target_level",
    "rollout_recovery.level_overrides": "rollout_recovery.level_overrides",
    "rollout_recovery.gym_prepare_timeout_s": "rollout_recovery.gym_prepare_timeout_s",
    "token_capture.enabled": "token_capture.enabled",
    "token_capture.control_timeout_s": "token_capture.control_timeout_s",
    "policy.generation.vllm_cfg.async_engine": "async_engine",
    "env.nemo_gym.environment_server": "environment_server",
}
TABLES = ("rollout_recovery.level_overrides",)  # of MAPPED: those whose value is a table

# Where recovery was once configured by ``*_granularity`` keys. Elsewhere a name that ends so is another's: Megatron has
# ``recompute_granularity``.
REMOVED_SECTIONS = (*STRICT_SECTIONS, "env", "grpo", "checkpointing", "data")

# Keys of the strict sections that NeMo RL has and this project does not model. A name covers what is below it.
NOT_MODELLED = (
    "async_rl.recompute_kv_cache_after_weight_updates",
    "async_rl.diagnostics",
    "async_rl.log_full_train_data",
    "async_rl.rollout_failure.native",
    "async_rl.watchdog.gym_subprocess_check",
    "async_rl.generation_fleet_health",
    "async_rl.generation_router",
    "async_rl.scheduler_trace",
    "rollout_recovery.generation_prefix_batch_size",
    "token_capture.staging_partition",
    "token_capture.on_capture_failure",
    "token_capture.mixed_weight_version_policy",
    "token_capture.min_valid_fraction_per_group",
    "token_capture.control_auth_token",
    "token_capture.num_finalizer_workers",
)

# Values that would turn saving off: kept on unless --config-strict (a run that saves nothing proves nothing).
SAVING_OFF: dict[str, Any] = {
    "checkpointing.enabled": False,
    "token_capture.enabled": False,
}


class Overlay(msgspec.Struct, frozen=True, kw_only=True):
    """What a config file says: ``values`` by dotted key of the job, and where every key of the file went."""

    path: str
    values: dict[str, Any]
    sources: dict[str, str]  # key of the job -> key of the file
    mapped: tuple[str, ...]
    kept: tuple[str, ...]
    not_modelled: tuple[str, ...]

    @property
    def warning(self) -> str:
        """One line that names every key whose value in the file has no effect."""
        return (
            f"config {self.path}: {len(self.mapped)} keys mapped; kept from the scenario: {', '.join(self.kept) or 'none'}; "
            f"not modelled: {', '.join(self.not_modelled) or 'none'}"
        )

    def as_json(self) -> dict[str, list[str]]:
        return {"mapped": list(self.mapped), "kept": list(self.kept), "not_modelled": list(self.not_modelled)}


def read_config(path: str, strict: bool = False) -> Overlay:
    """Read a YAML file and say what it means here. Raises one InputError that names every fault."""
    config, unresolved = _load(Path(path), ())
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    kept: list[str] = []
    not_modelled: list[str] = [f"defaults ({name})" for name in unresolved]
    wrong: list[str] = []
    found: set[str] = set()
    for key in _leaves(config, ""):
        if key == "defaults":
            continue
        removed = _removed(key)
        if removed is not None:
            wrong.append(f"{removed}{_known_beside(key)}")
            continue
        target = MAPPED.get(key)
        if target is None:
            above = next((name for name in MAPPED if key.startswith(name + ".")), None)
            if above is not None:
                wrong.append(f"{above} is a table: it must be a single value")
                continue
            below = [name for name in MAPPED if name.startswith(key + ".")]
            if below and OmegaConf.select(config, key, throw_on_missing=False) is None:
                continue  # an empty section: its keys are absent, which is said below
            if below:
                wrong.append(f"{key} is {OmegaConf.select(config, key)!r}: it must be a table")
            elif key.split(".")[0] in STRICT_SECTIONS and not _covered(key):
                wrong.append(f"{key} is not a known key{_known_beside(key)}")
            else:
                not_modelled.append(key)
            continue
        found.add(key)
        try:
            value = _value(config, key)
        except (InterpolationKeyError, InterpolationToMissingValueError, MissingMandatoryValue):
            kept.append(key)  # to be filled in by a file that is not here, or ???
            continue
        except ConfigKeyError:
            wrong.append(f"{key} is written as one key with a dot: write its parts as nested tables")
            continue
        except OmegaConfBaseException as error:
            wrong.append(f"{key}: {str(error).splitlines()[0]}")
            continue
        if value is None or (not strict and key in SAVING_OFF and value == SAVING_OFF[key]):
            kept.append(key)
            continue
        kind = _type_of(target)
        try:
            values[target] = msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            wrong.append(f"{key} is {value!r}: {str(error)[0].lower()}{str(error)[1:]}")
            continue
        sources[target] = key
    if wrong:
        raise InputError.of(path, wrong)
    kept += [key for key in MAPPED if key not in found]
    return Overlay(
        path=path,
        values=values,
        sources=sources,
        mapped=tuple(sources.values()),
        kept=tuple(kept),
        not_modelled=tuple(not_modelled),
    )


def _load(path: Path, seen: tuple[Path, ...]) -> tuple[DictConfig, list[str]]:
    """The file with its ``defaults`` merged below it; also the defaults that are not beside it."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        root = yaml.compose(text)
        if root is not None and not isinstance(root, yaml.MappingNode):
            what = "list" if isinstance(root, yaml.SequenceNode) else "single value"
            raise InputError(f"{path}: holds a {what}: a YAML mapping was expected")
        loaded = OmegaConf.load(io.StringIO(text))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such config file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is no UTF-8 text (byte {error.start + 1} of the file): save it as UTF-8") from None
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{path}:{line}: is no YAML ({error.problem})") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}): a YAML file was expected") from None
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply: a NeMo RL config was expected") from None
    except (YAMLError, OmegaConfBaseException, ValueError) as error:  # ValueError: a number of thousands of digits
        raise InputError(f"{path}: cannot be read as YAML ({str(error).splitlines()[0]})") from None
    assert isinstance(loaded, DictConfig)  # its root is a mapping
    names = _defaults(loaded, path)
    missing: list[str] = []
    layers: list[DictConfig] = []
    for name in names:
        parent = (path.parent / name).resolve()
        if parent in (*seen, path.resolve()):
            raise InputError(f"{path}: defaults {name!r} leads back to itself: leave it out")
        if not parent.is_file():
            missing.append(name)
            continue
        inner, more = _load(parent, (*seen, path.resolve()))
        layers.append(inner)
        missing += more
    try:
        result = OmegaConf.merge(*layers, loaded)
    except (OmegaConfBaseException, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: cannot be laid over its defaults {', '.join(names)} ({reason}): types must agree") from None
    assert isinstance(result, DictConfig)  # both sides are mappings
    return result, missing


def _defaults(loaded: DictConfig, path: Path) -> list[str]:
    """The names under ``defaults``: one file name, or a list of them (an entry that is a table is Hydra's: kept as its text)."""
    try:
        names = OmegaConf.to_container(loaded, resolve=False)["defaults"]  # type: ignore[call-overload,index]
    except KeyError:
        return []
    if names is None:
        return []
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list):
        raise InputError(f"{path}: defaults is {names!r}: it must be a file name or a list of them")
    return [str(name) for name in names]


def _leaves(config: DictConfig, prefix: str) -> list[str]:
    """Dotted keys of everything that is no mapping, in file order; an empty mapping counts as a leaf."""
    keys: list[str] = []
    for name in map(str, config):
        key = prefix + name
        node = config._get_node(name)
        if (
            isinstance(node, DictConfig)
            and not node._is_none()
            and not node._is_missing()
            and not node._is_interpolation()
            and len(node)
            and key not in TABLES
        ):
            keys += _leaves(node, key + ".")
        else:
            keys.append(key)
    return keys


def _value(config: DictConfig, key: str) -> Any:
    node: Any = config
    for part in key.split("."):
        node = node[part]
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def _removed(key: str) -> str | None:
    """Why a key that once said how much is recovered is refused, whatever it holds; None: it is no such key."""
    parts = key.split(".")
    if len(parts) > 1 and parts[0] not in REMOVED_SECTIONS:
        return None
    return next((text for part in parts if (text := removed_key(part, key)) is not None), None)


def _covered(key: str) -> bool:
    return any(key == name or key.startswith(name + ".") for name in NOT_MODELLED)


def _known_beside(key: str) -> str:
    parent = key.rpartition(".")[0]
    depth = parent.count(".") + 2
    beside = dict.fromkeys(
        ".".join(name.split(".")[:depth]).rpartition(".")[2] for name in (*MAPPED, *NOT_MODELLED) if name.startswith(parent + ".")
    )
    return f"; {parent} has {', '.join(beside)}" if beside else ""


def _type_of(target: str) -> Any:
    kind: Any = Job
    for part in target.split("."):
        kind = get_type_hints(kind)[part]
        assert part == target.split(".")[-1] or issubclass(kind, Config)  # MAPPED names real keys: a test walks it
    return kind
