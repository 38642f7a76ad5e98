"""A data plane whose rows lie in SQLite, in the scratch of the process: needs nothing that Python does not bring.

All requests that wait are one transaction; if it fails they are carried out again, each in a transaction of its own, so that
a request happens whole or not at all and one that cannot be carried out costs no other. Nothing is synced: scratch is read
by no later life, and what a save holds is made durable by whoever publishes it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from protocol.errors import Cause, Refusal
from protocol.messages import PARTITIONS, ClearSamples, GetSamples, ListSampleIds, PutSamples, SaveCheckpoint
from protocol.runtime import Runtime
from real.data_plane.serving import DataPlane, Image, Install, Request, image_of, scratch_of

FILE = "rows.db"
TABLE = "CREATE TABLE rows (partition TEXT NOT NULL, key TEXT NOT NULL, row BLOB NOT NULL, UNIQUE (partition, key))"
PUT = "INSERT INTO rows VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET row = excluded.row"
GET = "SELECT row FROM rows WHERE partition = ? AND key = ?"
LIST = "SELECT key FROM rows WHERE partition = ? ORDER BY key"
CLEAR = "DELETE FROM rows WHERE partition = ? AND key = ?"
ALL = "SELECT key, row FROM rows WHERE partition = ? ORDER BY key"


class SqliteRows:
    """``folder`` is the process's scratch. SQLite is only ever touched by one thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fault = ""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rows")
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        await self._run(self._open)

    def together(self, waiting: Iterator[Request]) -> int:
        return sum(1 for _ in waiting)

    async def carry_out(self, requests: Sequence[Request]) -> list[Any]:
        outcomes: list[Any] = await self._run(self._carry_out, requests)
        return outcomes

    async def read_beside(self, folder: str) -> Mapping[str, bytes]:
        return {}

    def close(self) -> None:
        self._thread.submit(self._close)
        self._thread.shutdown()  # waits for one batch at most: nothing of this life is written after it

    async def _run(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(f"{FILE}*"):
            left.unlink()
        self._connection = sqlite3.connect(self.folder / FILE, isolation_level=None)
        for setting in ("journal_mode = MEMORY", "synchronous = OFF", "locking_mode = EXCLUSIVE", "temp_store = MEMORY"):
            self._connection.execute(f"PRAGMA {setting}")
        self._connection.execute(TABLE)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _carry_out(self, requests: Sequence[Request]) -> list[Any]:
        connection = self._connection
        assert connection is not None, "open comes first"
        connection.execute("BEGIN")
        try:
            outcomes = [_outcome(connection, request) for request in requests]
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if len(requests) == 1:
                return [Refusal(f"{type(requests[0]).__name__}: SQLite could not: {error}", Cause.INFRA)]
            return [outcome for request in requests for outcome in self._carry_out([request])]
        return outcomes


def _outcome(connection: sqlite3.Connection, request: Request) -> Any:
    match request:
        case PutSamples(partition, rows):
            connection.executemany(PUT, [(partition, key, row) for key, row in rows])
        case GetSamples(partition, keys):
            found = ((key, connection.execute(GET, (partition, key)).fetchone()) for key in keys)
            return {key: row for key, line in found if line is not None for row in line}
        case ListSampleIds(partition):
            return tuple(key for (key,) in connection.execute(LIST, (partition,)))
        case ClearSamples(partition, keys):
            connection.executemany(CLEAR, [(partition, key) for key in keys])
        case SaveCheckpoint():
            return _image(connection)
        case Install(_, partitions, _):
            for name, saved in partitions.items():
                connection.executemany(PUT, [(name, key, row) for key, row in saved.get(saved.keys())])
    return None


def _image(connection: sqlite3.Connection) -> Image:
    return image_of({name: connection.execute(ALL, (name,)).fetchall() for name in PARTITIONS}, {})


class SqlitePlane(DataPlane):
    """Process ``data-plane`` over SQLite. ``root`` is the run's folder."""

    def __init__(self, rt: Runtime, root: Path) -> None:
        super().__init__(rt, SqliteRows(scratch_of(rt, root)))
