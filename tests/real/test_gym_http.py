"""The servers of a Gym instance and the way to them: who is let in, what bad input gets, and what a broken connection means."""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("fastapi", reason="fastapi of the extra 'real' is not installed")
pytest.importorskip("uvicorn", reason="uvicorn of the extra 'real' is not installed")
pytest.importorskip("httpx", reason="httpx of the extra 'real' is not installed")

import httpx
from fastapi import FastAPI
from gym_reach import GYM, ME, Reach, Ways
from model_tokens import model_folder

import real.gym.server as gym_server
from protocol import errors
from protocol.errors import Cause, ConfigError, Lost, PeerFailed, ProtocolError
from protocol.external import Service
from protocol.history import ControlRefused, EpisodeExported, EpisodeParked, TurnCompleted
from protocol.identity import GymCheckpointEpisode as Episode
from protocol.identity import control_token, effect_key, token_name
from protocol.messages import Committed, Discover, Prepare, Prepared, RowCompleted, RowFailed, RowRefused, RunRows, ToolCall
from real.gym.client import GymLink
from real.gym.listening import Listening, listen
from real.gym.resources import KEY_HEADER, HttpTools, Resources, ResourcesServer, open_tools
from real.gym.server import serve_gym
from real.gym.tables import digest_of, seed_rows
from real.gym.tokens import ModelTokens
from real.gym.wire import BODY_MAX, ERRORS, PREFIX, encode_message, headers_of
from real.gym.workplace import RealWorkplace, called
from real.remote import Sender
from real.services import ServiceServer, doors
from tests.unit.gym_bench import TOKEN, commit, key, prepare, resume, row, rows, task

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


# --- tools


def test_a_tool_call_whose_answer_is_lost_is_sent_again_and_runs_once(tmp_path: Path) -> None:
    call = ToolCall("calendar_create_event", '{"event_name": "review"}')
    rows_before = seed_rows(task(), 5)

    async def play() -> None:
        resources = Resources(tmp_path / "tables.sqlite")
        server = ResourcesServer(resources, listen(GYM))
        tools = HttpTools(server.address, server.token, server)
        lost = 2
        post = tools._client.post

        async def loses_answers(path: str, **options: Any) -> httpx.Response:
            nonlocal lost
            answered = await post(path, **options)
            if path.startswith("/calendar") and answered.status_code == 200 and lost:
                lost -= 1
                raise httpx.ReadError("the answer was lost")
            return answered

        tools._client.post = loses_answers  # type: ignore[method-assign]
        ran = await tools.run("e0p5i1_g0r0-a0", "e0p5i1_g0r0-a0/c0", call, rows_before)
        assert lost == 0 and ran.again and resources.workbook.ran == 1
        added = [event for event in ran.rows.tables["calendar"].values() if event.get("event_name") == "review"]
        assert len(added) == 1
        other = await tools.run("e0p5i1_g0r0-a0", "e0p5i1_g0r0-a0/c1", call, ran.rows)
        assert not other.again and resources.workbook.ran == 2  # another key is another call
        lost = 9
        error = await failure(tools.run("e0p5i1_g0r0-a0", "e0p5i1_g0r0-a0/c2", call, other.rows))
        assert type(error) is Lost and error.cause is Cause.INFRA and resources.workbook.ran == 3
        await tools.close()

    asyncio.run(play())


def test_a_session_that_stands_elsewhere_goes_on_from_the_callers_rows(tmp_path: Path) -> None:
    """As after a restore, or where two episodes have one name."""
    call = ToolCall("calendar_create_event", '{"event_name": "review"}')

    async def play() -> None:
        tools = open_tools(GYM, tmp_path / "tables.sqlite")
        before = seed_rows(task(), 5)
        first = await tools.run("one", "one/c0", call, before)
        again = await tools.run("one", "one/c0", ToolCall("calendar_create_event", '{"event_name": "other"}'), before)
        assert not again.again and again.rows != first.rows
        assert len(again.rows.tables["calendar"]) == len(first.rows.tables["calendar"])
        await tools.close()

    asyncio.run(play())


def test_the_resources_server_lets_in_its_own_clients_alone_and_names_what_is_wrong() -> None:
    async def play() -> None:
        server = ResourcesServer(Resources(), listen(GYM))
        good = {"authorization": f"Bearer {server.token}"}
        call = {"session": "s", "arguments": "{}", "base": ""}
        async with httpx.AsyncClient(base_url=server.address, trust_env=False) as client:
            assert (await client.post("/verify", json={})).status_code == 401
            unkeyed = await client.post("/calendar_search_events", json=call, headers=good)
            assert unkeyed.status_code == 422 and KEY_HEADER in unkeyed.json()["message"]
            unseeded = await client.post("/calendar_search_events", json=call, headers={**good, KEY_HEADER: "k"})
            assert (unseeded.status_code, list(unseeded.json())) == (409, ["stale"])
            state = msgspec.to_builtins(seed_rows(task(), 5))
            assert (await client.post("/seed_session", json={"session": "s", "state": state}, headers=good)).status_code == 200
            found = await client.post(
                "/calendar_search_events",
                json={**call, "base": digest_of(seed_rows(task(), 5))},
                headers={**good, KEY_HEADER: "k"},
            )
            assert found.json()["reply"].startswith("found 3 records of calendar") and not found.json()["changed"]
            verified = await client.post("/verify", json={"session": "s", "task": msgspec.to_builtins(task())}, headers=good)
            assert verified.json() == {"reward": 0.0}
            assert (await client.post("/close_session", json={"session": "s"}, headers=good)).status_code == 200
            gone = await client.post("/verify", json={"session": "s", "task": msgspec.to_builtins(task())}, headers=good)
            assert gone.status_code == 409
        await server.close()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ('so: <tool_call>{"name": "a_b", "arguments": {"x": {"y": 1}}}</tool_call> done', ToolCall("a_b", '{"x": {"y": 1}}')),
        ('<tool_call>{"name": "a_b"}</tool_call>', ToolCall("a_b", "{}")),
        ('<tool_call>{broken}</tool_call><tool_call>{"name": "c"}</tool_call>', ToolCall("c", "{}")),
        ('<tool_call>{"name": "../../etc/passwd", "arguments": {}}</tool_call>', None),
        ('<tool_call>{"name": "a", "arguments": "rm"}</tool_call>', None),
        ('<tool_call>{"name": 3}</tool_call>', None),
        ("nothing of the kind", None),
    ],
)
def test_a_tool_call_in_the_models_text_is_found_and_is_data(text: str, call: ToolCall | None) -> None:
    assert called(text) == call


