"""What snapshots belong to: ``bootstrap/`` until the first trainer checkpoint is durable, then the newest ``step_N``."""

from __future__ import annotations

from protocol.checkpoint import folders
from protocol.runtime import Runtime


class Anchor:
    """``sequence``: the highest snapshot ever allocated under it. ``due``: its first snapshot has not been tried yet."""

    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        self.name = folders.BOOTSTRAP
        self.step = 0
        self.exists = False  # durable; a step's always is
        self.sequence = 0
        self.due = False
        self.in_use = ""  # the anchor under which a snapshot was last started: it must not be pruned under it
        self.moved = rt.signal()

    def move_to(self, step: int) -> None:
        """A trainer checkpoint became durable: snapshots belong to it from now on, and the first is due at once."""
        self.name, self.step, self.exists, self.sequence, self.due = folders.step_folder(step), step, True, 0, True
        self.moved.set()

    async def adopt(self, name: str, step: int) -> None:
        """After a restore: go on under it, above every sequence that was ever allocated there."""
        self.name, self.step, self.exists = name, step, True
        names = await self.rt.files.list(folders.snapshot_root(name))
        self.sequence = max((folders.sequence_of(one) or 0 for one in names), default=0)
