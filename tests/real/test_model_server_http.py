"""The model server on the wire: who may ask for what, what a wrong body is told, and that OpenAI's own client understands it."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import Cause, ConfigError, Lost, PeerFailed, Refusal
from protocol.history import CallBegun, CallEnded, ControlRefused, Record
from protocol.identity import control_token, token_name
from protocol.messages import (
    NO_BACKEND,
    Coordinate,
    CutCalls,
    Generate,
    Generated,
    Health,
    MediaSource,
    OpenGate,
    PrefixEvidence,
    Probe,
    RetainedMedia,
    RetirePrefix,
    Sampling,
    SetWeightVersion,
)
from real.remote import Sender
from tests.contract.worker_bench import TOKEN, WORKER, Behind, Told, asked, listening, play

pytestmark = pytest.mark.real
httpx = pytest.importorskip("httpx", reason="the extra 'real' is not installed")
for _package in ("fastapi", "uvicorn"):
    pytest.importorskip(_package, reason="the extra 'real' is not installed")

from real.engine import wire  # noqa: E402 - needs no package of the extra; it stands with those that do
from real.engine.client import ModelLink  # noqa: E402
from real.engine.server import BODY_MAX, ModelServer  # noqa: E402
from real.engine.server import Told as Plain  # noqa: E402

CONTROL = {"authorization": f"Bearer {TOKEN}", wire.SENDER: "gym-0/1/1"}
STALE = control_token("an earlier run", 1)
FAST = {"token_s": 0.001}


class Borrowed:
    """Plain answers without an engine."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[int, ...], Sampling]] = []

    def render(self, messages: Any) -> tuple[int, ...]:
        return tuple(ord(letter) for role, text in messages for letter in f"{role}:{text}")

    async def generate(self, prompt: tuple[int, ...], sampling: Sampling) -> Plain:
        self.asked.append((prompt, sampling))
        return Plain((7, 8), (-0.5, -0.25), "yes", "stop")


Talk = Callable[[Any, Told, str], Awaitable[None]]


def talk(folder: Path, script: Talk, weights: int | None = 0, **options: Any) -> list[Record]:
    """Run ``script`` with a plain HTTP client, in front of a worker of its own."""

    async def controller(told: Told) -> None:
        if weights is not None:
            await told.ask(SetWeightVersion(weights))
        served = Behind(told.worker)
        async with listening(told.worker, served, **options) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
            await script(client, told, url)

    return play(folder, "in-process", controller, profile=FAST)


def refusals(records: list[Record]) -> list[ControlRefused]:
    return [record.event for record in records if isinstance(record.event, ControlRefused)]


def error(reply: Any) -> dict[str, Any]:
    found: dict[str, Any] = reply.json()["error"]
    assert set(found) == {"message", "type", "code", "param", "class", "cause"}
    return found


def body(**changes: Any) -> dict[str, Any]:
    return {**msgspec.to_builtins(wire.body_of(asked(), wire.MODEL)), **changes}


# --- who may ask ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, ""),
        ({"authorization": f"Bearer {STALE}"}, token_name(STALE)),
        ({"authorization": f"Basic {TOKEN}"}, ""),
        ({"authorization": f"Bearer {TOKEN[:-1]}"}, token_name(TOKEN[:-1])),
        ({"authorization": f"Bearer {TOKEN}x"}, token_name(f"{TOKEN}x")),
    ],
    ids=["none", "old", "other-scheme", "short", "long"],
)
def test_a_control_call_without_this_runs_token_is_refused_recorded_and_changes_nothing(
    tmp_path: Path, given: dict[str, str], named: str
) -> None:
    operations = [control.path.rpartition("/")[2] for control in wire.CONTROLS]

    async def script(client: Any, told: Told, url: str) -> None:
        for control in wire.CONTROLS:
            reply = await client.post(control.path, json={"version": 9}, headers={wire.SENDER: "gym-0/1/1", **given})
            assert (reply.status_code, error(reply)["class"], error(reply)["cause"]) == (401, "Refusal", "broken")
            assert TOKEN not in reply.text and STALE not in reply.text
        captured = await client.post(wire.COMPLETIONS, json=body(), headers={wire.SENDER: "gym-0/1/1", **given})
        assert (captured.status_code, error(captured)["code"]) == (401, "invalid_control_token")
        assert await told.ask(Probe()) == Health(1, 0)

    records = talk(tmp_path, script)
    assert refusals(records) == [ControlRefused(operation, "", named) for operation in (*operations, "generate")]
    assert not [record for record in records if isinstance(record.event, CallBegun)]