def test_a_model_without_a_tokenizer_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tokenizer.json"):
        ModelTokens(tmp_path)


def test_prompts_and_replies_keep_within_their_tokens_and_end_with_the_models_turn(tmp_path: Path) -> None:
    tokens = ModelTokens(model_folder(tmp_path), prompt_max=40, reply_max=12)
    prompt = tokens.prompt(task())
    assert len(prompt) == 40 and tokens.text(prompt).startswith("user: Set up") and tokens.text(prompt).endswith("\nassistant:")
    assert len(tokens.reply("x" * 100)) == 12


# --- the whole instance, with real tools


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "model")


class RealWays(Ways):
    """An instance with the real workplace, reached over HTTP."""

    def __init__(self, root: Path, model: Path, **options: Any) -> None:
        super().__init__("http", root, self._environment, **options)
        self.tokens = ModelTokens(model)

    def _environment(self, rt: Any, profile: Any) -> Any:
        return RealWorkplace(rt, self.tools, self.tokens, profile)

    async def _on_asyncio(self, *options: Any) -> None:
        self.tools = open_tools(GYM, self.root / "tables.sqlite")
        try:
            await super()._on_asyncio(*options)
        finally:
            await self.tools.close()


def test_each_checkpoint_finds_episodes_that_wait_in_the_middle(tmp_path: Path, model: Path) -> None:
    found: dict[str, Any] = {}

    async def script(reach: Reach) -> None:
        stream = reach.stream(rows())
        await reach.rt.sleep(8.0)  # time to end, if nothing held them
        held = list(reach.gym.sessions.tools.values())
        await reach.call(prepare())
        found["held"] = held
        found["parked"] = {event.key: event.turn for event in reach.events(EpisodeParked)}
        found["committed"] = await reach.call(commit(*held))
        await reach.call(resume())
        found["items"] = []
        while type(item := await stream.next()) is not str:
            found["items"].append(item)

    history = RealWays(tmp_path, model).run(script, {"unsavable": 0, "hold_first_boundary_s": 60.0})
    assert found["held"] and set(found["held"]) <= set(found["parked"])
    assert all(found["parked"][held] >= 1 for held in found["held"])
    exported = [record.event for record in history if isinstance(record.event, EpisodeExported)]
    assert {event.key for event in exported} >= set(found["held"]) and found["committed"].episodes
    assert {item.key for item in found["items"]} == {key(generation) for generation in range(4)}
    assert all(type(item) is RowCompleted for item in found["items"])


def test_without_a_checkpoint_nobody_waits_for_ever(tmp_path: Path, model: Path) -> None:
    async def script(reach: Reach) -> None:
        items = await reach.items(rows())
        assert all(type(item) is RowCompleted for item in items) and len(items) == 4

    history = RealWays(tmp_path, model).run(script, {"unsavable": 0, "hold_first_boundary_s": 2.0})
    assert [record for record in history if isinstance(record.event, TurnCompleted)]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with a short name: the path of a socket has at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="rp-") as folder:
        yield Path(folder)


@pytest.mark.parametrize("idempotent", [True, False], ids=["drops repeats", "does not"])
def test_an_effect_that_is_doubled_is_counted_outside_the_job(tmp_path: Path, model: Path, place: Path, idempotent: bool) -> None:
    """The same row runs twice, as after a crash that its caller never heard of."""
    service = Service(service="calendar", tools=("calendar_",), idempotent=idempotent)
    server = ServiceServer((service,), place / "services")
    ways = RealWays(tmp_path, model, services=(service,), beside=doors((service,), server.socket))

    async def script(reach: Reach) -> None:
        for _ in range(2):
            (item,) = await reach.items(rows(row(generation=1)))
            assert type(item) is RowCompleted

    try:
        history = ways.run(script)
        turns = [record.event for record in history if isinstance(record.event, TurnCompleted)]
        assert len(turns) >= 2 and len(turns) % 2 == 0
        effect = effect_key(Episode.of(key(1)), 0, 0)
        assert server.external().times("calendar", effect) == (1 if idempotent else 2)
    finally:
        server.close()
