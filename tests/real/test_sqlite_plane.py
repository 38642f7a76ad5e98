"""Rows in SQLite: a request happens whole or not at all, and nothing of an earlier start is ever seen."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from small_life import play_for_real
from small_world import Client, Played

from protocol.data_plane.store import Partition
from protocol.errors import Cause, ConfigError, Refusal
from protocol.history import FileDone
from protocol.identity import DATA_PLANE
from protocol.messages import (
    CANONICAL,
    STAGING,
    ClearSamples,
    GetSamples,
    ListSampleIds,
    LoadCheckpoint,
    PutSamples,
    SaveCheckpoint,
)
from protocol.runtime import Runtime
from real.data_plane import choose as choosing
from real.data_plane.choose import boot, choose
from real.data_plane.serving import DataPlane
from real.data_plane.sqlite_plane import FILE, SqlitePlane, SqliteRows

pytestmark = pytest.mark.real
NO_TEXT: Any = object()  # SQLite cannot store it


def carried_out(folder: Path, *requests: Any) -> list[Any]:
    """Outcomes of requests that waited together."""

    async def run() -> list[Any]:
        rows = SqliteRows(folder)
        try:
            await rows.open()
            return await rows.carry_out(requests)
        finally:
            rows.close()

    return asyncio.run(run())


def play(client: Client, **life: Any) -> Played:
    return play_for_real(client, lambda root: {DATA_PLANE: lambda rt: SqlitePlane(rt, root).main()}, **life)


def test_requests_that_waited_together_see_each_other_in_order(tmp_path: Path) -> None:
    assert carried_out(
        tmp_path,
        PutSamples(STAGING, (("a", b"1"),)),
        GetSamples(STAGING, ("a",)),
        PutSamples(STAGING, (("a", b"2"), ("b", b""))),
        GetSamples(STAGING, ("a", "b")),
        ClearSamples(STAGING, ("a",)),
        ListSampleIds(STAGING),
    ) == [None, {"a": b"1"}, None, {"a": b"2", "b": b""}, None, ("b",)]


def test_a_request_that_fails_leaves_nothing_and_costs_no_other(tmp_path: Path) -> None:
    before, torn, after, listed = carried_out(
        tmp_path,
        PutSamples(CANONICAL, (("a", b"1"),)),
        PutSamples(CANONICAL, (("b", b"2"), ("c", NO_TEXT))),
        PutSamples(CANONICAL, (("d", b"4"),)),
        ListSampleIds(CANONICAL),
    )
    assert (before, after, listed) == (None, None, ("a", "d"))
    assert isinstance(torn, Refusal) and torn.cause is Cause.INFRA


def test_keys_are_listed_as_python_sorts_them(tmp_path: Path) -> None:
    keys = ("z", "Z", "ä", "a/2", "a/10", "\U0001f600", "￿", "")
    _, listed = carried_out(tmp_path, PutSamples(CANONICAL, tuple((key, b"") for key in keys)), ListSampleIds(CANONICAL))
    assert listed == tuple(sorted(keys))


def test_a_save_is_the_very_bytes_that_the_simulator_writes(tmp_path: Path) -> None:
    rows = tuple((f"k{n % 7}{n}", bytes([n]) * n) for n in range(50))
    image = carried_out(tmp_path, PutSamples(CANONICAL, rows), SaveCheckpoint("f", b""))[1]
    assert image.partitions == {CANONICAL: Partition(rows).packed(), STAGING: Partition().packed()}


def test_what_an_earlier_start_of_the_same_life_left_is_not_there(tmp_path: Path) -> None:
    carried_out(tmp_path, PutSamples(CANONICAL, (("a", b"1"),)))
    assert (tmp_path / FILE).exists()
    assert carried_out(tmp_path, ListSampleIds(CANONICAL)) == [()]


def test_a_process_that_started_again_within_its_life_has_no_rows_and_says_so(tmp_path: Path) -> None:
    async def client(rt: Runtime) -> list[Any]:
        answers: list[Any] = []
        for message in (ListSampleIds(CANONICAL), LoadCheckpoint("f"), SaveCheckpoint("f", b"")):
            with pytest.raises(Refusal) as raised:
                await rt.call(DATA_PLANE, message)
            answers.append(raised.value.cause)
        return answers

    def again(rt: Any, root: Path) -> DataPlane:
        rt.incarnation = 2
        return SqlitePlane(rt, root)

    played = play_for_real(client, lambda root: {DATA_PLANE: lambda rt: again(rt, root).main()})
    assert played.result == [Cause.BROKEN] * 3


class Held(SqliteRows):
    """Carries out nothing before it is let go."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.reached, self.let_go = asyncio.Event(), asyncio.Event()

    async def carry_out(self, requests: Any) -> list[Any]:
        self.reached.set()
        await self.let_go.wait()
        return await super().carry_out(requests)


