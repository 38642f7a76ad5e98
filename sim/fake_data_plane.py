"""A data plane in memory: two partitions of opaque rows, and a native save (PROTOCOL 3.1).

Each operation takes effect at the moment it arrives and is answered a little later: whatever one sender asks
for happens in the order asked, and a caller that loses the answer cannot know whether it happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from protocol.data_plane.store import METADATA_FILE, Partition, partition_file, unpack
from protocol.errors import Cause, Refusal
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
from sim.fault_rows import NONE, RowFaults, Trouble


class DataPlaneProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Seconds between an operation's effect and its answer, drawn between the two numbers."""

    service_s: tuple[float, float] = (0.0002, 0.001)


class Use(Enum):
    FRESH = "fresh"  # no operation yet: only now may a checkpoint be loaded
    LOADING = "loading"
    OPEN = "open"
    UNUSABLE = "unusable"  # a load failed half-way, or it has started again within a life: its rows are gone


class FakeDataPlane:
    """Process ``data-plane``. Its knobs are the ``data_plane`` table of a scenario's profile; ``faults`` may apply a request in
    part, fail it, or leave it without an answer."""

    def __init__(self, rt: Runtime, profile: Mapping[str, Any] | None = None, faults: RowFaults | None = None) -> None:
        self.rt = rt
        self.faults = faults or RowFaults()
        self.profile = msgspec.convert((profile or {}).get("data_plane", {}), DataPlaneProfile)
        self.partitions = {name: Partition() for name in PARTITIONS}
        self.use = Use.FRESH if rt.incarnation == 1 else Use.UNUSABLE
        self._service = rt.random("data-plane", "service")

    async def main(self) -> None:
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

    async def put(self, message: PutSamples) -> None:
        """A put that fails may have stored some of its rows, or all of them."""
        partition = self._partition(message.partition)
        trouble = self._trouble("put", message.partition, [key for key, _ in message.rows]) if self.faults.armed else NONE
        partition.put(message.rows[: trouble.kept])
        await self._answer(trouble)

    async def get(self, message: GetSamples) -> tuple[tuple[str, bytes], ...]:
        """A partial miss is silent; only a read that finds nothing at all is refused."""
        found = self._partition(message.partition).get(message.keys)
        trouble = self._trouble("get", message.partition, message.keys, len(found)) if self.faults.armed else NONE
        found = found[trouble.skipped :][: trouble.kept]
        await self._answer(trouble)
        if message.keys and not found:
            raise Refusal(f"none of {len(message.keys)} keys is in {message.partition}", Cause.INFRA)
        return found

    async def list_ids(self, message: ListSampleIds) -> tuple[str, ...]:
        keys = self._partition(message.partition).keys()
        await self._answer()
        return keys

    async def clear(self, message: ClearSamples) -> None:
        partition = self._partition(message.partition)
        trouble = self._trouble("clear", message.partition, message.keys) if self.faults.armed else NONE
        partition.clear(message.keys[: trouble.kept])
        await self._answer(trouble)

    async def save(self, message: SaveCheckpoint) -> Saved:
        """What is written is the state of the moment the request arrived, whatever happens while it is written."""
        contents = {partition_file(name): self._partition(name).packed() for name in PARTITIONS}
        contents[METADATA_FILE] = message.metadata
        canonical, staging = (self.partitions[name].key_set() for name in (CANONICAL, STAGING))
        for file, data in sorted(contents.items()):
            await self.rt.files.write(f"{message.folder}/{file}", data)
        await self._answer()
        return Saved(canonical, staging, tuple(sorted(contents)))

    async def load(self, message: LoadCheckpoint) -> bytes:
        """Raises Refusal if anything came before; MissingFile or RestoreRefused leave the data plane unusable."""
        if self.use is not Use.FRESH:
            raise Refusal(f"load {message.folder}: the data plane is {self.use.value}, it must be fresh", Cause.BROKEN)
        self.use = Use.LOADING
        loaded = False
        try:
            for name in PARTITIONS:
                self.partitions[name] = unpack(await self.rt.files.read(f"{message.folder}/{partition_file(name)}"), name)
            metadata = await self.rt.files.read(f"{message.folder}/{METADATA_FILE}")
            loaded = True
        finally:
            self.use = Use.OPEN if loaded else Use.UNUSABLE
        await self._answer()
        return metadata

    def _partition(self, name: str) -> Partition:
        """A partition that is about to be used."""
        if name not in self.partitions:
            raise Refusal(f"partition {name!r} is not registered; registered are {', '.join(PARTITIONS)}", Cause.BROKEN)
        if self.use in (Use.LOADING, Use.UNUSABLE):
            raise Refusal(f"the data plane is {self.use.value}: no operation on {name} is possible", Cause.BROKEN)
        self.use = Use.OPEN
        return self.partitions[name]

    def _trouble(self, operation: str, partition: str, keys: Sequence[str], found: int = 0) -> Trouble:
        return self.faults.meet(operation, partition, keys, self.rt.now(), found)

    async def _answer(self, trouble: Trouble = NONE) -> None:
        """When the request has been served; raises what its trouble says."""
        if trouble.silent:
            await self.rt.signal().wait()
        low, high = self.profile.service_s
        await self.rt.sleep(low + (high - low) * self._service.random())
        if trouble.text:
            raise Refusal(trouble.text, Cause.INFRA)
