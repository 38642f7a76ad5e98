"""The servers of a Gym instance and the way to them: who is let in, what bad input gets, and what a broken connection means."""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("fastapi", reason="fastapi of the extra 'real' is not installed")
pytest.importorskip("uvicorn", reason="uvicorn of the extra 'real' is not installed")
pytest.importorskip("httpx", reason="httpx of the extra 'real' is not installed")

import httpx
from fastapi import FastAPI
from gym_reach import GYM, ME

import real.gym.server as gym_server
from protocol import errors
from protocol.errors import Cause, ConfigError, Lost, PeerFailed, ProtocolError
from protocol.history import ControlRefused
from protocol.identity import control_token, token_name
from protocol.messages import Committed, Discover, Prepare, Prepared, RowCompleted, RowFailed, RowRefused, RunRows
from real.gym.client import GymLink
from real.gym.resources import open_tools
from real.gym.server import serve_gym
from real.gym.wire import BODY_MAX, ERRORS, PREFIX, encode_message, headers_of
from real.listening import Listening, listen
from real.remote import Sender
from tests.unit.gym_bench import TOKEN, commit, prepare, resume, row, rows, task

pytestmark = pytest.mark.real

DISCOVER = Discover("", 5.0, 1.0, token=TOKEN)
OLD = control_token("this job", 1)


class Behind:
    """``real.remote.Served`` of a process that does what the test says; ``asked`` is what reached it."""

    name = GYM

    def __init__(self, act: Callable[..., Awaitable[Any]] | None = None) -> None:
        self.act = act
        self.asked: list[Any] = []
        self.cancelled = asyncio.Event()
        self.began = asyncio.Event()

    async def answer(self, sender: Sender, message: Any) -> Any:
        return await self._do(sender, message)

    async def answer_stream(self, sender: Sender, message: Any, send: Callable[[Any], None]) -> None:
        await self._do(sender, message, send)

    async def _do(self, sender: Sender, message: Any, *send: Any) -> Any:
        self.asked.append((sender, message))
        self.began.set()
        try:
            return None if self.act is None else await self.act(message, *send)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


class Served:
    """A server before ``behind``, the way to it, and what it records."""

    def __init__(self, behind: Behind) -> None:
        self.behind = behind
        self.recorded: list[Any] = []

    async def __aenter__(self) -> Served:
        self.server = await serve_gym(self.behind, TOKEN, self.recorded.append)
        self.link = GymLink(self.server.address, GYM, ME)
        self.raw = httpx.AsyncClient(base_url=self.server.address, trust_env=False, timeout=10)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.raw.aclose()
        await self.link.close()
        await self.server.close()

    async def post(self, path: str, content: Any, token: str | None = f"Bearer {TOKEN}", **headers: str) -> httpx.Response:
        given = {**headers_of(ME), **headers} | ({} if token is None else {"authorization": token})
        return await self.raw.post(path, content=content, headers=given)


async def failure(asked: Awaitable[Any]) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        await asked
    return caught.value


async def forever(*_: Any) -> None:
    await asyncio.Event().wait()


# --- who is let in


@pytest.mark.parametrize(
    ("token", "status"),
    [(None, 401), ("", 401), (f"Basic {TOKEN}", 401), ("Bearer", 401), (f"Bearer {OLD}", 403), (f"Bearer {TOKEN}x", 403)],
    ids=["missing", "empty", "another scheme", "no token", "old", "wrong"],
)
def test_a_missing_wrong_or_old_token_is_refused_and_recorded_and_nobody_behind_hears_of_it(
    token: str | None, status: int
) -> None:
    async def play() -> None:
        async with Served(Behind()) as served:
            answered = await served.post(f"{PREFIX}/prepare", encode_message(prepare("k7")), token)
            carried = "" if status == 401 else token_name(str(token).partition(" ")[2])
            assert answered.status_code == status and answered.json()["cause"] == Cause.BROKEN.value
            assert served.recorded == [ControlRefused("prepare", "k7", carried)]
            assert served.behind.asked == []

    asyncio.run(play())


def test_tokens_are_compared_in_constant_time_and_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    class Watched:
        @staticmethod
        def compare_digest(carried: bytes, own: bytes) -> bool:
            compared.append((carried, own))
            return hmac.compare_digest(carried, own)

    monkeypatch.setattr(gym_server, "hmac", Watched)

    async def play() -> None:
        async with Served(Behind()) as served:
            await served.post(f"{PREFIX}/resume", b"not json at all", f"Bearer {OLD}")
            await served.link.call(resume())
            assert [event.operation for event in served.recorded] == ["resume"]

    asyncio.run(play())
    assert compared == [(OLD.encode(), TOKEN.encode()), (TOKEN.encode(), TOKEN.encode())]


