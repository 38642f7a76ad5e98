"""The faults of TransferQueue that were measured: each is survived, or refused loudly. The client is the controller."""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from queue_of_tests import forget_rows, start_queue
from small_life import play_for_real
from small_world import Client, Played

from protocol.checkpoint.publish import sync_tree
from protocol.errors import Cause, ConfigError, Lost, MissingFile, ProtocolError, Refusal, RestoreRefused
from protocol.history import FileDone, key_set
from protocol.identity import DATA_PLANE
from protocol.messages import (
    CANONICAL,
    PARTITIONS,
    STAGING,
    ClearSamples,
    GetSamples,
    ListSampleIds,
    LoadCheckpoint,
    Message,
    PutSamples,
    SaveCheckpoint,
)
from protocol.runtime import Runtime
from real.data_plane.native_save import manifest_of
from real.data_plane.queue_processes import UNIT
from real.data_plane.queue_service import Service, TransferQueueSettings
from real.data_plane.serving import DataPlane, scratch_of
from real.data_plane.transfer_queue import TransferQueueRows

psutil = pytest.importorskip("psutil", reason="psutil is in the extra 'real'")
pytestmark = pytest.mark.real

FOLDER = "step_1/data_plane"
SETTINGS = TransferQueueSettings(answer_s=3.0)
ROWS = tuple((f"k{n:03d}", bytes([n]) * 4096) for n in range(64))
KEYS = tuple(key for key, _ in ROWS)


@pytest.fixture(scope="module")
def queues() -> Iterator[list[Service]]:
    running: list[Service] = []
    yield running
    for service in running:
        service.stop()


@pytest.fixture
def queue(queues: list[Service]) -> Service:
    """A TransferQueue that is whole, and holds nothing."""
    if queues and not all(process.answers() for process in queues[0].processes.values()):
        queues.pop().stop()
    if not queues:
        queues.append(start_queue())
    forget_rows()
    return queues[0]


def play(queue: Service, client: Client, *, rows: type[TransferQueueRows] = TransferQueueRows, **life: Any) -> Played:
    def data_plane(rt: Runtime, root: Path) -> DataPlane:
        return DataPlane(rt, rows(rt, scratch_of(rt, root), SETTINGS, queue))

    return play_for_real(client, lambda root: {DATA_PLANE: lambda rt: data_plane(rt, root).main()}, **life)


async def ask(rt: Runtime, message: Message) -> Any:
    """The reply; a protocol error is one."""
    try:
        return await rt.call(DATA_PLANE, message)
    except ProtocolError as error:
        return error


def save_of(queue: Service, rows: tuple[tuple[str, bytes], ...] = ROWS) -> dict[str, bytes]:
    """The files of a save with these canonical rows."""

    async def client(rt: Runtime) -> None:
        await rt.call(DATA_PLANE, PutSamples(CANONICAL, rows))
        await rt.call(DATA_PLANE, SaveCheckpoint(FOLDER, b"about"))

    files = play(queue, client).files
    forget_rows()
    return files


def loaded(queue: Service, files: Mapping[str, bytes]) -> Any:
    """What loading them is answered with."""
    answer = play(queue, lambda rt: ask(rt, LoadCheckpoint(FOLDER)), files=files, life=2).result
    forget_rows()
    return answer


def is_unusable(answer: Any) -> bool:
    return isinstance(answer, Refusal) and answer.cause is Cause.BROKEN and "unusable" in str(answer)


# --- saves


def test_a_batch_is_saved_once_and_each_of_its_files_is_named(queue: Service) -> None:
    files = save_of(queue)
    native = {path: data for path, data in files.items() if path.startswith(f"{FOLDER}/tq/")}
    payload = sum(len(row) for _, row in ROWS)
    assert payload < sum(map(len, native.values())) < 1.2 * payload
    listed = msgspec.msgpack.decode(files[f"{FOLDER}/manifest.msgpack"])["files"]
    assert {f"{FOLDER}/{path}" for path in listed} == native.keys()


class DenseRows(TransferQueueRows):
    """Puts as its manual shows it: one tensor, a row of it for each key."""

    async def _put(self, partition: str, rows: Mapping[str, bytes]) -> None:
        import torch
        from tensordict import TensorDict

        dense = torch.stack([torch.frombuffer(bytearray(row), dtype=torch.uint8) for row in rows.values()])
        fields = TensorDict({"row": dense}, batch_size=len(rows))
        await self._tq.async_kv_batch_put(keys=list(rows), partition_id=partition, fields=fields)
        self._acknowledge(partition, rows)


def test_rows_put_as_one_tensor_are_refused_when_they_are_saved(queue: Service) -> None:
    async def client(rt: Runtime) -> Any:
        await rt.call(DATA_PLANE, PutSamples(CANONICAL, ROWS))
        return await ask(rt, SaveCheckpoint(FOLDER, b""))

    answer = play(queue, client, rows=DenseRows).result
    assert isinstance(answer, Refusal) and "saved once for each row" in str(answer)


