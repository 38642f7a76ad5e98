"""Durable first, visible second: the order of PROTOCOL 4.2, for snapshots and trainer checkpoints alike.

    payload written -> every file fsynced -> every folder fsynced, deepest first
    -> COMMITTED written, fsynced, its folder fsynced                                  (snapshots)
    -> rename -> the parent folder fsynced
    -> LATEST.tmp written, fsynced, renamed over LATEST, folder fsynced                (snapshots)

A name is durable only if every name above it is, so a snapshot's anchor folder is fsynced too.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol.checkpoint import folders
from protocol.runtime import Runtime


async def write_files(rt: Runtime, folder: str, files: Mapping[str, bytes]) -> None:
    for name in sorted(files):
        await rt.files.write(f"{folder}/{name}", files[name])


async def sync_tree(rt: Runtime, folder: str) -> None:
    """fsync every file below ``folder``, then every folder, deepest first, ``folder`` itself last.

    A name with a dot is a file, one without is a folder: true of every name this protocol writes.
    """
    for name in await rt.files.list(folder):
        path = f"{folder}/{name}"
        if "." in name:
            await rt.files.fsync(path)
        else:
            await sync_tree(rt, path)
    await rt.files.fsync_dir(folder)


async def publish_snapshot(rt: Runtime, anchor: str, sequence: int) -> None:
    """Make ``tmp_snapshot_N`` (payload written) durable and visible as ``snapshot_N``."""
    root = folders.snapshot_root(anchor)
    temporary = folders.temporary_snapshot(anchor, sequence)
    await sync_tree(rt, temporary)
    await rt.files.write(f"{temporary}/{folders.COMMITTED}", b"1")
    await rt.files.fsync(f"{temporary}/{folders.COMMITTED}")
    await rt.files.fsync_dir(temporary)
    await rt.files.rename(temporary, folders.snapshot_folder(anchor, sequence))
    await rt.files.fsync_dir(root)
    await rt.files.fsync_dir(anchor)
    latest = f"{root}/{folders.LATEST}"
    await rt.files.write(f"{latest}.tmp", folders.snapshot_name(sequence).encode())
    await rt.files.fsync(f"{latest}.tmp")
    await rt.files.rename(f"{latest}.tmp", latest)
    await rt.files.fsync_dir(root)


async def publish_step(rt: Runtime, step: int) -> None:
    """Make ``tmp_step_N`` (payload and weights written) durable and visible as ``step_N``."""
    temporary = folders.temporary_step(step)
    await sync_tree(rt, temporary)
    await rt.files.rename(temporary, folders.step_folder(step))
    await rt.files.fsync_dir("")
