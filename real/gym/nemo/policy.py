"""The policy model as a NeMo Gym agent sees it: ``POST /v1/responses``, answered by the core's workers.

Which rollout a request belongs to stands in its ``metadata``, which an agent passes on from its task as it is: a word that was
made for this one run of the row, so that nobody else asks in its name. Each request holds the conversation so far; what is new
in it since the last answer is the next call's carry, so that the calls of a rollout are one chain, captured as ever. A request
that comes again is answered as before: NeMo Gym's client repeats what it had no answer to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from protocol.config import Job
from protocol.errors import Cause, PeerFailed, ProtocolError, Refusal
from protocol.identity import GymCheckpointEpisode, model_call_id, staging_key, worker_name
from protocol.messages import Coordinate, Generate, Generated, PromptTask, ToolCall
from protocol.runtime import Runtime
from real.gym.bodies import TooLarge, answer, failed, read_body, refusal, too_large, while_heard
from real.gym.tokens import ModelTokens
from real.gym.workplace import called, policy_head

WORD = "rollproof_rollout"  # in a request's metadata: the word of its rollout
TEXT_MAX = 20_000  # characters of one tool's output that become tokens: the tokens themselves are bounded as ever


class Asked(msgspec.Struct, frozen=True):
    """What is read of a request; whatever else an agent says is its own affair."""

    input: str | list[dict[str, Any]]
    metadata: dict[str, str] | None = None


@dataclass(eq=False, kw_only=True)
class Chain:
    """The model calls of one rollout. ``heard``: items of the conversation up to and with the last answer's own."""

    key: str
    ordinal: int
    generation: int
    task: PromptTask
    calls: list[Coordinate] = field(default_factory=list)
    length: int = 0
    context: tuple[int, ...] = ()
    heard: int = 0
    asked: int = -1  # items of the request that was answered last
    answered: dict[str, Any] | None = None
    failure: ProtocolError | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Policy:
    """Answers for the rollouts of one Gym process. ``chains`` are those that run, by their words."""

    def __init__(self, rt: Runtime, job: Job, tokens: ModelTokens, hands_context: bool) -> None:
        self.rt = rt
        self.job = job
        self.tokens = tokens
        self.hands_context = hands_context
        self.chains: dict[str, Chain] = {}

    async def answer(self, chain: Chain, items: list[dict[str, Any]]) -> dict[str, Any]:
        """The next answer of this rollout, a Responses object. Raises ProtocolError."""
        async with chain.lock:
            if chain.failure is not None:
                raise chain.failure  # its row has failed, however often its agent asks
            if chain.answered is not None and len(items) == chain.asked:
                return chain.answered  # asked again
            if len(items) < chain.heard or (chain.answered is not None and len(items) == chain.heard):
                raise Refusal(f"{chain.key}: the conversation has {len(items)} items, {chain.heard} are known", Cause.DATA)
            turn = len(chain.calls)
            if turn >= self.job.max_turns:
                raise Refusal(f"{chain.key}: its {self.job.max_turns} turns are over", Cause.DATA)
            carry = self.tokens.prompt(chain.task) if turn == 0 else self.tokens.reply(said(items[chain.heard :]))
            generated = await self._generate(chain, turn, carry)
            chain.calls.append(generated.coordinate)
            chain.length += len(carry) + len(generated.tokens)
            chain.context = (*chain.context, *carry, *generated.tokens)
            text = self.tokens.text(generated.tokens)
            call = called(text) or policy_head(chain.task, turn, generated.tokens)
            if turn + 1 >= self.job.max_turns:
                call = None  # the last turn says something, or the agent would go on
            chain.asked, chain.heard = len(items), len(items) + 1
            chain.answered = response(chain.key, turn, text, call)
            return chain.answered

    async def _generate(self, chain: Chain, turn: int, carry: tuple[int, ...]) -> Generated:
        episode = GymCheckpointEpisode.of(chain.key)
        parent = chain.calls[-1] if chain.calls else None
        request = self.rt.call(
            worker_name(chain.ordinal % self.job.generation_workers),
            Generate(
                call=staging_key(chain.key, model_call_id(turn)),
                rollout_id=episode.rollout_id,
                attempt=episode.attempt,
                ordinal=chain.ordinal,
                generation=chain.generation,
                turn=turn,
                parent=parent.key if parent is not None else "",
                parent_cumulative=parent.cumulative if parent is not None else "",
                previous_length=chain.length,
                carry=carry,
                admitted_at=self.rt.now(),
                context=chain.context if self.hands_context else (),
            ),
        )
        try:
            generated: Generated = await request
            return generated
        finally:
            if not request.done:
                request.cancel()


def said(items: list[dict[str, Any]]) -> str:
    """What the tools have said, as text; it is data."""
    return "\n".join(str(item.get("output", item.get("content", ""))) for item in items)[:TEXT_MAX]


def response(key: str, turn: int, text: str, call: ToolCall | None) -> dict[str, Any]:
    """One item: a function call, or a message that ends the episode."""
    if call is not None:
        item: dict[str, Any] = {
            "type": "function_call",
            "id": f"fc_{turn}",
            "call_id": f"call_{turn}",
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
    else:
        content = {"type": "output_text", "text": text.encode("utf-8", "replace").decode(), "annotations": []}
        item = {"type": "message", "id": f"msg_{turn}", "role": "assistant", "status": "completed", "content": [content]}
    return {
        "id": f"resp_{key}_{turn}",
        "object": "response",
        "created_at": 0,
        "model": "policy",
        "output": [item],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }


def app_of(policy: Policy) -> FastAPI:
    async def responses(request: Request) -> Response:
        try:
            asked = msgspec.json.decode(await read_body(request), type=Asked)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return refusal(f"responses: {error}", 422)
        except TooLarge:
            return too_large("responses")
        chain = policy.chains.get((asked.metadata or {}).get(WORD, ""))
        if chain is None:
            return refusal(f"responses: no rollout that runs here is named by {WORD} in its metadata", 409)
        items = asked.input if isinstance(asked.input, list) else [{"role": "user", "content": asked.input}]
        try:
            return answer(await while_heard(request, policy.answer(chain, items)))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:
            # The agent makes an error of its own of it: what it was stays here, for the row.
            chain.failure = error if isinstance(error, ProtocolError) else PeerFailed(f"{type(error).__name__}: {error}")
            return failed(error)

    async def health(request: Request) -> Response:
        return answer({})

    paths: list[tuple[str, Callable[..., Any], str]] = [
        ("/v1/responses", responses, "POST"),
        ("/ng-rollout/{rollout}/v1/responses", responses, "POST"),  # where an agent says it in the path as well
        ("/healthz", health, "GET"),
    ]
    routes = [Route(path, function, methods=[method]) for path, function, method in paths]
    return FastAPI(routes=routes, openapi_url=None, docs_url=None, redoc_url=None)
