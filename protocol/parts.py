"""What a world brings of its own into the core's processes: fakes in the simulator, real parts elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from protocol.external import Service
from protocol.messages import MediaSource, PromptTask, Sampling, ToolCall
from protocol.runtime import Runtime

Factory = Callable[[Runtime], Coroutine[Any, Any, None]]


class RouteLayout(msgspec.Struct, frozen=True):
    """Shape of a token's routed experts: [layers, top_k] of the engine's own ``dtype`` (uint8 | int8 | int16 | int32)."""

    layers: int
    top_k: int
    dtype: str


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine can do beyond generating. ``position_keyed_draws``: a seeded draw depends on the seed and the token's
    position alone, so a call that goes on after a prefix uses no draw twice. ``routes`` None: it records no experts.

    ``verified``: the engine's contract test has passed for this release on this host, and this names the proof ('': it has not).
    """

    release: str
    position_keyed_draws: bool = False
    routes: RouteLayout | None = None
    verified: str = ""


class EngineCall(msgspec.Struct, frozen=True, kw_only=True):
    """``prefix`` are tokens of the call's own that were generated before, with ``prefix_logprobs``; at most ``limit`` more (None:
    the engine's default). ``context``: all ``previous_length`` tokens before the carry, where the world hands them over, else
    (). ``media`` that context and carry hold places for, in the order of those places.
    """

    call: str
    ordinal: int
    generation: int
    turn: int
    version: int
    previous_length: int
    carry: tuple[int, ...]
    prefix: tuple[int, ...] = ()
    limit: int | None = None
    sampling: Sampling = Sampling()
    prefix_logprobs: tuple[float, ...] = ()
    context: tuple[int, ...] = ()
    media: tuple[MediaSource, ...] = ()


class RoutePiece(Protocol):
    """Route rows of consecutive positions of one call, as the engine appended them; never changed afterwards."""

    @property
    def rows(self) -> int: ...

    def read(self) -> bytes:
        """Materialise them: ``rows`` x layers x top_k values of the engine's dtype, little-endian."""
        ...


class Output(Protocol):
    """Live view of one running call: the engine appends to it at moments of its own, a token first, its logprob later, its
    route row when it is fed.

    ``tokens`` and ``logprobs`` are what *this* request generated, a restored prefix left out; ``routed`` of those tokens have
    a route row in a piece (-1: the engine records none). Each may have grown at each look at it: take a length once, and use
    it. ``finish``: '' while it runs, then stop | length | aborted. ``dropped``: an output of this request never came here, so
    that these lists lack tokens in their middle until the call is over: they are whole then.
    """

    @property
    def tokens(self) -> Sequence[int]: ...
    @property
    def logprobs(self) -> Sequence[float]: ...
    @property
    def routed(self) -> int: ...
    @property
    def dropped(self) -> bool: ...
    @property
    def pieces(self) -> Sequence[RoutePiece]:
        """Route pieces of a call that has finished, as they came with its last output; none before, and none without routes."""
        ...

    @property
    def finish(self) -> str: ...
    def more(self) -> Awaitable[None]:
        """Until something was appended since this was called, or the call is over."""
        ...

    def done(self) -> Awaitable[None]:
        """Until ``finish`` is set, every token has its logprob and every token that was fed its route row."""
        ...


class Detokenizer(Protocol):
    """Incremental: primed on the tokens before, it gives the text that each further token adds."""

    def push(self, token: int) -> str: ...


class Engine(Protocol):
    """What generates tokens inside a worker process. It records ``TokensGenerated``, ``EngineStarted`` and ``EngineAborted``."""

    @property
    def capabilities(self) -> Capabilities: ...

    def use_weights(self, version: int, weights: str) -> Awaitable[str]:
        """From now on generate with the weights of this version, whose digest the trainer has told ('': it has not). No call
        begins meanwhile; those that run end under the weights they began with. Returns the digest of what is loaded, '' where
        the engine cannot say. Raises Refusal(INFRA): these weights cannot be had, or are others than were told."""
        ...

    def start(self, call: EngineCall) -> Output:
        """Begin (or go on with) a call. At least one token more is generated."""
        ...

    def abort(self, call: str) -> None:
        """Stop it, if it runs; its ``finish`` is then aborted."""
        ...

    def release(self, call: str) -> None:
        """Nobody will ask about this call any more."""
        ...

    def route_pieces(self, asked: Sequence[tuple[str, int]]) -> list[tuple[RoutePiece, ...]]:
        """Of each (call, first piece): its pieces from that one on, by reference. To be run on the loop ``engine``: it copies
        lists and nothing else. The first row of the first piece is the parent's last token's (or the carry's first, for a
        root); each fed token has one row, the newest none yet. An unknown call has no pieces."""
        ...

    def detokenizer(self, before: Sequence[int]) -> Detokenizer:
        """Primed on the last tokens before."""
        ...

    def text(self, tokens: Sequence[int]) -> str:
        """Of these tokens alone; bytes that end inside a character read U+FFFD."""
        ...

    def plain_text(self, before: Sequence[int], tokens: Sequence[int], finish: str, stop: Sequence[str]) -> str:
        """Of a whole call, in one pass and by the engine's own means, as if nothing had ever been cut: it is recorded beside the
        text that was answered, and no answer is made of it."""
        ...

    def stop_tokens(self) -> tuple[int, ...]:
        """Tokens that end a call; the last token of one that has stopped is no part of its text."""
        ...

    def media(self, sources: Sequence[MediaSource]) -> Awaitable[tuple[Media, ...]]:
        """Read and preprocess, off the serving loop. Raises MissingFile that names a source that is not there."""
        ...


