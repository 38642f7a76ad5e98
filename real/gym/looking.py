"""The stateless resources server of pictures: a closer look, and what an answer is worth. Each call brings all that it needs.

    POST /picture_look_closer  {picture, look}   {reply}: what is said beside the image that the look shows
    POST /verify               {task, answer}    {reward}: of the answer's tokens

No session is seeded or closed, and nothing is remembered: whoever is asked, in whichever life, says the same.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
from collections.abc import Sequence
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from protocol.messages import PromptTask
from real.gym.asking import Answering, Asking
from real.gym.bodies import answer
from real.gym.tokens import ModelTokens
from real.gym.workplace import called
from real.listening import listen

LOOK, ANSWER = "picture_look_closer", "answer"
SHARES = 512  # a wrong answer of a model too small to say anything gets less than 256 of them


class LookCloser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    picture: str
    look: int


class Verify(msgspec.Struct, frozen=True):
    task: PromptTask
    answer: tuple[int, ...]


class Reply(msgspec.Struct, frozen=True):
    reply: str


class Looking(Protocol):
    """What an environment looks closer with."""

    async def look(self, asked: LookCloser) -> str:
        """What is said beside the image. Raises ProtocolError: Lost, if nobody answers."""
        ...

    async def close(self) -> None: ...


def said(asked: LookCloser) -> str:
    return f"look {asked.look} at {asked.picture}: this is what it shows from close by"


def right_answer(task: PromptTask) -> str:
    """The argument ``text`` of the call ``answer`` in the ground truth, '' without one."""
    for call in task.ground_truth:
        if call.name == ANSWER:
            arguments = json.loads(call.arguments)
            return str(arguments.get("text", "")) if isinstance(arguments, dict) else ""
    return ""


class AnswerScorer:
    """Rewards in [0, 1]: 1 for the right word, in a call of ``answer`` or anywhere in the text; 0 for a call with another one.

    A model too small to say anything is taken to have come near it by a fixed hash of its tokens, below one half: equal tokens
    are worth the same in every life, and siblings hardly ever are.
    """

    def __init__(self, tokens: ModelTokens) -> None:
        self._tokens = tokens

    def reward(self, task: PromptTask, tokens: Sequence[int]) -> float:
        right, text = right_answer(task).casefold(), self._tokens.text(tokens)
        call = called(text)
        if call is not None and call.name == ANSWER:
            return float(str(json.loads(call.arguments).get("text", "")).strip().casefold() == right)
        if right and right in re.findall(r"\w+", text.casefold()):
            return 1.0
        return hash_of(tokens) % (SHARES // 2) / SHARES


def hash_of(tokens: Sequence[int]) -> int:
    data = b"".join(token.to_bytes(4, "little") for token in tokens)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


class LocalLooking:
    """Without HTTP."""

    async def look(self, asked: LookCloser) -> str:
        return said(asked)

    async def close(self) -> None:
        pass


class LookingServer(Answering):
    def __init__(self, scorer: AnswerScorer, listening: socket.socket) -> None:
        self.scorer = scorer
        super().__init__(listening, [(f"/{LOOK}", LookCloser, self._look), ("/verify", Verify, self._verify)])

    async def _look(self, request: Request, asked: LookCloser) -> Response:
        return answer(Reply(said(asked)))

    async def _verify(self, request: Request, asked: Verify) -> Response:
        return answer({"reward": self.scorer.reward(asked.task, asked.answer)})


class HttpLooking(Asking):
    async def look(self, asked: LookCloser) -> str:
        response = await self._post(f"/{LOOK}", msgspec.json.encode(asked), self._headers)
        return msgspec.json.decode(self._checked(response), type=Reply).reply


def open_looking(name: str, scorer: AnswerScorer, *, over_http: bool = True, port: int = 0) -> Looking:
    """For the Gym process ``name``. Over HTTP there is a server on the running loop, which ends with it.

    Raises ConfigError if its port is in use."""
    if not over_http:
        return LocalLooking()
    server = LookingServer(scorer, listen(f"the resources server of {name}", port))
    return HttpLooking(server.address, server.token, server)