def test_a_save_among_writers_is_of_one_moment(queue: Service) -> None:
    """What TransferQueue loads is what the partitions' files say: a load compares them row by row."""

    async def client(rt: Runtime) -> Any:
        await rt.call(DATA_PLANE, PutSamples(STAGING, ROWS))
        saving = rt.call(DATA_PLANE, SaveCheckpoint(FOLDER, b""))
        changes = [rt.call(DATA_PLANE, ClearSamples(STAGING, KEYS[:20]))]
        changes += [rt.call(DATA_PLANE, PutSamples(STAGING, ((f"late{n}", b"x"),))) for n in range(100)]
        changes += [rt.call(DATA_PLANE, PutSamples(CANONICAL, ((f"late{n}", b"x"),))) for n in range(100)]
        for change in changes:
            await change
        after = await rt.call(DATA_PLANE, ListSampleIds(STAGING))
        return await saving, len(after)

    played = play(queue, client)
    saved, after = played.result
    assert (saved.canonical.count, saved.staging.count, after) == (0, len(ROWS), len(ROWS) - 20 + 100)
    forget_rows()
    assert loaded(queue, played.files) == b""


def test_every_file_of_a_save_is_synced_by_whoever_publishes_it(queue: Service) -> None:
    async def client(rt: Runtime) -> Any:
        await rt.call(DATA_PLANE, PutSamples(CANONICAL, ROWS))
        saved = await rt.call(DATA_PLANE, SaveCheckpoint(FOLDER, b""))
        await sync_tree(rt, FOLDER)
        return saved

    played = play(queue, client)
    synced = {done.path for done in played.events(FileDone) if done.op == "fsync"}
    assert any("/tq/simple_storage/" in path for path in synced)
    assert synced == {f"{FOLDER}/{path}" for path in played.result.files}
    assert {f"{FOLDER}/tq", f"{FOLDER}/tq/simple_storage"} <= {
        done.path for done in played.events(FileDone) if done.op == "fsync_dir"
    }


# --- loads


def test_a_load_goes_through_transfer_queue_and_is_held_against_the_partitions(queue: Service) -> None:
    """The manifest vouches for both halves of a save: only loading shows that they are not of one."""
    files, others = save_of(queue), save_of(queue, ROWS[:32])
    native = {path.removeprefix(f"{FOLDER}/"): data for path, data in files.items() if path.startswith(f"{FOLDER}/tq/")}
    packed = {name: others[f"{FOLDER}/{name}.msgpack"] for name in PARTITIONS}
    keys = {name: key_set(key for key, _ in msgspec.msgpack.decode(data)) for name, data in packed.items()}
    mixed = {**others, **{f"{FOLDER}/{path}": data for path, data in native.items()}}
    mixed[f"{FOLDER}/manifest.msgpack"] = manifest_of(native, packed, keys, SETTINGS.storage_units, "0.1.11")
    answer = loaded(queue, mixed)
    assert isinstance(answer, RestoreRefused) and "it lists 64 rows of rollout_data, 32 were acknowledged" in str(answer)


class Opened:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))


def test_a_pickle_that_the_manifest_does_not_name_is_never_opened(queue: Service, tmp_path: Path) -> None:
    files, trap = save_of(queue), tmp_path / "opened"
    for path in [path for path in files if path.endswith(".pkl")]:
        answer = loaded(queue, {**files, path: pickle.dumps(Opened(trap))})
        assert isinstance(answer, RestoreRefused) and path in str(answer)
    assert not trap.exists()
    assert loaded(queue, files) == b"about"


def test_a_save_that_lacks_a_file_is_not_loaded(queue: Service) -> None:
    files = save_of(queue)
    for path in [path for path in files if "/tq/" in path or path.endswith("manifest.msgpack")]:
        answer = loaded(queue, {other: data for other, data in files.items() if other != path})
        assert isinstance(answer, MissingFile), path


def test_a_save_of_more_storage_units_is_refused_before_anything_is_touched(queue: Service) -> None:
    files = save_of(queue)
    manifest = msgspec.msgpack.decode(files[f"{FOLDER}/manifest.msgpack"]) | {"storage_units": 2}
    answer = loaded(queue, {**files, f"{FOLDER}/manifest.msgpack": msgspec.msgpack.encode(manifest)})
    assert isinstance(answer, RestoreRefused) and "saved by 2 storage units, there are 1: start as many" in str(answer)


# --- what TransferQueue says of rows it no longer holds