def test_what_a_caller_gave_up_happens_all_the_same(tmp_path: Path) -> None:
    held: list[Held] = []

    def slow(rt: Runtime, root: Path) -> DataPlane:
        held.append(Held(tmp_path))
        return DataPlane(rt, held[0])

    async def client(rt: Runtime) -> Any:
        given_up = rt.call(DATA_PLANE, PutSamples(CANONICAL, (("a", b"1"),)))
        await held[0].reached.wait()
        assert not given_up.done
        given_up.cancel()
        listing = rt.call(DATA_PLANE, ListSampleIds(CANONICAL))
        await asyncio.sleep(0.05)
        held[0].let_go.set()
        return await listing

    assert play_for_real(client, lambda root: {DATA_PLANE: lambda rt: slow(rt, root).main()}).result == ("a",)


class OneByOne(Held):
    """Carries out one request, and holds the next one."""

    def together(self, waiting: Any) -> int:
        return 1

    async def carry_out(self, requests: Any) -> list[Any]:
        if isinstance(requests[0], PutSamples):
            return await SqliteRows.carry_out(self, requests)
        return await super().carry_out(requests)


def test_what_is_done_is_answered_though_others_still_wait(tmp_path: Path) -> None:
    rows: list[Held] = []

    def slow(rt: Runtime) -> DataPlane:
        rows.append(OneByOne(tmp_path))
        return DataPlane(rt, rows[0])

    async def client(rt: Runtime) -> Any:
        put, listing = rt.call(DATA_PLANE, PutSamples(CANONICAL, (("a", b"1"),))), rt.call(DATA_PLANE, ListSampleIds(CANONICAL))
        await put
        waited = not listing.done
        rows[0].let_go.set()
        return waited, await listing

    assert play_for_real(client, lambda root: {DATA_PLANE: lambda rt: slow(rt).main()}, limit_s=20.0).result == (True, ("a",))


def test_rows_lie_in_scratch_and_only_a_save_is_seen_by_judges(tmp_path: Path) -> None:
    async def client(rt: Runtime) -> None:
        await rt.call(DATA_PLANE, PutSamples(CANONICAL, (("a", b"1"),)))

    played = play(client, life=3)
    assert played.files == {} and played.events(FileDone) == []


# --- which one it is


def test_sqlite_is_chosen_and_the_reason_told_where_transfer_queue_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise choosing.PackageNotFoundError(package)

    monkeypatch.setattr(choosing, "version", missing)
    assert choose() == ("sqlite", "TransferQueue is not installed: rows are kept in SQLite")
    with pytest.raises(ConfigError, match=r"pip install TransferQueue==0\.1\.11"):
        choose("transfer-queue")
    assert asyncio.run(boot(choose())) is SqlitePlane


def test_another_release_of_transfer_queue_is_not_taken_on_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "version", lambda package: "0.2.0")
    assert choose().kind == "sqlite" and "0.2.0 is installed, 0.1.11 is the release that is known" in choose().reason
    monkeypatch.setattr(choosing, "version", lambda package: "0.1.11")
    assert choose().kind == "transfer-queue" and choose("sqlite").kind == "sqlite"
    with pytest.raises(ConfigError, match="must be auto, sqlite or transfer-queue"):
        choose("redis")
