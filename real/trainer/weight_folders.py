"""The weights that engines load: one whole model folder a version, in this life's scratch.

    life-<k>/scratch/trainer/weights/v<version>/{config.json, tokenizer files, model.safetensors, weights.json}

A folder gets its name when everything is in it; ``weights.json`` says {"version", "sha256" of model.safetensors}.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from real.trainer.policy import Policy

MODEL_FILE = "model.safetensors"
WEIGHTS_JSON = "weights.json"
BESIDE = (".json", ".txt", ".model", ".jinja", ".tiktoken")  # what a model folder holds beside weights
OURS = (WEIGHTS_JSON, "state.json")  # of an earlier run, if they lie in the folder that was given
UNFINISHED = "making"


def beside_weights(folder: Path) -> list[Path]:
    """Configuration and tokenizer of a model folder; nothing that could hold weights or code."""
    return [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and path.suffix in BESIDE and not path.name.endswith(".index.json") and path.name not in OURS
    ]


def sha256_of(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


class WeightFolders:
    """``kept``: how many versions stay, the newest included."""

    def __init__(self, base: Path, model: Path, kept: int) -> None:
        self.base = base
        self.model = model
        self.kept = kept
        self.published: list[int] = []  # oldest first
        self.held = 0

    def folder(self, version: int) -> Path:
        return self.base / f"v{version}"

    def publish(self, policy: Policy) -> str:
        """Digest of the weights, which lie there under their version when this returns."""
        making = self.base / UNFINISHED
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        written = policy.write_model(making / "model")
        os.replace(written, making / MODEL_FILE)
        shutil.rmtree(making / "model")  # its configuration is not the one that was given
        for path in beside_weights(self.model):
            shutil.copyfile(path, making / path.name)
        digest = sha256_of(making / MODEL_FILE)
        (making / WEIGHTS_JSON).write_bytes(msgspec.json.encode({"version": policy.step, "sha256": digest}))
        target = self.folder(policy.step)
        if target.exists():  # loaded again in this life
            shutil.rmtree(target)
        os.rename(making, target)
        self.published = [*(version for version in self.published if version != policy.step), policy.step]
        self._prune()
        policy.weights = digest
        return digest

    def hold(self, version: int) -> Path:
        """Another name for the version's file of weights, which stays whatever becomes of its folder. It is the caller's."""
        self.held += 1
        held = self.base / f"held-{self.held}.safetensors"
        held.unlink(missing_ok=True)  # of an earlier incarnation of this process
        source = self.folder(version) / MODEL_FILE
        try:
            os.link(source, held)
        except OSError:  # a file system without links
            shutil.copyfile(source, held)
        return held

    def _prune(self) -> None:
        for version in self.published[: -self.kept]:
            shutil.rmtree(self.folder(version), ignore_errors=True)
            self.published.remove(version)
