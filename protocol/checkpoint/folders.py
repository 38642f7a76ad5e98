"""Where things lie below the run's folder, and what is left over from an unfinished save. One producer per path."""

from __future__ import annotations

BOOTSTRAP = "bootstrap"
BOOTSTRAP_MANIFEST = f"{BOOTSTRAP}/manifest.json"
LEDGER = "rollout_recovery.msgpack"
SIDECAR = "replay_buffer_metadata.msgpack"
DATALOADER = "train_dataloader.msgpack"
CONFIG = "config.yaml"
MANIFEST = "manifest.json"
GYM_CHECKPOINT = "gym_checkpoint.json"
TRAINING_INFO = "training_info.json"
COMMITTED = "COMMITTED"
LATEST = "LATEST"


def step_folder(step: int) -> str:
    return f"step_{step}"


def step_of(name: str) -> int | None:
    """Step of a trainer checkpoint's folder name, or None."""
    return int(name[5:]) if name.startswith("step_") and name[5:].isdigit() else None


def temporary_step(step: int) -> str:
    return f"tmp_step_{step}"


def snapshot_root(anchor: str) -> str:
    return f"{anchor}/rollout_snapshots"


def snapshot_name(sequence: int) -> str:
    return f"snapshot_{sequence:06d}"


def sequence_of(name: str) -> int | None:
    """Sequence of a snapshot's folder name, or None."""
    return int(name[9:]) if name.startswith("snapshot_") and name[9:].isdigit() else None


def snapshot_folder(anchor: str, sequence: int) -> str:
    return f"{snapshot_root(anchor)}/{snapshot_name(sequence)}"


def temporary_snapshot(anchor: str, sequence: int) -> str:
    return f"{snapshot_root(anchor)}/tmp_{snapshot_name(sequence)}"


def data_plane_folder(source: str) -> str:
    return f"{source}/data_plane"


def weights_folder(anchor: str) -> str:
    return f"{anchor}/policy"


def is_leftover(name: str) -> bool:
    """What an unfinished save left and no restore ever reads."""
    return name.startswith(("tmp_", "old_")) or name.endswith(".tmp")


def is_anchor(name: str) -> bool:
    return name == BOOTSTRAP or step_of(name) is not None
