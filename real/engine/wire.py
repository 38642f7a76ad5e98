"""What the model server and its client say to each other: the core's messages of a worker as OpenAI bodies, in JSON.

A model call is an OpenAI completion. Its prompt are token ids, its sampling is said in OpenAI's own fields (and vLLM's, where
OpenAI has none), and what only this project knows travels in one object, ``rollproof``, each way. A control call is its
message as it is. Numbers come back as they left: a float is written with the fewest digits that read as the same float.

An error is OpenAI's object with two fields more, ``class`` and ``cause``: the client raises the very ``ProtocolError`` that
the worker's handler raised. Which classes there are is fixed here; text of a peer is text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from protocol import errors
from protocol.errors import Cause, PeerFailed, ProtocolError
from protocol.messages import (
    NO_BACKEND,
    Coordinate,
    CutCalls,
    CutReceipt,
    Generate,
    Generated,
    Health,
    MediaSource,
    Message,
    OpenGate,
    PrefixEvidence,
    Probe,
    RetainedMedia,
    RetirePrefix,
    Sampling,
    SetWeightVersion,
)
from real.remote import Sender

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
MODELS = "/v1/models"
HEALTH = "/health"
MODEL = "policy"  # what the model is called where nobody names it
SENDER = "x-rollproof-sender"  # header: process/life/incarnation of whoever asks


class Control(msgspec.Struct, frozen=True):
    """One control route: the message that it takes, and what it answers."""

    path: str
    asks: type[Message]
    answers: Any


CONTROLS = (
    Control("/rollproof/v1/cut", CutCalls, CutReceipt),
    Control("/rollproof/v1/open_gate", OpenGate, None),
    Control("/rollproof/v1/retire_prefix", RetirePrefix, None),
    Control("/rollproof/v1/weights", SetWeightVersion, None),
    Control("/rollproof/v1/probe", Probe, Health),
)


def sender_text(sender: Sender) -> str:
    return f"{sender.process}/{sender.life}/{sender.incarnation}"


def sender_of(text: str) -> Sender | None:
    """None: it is no sender's text."""
    found = re.fullmatch(r"([a-z0-9-]{1,100})/([0-9]{1,9})/([0-9]{1,9})", text)
    return None if found is None else Sender(found[1], int(found[2]), int(found[3]))


