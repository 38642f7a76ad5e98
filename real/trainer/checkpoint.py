"""A trainer checkpoint's folder ``policy/``, written whole and read back whole or not at all.

    model.safetensors      the weights, under the names that engines read; their SHA-256 is the weights' digest
    optimizer.safetensors  AdamW's moments and step of each parameter, by the parameter's name
    config.json, ...       configuration and tokenizer, as they were given
    weights.msgpack        {step, weights}: what every trainer writes
    state.json             last: step, hyperparameters, what the model is, and the SHA-256 of each file above

Nothing is pickled. A file that is torn, changed, foreign or of another model is refused by name before anything of the
folder is installed. File effects are recorded here, as the seam would: the files are too big to be written on its loop.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from protocol.errors import MissingFile, ProtocolError, Refusal, RestoreRefused
from protocol.history import FileDone, FileIssued, FileRead
from protocol.runtime import Runtime
from real.trainer.settings import CONFIG_FILE, TrainerSettings
from real.trainer.weight_folders import MODEL_FILE, beside_weights, sha256_of

if TYPE_CHECKING:
    from real.trainer.policy import Captured, Policy

FORMAT = 1
OPTIMIZER_FILE = "optimizer.safetensors"
WEIGHTS_FILE = "weights.msgpack"
STATE_FILE = "state.json"
NEEDED = (MODEL_FILE, OPTIMIZER_FILE, CONFIG_FILE, WEIGHTS_FILE)


class Hyperparameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the one parameter group."""

    learning_rate: float
    betas: tuple[float, float]
    epsilon: float
    weight_decay: float
    gradient_norm_max: float
    dtype: str


class SavedState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Content of ``state.json``. ``seed`` and ``step`` are all there is of a random state: each step seeds its own."""

    format: int
    step: int
    seed: int
    weights: str
    architecture: str
    hyperparameters: Hyperparameters
    parameters: tuple[str, ...]
    files: dict[str, str]  # name -> SHA-256 hex


class SavedWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of ``weights.msgpack``."""

    step: int
    weights: str


def hyperparameters_of(settings: TrainerSettings) -> Hyperparameters:
    return Hyperparameters(
        settings.learning_rate,
        settings.betas,
        settings.epsilon,
        settings.weight_decay,
        settings.gradient_norm_max,
        settings.dtype,
    )


async def write_policy(
    rt: Runtime, root: Path, folder: str, held: Path, captured: Captured, policy: Policy, source: Path
) -> tuple[str, ...]:
    """Names of the files, in the order of writing. ``held``: the file of the captured weights, which is taken.

    Raises Refusal if it is not what was captured.
    """
    from safetensors.torch import save_file

    place = root / folder
    files: dict[str, str] = {}

    async def write(name: str, act: Callable[[Path], Any]) -> None:
        rt.record(FileIssued("write", f"{folder}/{name}"))
        files[name] = await asyncio.to_thread(_written, place / name, act)
        rt.record(FileDone("write", f"{folder}/{name}"))

    await write(MODEL_FILE, lambda path: _moved(held, path))
    if files[MODEL_FILE] != captured.weights:
        raise Refusal(f"save step {captured.step}: {held} holds weights {files[MODEL_FILE]}, not {captured.weights}")
    await write(OPTIMIZER_FILE, lambda path: save_file(captured.moments, path))
    for beside in beside_weights(source):
        await write(beside.name, lambda path: shutil.copyfile(beside, path))
    about = msgspec.msgpack.encode(SavedWeights(captured.step, captured.weights))
    await write(WEIGHTS_FILE, lambda path: path.write_bytes(about))
    state = SavedState(
        format=FORMAT,
        step=captured.step,
        seed=policy.seed,
        weights=captured.weights,
        architecture=policy.architecture,
        hyperparameters=hyperparameters_of(policy.settings),
        parameters=captured.parameters,
        files=dict(files),
    )
    await write(STATE_FILE, lambda path: path.write_bytes(msgspec.json.format(msgspec.json.encode(state))))
    return tuple(files)


def _written(path: Path, act: Callable[[Path], Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        act(path)
    except OSError as error:
        raise ProtocolError(f"{path.name!r} cannot be written: {error.strerror}") from None
    return sha256_of(path)


def _moved(held: Path, path: Path) -> None:
    try:
        os.replace(held, path)
    except OSError:
        shutil.copyfile(held, path)
        held.unlink()


async def read_state(rt: Runtime, root: Path, folder: str) -> SavedState:
    """The state of a folder whose every file is the one that was written. Raises MissingFile or RestoreRefused."""
    path = f"{folder}/{STATE_FILE}"
    try:
        data = await asyncio.to_thread((root / path).read_bytes)
    except FileNotFoundError:
        raise MissingFile(f"{path!r} is not there") from None
    rt.record(FileRead(path))
    try:
        state = msgspec.json.decode(data, type=SavedState)
    except msgspec.DecodeError as error:
        raise RestoreRefused(f"{path} is no state of a trainer: {error}") from None
    if state.format != FORMAT:
        raise RestoreRefused(f"{path} has format {state.format}: this release reads {FORMAT}")
    unsaid = [name for name in NEEDED if name not in state.files]
    if unsaid:
        raise RestoreRefused(f"{path} names no {', '.join(unsaid)}")
    names = await asyncio.to_thread(lambda: sorted(entry.name for entry in (root / folder).iterdir()))
    foreign = [name for name in names if name != STATE_FILE and name not in state.files]
    if foreign:
        raise RestoreRefused(f"{folder}/{foreign[0]} is none of the checkpoint's files: nothing but what was saved may lie there")
    for name, expected in state.files.items():
        if name not in names:
            raise MissingFile(f"'{folder}/{name}' is not there")
        found = await asyncio.to_thread(sha256_of, root / folder / name)
        rt.record(FileRead(f"{folder}/{name}"))
        if found != expected:
            raise RestoreRefused(f"{folder}/{name} is not what was saved: its SHA-256 is {found}, {STATE_FILE} says {expected}")
    if state.files[MODEL_FILE] != state.weights:
        raise RestoreRefused(f"{path} calls the weights {state.weights}, and {MODEL_FILE} has digest {state.files[MODEL_FILE]}")
    return state


def refuse_other_model(path: str, state: SavedState, expected: str, settings: TrainerSettings) -> None:
    """Raises RestoreRefused unless the run's own model and hyperparameters made it."""
    if state.architecture != expected:
        raise RestoreRefused(f"{path}/{STATE_FILE}: the checkpoint is of another model than {settings.model}")
    saved, told = hyperparameters_of(settings), state.hyperparameters
    differing = [
        f"{name} {getattr(told, name)} (now {getattr(saved, name)})"
        for name in Hyperparameters.__struct_fields__
        if getattr(saved, name) != getattr(told, name)
    ]
    if differing:
        raise RestoreRefused(f"{path}/{STATE_FILE}: trained with {', '.join(differing)}: restore with what it was trained with")