def test_an_old_token_is_this_calls_typed_error_for_a_client_of_ours(tmp_path: Path) -> None:
    async def script(client: Any, told: Told, url: str) -> None:
        link = ModelLink(WORKER, url, Sender("gym-0", 1, 1), STALE)
        with pytest.raises(Refusal) as caught:
            await link.call(OpenGate("gym-0", 1))
        await link.close()
        assert caught.value.cause is Cause.BROKEN and "another run" in str(caught.value)

    assert len(refusals(talk(tmp_path, script))) == 1


def test_who_asks_arrives_with_the_call_and_a_call_of_nobody_is_refused(tmp_path: Path) -> None:
    async def script(client: Any, told: Told, url: str) -> None:
        served = Behind(told.worker)
        async with listening(told.worker, served) as other:
            link = ModelLink(WORKER, other, Sender("gym-3", 2, 5), TOKEN)
            await link.call(Probe())
            await link.close()
        assert served.senders == [Sender("gym-3", 2, 5)]
        for text in ("", "gym-0", "gym-0/1/x", "/1/1", "gym-0/1/1/1"):
            reply = await client.post("/rollproof/v1/probe", json={}, headers={**CONTROL, wire.SENDER: text})
            assert (reply.status_code, error(reply)["param"]) == (422, wire.SENDER)

    assert refusals(talk(tmp_path, script)) == []


def test_a_server_without_a_token_does_not_start() -> None:
    with pytest.raises(ConfigError, match="no control token"):
        ModelServer(None, None, token="")  # type: ignore[arg-type]


