"""The model server of one generation worker: OpenAI's API on the worker's own loop, in front of the handlers of the core.

    POST /v1/completions        a model call of Gym, captured (it brings ``rollproof``); or a plain one
    POST /v1/chat/completions   a plain call: the model's own chat template, nothing is captured
    GET  /v1/models, /health
    POST /rollproof/v1/*        control: cut, open_gate, retire_prefix, weights, probe

Whatever may change or disturb a run needs the bearer token of that run: control calls, and captured model calls, whose rows go
where the trainer reads. A wrong, missing or old token is refused, and the refusal recorded. A client that goes away cancels the
handler of what it asked for.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from protocol.errors import Cause, ConfigError, Lost, PeerFailed, ProtocolError, Refusal
from protocol.history import ControlRefused
from protocol.identity import token_name
from protocol.messages import NO_BACKEND, Message, Probe, Sampling
from protocol.runtime import Runtime
from real.engine import wire
from real.listening import LOOPBACK, Listening, address_of, listen
from real.remote import Sender, Served

T = TypeVar("T")
BODY_MAX = 16 << 20  # bytes: a carry of a million tokens
KEEP_ALIVE_S = 3_600  # idle connections are the client's to close: one that closes here may cost a request on its way
CLOSED_BY_CLIENT = 499  # nobody reads it
_FIELD = re.compile(r"field `([^`]*)`")
_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")


class Told(NamedTuple):
    """A plain answer."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    text: str
    finish: str