def test_the_token_travels_in_the_header_alone_and_reaches_the_core(tmp_path: Path) -> None:
    async def play() -> None:
        async with Served(Behind()) as served:
            await served.link.call(resume("k3"))
            assert served.behind.asked == [(ME, resume("k3"))]

    assert TOKEN.encode() not in encode_message(resume("k3"))
    asyncio.run(play())


# --- bad input


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        (f"{PREFIX}/prepare", {"checkpoint": 7, "timeout_s": 1.0, "lease_grace_s": 1.0}, "$.checkpoint"),
        (f"{PREFIX}/prepare", {"checkpoint": "k", "timeout_s": 1.0}, "lease_grace_s"),
        (f"{PREFIX}/prepare", {"checkpoint": "k", "timeout_s": 1.0, "lease_grace_s": 1.0, "stop": True}, "$.stop"),
        (f"{PREFIX}/prepare", {"checkpoint": "k", "timeout_s": 1.0, "lease_grace_s": 1.0, "token": TOKEN}, "$.token"),
        (f"{PREFIX}/commit", [1], "no JSON object"),
        (f"{PREFIX}/commit", "", "no JSON"),
        ("/run", {**msgspec.to_builtins(rows(row())), "rows": [{"sample": "s"}]}, "$.rows[0]"),
        ("/run", {**msgspec.to_builtins(rows()), "task": {**msgspec.to_builtins(task()), "reward": 1}}, "$.task.reward"),
    ],
)
def test_an_ill_typed_or_unknown_field_is_named(path: str, body: Any, named: str) -> None:
    async def play() -> None:
        async with Served(Behind()) as served:
            answered = await served.post(path, json.dumps(body) if body else b"")
            assert answered.status_code == 422 and named in answered.json()["message"]
            assert served.behind.asked == []

    asyncio.run(play())


def test_a_body_that_is_too_large_is_not_read() -> None:
    async def endless() -> Any:
        for _ in range(BODY_MAX // (1 << 20) + 2):
            yield b" " * (1 << 20)

    async def play() -> None:
        async with Served(Behind()) as served:
            announced = await served.post("/run", b" " * (BODY_MAX + 1))
            assert announced.status_code == 413 and str(BODY_MAX) in announced.json()["message"]
            with_length_unsaid = await served.post(f"{PREFIX}/commit", endless())
            assert with_length_unsaid.status_code == 413
            assert served.behind.asked == []

    asyncio.run(play())


def test_a_request_that_does_not_say_who_asks_is_refused() -> None:
    async def play() -> None:
        async with Served(Behind()) as served:
            for name in headers_of(ME):
                answered = await served.post("/run", encode_message(rows()), **{name: ""})
                assert answered.status_code == 422 and name in answered.json()["message"]
            assert (await served.raw.get("/healthz")).json() == {"instance": GYM}  # a person may ask whether anybody is there
            assert served.behind.asked == []

    asyncio.run(play())


def test_a_port_in_use_is_one_clear_error() -> None:
    async def play() -> str:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            for begin in (lambda: serve_gym(Behind(), TOKEN, print, port), lambda: open_tools(GYM, port=port)):
                with pytest.raises(ConfigError) as caught:
                    await begin()
                error = caught.value
                assert type(error) is ConfigError and f"port {port}" in str(error) and GYM in str(error)
        return str(error)

    assert "in use" in asyncio.run(play())


def test_an_address_is_told_only_when_it_is_listened_at() -> None:
    with listen("a test") as listening:
        with socket.create_connection(listening.getsockname(), timeout=1) as connection:
            assert connection.getpeername() == listening.getsockname()  # nobody has accepted it yet


def test_small_answers_are_not_held_back() -> None:
    """Two small writes that wait for each other's acknowledgement take 40 ms and more (Nagle, delayed ACK)."""

    async def play() -> list[int]:
        async with Served(Behind()) as served:
            await served.link.call(resume())
            connections = list(served.server._server.server_state.connections)
            sockets = [connection.transport.get_extra_info("socket") for connection in connections]
            return [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in sockets]

    found = asyncio.run(play())
    assert found and all(found)


def test_a_server_without_checkpoint_routes_is_no_participant_and_is_named() -> None:
    async def play() -> ProtocolError:
        server = Listening(FastAPI(), listen("a server"))
        link = GymLink(server.address, "gym-1", ME)
        try:
            error = await failure(link.call(DISCOVER))
            assert server.address in str(error)
            return error
        finally:
            await link.close()
            await server.close()

    error = asyncio.run(play())
    assert type(error) is ConfigError and error.cause is Cause.BROKEN
    assert "gym-1" in str(error) and "not a participant" in str(error) and f"{PREFIX}/status" in str(error)


# --- answers


@pytest.mark.parametrize("kind", [*ERRORS.values()], ids=lambda kind: kind.__name__)
def test_every_typed_error_arrives_with_its_cause(kind: type[ProtocolError]) -> None:
    async def raises(*_: Any) -> None:
        raise kind("why: \u2028 \U0001f600", Cause.PARKED)

    async def play() -> None:
        async with Served(Behind(raises)) as served:
            for asked in (served.link.call(prepare()), anext(served.link.stream(rows()))):
                error = await failure(asked)
                assert (type(error), error.cause, str(error)) == (kind, Cause.PARKED, "why: \u2028 \U0001f600")

    asyncio.run(play())


def test_no_type_of_error_is_forgotten() -> None:
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, ProtocolError)}
    assert set(ERRORS) == kinds


