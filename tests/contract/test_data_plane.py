"""What every data plane does, whatever it is made of. The client of each test is the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest
from queue_of_tests import forget_rows, start_queue
from small_life import play_for_real
from small_world import Client, Played, play

from protocol.errors import MissingFile, ProtocolError, Refusal, RestoreRefused
from protocol.history import FileIssued, key_set
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
    Saved,
)
from protocol.runtime import Runtime
from real.data_plane.queue_service import Service, TransferQueueSettings
from real.data_plane.sqlite_plane import SqlitePlane
from real.data_plane.transfer_queue import TransferQueuePlane
from sim.fake_data_plane import FakeDataPlane

ROWS = (("b", b"2"), ("a", b"1"), ("c", b""))
STAGED = (("s2", b"x"), ("s1", b"y"))
FOLDER = "step_1/data_plane"

Run = Callable[..., Played]


def fake(client: Client, **life: object) -> Played:
    return play(client, {DATA_PLANE: lambda rt: FakeDataPlane(rt).main()}, **life)  # type: ignore[arg-type]


def sqlite(client: Client, **life: object) -> Played:
    return play_for_real(client, lambda root: {DATA_PLANE: lambda rt: SqlitePlane(rt, root).main()}, **life)  # type: ignore[arg-type]


def transfer_queue(service: Service) -> Run:
    def run(client: Client, **life: object) -> Played:
        forget_rows()
        settings = TransferQueueSettings()
        return play_for_real(
            client,
            lambda root: {DATA_PLANE: lambda rt: TransferQueuePlane(rt, root, settings, service).main()},
            **life,  # type: ignore[arg-type]
        )

    return run


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    service = start_queue()
    yield service
    service.stop()


@pytest.fixture(params=[fake, *(pytest.param(real, marks=pytest.mark.real) for real in (sqlite, transfer_queue))])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a client beside a fresh data plane; ``files`` are what the life starts with."""
    if request.param is transfer_queue:
        return transfer_queue(request.getfixturevalue("service"))
    play_client: Run = request.param
    return play_client


async def ask(rt: Runtime, *messages: Message) -> list[object]:
    """Replies one after the other; a protocol error is the reply."""
    replies: list[object] = []
    for message in messages:
        try:
            replies.append(await rt.call(DATA_PLANE, message))
        except ProtocolError as error:
            replies.append(error)
    return replies


def replies(run: Run, *messages: Message, **life: object) -> list[object]:
    result: list[object] = run(lambda rt: ask(rt, *messages), **life).result
    return result


def test_rows_come_back_in_the_order_asked_and_a_miss_is_silent(run: Run) -> None:
    assert replies(run, PutSamples(CANONICAL, ROWS), GetSamples(CANONICAL, ("c", "nowhere", "a"))) == [
        None,
        (("c", b""), ("a", b"1")),
    ]


def test_a_read_that_finds_nothing_at_all_is_refused(run: Run) -> None:
    _, none_of_two, of_none = replies(
        run, PutSamples(CANONICAL, ROWS), GetSamples(CANONICAL, ("x", "y")), GetSamples(CANONICAL, ())
    )
    assert isinstance(none_of_two, Refusal)
    assert of_none == ()


def test_partitions_are_apart(run: Run) -> None:
    assert replies(
        run, PutSamples(CANONICAL, ROWS), PutSamples(STAGING, STAGED), ListSampleIds(CANONICAL), ListSampleIds(STAGING)
    )[2:] == [("a", "b", "c"), ("s1", "s2")]


def test_a_put_replaces_what_was_under_its_key(run: Run) -> None:
    assert replies(run, PutSamples(CANONICAL, ROWS), PutSamples(CANONICAL, (("a", b"9"),)), GetSamples(CANONICAL, ("a",)))[2] == (
        ("a", b"9"),
    )


def test_clearing_ignores_what_is_not_there(run: Run) -> None:
    assert replies(run, PutSamples(CANONICAL, ROWS), ClearSamples(CANONICAL, ("a", "x")), ListSampleIds(CANONICAL))[1:] == [
        None,
        ("b", "c"),
    ]


def test_a_partition_that_is_not_registered_is_refused(run: Run) -> None:
    put, get = replies(run, PutSamples("elsewhere", ROWS), GetSamples("elsewhere", ("a",)))
    assert isinstance(put, Refusal) and isinstance(get, Refusal)


def test_requests_of_one_sender_take_effect_in_the_order_sent(run: Run) -> None:
    async def client(rt: Runtime) -> object:
        calls = [
            rt.call(DATA_PLANE, message)
            for n in range(20)
            for message in (PutSamples(STAGING, ((f"k{n}", b""),)), ClearSamples(STAGING, (f"k{n}",)))
        ]
        for call in calls:
            await call
        return await rt.call(DATA_PLANE, ListSampleIds(STAGING))

    for seed in range(5):
        assert run(client, seed=seed).result == ()


