"""The resources server of a Gym instance: tools over HTTP, on tables in SQLite, and the way to them.

    POST /seed_session   {session, state}              the session holds these rows, and no call of it is remembered
    POST /<tool>         {session, arguments, base}    header Idempotency-Key: the call is made once under it
    POST /verify         {session, task}               the reward of the session's rows as they are
    POST /close_session  {session}

Rows travel with each answer: the episode's state in the core stays whole, and is what a checkpoint saves. A call says which
rows it builds on (``base``, their digest): where the session holds others, or is gone, it is seeded anew. All calls carry a
bearer token that was made for this server. SQL runs on one thread of its own.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from protocol.messages import PromptTask, ToolCall
from real.gym.asking import Act, Answering, Asking
from real.gym.bodies import answer
from real.gym.scoring import Scorer
from real.gym.tables import Ran, Rows, StaleSession, Workbook, digest_of
from real.gym.wire import BadBody
from real.listening import listen

T = TypeVar("T")
KEY_HEADER = "idempotency-key"
TOOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
RESERVED = ("seed_session", "close_session", "verify")


class SeedSession(msgspec.Struct, frozen=True):
    session: str
    state: Rows


class CloseSession(msgspec.Struct, frozen=True):
    session: str


class Verify(msgspec.Struct, frozen=True):
    session: str
    task: PromptTask


class RunTool(msgspec.Struct, frozen=True):
    session: str
    arguments: str
    base: str


class Stale(msgspec.Struct, frozen=True):
    """The session must be seeded before this call can be made. HTTP 409."""

    stale: str


class Tools(Protocol):
    """What an environment runs its tools with."""

    async def run(self, session: str, key: str, call: ToolCall, rows: Rows) -> Ran:
        """Make the call on these rows, once under ``key``. Raises ProtocolError: Lost, if nobody answers."""
        ...

    async def close(self) -> None: ...


class Resources:
    """The tables of one Gym process, and the thread that works on them."""

    def __init__(self, path: Path | None = None) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self.workbook = Workbook(path)
        self.scorer = Scorer()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tables")

    async def work(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.shutdown)
        self.workbook.close()


# --- in this process


class LocalTools:
    """Without HTTP."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    async def run(self, session: str, key: str, call: ToolCall, rows: Rows) -> Ran:
        return await self._resources.work(self._run, session, key, call, rows)

    def _run(self, session: str, key: str, call: ToolCall, rows: Rows) -> Ran:
        workbook, base = self._resources.workbook, digest_of(rows)
        try:
            return workbook.run(session, key, call, base)
        except StaleSession:
            workbook.seed(session, rows)
            return workbook.run(session, key, call, base)

    async def close(self) -> None:
        await self._resources.close()


# --- over HTTP


class ResourcesServer(Answering):
    def __init__(self, resources: Resources, listening: socket.socket) -> None:
        self.resources = resources
        routes: list[tuple[str, type, Act]] = [
            ("/seed_session", SeedSession, self._seed),
            ("/close_session", CloseSession, self._close_session),
            ("/verify", Verify, self._verify),
            ("/{tool}", RunTool, self._run),
        ]
        super().__init__(listening, routes)

    async def close(self) -> None:
        await super().close()
        await self.resources.close()

    async def _seed(self, request: Request, asked: SeedSession) -> Response:
        await self.resources.work(self.resources.workbook.seed, asked.session, asked.state)
        return answer({})

    async def _close_session(self, request: Request, asked: CloseSession) -> Response:
        await self.resources.work(self.resources.workbook.close_session, asked.session)
        return answer({})

    async def _verify(self, request: Request, asked: Verify) -> Response:
        try:
            rows = await self.resources.work(self.resources.workbook.rows, asked.session)
        except StaleSession:
            return unseeded()
        return answer({"reward": await self.resources.work(self.resources.scorer.reward, asked.task, rows)})

    async def _run(self, request: Request, asked: RunTool) -> Response:
        key = request.headers.get(KEY_HEADER, "")
        if not key:
            raise BadBody(f"the header {KEY_HEADER} is missing: a call is made once under it")
        call = ToolCall(request.path_params["tool"], asked.arguments)
        try:
            return answer(await self.resources.work(self.resources.workbook.run, asked.session, key, call, asked.base))
        except StaleSession:
            return unseeded()


def unseeded() -> Response:
    return answer(Stale("seed the session first"), 409)


class HttpTools(Asking):
    async def run(self, session: str, key: str, call: ToolCall, rows: Rows) -> Ran:
        if not TOOL.fullmatch(call.name) or call.name in RESERVED:
            return Ran(f"error: there is no tool {call.name[:100]}", rows, False, False)
        body = msgspec.json.encode(RunTool(session, call.arguments, digest_of(rows)))
        headers = {**self._headers, KEY_HEADER: key}
        response = await self._post(f"/{call.name}", body, headers)
        if is_stale(response):
            seed = msgspec.json.encode(SeedSession(session, rows))
            self._checked(await self._post("/seed_session", seed, self._headers))
            response = await self._post(f"/{call.name}", body, headers)
        return msgspec.json.decode(self._checked(response), type=Ran)


def is_stale(response: httpx.Response) -> bool:
    if response.status_code != 409:
        return False
    try:
        msgspec.json.decode(response.content, type=Stale)
    except msgspec.DecodeError:
        return False
    return True


def open_tools(name: str, path: Path | None = None, *, over_http: bool = True, port: int = 0) -> Tools:
    """The tools of the Gym process ``name``, with tables of its own at ``path`` (None: in memory).

    Over HTTP there is a server on the running loop, which ends with them. Raises ConfigError if its port is in use.
    """
    if not over_http:
        return LocalTools(Resources(path))
    listening = listen(f"the resources server of {name}", port)
    server = ResourcesServer(Resources(path), listening)
    return HttpTools(server.address, server.token, server)