# --- what a wrong body is told --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"prompt": "a text"}, "prompt"),
        ({"prompt": [1, -2]}, "prompt[1]"),
        ({"prompt": [1 << 32]}, "prompt[0]"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"top_k": 5}, "top_k"),
        ({"stop": [1]}, "stop[0]"),
        ({"structured_outputs": {"regex": ".*"}}, "structured_outputs.regex"),
        ({"n": 2}, "n"),
        ({"stream": True}, "stream"),
        ({"echo": True}, "echo"),
        ({"rollproof": {"call": "x"}}, "rollproof.rollout_id"),
        ({"rollproof": None}, "rollproof"),
        ({"prompt": [1], "rollproof": {**body()["rollproof"], "context_length": 2}}, "rollproof.context_length"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_wrong_field_is_named(tmp_path: Path, changes: dict[str, Any], param: str) -> None:
    async def script(client: Any, told: Told, url: str) -> None:
        reply = await client.post(wire.COMPLETIONS, json=body(**changes), headers=CONTROL)
        found = error(reply)
        assert (reply.status_code, found["param"], found["type"]) == (422, param, "invalid_request_error")
        assert found["message"].startswith(param)

    records = talk(tmp_path, script)
    assert not [record for record in records if isinstance(record.event, CallBegun)]


def test_a_wrong_control_call_is_told_which_field(tmp_path: Path) -> None:
    async def script(client: Any, told: Told, url: str) -> None:
        for path, content, param in (
            ("cut", {"checkpoint": "k", "holder": "gym-0", "epoch": "1", "tickets": [], "timeout_s": 1}, "epoch"),
            ("cut", {"checkpoint": "k", "holder": "gym-0", "epoch": 1, "tickets": [{}], "timeout_s": 1}, "tickets[0].call"),
            ("open_gate", {"holder": "gym-0"}, "epoch"),
            ("weights", {}, "version"),
            ("retire_prefix", {"call": "c", "keys": "k"}, "keys"),
        ):
            reply = await client.post(f"/rollproof/v1/{path}", json=content, headers=CONTROL)
            assert (reply.status_code, error(reply)["param"]) == (422, param)

    assert refusals(talk(tmp_path, script)) == []


def test_what_is_no_body_no_route_or_no_model_is_one_error_in_openais_shape(tmp_path: Path) -> None:
    async def script(client: Any, told: Told, url: str) -> None:
        async def post(content: bytes) -> Any:
            return await client.post(wire.COMPLETIONS, content=content, headers=CONTROL)

        for content in (b"", b"{", b"\xff\xfe", b'{"prompt":' + b"[" * 100_000):
            reply = await post(content)
            assert reply.status_code in (400, 422) and error(reply)["cause"] == "data", content[:20]
        assert error(await post(b"[" * 10))["code"] in ("invalid_json", "invalid_field")
        assert (await client.get("/nowhere")).status_code == 404 and error(await client.get("/nowhere"))["code"] == "not_found"
        assert (await client.get(wire.COMPLETIONS)).status_code == 405
        reply = await client.post(wire.COMPLETIONS, json=body(model="gpt"), headers=CONTROL)
        assert (reply.status_code, error(reply)["code"], error(reply)["param"]) == (404, "model_not_found", "model")

    assert refusals(talk(tmp_path, script)) == []


def test_a_body_beyond_the_limit_is_refused_whether_or_not_it_says_its_length(tmp_path: Path) -> None:
    async def chunks() -> Any:
        for _ in range(3):
            yield b" " * 500

    async def script(client: Any, told: Told, url: str) -> None:
        for content in (b" " * 1001, chunks()):
            reply = await client.post(wire.COMPLETIONS, content=content, headers=CONTROL)
            assert (reply.status_code, error(reply)["code"]) == (413, "request_too_large")
        small = {**body(), "prompt": [1]}
        assert (await client.post(wire.COMPLETIONS, json=small, headers=CONTROL)).status_code == 200

    talk(tmp_path, script, body_max=1000)
    assert BODY_MAX >= 1 << 20


# --- the address ----------------------------------------------------------------------------------------------------------


def test_a_port_in_use_is_one_clear_error(tmp_path: Path) -> None:
    async def script(client: Any, told: Told, url: str) -> None:
        port = int(url.rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 is in use: .*name another one, or 0") as caught:
            ModelServer(told.worker, Behind(told.worker), token=TOKEN, port=port).listen()
        assert "\n" not in str(caught.value)
        assert (await client.get(wire.HEALTH)).status_code == 200

    talk(tmp_path, script)


def test_a_client_that_comes_before_the_server_serves_waits_and_it_listens_on_loopback(tmp_path: Path) -> None:
    async def script(client: Any, told: Told, url: str) -> None:
        server = ModelServer(told.worker, Behind(told.worker), token=TOKEN)
        address = server.listen()
        assert (
            server.bound is not None and server.bound.getsockname()[0] == "127.0.0.1" and address.startswith("http://127.0.0.1:")
        )
        early = asyncio.ensure_future(client.get(f"{address}{wire.HEALTH}"))
        await asyncio.sleep(0.05)
        assert not early.done()
        serving = asyncio.ensure_future(server.serve())
        assert (await early).json() == {"status": "ok", "version": 0, "incarnation": 1}
        server.close()
        await serving

    talk(tmp_path, script)


def test_nobody_there_is_lost_and_so_is_a_connection_that_breaks() -> None:
    async def lose() -> list[str]:
        async def slam(reader: Any, writer: Any) -> None:
            await reader.read(10)
            writer.close()

        found = []
        closed = socket.create_server(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        closed.close()
        slamming = await asyncio.start_server(slam, "127.0.0.1", 0)
        for where in (port, slamming.sockets[0].getsockname()[1]):
            link = ModelLink(WORKER, f"http://127.0.0.1:{where}", Sender("gym-0", 1, 1), TOKEN)
            with pytest.raises(Lost) as caught:
                await link.call(asked())
            found.append(str(caught.value))
            await link.close()
        slamming.close()
        return found

    refused, broken = asyncio.run(lose())
    assert "ConnectError" in refused and "RemoteProtocolError" in broken or "ReadError" in broken


@pytest.mark.parametrize(
    ("status", "content", "cause"),
    [
        (502, b"<html>no backend</html>", Cause.INFRA),
        (429, b'{"error": "slow down"}', Cause.INFRA),
        (404, b"{}", Cause.DATA),
        (400, b'{"error":{"message":"m","type":"t","code":"c","class":"SystemExit","cause":"infra"}}', Cause.DATA),
        (400, b'{"error":{"message":"m","type":"t","code":"c","class":"Refusal","cause":"new"}}', Cause.DATA),
    ],
)
def test_an_answer_that_is_none_of_ours_is_a_failed_peer(status: int, content: bytes, cause: Cause) -> None:
    found = wire.error_of(WORKER, status, content)
    assert type(found) is PeerFailed and found.cause is cause and f"HTTP {status}" in str(found)


# --- OpenAI ---------------------------------------------------------------------------------------------------------------


def test_openais_client_reads_models_completions_chats_and_errors(tmp_path: Path) -> None:
    openai = pytest.importorskip("openai", reason="OpenAI's client is not installed")
    borrowed = Borrowed()

    async def script(client: Any, told: Told, url: str) -> None:
        plain = httpx.AsyncClient(trust_env=False)
        api = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=0, http_client=plain)
        assert [model.id async for model in api.models.list()] == ["policy"]
        captured = msgspec.to_builtins(wire.body_of(asked(), wire.MODEL))["rollproof"]
        answer = await api.completions.create(
            model="policy",
            prompt=[1, 2, 3],
            max_tokens=5,
            temperature=0,
            stop="x",
            extra_body={"rollproof": captured},
            extra_headers={wire.SENDER: "gym-0/1/1"},
        )
        choice = answer.choices[0]
        assert (len(choice.token_ids), choice.finish_reason, answer.usage.completion_tokens) == (5, "length", 5)
        assert len(choice.logprobs.token_logprobs) == len(choice.logprobs.tokens) == 5
        assert answer.usage.total_tokens == 8 and answer.rollproof["coordinate"]["tokens"] == 5
        bare = await api.completions.create(model="policy", prompt=[1, 2], max_tokens=2)
        assert (bare.choices[0].text, bare.choices[0].token_ids, bare.usage.prompt_tokens) == ("yes", [7, 8], 2)
        chat = await api.chat.completions.create(model="policy", messages=[{"role": "user", "content": "hm"}], max_tokens=2)
        assert (chat.choices[0].message.content, chat.choices[0].finish_reason) == ("yes", "stop")
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            await api.completions.create(model="policy", prompt=[1], temperature=-1)
        assert (caught.value.param, caught.value.code) == ("temperature", "invalid_field")
        await plain.aclose()

    records = talk(tmp_path, script, outside=borrowed)
    assert borrowed.asked == [((1, 2), Sampling(max_tokens=2)), (tuple(map(ord, "user:hm")), Sampling(max_tokens=2))]
    assert len([record for record in records if isinstance(record.event, CallBegun)]) == 1


def test_plain_clients_are_refused_while_the_worker_has_no_weights_or_no_chat_template(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "hm"}]}

    async def script(client: Any, told: Told, url: str) -> None:
        for path, content in ((wire.CHAT, chat), (wire.COMPLETIONS, {"prompt": [1]})):
            reply = await client.post(path, json=content)
            assert (reply.status_code, error(reply)["code"]) == (503, NO_BACKEND)
            assert "was given no weights" in error(reply)["message"]
        captured = await client.post(wire.COMPLETIONS, json=body(), headers=CONTROL)
        assert (captured.status_code, error(captured)["code"]) == (503, NO_BACKEND)
        assert (await client.get(wire.HEALTH)).json()["status"] == "no weights"
        async with listening(told.worker, Behind(told.worker)) as bare:
            reply = await client.post(f"{bare}{wire.CHAT}", json=chat)
            assert (reply.status_code, error(reply)["code"]) == (501, "no_plain_calls")

    talk(tmp_path, script, weights=None, outside=Borrowed())