def save_all(run: Run) -> Played:
    return run(lambda rt: ask(rt, PutSamples(CANONICAL, ROWS), PutSamples(STAGING, STAGED), SaveCheckpoint(FOLDER, b"about")))


def test_a_save_says_what_it_wrote(run: Run) -> None:
    saved = save_all(run)
    said = saved.result[2]
    assert isinstance(said, Saved)
    assert (said.canonical, said.staging) == (key_set(["a", "b", "c"]), key_set(["s1", "s2"]))
    assert {"metadata.msgpack", "rollout_data.msgpack", "rollout_staging.msgpack"} <= set(said.files)
    assert sorted(saved.files) == [f"{FOLDER}/{name}" for name in said.files]
    assert saved.files[f"{FOLDER}/metadata.msgpack"] == b"about"


def test_a_saved_partition_is_pairs_sorted_by_key(run: Run) -> None:
    """The judges read these files with a reader of their own."""
    files = save_all(run).files
    assert msgspec.msgpack.decode(files[f"{FOLDER}/rollout_data.msgpack"]) == [["a", b"1"], ["b", b"2"], ["c", b""]]
    assert msgspec.msgpack.decode(files[f"{FOLDER}/rollout_staging.msgpack"]) == [["s1", b"y"], ["s2", b"x"]]


def test_a_save_syncs_nothing(run: Run) -> None:
    """Durability is the business of whoever publishes: a save that synced by itself would hide a missing sync."""
    assert {event.op for event in save_all(run).events(FileIssued)} == {"write"}


def test_a_save_holds_the_state_of_one_moment(run: Run) -> None:
    async def client(rt: Runtime) -> object:
        await ask(rt, PutSamples(CANONICAL, ROWS), PutSamples(STAGING, STAGED))
        saving = rt.call(DATA_PLANE, SaveCheckpoint(FOLDER, b""))
        changes = [
            rt.call(DATA_PLANE, ClearSamples(CANONICAL, ("a",))),
            rt.call(DATA_PLANE, PutSamples(STAGING, (("late", b""),))),
        ]
        for change in changes:
            await change
        return await saving

    played = run(client)
    assert (played.result.canonical, played.result.staging) == (key_set(["a", "b", "c"]), key_set(["s1", "s2"]))
    assert msgspec.msgpack.decode(played.files[f"{FOLDER}/rollout_data.msgpack"])[0] == ["a", b"1"]
    assert len(msgspec.msgpack.decode(played.files[f"{FOLDER}/rollout_staging.msgpack"])) == 2


def test_a_new_life_reads_back_what_was_saved(run: Run) -> None:
    saved = save_all(run)
    metadata, rows, staged, again = replies(
        run,
        LoadCheckpoint(FOLDER),
        GetSamples(CANONICAL, ("a", "b", "c")),
        GetSamples(STAGING, ("s1", "s2")),
        SaveCheckpoint("again", b""),
        files=saved.files,
        life=2,
    )
    assert metadata == b"about"
    assert dict(rows) == dict(ROWS) and dict(staged) == dict(STAGED)  # type: ignore[call-overload]
    assert isinstance(again, Saved)
    assert (again.canonical, again.staging) == (saved.result[2].canonical, saved.result[2].staging)


def test_a_load_is_refused_after_any_operation(run: Run) -> None:
    saved = save_all(run)
    first = (
        PutSamples(CANONICAL, ()),
        GetSamples(CANONICAL, ()),
        ListSampleIds(STAGING),
        ClearSamples(STAGING, ()),
        LoadCheckpoint(FOLDER),
    )
    for message in first:
        before, load = replies(run, message, LoadCheckpoint(FOLDER), files=saved.files)
        assert not isinstance(before, ProtocolError)
        assert isinstance(load, Refusal), message


@pytest.mark.parametrize("name", [*(f"{partition}.msgpack" for partition in PARTITIONS), "metadata.msgpack"])
def test_a_load_without_one_of_its_files_fails_and_leaves_nothing_usable(run: Run, name: str) -> None:
    files = {path: data for path, data in save_all(run).files.items() if not path.endswith(name)}
    load, listed, again = replies(run, LoadCheckpoint(FOLDER), ListSampleIds(CANONICAL), LoadCheckpoint(FOLDER), files=files)
    assert isinstance(load, MissingFile)
    assert isinstance(listed, Refusal) and isinstance(again, Refusal)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_torn_partition_is_refused_at_every_length(run: Run, partition: str) -> None:
    files = save_all(run).files
    whole = files[f"{FOLDER}/{partition}.msgpack"]
    for length in range(len(whole)):
        torn = {**files, f"{FOLDER}/{partition}.msgpack": whole[:length]}
        (load,) = replies(run, LoadCheckpoint(FOLDER), files=torn)
        assert isinstance(load, RestoreRefused), length