Token = Annotated[int, Meta(ge=0, lt=1 << 32)]
Count = Annotated[int, Meta(ge=0)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Seed = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Words = tuple[str, ...]


# --- what is asked --------------------------------------------------------------------------------------------------------


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``structured_outputs`` as vLLM names it; of its kinds a grammar alone."""

    grammar: str


class Captured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fields of ``Generate`` that OpenAI has no name for. The first ``context_length`` tokens of the prompt lie before the
    carry."""

    call: str
    rollout_id: str
    attempt: Count
    ordinal: Count
    generation: Count
    turn: Count
    parent: str
    parent_cumulative: str
    previous_length: Count
    media: tuple[MediaSource, ...] = ()
    retained: tuple[RetainedMedia, ...] = ()
    prefix: PrefixEvidence | None = None
    admitted_at: float = 0.0
    context_length: Count = 0


OF_THE_CALL = tuple(name for name in Captured.__struct_fields__ if name != "context_length")


class Sampled(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Sampling, and what else an OpenAI client may send. A field that is not here is refused: what is left out in silence would
    be another answer than the one asked for. ``n``, ``stream`` and ``echo`` are here for their defaults."""

    model: str = MODEL
    temperature: Annotated[float, Meta(ge=0)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    seed: Seed | None = None
    stop: str | Words | None = None
    bad_words: Words = ()
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    structured_outputs: Form | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    n: int | None = None
    stream: bool | None = None
    echo: bool | None = None
    user: str = ""

    @property
    def sampling(self) -> Sampling:
        stop = self.stop or ()
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
            stop=(stop,) if isinstance(stop, str) else stop,
            bad_words=self.bad_words,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            grammar="" if self.structured_outputs is None else self.structured_outputs.grammar,
            max_tokens=self.max_tokens,
        )

    @property
    def unsupported(self) -> str:
        """The field that asks for more than one whole answer, '' if none does."""
        wished = (("n", self.n not in (None, 1)), ("stream", bool(self.stream)), ("echo", bool(self.echo)))
        return next((name for name, asked in wished if asked), "")


class Completion(Sampled, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    prompt: tuple[Token, ...]
    logprobs: Annotated[int, Meta(ge=0, le=1)] | None = None  # the chosen token's are always told
    rollproof: Captured | UnsetType = UNSET


class Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: str
    content: str


class Chat(Sampled, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    messages: Annotated[tuple[Said, ...], Meta(min_length=1)]


def body_of(message: Generate, model: str) -> Completion:
    sampling = message.sampling
    captured = Captured(context_length=len(message.context), **{name: getattr(message, name) for name in OF_THE_CALL})
    return Completion(
        model=model,
        prompt=(*message.context, *message.carry),
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        seed=sampling.seed,
        stop=sampling.stop or None,
        bad_words=sampling.bad_words,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        structured_outputs=Form(sampling.grammar) if sampling.grammar else None,
        max_tokens=sampling.max_tokens,
        rollproof=captured,
    )


def message_of(body: Completion, captured: Captured) -> Generate:
    own = {name: getattr(captured, name) for name in OF_THE_CALL}
    context, carry = body.prompt[: captured.context_length], body.prompt[captured.context_length :]
    return Generate(context=context, carry=carry, sampling=body.sampling, **own)


# --- what is answered -----------------------------------------------------------------------------------------------------


class Logprobs(msgspec.Struct, frozen=True):
    """``tokens`` are the ids as text: what a token reads as depends on those before it."""

    token_logprobs: tuple[float, ...]
    tokens: Words = ()
    text_offset: tuple[int, ...] = ()
    top_logprobs: None = None


class Choice(msgspec.Struct, frozen=True):
    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: Logprobs
    finish_reason: str


class Usage(msgspec.Struct, frozen=True):
    """``prompt_tokens``: all that the model saw before it answered, earlier turns included."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Restored(msgspec.Struct, frozen=True):
    """The fields of ``Generated`` that OpenAI has no name for."""

    coordinate: Coordinate
    prefix: int = 0
    prefix_digest: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    object: str
    created: int
    model: str
    choices: tuple[Choice, ...]
    usage: Usage
    rollproof: Restored | None = None


def usage_of(before: int, completion_tokens: int) -> Usage:
    return Usage(before, completion_tokens, before + completion_tokens)


def choice_of(tokens: Sequence[int], logprobs: Sequence[float], text: str, finish: str) -> Choice:
    """Raises PeerFailed for a logprob that JSON has no number for."""
    for position, logprob in enumerate(logprobs):
        if not math.isfinite(logprob):
            raise PeerFailed(f"the logprob of generated token {position} is {logprob}: it cannot be told in JSON")
    return Choice(0, text, tuple(tokens), Logprobs(tuple(logprobs), tuple(map(str, tokens))), finish)


def answer_of(asked: Generate, generated: Generated, model: str, created: int) -> Answer:
    return Answer(
        id=asked.call,
        object="text_completion",
        created=created,
        model=model,
        choices=(choice_of(generated.tokens, generated.logprobs, generated.text, generated.finish),),
        usage=usage_of(asked.previous_length + len(asked.carry), generated.completion_tokens),
        rollproof=Restored(generated.coordinate, generated.prefix, generated.prefix_digest),
    )


def generated_of(answer: Answer) -> Generated:
    """Raises PeerFailed if it answers no captured call."""
    told = answer.rollproof
    if told is None or len(answer.choices) != 1:
        raise PeerFailed(f"the answer of {answer.id} has {len(answer.choices)} choices and no coordinate: it was not captured")
    choice = answer.choices[0]
    return Generated(
        tokens=choice.token_ids,
        logprobs=choice.logprobs.token_logprobs,
        coordinate=told.coordinate,
        text=choice.text,
        finish=choice.finish_reason,
        completion_tokens=answer.usage.completion_tokens,
        prefix=told.prefix,
        prefix_digest=told.prefix_digest,
    )


# --- errors ---------------------------------------------------------------------------------------------------------------


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's error object; ``class`` and ``cause`` name the ``ProtocolError``. ``param``: the field that is wrong."""

    message: str
    type: str
    code: str
    param: str | None = None
    error_class: str = msgspec.field(name="class", default="")
    cause: str = ""


class Failed(msgspec.Struct, frozen=True):
    error: Failure


ERRORS: dict[str, type[ProtocolError]] = {
    kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ProtocolError)
}
STATUS: dict[Cause, int] = {  # PROTOCOL 1.10: what is worth another try is >= 500
    Cause.INFRA: 503,
    Cause.DATA: 400,
    Cause.PARKED: 409,
    Cause.UNAVAILABLE: 503,
    Cause.BROKEN: 409,
}
AGAIN = (408, 429)  # statuses below 500 that are worth another try


def status_of(error: ProtocolError) -> int:
    return 502 if isinstance(error, PeerFailed) else STATUS[error.cause]


def failure_of(error: ProtocolError, *, status: int, code: str = "", param: str | None = None) -> Failure:
    """``code`` is NO_BACKEND where that is the reason, whatever the status is."""
    text = str(error)
    return Failure(
        message=text,
        type="server_error" if status >= 500 else "invalid_request_error",
        code=code or (NO_BACKEND if text.startswith(NO_BACKEND) else error.cause.value),
        param=param,
        error_class=type(error).__name__,
        cause=error.cause.value,
    )


_failed = msgspec.json.Decoder(Failed).decode


def error_of(peer: str, status: int, content: bytes) -> ProtocolError:
    """The error that a reply with this status stands for; PeerFailed if it was none of ours that wrote it."""
    try:
        failure = _failed(content).error
        return ERRORS[failure.error_class](failure.message, Cause(failure.cause))
    except (msgspec.DecodeError, KeyError, ValueError):
        again = status >= 500 or status in AGAIN
        text = content[:200].decode(errors="replace")
        return PeerFailed(f"{peer} answered HTTP {status}: {text!r}", Cause.INFRA if again else Cause.DATA)
