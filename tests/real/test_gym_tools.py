"""Tools over HTTP: each call runs once, its state is the caller's, and what it did outside is counted outside."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("fastapi", reason="fastapi of the extra 'real' is not installed")
pytest.importorskip("uvicorn", reason="uvicorn of the extra 'real' is not installed")
pytest.importorskip("httpx", reason="httpx of the extra 'real' is not installed")

import httpx
from gym_reach import GYM, Reach, Ways
from model_tokens import model_folder

from protocol.errors import Cause, ConfigError, Lost, ProtocolError
from protocol.external import Service
from protocol.history import EpisodeExported, EpisodeParked, TurnCompleted
from protocol.identity import GymCheckpointEpisode as Episode
from protocol.identity import effect_key
from protocol.messages import RowCompleted, ToolCall
from real.gym.resources import KEY_HEADER, HttpTools, Resources, ResourcesServer, open_tools
from real.gym.tables import digest_of, seed_rows
from real.gym.tokens import ModelTokens
from real.gym.workplace import RealWorkplace, called
from real.listening import listen
from real.services import ServiceServer, doors
from tests.unit.gym_bench import commit, key, prepare, resume, row, rows, task

pytestmark = pytest.mark.real


async def failure(asked: Awaitable[Any]) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        await asked
    return caught.value


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

    history = RealWays(tmp_path, model).run(script, {"unsavable": 0, "hold_first_boundary": True, "hold_most_s": 60.0})
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

    history = RealWays(tmp_path, model).run(script, {"unsavable": 0, "hold_first_boundary": True, "hold_most_s": 2.0})
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
