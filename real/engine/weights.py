"""The weights of one version, as the trainer leaves them for the engines of its life: found, and proved to be those.

life-<k>/scratch/trainer/weights/v<version>/    a whole model folder, model.safetensors in it
                                 weights.json   {"version": v, "sha256": of model.safetensors}, written last
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from protocol.errors import Cause, Refusal
from real.engine.models import NAMED, WEIGHTS, file_digest


class NamedWeights(msgspec.Struct, frozen=True):
    version: int
    sha256: str


def weights_folder(root: Path, life: int, version: int) -> Path:
    return root / f"life-{life}" / "scratch" / "trainer" / "weights" / f"v{version}"


def proved(folder: Path, version: int, told: str) -> str:
    """SHA-256 of the weights in ``folder``; ``told`` '': nobody has said which they are. Reads the whole file.

    Raises Refusal(INFRA): they are not there (yet), or are others than it was told."""
    try:
        named = msgspec.json.decode((folder / NAMED).read_bytes(), type=NamedWeights)
    except OSError as error:
        raise _refused(folder, version, f"{NAMED} cannot be read ({error.strerror})") from error
    except msgspec.DecodeError as error:
        raise _refused(folder, version, f"{NAMED} does not name weights ({error})") from error
    if named.version != version:
        raise _refused(folder, version, f"{NAMED} names version {named.version}")
    if told and named.sha256 != told:
        raise _refused(folder, version, f"{NAMED} names {named.sha256[:12]}, the trainer told {told[:12]}")
    try:
        found = file_digest(folder / WEIGHTS)
    except OSError as error:
        raise _refused(folder, version, f"{WEIGHTS} cannot be read ({error.strerror})") from error
    if found != named.sha256:
        raise _refused(folder, version, f"{WEIGHTS} hashes to {found[:12]}, {NAMED} names {named.sha256[:12]}")
    return found


def _refused(folder: Path, version: int, why: str) -> Refusal:
    return Refusal(f"weights of version {version} cannot be loaded from {folder}: {why}", Cause.INFRA)
