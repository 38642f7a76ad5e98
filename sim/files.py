"""The files seam of one process: each operation is a landing on the disk after a seeded latency.

The seam records ``FileIssued`` when an effect is issued, ``FileDone`` and ``FileRead`` at the landing, in the name of
the task that asked. An operation that was issued lands even if its task is cancelled meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protocol.errors import ProtocolError
from protocol.history import Event, FileDone, FileIssued, FileRead
from sim.disk import Disk
from sim.kernel import Kernel
from sim.streams import SeededStream
from sim.tasks import PENDING, Task, Wait

QUICK_S = (0.0005, 0.001)
SYNC_S = (0.002, 0.004)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "write": Disk.write,
    "read": Disk.read,
    "fsync": Disk.fsync,
    "rename": Disk.rename,
    "fsync_dir": Disk.fsync_dir,
    "remove": Disk.remove,
    "list": Disk.names,
}


class FileWait(Wait):
    """One operation. ``extra`` is the bytes of a write or the new name of a rename."""

    __slots__ = ("extra", "files", "operation", "path", "task")

    def __init__(self, files: SimFiles, operation: str, path: str, extra: Any = None) -> None:
        super().__init__(files.kernel)
        self.files = files
        self.operation = operation
        self.path = path
        self.extra = extra
        self.task: Task | None = None

    def begin(self) -> None:
        files, operation = self.files, self.operation
        self.task = self.kernel.current
        if operation not in ("read", "list"):
            files.record(FileIssued(operation, self.path, self._to()))
        low, high = SYNC_S if operation in ("fsync", "fsync_dir") else QUICK_S
        self.kernel.at(low + (high - low) * files.latency.random(), self.land)

    def land(self, landing: object) -> None:
        files, operation = self.files, self.operation
        value, error = None, None
        function = _OPERATIONS[operation]
        try:
            value = function(files.disk, self.path) if self.extra is None else function(files.disk, self.path, self.extra)
        except ProtocolError as raised:
            error = raised
        else:
            self.kernel.current = self.task  # the record is in the name of the task that asked
            if operation == "read":
                files.record(FileRead(self.path))
            elif operation != "list":
                files.record(FileDone(operation, self.path, self._to()))
            self.kernel.current = None
        if self.state == PENDING:
            self.settle(value, error)

    def owner(self) -> str:
        return self.task.process if self.task is not None else ""

    def _to(self) -> str:
        return self.extra if self.operation == "rename" else ""

    def describe(self) -> str:
        return f"{self.operation} of {self.path!r}"


class SimFiles:
    """``protocol.runtime.Files``."""

    __slots__ = ("disk", "kernel", "latency", "record")

    def __init__(self, kernel: Kernel, disk: Disk, latency: SeededStream, record: Callable[[Event], None]) -> None:
        self.kernel = kernel
        self.disk = disk
        self.latency = latency
        self.record = record

    def write(self, path: str, data: bytes) -> FileWait:
        return FileWait(self, "write", path, data)

    def read(self, path: str) -> FileWait:
        return FileWait(self, "read", path)

    def fsync(self, path: str) -> FileWait:
        return FileWait(self, "fsync", path)

    def rename(self, old: str, new: str) -> FileWait:
        return FileWait(self, "rename", old, new)

    def fsync_dir(self, path: str) -> FileWait:
        return FileWait(self, "fsync_dir", path)

    def list(self, path: str) -> FileWait:
        return FileWait(self, "list", path)

    def remove(self, path: str) -> FileWait:
        return FileWait(self, "remove", path)
