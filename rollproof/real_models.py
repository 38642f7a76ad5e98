"""Which model a real run has: a folder of the user's, or a tiny one that is made on the spot and kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from protocol.errors import ConfigError
from rollproof.tokens import shown
from scenarios.model import InputError, Scenario

EXACT = ("dense", "moe", "vl")  # so small that in float32 the order of their arithmetic never shows
KINDS = (*EXACT, "dense-16m")


def cache_folder() -> Path:
    """Of this user: models that were made, releases that were verified."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rollproof"


def kind_for(scenario: Scenario) -> str:
    """What the scenario asks for, or its load needs."""
    if scenario.real.model:
        return scenario.real.model
    if scenario.job.router_replay.enabled:
        return "moe"
    return "vl" if scenario.terms.media else "dense"


def model_folder(asked: str) -> Path:
    """``asked`` is one of ``KINDS``, or a folder. Raises InputError if it is neither, or not one that can be served."""
    if asked in KINDS:
        return made(asked)
    folder = Path(asked)
    if not (folder / "config.json").is_file():
        raise InputError(f"--model {shown(asked)}: must be {', '.join(KINDS)} or a model's folder: there is no config.json in it")
    if not (folder / "tokenizer.json").is_file():
        raise InputError(
            f"--model {shown(asked)}: has no tokenizer.json: episodes are made of its tokens, save the fast tokenizer there"
        )
    return folder.resolve()


def made(kind: str) -> Path:
    """The tiny model of this kind: made once for each version of the code that makes it, whole or not at all."""
    from real.engine import models

    with open(models.__file__, "rb") as code:
        version = hashlib.sha256(code.read()).hexdigest()[:8]
    folder = cache_folder() / "models" / f"{kind}-{version}"
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=folder.parent))
    try:
        models.make(new / "model", kind)
        try:
            (new / "model").rename(folder)
        except OSError:
            if not (folder / "config.json").is_file():  # else another run was faster
                raise
    except ConfigError as error:
        raise InputError(f"--model {kind}: cannot be made: {error}") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return folder