class Media(msgspec.Struct, frozen=True):
    """Preprocessed tensors of one source: (name, dtype, shape, bytes)."""

    source: MediaSource
    tensors: tuple[tuple[str, str, tuple[int, ...], bytes], ...]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment's model call asks for beside its tokens."""

    sampling: Sampling = Sampling()
    media: tuple[MediaSource, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The participants that an environment needs, and which of them hold what of an episode.

    ``keeps``: each of them holds one part of every episode's state, under its own name. Who owns an episode at a commit
    follows from it: an environment server that keeps a part exports the episode; an agent that does drives it by its
    own /run; resources hold tool state, and the agent's session is the owner. ``verifier``: the participant that holds
    finished siblings and rewards them together ('': each is rewarded alone).
    """

    participants: tuple[str, ...]
    keeps: tuple[str, ...] = ()
    verifier: str = ""


State = dict[str, Any]  # participant -> its part of one episode's state, plain JSON data


class Environment(Protocol):
    """What an episode is about, inside a Gym process. ``state`` has one part for each of ``layout.keeps``."""

    @property
    def layout(self) -> Layout: ...

    def prompt_tokens(self, task: PromptTask, ordinal: int) -> tuple[int, ...]:
        """The same for all siblings."""
        ...

    def seed(self, task: PromptTask, ordinal: int, generation: int) -> State:
        """The fresh state of one episode."""
        ...

    def asks(self, task: PromptTask, ordinal: int, generation: int, turn: int) -> Asked:
        """How the model call of this turn is to be sampled, and the media its carry holds places for."""
        ...

    def decide(self, task: PromptTask, state: State, turn: int, tokens: tuple[int, ...]) -> ToolCall | None:
        """The tool call or the move that the model's tokens stand for; None ends the episode. Changes nothing."""
        ...

    async def run_tool(self, state: State, call: ToolCall, key: str) -> tuple[int, ...]:
        """Run it: changes ``state`` in place, at once, after its latency; returns the reply's tokens (at least 1)."""
        ...

    def words(self, text: str) -> tuple[int, ...]:
        """What an outside service has said, as the tokens of a reply."""
        ...

    def over(self, state: State) -> bool:
        """Whether the state allows no further turn."""
        ...

    def reward(self, task: PromptTask, state: State, answer: tuple[int, ...]) -> float:
        """In [0, 1], from the final state and the tokens of the last model call: a lost or doubled effect shows."""
        ...

    def submission(self, task: PromptTask, state: State, answer: tuple[int, ...]) -> int:
        """What a finished sibling hands to the verifier, instead of ``reward``."""
        ...

    def rank(self, ordinal: int, group_attempt: int, submissions: Mapping[int, int]) -> dict[int, float]:
        """Rewards in [0, 1] by generation, each relative to the others. Raises Refusal: the verifier failed."""
        ...

    def cannot_save(self, ordinal: int, generation: int, turn: int) -> tuple[str, ...]:
        """Participants that hold, while this turn's tool runs, something that no commit can write."""
        ...


class ScoredAlone:
    """Of an ``Environment`` whose episodes each have a reward of their own, and end with an answer or their last turn."""

    def over(self, state: State) -> bool:
        return False

    def submission(self, task: PromptTask, state: State, answer: tuple[int, ...]) -> int:
        raise NotImplementedError("only a cohort verifier's environment has submissions")

    def rank(self, ordinal: int, group_attempt: int, submissions: Mapping[int, int]) -> dict[int, float]:
        raise NotImplementedError("only a cohort verifier's environment ranks")


class Server(Protocol):
    async def main(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a world brings. ``participants`` names each Gym instance's participants at this start of the job; ``services`` are
    those outside of it, which a world lets Gym call by their names; ``secret`` is in the control tokens of this start of the
    job. ``hands_context``: its engines hold nothing of a chain between two calls, so that Gym keeps the tokens of each episode,
    in what it saves too, and hands them over with each call.
    """

    engine: Callable[[Runtime], Engine]
    environment: Callable[[Runtime], Environment]
    data_plane: Callable[[Runtime], Server]
    trainer: Callable[[Runtime], Server]
    participants: Callable[[str], tuple[str, ...]]
    services: tuple[Service, ...] = ()
    secret: str = ""
    hands_context: bool = False