@pytest.mark.parametrize("fewer", ["one key less", "another row"])
def test_a_read_that_is_not_what_was_acknowledged_ends_the_plane(queue: Service, fewer: str) -> None:
    async def client(rt: Runtime) -> Any:
        import transfer_queue
        from tensordict import TensorDict
        from tensordict.tensorclass import NonTensorStack

        await rt.call(DATA_PLANE, PutSamples(CANONICAL, ROWS))
        if fewer == "one key less":
            await transfer_queue.async_kv_clear(["k001"], CANONICAL)
        else:
            fields = TensorDict({"row": NonTensorStack(b"other")}, batch_size=1)
            await transfer_queue.async_kv_batch_put(keys=["k001"], partition_id=CANONICAL, fields=fields)
        untouched = await ask(rt, GetSamples(CANONICAL, ("k000",)))
        return untouched, await ask(rt, GetSamples(CANONICAL, ("k000", "k001"))), await ask(rt, GetSamples(CANONICAL, ("k000",)))

    untouched, read, again = play(queue, client).result
    assert untouched == ROWS[:1]
    assert isinstance(read, Refusal) and read.cause is Cause.INFRA
    assert ("1 of 2 acknowledged rows" if fewer == "one key less" else "not what was put") in str(read)
    assert is_unusable(again)


def test_rows_that_somebody_else_put_are_not_listed_in_silence(queue: Service) -> None:
    async def client(rt: Runtime) -> Any:
        import transfer_queue
        from tensordict import TensorDict

        await rt.call(DATA_PLANE, PutSamples(CANONICAL, ROWS))
        fields = TensorDict({"row": ["x"]}, batch_size=1)
        await transfer_queue.async_kv_batch_put(keys=["stranger"], partition_id=CANONICAL, fields=fields)
        return await ask(rt, ListSampleIds(CANONICAL)), await ask(rt, SaveCheckpoint(FOLDER, b""))

    listed, saved = play(queue, client).result
    assert isinstance(listed, Refusal) and "it lists 65 rows of rollout_data, 64 were acknowledged" in str(listed)
    assert is_unusable(saved)


def test_a_life_does_not_start_with_rows_of_another(queue: Service, tmp_path: Path) -> None:
    play(queue, lambda rt: ask(rt, PutSamples(CANONICAL, ROWS)))
    rt: Any = None
    with pytest.raises(ConfigError, match="already holds rows .*'rollout_data': 64"):
        asyncio.run(TransferQueueRows(rt, tmp_path, SETTINGS, queue).open())


# --- silence


@pytest.mark.parametrize(
    ("message", "error"),
    [(PutSamples(STAGING, ROWS), Lost), (ClearSamples(CANONICAL, KEYS), Lost), (GetSamples(CANONICAL, KEYS), Refusal),
     (ListSampleIds(CANONICAL), Refusal)],
    ids=["put", "clear", "get", "list"],
)  # fmt: skip
def test_a_unit_that_hangs_costs_a_bounded_time_and_ends_the_plane(
    queue: Service, message: Message, error: type[ProtocolError]
) -> None:
    """TransferQueue alone says that the clearing went well, and lists what nobody can read."""

    async def client(rt: Runtime) -> Any:
        await rt.call(DATA_PLANE, PutSamples(CANONICAL, ROWS))
        unit = psutil.Process(queue.processes[UNIT.format(0)].pid)
        unit.suspend()
        try:
            began = time.monotonic()
            first = await ask(rt, message)
            return first, time.monotonic() - began, await ask(rt, ListSampleIds(CANONICAL))
        finally:
            unit.resume()

    first, seconds, second = play(queue, client).result
    assert isinstance(first, error) and first.cause is Cause.INFRA
    assert seconds < SETTINGS.answer_s + 2.0
    assert is_unusable(second)


@pytest.mark.parametrize("message", [ListSampleIds(CANONICAL), GetSamples(CANONICAL, KEYS)], ids=["list", "get"])
def test_a_dead_unit_is_named_at_once_though_its_rows_are_still_listed(queue: Service, message: Message) -> None:
    async def client(rt: Runtime) -> Any:
        import transfer_queue

        await rt.call(DATA_PLANE, PutSamples(CANONICAL, ROWS))
        unit = psutil.Process(queue.processes[UNIT.format(0)].pid)
        unit.kill()
        unit.wait()
        began = time.monotonic()
        first = await ask(rt, message)
        seconds = time.monotonic() - began
        listed = await transfer_queue.async_kv_list(CANONICAL)
        return first, seconds, len(listed[CANONICAL]), await ask(rt, SaveCheckpoint(FOLDER, b""))

    first, seconds, listed, saved = play(queue, client).result
    assert isinstance(first, Refusal) and "TransferQueueStorageUnit#0 is dead" in str(first)
    assert seconds < SETTINGS.answer_s
    assert listed == len(ROWS)
    assert is_unusable(saved)


def test_its_processes_listen_on_loopback_and_stop_together(queue: Service) -> None:
    assert {process.pid for process in psutil.Process().children()} >= {process.pid for process in queue.processes.values()}
    for process in queue.processes.values():
        listening = [c.laddr.ip for c in psutil.Process(process.pid).net_connections() if c.status == psutil.CONN_LISTEN]
        assert set(listening) == {"127.0.0.1"}
    queue.stop()
    assert [name for name, process in queue.processes.items() if process.answers()] == []