def test_a_client_that_hangs_up_cancels_its_call(tmp_path: Path) -> None:
    async def script(client: Any, told: Told, url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        content = json.dumps(body()).encode()
        head = f"POST {wire.COMPLETIONS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n{wire.SENDER}: gym-0/1/1\r\n"
        writer.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        await told.until(CallBegun)
        writer.close()
        await told.until(CallEnded)

    records = talk(tmp_path, script)
    assert [record.event.outcome for record in records if isinstance(record.event, CallEnded)] == ["aborted"]


# --- numbers and fields ---------------------------------------------------------------------------------------------------


def of_bits(bits: int) -> float:
    """The 32-bit float of these bits, as a 64-bit one."""
    found: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return found


FINITE = st.integers(0, (1 << 32) - 1).map(of_bits).filter(lambda number: number - number == 0)


@given(st.lists(FINITE, min_size=1, max_size=50))
def test_logprobs_of_32_bits_come_back_bit_for_bit(logprobs: list[float]) -> None:
    generated = Generated((1,) * len(logprobs), tuple(logprobs), Coordinate("k", "d", "c", 1, 1))
    content = msgspec.json.encode(wire.answer_of(asked(), generated, "m", 1))
    back = wire.generated_of(msgspec.json.decode(content, type=wire.Answer))
    assert [struct.pack("<d", number) for number in back.logprobs] == [struct.pack("<d", number) for number in logprobs]
    assert back == generated


@pytest.mark.parametrize("logprob", [float("-inf"), float("nan")])
def test_a_logprob_that_is_no_number_is_an_error_and_not_null(logprob: float) -> None:
    generated = Generated((1, 2), (-1.0, logprob), Coordinate("k", "d", "c", 1, 1))
    with pytest.raises(PeerFailed, match="token 1 is"):
        wire.answer_of(asked(), generated, "m", 1)


EVERY = Generate(
    "c", "r", 3, 4, 5, 6, "p", "pc", 7, (8, 9),
    Sampling(temperature=0.3, top_p=0.9, seed=-1, stop=("a", "\u2028"), bad_words=("b",), presence_penalty=0.1,
             frequency_penalty=-0.2, grammar='root ::= "x"', max_tokens=10),
    (MediaSource("image", "s", 1, 2),), (RetainedMedia("k", (MediaSource("video", "t", 3, 4),)),),
    PrefixEvidence(("k1", "k2"), 2, "d", 10, "buffer"), 1 / 3, (5, 6, 7),
)  # fmt: skip


def test_every_field_of_a_model_call_survives_the_wire() -> None:
    plain = asked(sampling=Sampling())
    for kind, call in ((Generate, EVERY), (Sampling, EVERY.sampling)):
        for name in kind.__struct_fields__:  # a field that is added later must be given a value here
            assert getattr(call, name) != getattr(plain if kind is Generate else plain.sampling, name), name
    for call in (EVERY, plain):
        back = msgspec.json.decode(msgspec.json.encode(wire.body_of(call, "m")), type=wire.Completion)
        assert wire.message_of(back, back.rollproof) == call  # type: ignore[arg-type]


def test_each_message_of_a_worker_has_a_way() -> None:
    assert {control.asks for control in wire.CONTROLS} == {CutCalls, OpenGate, RetirePrefix, SetWeightVersion, Probe}