def test_an_untyped_failure_arrives_as_peer_failed() -> None:
    async def raises(*_: Any) -> None:
        raise KeyError("what")

    async def play() -> None:
        async with Served(Behind(raises)) as served:
            for asked in (served.link.call(prepare()), anext(served.link.stream(rows()))):
                error = await failure(asked)
                assert type(error) is PeerFailed and "KeyError" in str(error)
            answered = await served.post(f"{PREFIX}/prepare", encode_message(prepare()))
            assert answered.status_code == 500

    asyncio.run(play())


def test_answers_are_of_their_own_types() -> None:
    replies: list[Any] = [Prepared(("a-a0",), 2), Committed(("agent",), (), (), ("b-a0",))]

    async def play() -> None:
        async with Served(Behind(lambda message, *_: returned(replies[type(message) is not Prepare]))) as served:
            assert [await served.link.call(prepare()), await served.link.call(commit())] == replies

    asyncio.run(play())


async def returned(value: Any) -> Any:
    return value


def test_text_of_rows_may_hold_any_separator() -> None:
    items = [
        RowFailed("k1", True, "a\nb\u2028c\u0085d\x0be\r\n", 0.5, terminal=False, no_result="", status=0),
        RowRefused("k2", "checkpoint_parked", 0.1),
        RowCompleted("k3", 0.25, (), 1.0),
    ]

    async def sends(message: RunRows, send: Callable[[Any], None]) -> None:
        for item in items:
            send(item)

    async def play() -> list[Any]:
        async with Served(Behind(sends)) as served:
            return [item async for item in served.link.stream(rows())]

    assert asyncio.run(play()) == items


# --- connections that break


def test_a_refused_connection_is_lost_at_once() -> None:
    async def play() -> float:
        link = GymLink("http://127.0.0.1:9", GYM, ME)
        began = time.monotonic()
        assert type(await failure(link.call(prepare()))) is Lost
        assert type(await failure(anext(link.stream(rows())))) is Lost
        await link.close()
        return time.monotonic() - began

    assert asyncio.run(play()) < 1.0


def test_a_stream_that_breaks_off_gives_what_came_and_is_then_lost() -> None:
    item = RowCompleted("k1", 1.0, (), 0.1)

    async def sends(message: RunRows, send: Callable[[Any], None]) -> None:
        send(item)
        await forever()

    async def play() -> None:
        async with Served(Behind(sends)) as served:
            stream = served.link.stream(rows())
            assert await anext(stream) == item
            closing = asyncio.ensure_future(served.server.close())
            assert type(await failure(anext(stream))) is Lost
            await closing
            assert type(await failure(served.link.call(prepare()))) is Lost

    asyncio.run(play())


@pytest.mark.parametrize("last", [b"", b'{"kind":"RowCompl'], ids=["between lines", "inside a line"])
def test_a_stream_that_ends_without_its_end_line_is_lost(last: bytes) -> None:
    """However well its connection was closed."""
    line = json.dumps({"kind": "RowRefused", "value": {"key": "k", "reason": "r", "run_s": 0}}).encode() + b"\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = line + last
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    async def play() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        link = GymLink(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", GYM, ME)
        stream = link.stream(rows())
        assert await anext(stream) == RowRefused("k", "r", 0.0)
        assert type(await failure(anext(stream))) is Lost
        await link.close()
        server.close()

    asyncio.run(play())


def test_whoever_gives_up_a_call_or_a_stream_cancels_its_handler() -> None:
    async def given_up(begin: Callable[[GymLink], Awaitable[Any]]) -> None:
        async with Served(Behind(forever)) as served:
            asking = asyncio.ensure_future(begin(served.link))
            await served.behind.began.wait()
            asking.cancel()
            async with asyncio.timeout(2):
                await served.behind.cancelled.wait()

    async def play() -> bool:
        await given_up(lambda link: link.call(prepare()))
        await given_up(lambda link: anext(link.stream(rows())))
        return True

    assert asyncio.run(play())