class Outside(Protocol):
    """Answers clients that are no part of the run: with the worker's weights, and without a trace in its rows or its history."""

    def render(self, messages: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        """Tokens of these (role, text) by the model's chat template. Raises Refusal(DATA) if it has none, or cannot."""
        ...

    async def generate(self, prompt: tuple[int, ...], sampling: Sampling) -> Told:
        """Cancelling it stops the engine's work."""
        ...


class Rejected(Exception):
    """An error that answers a request, with its HTTP status."""

    def __init__(self, error: ProtocolError, status: int, code: str = "", param: str | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.status = status
        self.code = code
        self.param = param


class Gone(Exception):
    """The client went away."""


class ModelServer:
    """``listen``, tell whoever asks the address, then ``serve``. ``token``: the bearer token of this run's control calls."""

    def __init__(
        self,
        rt: Runtime,
        served: Served,
        *,
        token: str,
        model: str = wire.MODEL,
        outside: Outside | None = None,
        host: str = LOOPBACK,
        port: int = 0,
        body_max: int = BODY_MAX,
    ) -> None:
        if not token:
            raise ConfigError("the model server has no control token: mint one for each run")
        self.rt = rt
        self.served = served
        self.token = token
        self.model = model
        self.outside = outside
        self.place = host, port
        self.body_max = body_max
        self.own = Sender(rt.me, rt.life, rt.incarnation)  # asks in the name of clients that are no process of the job
        self.bound: socket.socket | None = None
        self.listening: Listening | None = None

    # --- its life

    def listen(self) -> str:
        """Bind and listen: from now on a client that connects waits. Returns the address, ``http://host:port``. Raises
        ConfigError if that cannot be."""
        host, port = self.place
        self.bound = listen(f"the model server of {self.rt.me}", port, host)
        return address_of(self.bound)

    async def serve(self) -> None:
        """Until ``close``."""
        assert self.bound is not None, "listen comes before serve: an address is published that answers"
        self.listening = Listening(self.app(), self.bound, KEEP_ALIVE_S)
        await self.listening.over()

    def close(self) -> None:
        """What is still being answered is cut off."""
        if self.listening is not None:
            self.listening.shut()
        elif self.bound is not None:
            self.bound.close()

    # --- routes

    def app(self) -> FastAPI:
        app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

        def route(path: str, method: str, answer: Callable[[Request], Awaitable[bytes]]) -> None:
            async def endpoint(request: Request) -> Response:
                return await self.respond(request, answer)

            app.add_api_route(path, endpoint, methods=[method], response_model=None)

        route(wire.COMPLETIONS, "POST", self.completions)
        route(wire.CHAT, "POST", self.chat)
        route(wire.MODELS, "GET", self.models)
        route(wire.HEALTH, "GET", self.health)
        for control in wire.CONTROLS:
            route(control.path, "POST", self.control(control))

        async def unknown(request: Request, error: HTTPException) -> Response:
            text = f"{request.method} {request.url.path}: {error.detail}"
            return _failed(Rejected(Refusal(text, Cause.DATA), error.status_code, code="not_found"))

        app.add_exception_handler(HTTPException, unknown)
        return app

    async def respond(self, request: Request, answer: Callable[[Request], Awaitable[bytes]]) -> Response:
        try:
            return Response(await answer(request), media_type="application/json")
        except Gone:
            return Response(status_code=CLOSED_BY_CLIENT)
        except Rejected as rejected:
            return _failed(rejected)
        except ProtocolError as error:
            return _failed(Rejected(error, wire.status_of(error)))
        except Exception as error:
            text = f"{self.rt.me} failed to answer {request.url.path}: {type(error).__name__}: {error}"
            return _failed(Rejected(PeerFailed(text), 500))

    async def completions(self, request: Request) -> bytes:
        body = await self.body(request, wire.Completion)
        captured = body.rollproof
        if captured is msgspec.UNSET:
            self.supported(body)
            return await self.plain(request, "text_completion", body.prompt, body.sampling)
        sender = self.authorised(request, "generate")
        self.supported(body)
        if captured.context_length > len(body.prompt):
            text = f"rollproof.context_length: {captured.context_length} tokens of a prompt of {len(body.prompt)}"
            raise Rejected(Refusal(text, Cause.DATA), 422, code="invalid_field", param="rollproof.context_length")
        message = wire.message_of(body, captured)
        generated = await self.ask(request, sender, message)
        return msgspec.json.encode(wire.answer_of(message, generated, self.model, int(time.time())))

    async def chat(self, request: Request) -> bytes:
        body = await self.body(request, wire.Chat)
        self.supported(body)
        outside = self.others()
        prompt = outside.render([(said.role, said.content) for said in body.messages])
        return await self.plain(request, "chat.completion", prompt, body.sampling)

    async def plain(self, request: Request, kind: str, prompt: tuple[int, ...], sampling: Sampling) -> bytes:
        outside = self.others()
        health = await self.ask(request, self.own, Probe())
        if health.version < 0:
            raise Refusal(f"{NO_BACKEND}: {self.rt.me} was given no weights since it started", Cause.INFRA)
        told = await self.unless_gone(request, outside.generate(prompt, sampling))
        choice = wire.choice_of(told.tokens, told.logprobs, told.text, told.finish)
        answer = {
            "id": f"{kind}-{time.monotonic_ns():x}",
            "object": kind,
            "created": int(time.time()),
            "model": self.model,
            "usage": wire.usage_of(len(prompt), len(told.tokens)),
            "choices": [choice],
        }
        if kind == "chat.completion":
            message = {"role": "assistant", "content": told.text}
            answer["choices"] = [{"index": 0, "message": message, "finish_reason": told.finish, "token_ids": choice.token_ids}]
        return msgspec.json.encode(answer)

    async def models(self, request: Request) -> bytes:
        known = {"id": self.model, "object": "model", "created": 0, "owned_by": "rollproof"}
        return msgspec.json.encode({"object": "list", "data": [known]})

    async def health(self, request: Request) -> bytes:
        health = await self.ask(request, self.own, Probe())
        status = "ok" if health.version >= 0 else "no weights"
        return msgspec.json.encode({"status": status, "version": health.version, "incarnation": health.incarnation})

    def control(self, control: wire.Control) -> Callable[[Request], Awaitable[bytes]]:
        operation = control.path.rpartition("/")[2]

        async def answer(request: Request) -> bytes:
            sender = self.authorised(request, operation)
            message = await self.body(request, control.asks)
            return msgspec.json.encode(await self.ask(request, sender, message))

        return answer

    # --- what they share

    def authorised(self, request: Request, operation: str) -> Sender:
        """Who asks, by this run's token. The refusal is the one that Gym's control calls get, and recorded as theirs is."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        given = given if scheme.lower() == "bearer" else ""
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            self.rt.record(ControlRefused(operation, "", token_name(given) if given else ""))
            what = "the call carries the control token of another run" if given else "the call carries no control token"
            raise Rejected(Refusal(f"{operation}: {what}", Cause.BROKEN), 401, code="invalid_control_token")
        text = request.headers.get(wire.SENDER, "")
        sender = wire.sender_of(text)
        if sender is None:
            raise Rejected(
                Refusal(f"header {wire.SENDER} is {text[:100]!r}: process/life/incarnation was expected", Cause.DATA), 422,
                code="invalid_header", param=wire.SENDER,
            )  # fmt: skip
        return sender

    async def body(self, request: Request, kind: type[T]) -> T:
        """Raises Rejected: 413 too long, 400 no JSON, 422 a field is wrong, missing or unknown, which ``param`` names."""
        too_long = Rejected(Refusal(f"the body is longer than {self.body_max} bytes", Cause.DATA), 413, code="request_too_large")
        declared = request.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self.body_max:
            raise too_long
        content = bytearray()
        try:
            async for chunk in request.stream():
                content += chunk
                if len(content) > self.body_max:
                    raise too_long
        except Exception as error:
            if isinstance(error, Rejected):
                raise
            raise Gone from error
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.ValidationError as error:
            param, text = named(str(error))
            raise Rejected(Refusal(f"{param}: {text}", Cause.DATA), 422, code="invalid_field", param=param) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Rejected(Refusal(f"the body is no JSON: {error}", Cause.DATA), 400, code="invalid_json") from None

    def supported(self, body: wire.Sampled) -> None:
        if body.model != self.model:
            text = f"model: there is no {body.model[:100]!r} here, there is {self.model!r}"
            raise Rejected(Refusal(text, Cause.DATA), 404, code="model_not_found", param="model")
        if body.unsupported:
            text = f"{body.unsupported}: this server gives one whole answer and no echo"
            raise Rejected(Refusal(text, Cause.DATA), 422, code="unsupported", param=body.unsupported)

    def others(self) -> Outside:
        if self.outside is None:
            text = f"{self.rt.me} answers the calls of its run alone: it was started without a chat template"
            raise Rejected(Refusal(text, Cause.DATA), 501, code="no_plain_calls")
        return self.outside

    async def ask(self, request: Request, sender: Sender, message: Message) -> Any:
        return await self.unless_gone(request, self.served.answer(sender, message))

    async def unless_gone(self, request: Request, answer: Any) -> Any:
        """What ``answer`` gives or raises. Raises Gone, and cancels it, when the client is not there any more."""
        work = asyncio.ensure_future(answer)
        leaves = asyncio.ensure_future(_leaves(request))
        try:
            await asyncio.wait((work, leaves), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise Gone
            if work.cancelled():
                raise Lost(f"{self.rt.me} stopped before it had answered")
            return work.result()
        finally:
            for task in (work, leaves):
                task.add_done_callback(_heard)
                task.cancel()


async def _leaves(request: Request) -> None:
    """Until the client has gone; its body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _heard(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


def named(text: str) -> tuple[str, str]:
    """(field, what is wrong with it) of a message of msgspec."""
    place = _PLACE.search(text)
    path = place[1] if place else ""
    field = _FIELD.search(text)
    if field is not None:
        path = f"{path}.{field[1]}" if path else field[1]
    return path or "body", _PLACE.sub("", text)


def _failed(rejected: Rejected) -> Response:
    failure = wire.failure_of(rejected.error, status=rejected.status, code=rejected.code, param=rejected.param)
    content = msgspec.json.encode(wire.Failed(failure))
    headers = {"www-authenticate": "Bearer"} if rejected.status == 401 else None
    return Response(content, status_code=rejected.status, media_type="application/json", headers=headers)
