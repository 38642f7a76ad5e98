"""A data plane whose rows lie in TransferQueue, with its own checkpoint in every save (PROTOCOL 3.1).

The process is TransferQueue's only client. It keeps key and digest of each row that was acknowledged, and holds whatever
TransferQueue says against that: a read that returns fewer rows than there are, a listing that names other keys, a storage unit
that is dead but still listed. A request that fails or goes unanswered may still land at any later time, and TransferQueue goes
on as if nothing had been lost: so the plane is unusable from then on, and says so.

A row is put as its bytes (a ``NonTensorStack``): it may have any length, 0 too, and is saved once.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from protocol.data_plane.store import Partition
from protocol.errors import Cause, ConfigError, Lost, ProtocolError, Refusal, RestoreRefused
from protocol.messages import PARTITIONS, ClearSamples, GetSamples, ListSampleIds, PutSamples, SaveCheckpoint
from protocol.runtime import Runtime
from real.data_plane.native_save import FOLDER, MANIFEST_FILE, check_file, check_partitions, manifest_of, read_manifest, weigh
from real.data_plane.queue_service import Broken, Service, TransferQueueSettings, alive, in_thread, within
from real.data_plane.serving import DataPlane, Image, Install, Request, image_of, scratch_of

T = TypeVar("T")
ROW = "row"  # the one field of a row
ROWS_A_READ, BYTES_A_READ = 512, 32 << 20  # each read is bounded in time: so must be what it brings
BATCHED = PutSamples | GetSamples | ClearSamples


class Held(NamedTuple):
    """What an acknowledged row must still be."""

    size: int
    digest: bytes

    @classmethod
    def of(cls, row: bytes) -> Held:
        return cls(len(row), hashlib.blake2b(row, digest_size=16).digest())


class TransferQueueRows:
    """``scratch`` is the process's own folder: TransferQueue's checkpoints are written to it, and loaded from it."""

    def __init__(self, rt: Runtime, scratch: Path, settings: TransferQueueSettings, service: Service) -> None:
        self.rt = rt
        self.scratch = scratch
        self.settings = settings
        self.fault = ""
        self.acknowledged: dict[str, dict[str, Held]] = {name: {} for name in PARTITIONS}
        self._service = service

    @property
    def _tq(self) -> Any:
        return self._service.package

    async def _within(self, what: str, limit_s: float, work: Coroutine[Any, Any, T]) -> T:
        return await within(what, limit_s, work, self._service.processes)

    async def open(self) -> None:
        """Raises ConfigError."""
        listing = await self._within("a listing", self.settings.answer_s, self._tq.async_kv_list())
        held = {name: len(keys) for name, keys in listing.items() if keys}
        if held:
            raise ConfigError(f"TransferQueue already holds rows ({held}): a life starts with an empty one")

    def close(self) -> None:
        """TransferQueue itself ends with this process."""
        self.fault = "its life is over"

    # --- requests

    def together(self, waiting: Iterator[Request]) -> int:
        """Puts, reads or clearings of one partition that follow each other are one batch; everything else is alone."""
        first = next(waiting)
        if not isinstance(first, BATCHED):
            return 1
        like = takewhile(lambda each: type(each) is type(first) and each.partition == first.partition, waiting)
        return 1 + sum(1 for _ in like)

    async def carry_out(self, requests: Sequence[Request]) -> list[Any]:
        """One batch: its requests have one outcome (reads all get the rows that any of them asked for)."""
        what = type(requests[0]).__name__
        if self.fault:
            outcome: Any = Refusal(f"the data plane is unusable, {what} is not possible: {self.fault}", Cause.BROKEN)
        else:
            try:
                outcome = await self._perform(requests)
            except ProtocolError as error:
                outcome = error
            except Exception as error:  # whatever a foreign library raises: nobody can say what it has done
                self.fault = f"{what} failed: {type(error).__name__}: {error}"
                read = isinstance(requests[0], GetSamples | ListSampleIds)
                outcome = Refusal(self.fault, Cause.INFRA) if read else Lost(f"{self.fault}; it may have happened")
        return [outcome] * len(requests)

    async def _perform(self, batch: Sequence[Request]) -> Any:
        match batch[0]:
            case PutSamples(partition):
                await self._put(partition, {key: row for put in batch if isinstance(put, PutSamples) for key, row in put.rows})
            case GetSamples(partition):
                return await self._get(partition, _keys(batch))
            case ListSampleIds(partition):
                return await self._list(partition)
            case ClearSamples(partition):
                await self._clear(partition, _keys(batch))
            case SaveCheckpoint():
                return await self._save()
            case Install(folder, partitions, beside):
                await self._install(folder, partitions, beside)
        return None

    async def _put(self, partition: str, rows: Mapping[str, bytes]) -> None:
        if not rows:
            return
        from tensordict import TensorDict
        from tensordict.tensorclass import NonTensorStack

        fields = TensorDict({ROW: NonTensorStack(*rows.values())}, batch_size=len(rows))
        put = self._tq.async_kv_batch_put(keys=list(rows), partition_id=partition, fields=fields)
        await self._within(f"a put of {len(rows)} rows", self.settings.answer_s, put)
        self._acknowledge(partition, rows)

    def _acknowledge(self, partition: str, rows: Mapping[str, bytes]) -> None:
        self.acknowledged[partition] |= {key: Held.of(row) for key, row in rows.items()}

    async def _get(self, partition: str, keys: Sequence[str]) -> dict[str, bytes]:
        """Exactly the rows that were acknowledged under these keys, or the plane is broken."""
        have = self.acknowledged[partition]
        asked = [key for key in dict.fromkeys(keys) if key in have]
        rows: dict[str, bytes] = {}
        for part in _portions(asked, have):
            got = list(await self._read(partition, part))
            if len(got) != len(part):
                raise Broken(f"{len(got)} of {len(part)} acknowledged rows of {partition} came back")
            rows |= zip(part, got, strict=True)
        changed = [key for key, row in rows.items() if Held.of(row) != have[key]]
        if changed:
            raise Broken(f"{len(changed)} rows of {partition} are not what was put, such as {changed[0]}")
        return rows

    async def _read(self, partition: str, keys: list[str]) -> Any:
        get = self._tq.async_kv_batch_get(keys=keys, partition_id=partition, select_fields=[ROW])
        return (await self._within(f"a read of {len(keys)} rows", self.settings.answer_s, get))[ROW]

    async def _list(self, partition: str) -> tuple[str, ...]:
        """TransferQueue's controller lists rows of a dead unit too: so each process is asked as well."""
        await self._within("all its processes", self.settings.answer_s, alive(self._service.processes))
        listing = await self._within("a listing", self.settings.answer_s, self._tq.async_kv_list(partition_id=partition))
        listed, have = listing.get(partition, {}), self.acknowledged[partition]
        if listed.keys() != have.keys():
            raise Broken(f"it lists {len(listed)} rows of {partition}, {len(have)} were acknowledged")
        return tuple(sorted(listed))

    async def _clear(self, partition: str, keys: Sequence[str]) -> None:
        """TransferQueue reports success for a clear that a unit has not answered: our own bound comes first."""
        have = self.acknowledged[partition]
        known = [key for key in dict.fromkeys(keys) if key in have]
        if not known:
            return
        clear = self._tq.async_kv_clear(keys=known, partition_id=partition)
        await self._within(f"a clearing of {len(known)} rows", self.settings.answer_s, clear)
        for key in known:
            del have[key]

    # --- saves

    async def _save(self) -> Image:
        """Nobody writes meanwhile, since requests are carried out one after the other: a save under writers would be torn."""
        target = self.scratch / "save"
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        save = in_thread(lambda: self._tq.save_checkpoint(target))
        await self._within("its checkpoint", self.settings.save_s, save)
        native = await asyncio.to_thread(_files_of, target)
        sizes = [held.size for have in self.acknowledged.values() for held in have.values()]
        weigh(native, len(sizes), sum(sizes), self.settings.storage_units)
        rows = {name: sorted((await self._all(name)).items()) for name in PARTITIONS}
        return await asyncio.to_thread(self._sealed, rows, native)

    def _sealed(self, rows: Mapping[str, Sequence[tuple[str, bytes]]], native: Mapping[str, bytes]) -> Image:
        image = image_of(rows, {f"{FOLDER}/{path}": data for path, data in native.items()})
        manifest = manifest_of(image.beside, image.partitions, image.keys, self.settings.storage_units, self._tq.__version__)
        return image._replace(beside={**image.beside, MANIFEST_FILE: manifest})

    async def _all(self, partition: str) -> dict[str, bytes]:
        return await self._get(partition, await self._list(partition))

    async def read_beside(self, folder: str) -> Mapping[str, bytes]:
        """Every file that the manifest names, each exactly as it was when the manifest was written."""
        found = {MANIFEST_FILE: await self.rt.files.read(f"{folder}/{MANIFEST_FILE}")}
        manifest = self._manifest(folder, found[MANIFEST_FILE])
        for path in manifest.files:
            found[path] = await self.rt.files.read(f"{folder}/{path}")
            await asyncio.to_thread(check_file, manifest, folder, path, found[path])
        return found

    def _manifest(self, folder: str, data: bytes) -> Any:
        return read_manifest(data, folder, self.settings.storage_units, version("TransferQueue"))

    async def _install(self, folder: str, partitions: Mapping[str, Partition], beside: Mapping[str, bytes]) -> None:
        """Load TransferQueue's own checkpoint, then hold what it has now against the partitions' files."""
        manifest, source = self._manifest(folder, beside[MANIFEST_FILE]), self.scratch / "load"
        await asyncio.to_thread(check_partitions, manifest, folder, partitions)
        await asyncio.to_thread(_write_out, source, beside)
        load = in_thread(lambda: self._tq.load_checkpoint(source / FOLDER))
        await self._within("loading its checkpoint", self.settings.save_s, load)
        for name, saved in partitions.items():
            self._acknowledge(name, dict(saved.get(saved.keys())))
        try:
            for name in partitions:
                await self._all(name)
        except Exception as error:
            self.fault = f"TransferQueue does not hold what {folder} says that it saved: {error}"
            raise RestoreRefused(self.fault) from error


def _portions(keys: Sequence[str], have: Mapping[str, Held]) -> Iterator[list[str]]:
    portion: list[str] = []
    size = 0
    for key in keys:
        if portion and (len(portion) == ROWS_A_READ or size + have[key].size > BYTES_A_READ):
            yield portion
            portion, size = [], 0
        portion.append(key)
        size += have[key].size
    if portion:
        yield portion


def _keys(batch: Sequence[Request]) -> list[str]:
    return [key for each in batch if isinstance(each, GetSamples | ClearSamples) for key in each.keys]


def _write_out(folder: Path, files: Mapping[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def _files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class TransferQueuePlane(DataPlane):
    """Process ``data-plane`` over TransferQueue, which was booted before. ``root`` is the run's folder."""

    def __init__(self, rt: Runtime, root: Path, settings: TransferQueueSettings, service: Service) -> None:
        super().__init__(rt, TransferQueueRows(rt, scratch_of(rt, root), settings, service))
