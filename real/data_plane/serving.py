"""What every real data plane does, whatever holds its rows: the messages, their order, its refusals, the files of a save.

Requests are carried out in the order in which they arrived, by one task, several at once where several wait: whoever holds
the rows may put them into one transaction or one batch. A caller that gives up loses the answer, not the effect.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from protocol.data_plane.store import METADATA_FILE, Partition, partition_file, unpack
from protocol.errors import Cause, ProtocolError, Refusal
from protocol.history import KeySet, key_set
from protocol.messages import (
    CANONICAL,
    PARTITIONS,
    STAGING,
    ClearSamples,
    GetSamples,
    ListSampleIds,
    LoadCheckpoint,
    PutSamples,
    SaveCheckpoint,
    Saved,
)
from protocol.runtime import Runtime

_pack = msgspec.msgpack.Encoder().encode


class Image(NamedTuple):
    """All rows as they were at one moment: the packed partitions, their keys, and what else lies beside them in a save."""

    partitions: Mapping[str, bytes]
    keys: Mapping[str, KeySet]
    beside: Mapping[str, bytes]  # by path below the save's folder


def image_of(rows: Mapping[str, Sequence[tuple[str, bytes]]], beside: Mapping[str, bytes]) -> Image:
    """``rows`` of each partition, sorted by key."""
    return Image(
        {name: _pack(pairs) for name, pairs in rows.items()},
        {name: key_set(key for key, _ in pairs) for name, pairs in rows.items()},
        beside,
    )


def scratch_of(rt: Runtime, root: Path) -> Path:
    """This process's own folder in this life, below the run's folder ``root``."""
    return root / f"life-{rt.life}" / "scratch" / rt.me


class Install(NamedTuple):
    """A save that was read and found whole, to be loaded. Reply: None."""

    folder: str
    partitions: Mapping[str, Partition]
    beside: Mapping[str, bytes]


Request = PutSamples | GetSamples | ListSampleIds | ClearSamples | SaveCheckpoint | Install


class Rows(Protocol):
    """What holds the rows. ``open`` comes first, then ``carry_out`` again and again, all of it from one task."""

    fault: str  # why nothing that it says can be trusted any more, '' as long as it can

    async def open(self) -> None: ...

    def together(self, waiting: Iterator[Request]) -> int:
        """How many of the requests that wait, from the first one on, are carried out at once: at least that one."""
        ...

    async def carry_out(self, requests: Sequence[Request]) -> list[Any]:
        """The outcome of each, in order; a request that failed has its ``ProtocolError``. A put, a clear and a list have the
        obvious outcomes, a get has the rows that were found by key, a save its ``Image``."""
        ...

    async def read_beside(self, folder: str) -> Mapping[str, bytes]:
        """What a save in ``folder`` holds beside the partitions. Raises MissingFile, RestoreRefused."""
        ...

    def close(self) -> None:
        """The life is over: nothing of it happens to the rows once this has returned."""
        ...


class Use(Enum):
    FRESH = "fresh"  # no operation yet: only now may a checkpoint be loaded
    LOADING = "loading"
    OPEN = "open"
    UNUSABLE = "unusable"  # a load failed half-way, or it has started again within a life: its rows are gone


class Asked(NamedTuple):
    request: Request
    answer: asyncio.Future[Any]


class DataPlane:
    """Process ``data-plane``."""

    def __init__(self, rt: Runtime, rows: Rows) -> None:
        self.rt = rt
        self.rows = rows
        self.use = Use.FRESH if rt.incarnation == 1 else Use.UNUSABLE
        self._line = rt.queue()

    async def main(self) -> None:
        """Does not return: it is the task that carries out the requests. It fails if the rows' holder cannot be opened."""
        self.rt.serve(
            {
                PutSamples: self.put,
                GetSamples: self.get,
                ListSampleIds: self.list_ids,
                ClearSamples: self.clear,
                SaveCheckpoint: self.save,
                LoadCheckpoint: self.load,
            }
        )
        if self.use is Use.UNUSABLE:
            return
        try:
            await self.rows.open()
            waiting: deque[Asked] = deque()
            while True:
                while len(self._line) or not waiting:
                    waiting.append(await self._line.get())
                count = self.rows.together(each.request for each in waiting)
                await self._carry_out([waiting.popleft() for _ in range(count)])
        finally:
            self.rows.close()

    async def _carry_out(self, asked: Sequence[Asked]) -> None:
        outcomes = await self.rows.carry_out([each.request for each in asked])
        for (_, answer), outcome in zip(asked, outcomes, strict=True):
            if answer.done():
                continue  # nobody waits any more
            if isinstance(outcome, ProtocolError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

    async def put(self, message: PutSamples) -> None:
        self._check(message.partition)
        await self._in_order(message)

    async def get(self, message: GetSamples) -> tuple[tuple[str, bytes], ...]:
        """A partial miss is silent; only a read that finds nothing at all is refused."""
        self._check(message.partition)
        rows = await self._in_order(message)
        found = tuple((key, rows[key]) for key in message.keys if key in rows)
        if message.keys and not found:
            raise Refusal(f"none of {len(message.keys)} keys is in {message.partition}", Cause.INFRA)
        return found

    async def list_ids(self, message: ListSampleIds) -> tuple[str, ...]:
        self._check(message.partition)
        keys: tuple[str, ...] = await self._in_order(message)
        return keys

    async def clear(self, message: ClearSamples) -> None:
        self._check(message.partition)
        await self._in_order(message)

    async def save(self, message: SaveCheckpoint) -> Saved:
        """What is written is the state of the moment the request arrived, whatever happens while it is written. The files go
        through the seam: whoever publishes them makes them durable, and sees that it did."""
        for name in PARTITIONS:
            self._check(name)
        image: Image = await self._in_order(message)
        contents = {partition_file(name): data for name, data in image.partitions.items()}
        contents |= {METADATA_FILE: message.metadata, **image.beside}
        for file, data in sorted(contents.items()):
            await self.rt.files.write(f"{message.folder}/{file}", data)
        return Saved(image.keys[CANONICAL], image.keys[STAGING], tuple(sorted(contents)))

    async def load(self, message: LoadCheckpoint) -> bytes:
        """Raises Refusal if anything came before; any other error leaves the data plane unusable. All files are read and
        checked before the first row is touched."""
        if self.use is not Use.FRESH:
            raise Refusal(f"load {message.folder}: the data plane is {self.use.value}, it must be fresh", Cause.BROKEN)
        self.use = Use.LOADING
        loaded = False
        try:
            partitions = {}
            for name in PARTITIONS:
                partitions[name] = unpack(await self.rt.files.read(f"{message.folder}/{partition_file(name)}"), name)
            metadata = await self.rt.files.read(f"{message.folder}/{METADATA_FILE}")
            await self._in_order(Install(message.folder, partitions, await self.rows.read_beside(message.folder)))
            loaded = True
        finally:
            self.use = Use.OPEN if loaded else Use.UNUSABLE
        return metadata

    def _check(self, partition: str) -> None:
        """A partition that is about to be used."""
        if partition not in PARTITIONS:
            raise Refusal(f"partition {partition!r} is not registered; registered are {', '.join(PARTITIONS)}", Cause.BROKEN)
        if self.use in (Use.LOADING, Use.UNUSABLE):
            raise Refusal(f"the data plane is {self.use.value}: no operation on {partition} is possible", Cause.BROKEN)
        if self.rows.fault:
            raise Refusal(f"the data plane is unusable, no operation on {partition} is possible: {self.rows.fault}", Cause.BROKEN)
        self.use = Use.OPEN

    async def _in_order(self, request: Request) -> Any:
        """The outcome of a request that joins the line now."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._line.put(Asked(request, answer))
        return await answer
