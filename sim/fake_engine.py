"""A fake engine: tokens that depend on what is asked, and on nothing else; time that chance may stretch.

Tokens, logprobs and lengths are keyed by (prompt ordinal, generation, turn, position, weight version): the same
call after a restore gives the same tokens, whatever its id and attempt are. When they come is drawn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar, cast

import msgspec

from protocol.data_plane.digests import generated_digest
from protocol.history import EngineAborted, EngineStarted, TokensGenerated
from protocol.messages import MediaSource, Sampling
from protocol.parts import Capabilities, Detokenizer, EngineCall, Media, RoutePiece
from protocol.runtime import Runtime
from sim.fake_routes import Experts, FakeRoutes, RouteKnobs
from sim.fake_tokenizer import STOP_TOKEN, FakeTokenizer
from sim.keyed import GOLDEN, WORD, keyed, mixed
from sim.media import FakeMedia, MediaStore
from sim.near_ties import NearTies
from sim.runtime import SimRuntime

T = TypeVar("T")
VOCABULARY = 50_000
INSTANT_S = 1e-9  # shorter waits are over: a clock's rounding is not waited for
LENGTH_CLASSES = 4  # ordinals fall into this many classes of natural length


class EngineProfile(msgspec.Struct, frozen=True, kw_only=True):
    """``spread`` 1.0 makes the calls of ordinals 1, 2, 3 (modulo 4) twice, three and four times as long as those of 0."""

    tokens_min: int = 6
    tokens_max: int = 22
    spread: float = 0.0
    token_s: float = 0.01
    jitter_s: float = 0.004  # at most, for each of the two halves of a call
    logprob_lag: float = 0.25  # of a token's time: so much later its logprob is there
    race: float = 0.25  # chance that the engine appends a token between two looks at its output
    stop_token: bool = False  # a call that ends by itself ends in a token that is no part of its text
    position_keyed_draws: bool = True
    release: str = "fake"
    drops: int = 0  # one call in so many loses an output on its way: a token, until the call is over (0: none)
    routes: RouteKnobs | None = None  # a mixture of experts, and which of them each token goes to
    batch_variance: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.0  # of a logprob, with what runs beside it (sim.near_ties)

    @classmethod
    def of(cls, knobs: EngineProfile | Mapping[str, Any] | None) -> EngineProfile:
        """From a scenario's profile, whose other knobs are for others. Raises ``msgspec.ValidationError``."""
        return knobs if isinstance(knobs, EngineProfile) else msgspec.convert(dict(knobs or {}), cls)


class FakeEngine:
    def __init__(
        self, rt: Runtime, profile: EngineProfile | Mapping[str, Any] | None = None, store: MediaStore | None = None
    ) -> None:
        self.rt = rt
        self.profile = EngineProfile.of(profile)
        knobs = None if isinstance(profile, EngineProfile) else profile
        self.pictures = FakeMedia(rt, store or MediaStore(), knobs)
        self.tokenizer = FakeTokenizer(ends=self.profile.stop_token)
        self.outputs: dict[str, FakeOutput] = {}
        self.ties = near_ties(self.profile)
        self.experts: Experts | None = None
        if self.profile.routes is not None:
            self.experts = Experts(self.profile.routes)
            self.loop = cast("SimRuntime", rt).loop("engine")
            self.loop.steps.duration = lambda step: self.profile.token_s

    @property
    def capabilities(self) -> Capabilities:
        routes = self.profile.routes
        return Capabilities(
            release=self.profile.release,
            position_keyed_draws=self.profile.position_keyed_draws,
            routes=routes.layout if routes is not None else None,
        )

    def now(self) -> float:
        """Seconds that the engine has had for its work: what runs on its loop between two steps takes them away from it."""
        now = self.rt.now()
        return now if self.experts is None else self.loop.steps.worked(now)

    async def use_weights(self, version: int, weights: str) -> str:
        """Its tokens are keyed by the version: there is nothing to load."""
        return weights

    def start(self, call: EngineCall) -> FakeOutput:
        output = self.outputs[call.call] = FakeOutput(self, call)
        if call.prefix:
            seed = -1 if call.sampling.seed is None else call.sampling.seed
            first = len(call.prefix) if self.profile.position_keyed_draws else 0
            limit = -1 if call.limit is None else call.limit
            _, whole = self.tokenizer.read(call.prefix)
            self.rt.record(EngineStarted(call.call, len(call.prefix), limit, seed, first, not whole, self.routed_before(call)))
        return output

    def abort(self, call: str) -> None:
        if call in self.outputs:
            self.outputs[call].abort()

    def release(self, call: str) -> None:
        output = self.outputs.pop(call, None)
        if output is not None:
            output.leave()

    def races(self, call: str) -> bool:
        return self.rt.random("engine-race", call).random() < self.profile.race

    def route_pieces(self, asked: Sequence[tuple[str, int]]) -> list[tuple[RoutePiece, ...]]:
        found: list[tuple[RoutePiece, ...]] = []
        for call, since in asked:
            output = self.outputs.get(call)
            pieces: Sequence[RoutePiece] = ()
            if output is not None and output.routes is not None:
                output.advance()
                pieces = output.routes.pieces(since)
                self.loop.copy(len(pieces))
            found.append(tuple(pieces))
        return found

    def detokenizer(self, before: Sequence[int]) -> Detokenizer:
        return self.tokenizer.detokenizer(before)

    def text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.text(tokens)

    def plain_text(self, before: Sequence[int], tokens: Sequence[int], finish: str, stop: Sequence[str]) -> str:
        return self.tokenizer.answer(before, tokens, finish, stop)

    def stop_tokens(self) -> tuple[int, ...]:
        return self.tokenizer.stop_tokens

    def media(self, sources: Sequence[MediaSource]) -> Awaitable[tuple[Media, ...]]:
        return self.pictures.read(sources)

    def continued(self, call: EngineCall) -> tuple[tuple[int, ...], tuple[float, ...], str]:
        """What this request generates, and how it ends: the natural answer from the end of the prefix on."""
        if self.ties is not None:
            tokens, logprobs = self.ties.continued(call, self.rt.life, len(self.outputs))
        else:
            tokens, logprobs = self.natural(call)
        found = self.tokenizer.stops_at((*call.carry, *call.prefix), tokens, call.sampling.stop) if call.sampling.stop else 0
        if found:
            tokens, logprobs = tokens[:found], logprobs[:found]
        if call.limit is not None and len(tokens) > call.limit:
            return tokens[: call.limit], logprobs[: call.limit], "length"
        return tokens, logprobs, "stop"

    def natural(self, call: EngineCall) -> tuple[tuple[int, ...], tuple[float, ...]]:
        tokens, logprobs = self.answer(call.ordinal, call.generation, call.turn, call.version)
        given = len(call.prefix)
        if len(tokens) <= given:  # the answer of these weights would have been shorter: one token more, and it ends
            tokens, logprobs = self.answer(call.ordinal, call.generation, call.turn, call.version, given + 1)
        return self.going_on(call, tokens, logprobs)

    def going_on(
        self, call: EngineCall, tokens: tuple[int, ...], logprobs: tuple[float, ...]
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """The rest of a natural answer; another one, where the engine has lost with the first request what it went by there."""
        given, sampling = len(call.prefix), call.sampling
        if given and self.draws_anew(sampling):  # the draws that chose the prefix choose the tail again
            return tokens[: len(tokens) - given], logprobs[: len(logprobs) - given]
        if given and (sampling.bad_words or sampling.presence_penalty or sampling.frequency_penalty or sampling.grammar):
            tokens = (*(mixed(token + given) % STOP_TOKEN for token in tokens[:-1]), tokens[-1])
        return tokens[given:], logprobs[given:]

    def draws_anew(self, sampling: Sampling) -> bool:
        return sampling.seed is not None and sampling.temperature > 0 and not self.profile.position_keyed_draws

    def recalled(self, call: EngineCall) -> tuple[float, ...] | None:
        """Logprobs of a prefix as this engine published it, under whatever weights; None if it never did."""
        if self.ties is not None:
            return self.ties.recalled(call)
        versions = self.versions_of(call)
        if versions is None:
            return None
        asked = call.ordinal, call.generation, call.turn
        known = {version: self.answer(*asked, version, len(call.prefix))[1] for version in dict.fromkeys(versions)}
        return tuple(known[version][position] for position, version in enumerate(versions))

    def versions_of(self, call: EngineCall) -> tuple[int, ...] | None:
        """Weights of each token of a prefix; None if no weights, or not only these, give that token."""
        if self.ties is not None:
            return None
        asked, size = (call.ordinal, call.generation, call.turn), len(call.prefix)
        known = [(version, self.answer(*asked, version, size)[0]) for version in range(call.version + 1)] if size else []
        out: list[int] = []
        for position, token in enumerate(call.prefix):
            found = [version for version, tokens in known if tokens[position] == token]
            if len(found) != 1:
                return None
            out.append(found[0])
        return tuple(out)

    def routed_before(self, call: EngineCall) -> str:
        """``routes_digest`` of the rows of a prefix and of the carry before it, as they were made; '' where nobody can say."""
        versions = self.versions_of(call)
        if self.experts is None or not versions:
            return ""
        # The carry was fed together with the first of these tokens.
        return self.experts.digest_before(call, (versions[0],) * len(call.carry) + versions)

    def answer(
        self, ordinal: int, generation: int, turn: int, version: int, at_least: int = 0
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Tokens below VOCABULARY; logprobs are negative multiples of 1/1024 above -16, so each is a 32-bit float."""
        seed = keyed(ordinal, generation, turn, version)
        natural = self.length(seed, ordinal)
        words = [mixed((seed + position * GOLDEN) & WORD) for position in range(max(natural, at_least))]
        tokens = [word % VOCABULARY for word in words]
        if self.profile.stop_token:
            tokens = [token if token != STOP_TOKEN else STOP_TOKEN - 1 for token in tokens]
            tokens[-1] = STOP_TOKEN
        return tuple(tokens), tuple(-((word >> 32) % 16_383 + 1) / 1024 for word in words)

    def length(self, seed: int, ordinal: int) -> int:
        return natural_length(self.profile, seed, ordinal)


def natural_length(profile: EngineProfile, seed: int, ordinal: int) -> int:
    """Tokens of an answer, from its seed."""
    natural = profile.tokens_min + (seed >> 17) % (profile.tokens_max - profile.tokens_min + 1)
    return max(1, round(natural * (1 + profile.spread * (ordinal % LENGTH_CLASSES))))


def near_ties(profile: EngineProfile) -> NearTies | None:
    """None: what an engine of this profile says does not depend on what runs beside it."""
    if not profile.batch_variance:
        return None
    return NearTies(profile.batch_variance, VOCABULARY, profile.stop_token, partial(natural_length, profile))


class FakeOutput:
    """What one call has published. Nothing runs for it: how much is there follows from the time, when somebody looks.

    The engine's thread appends a token, and its logprob ``logprob_lag`` of a token's time later. It does not wait for whoever
    reads: a look at ``tokens`` may find one more than the look before, within one synchronous section.
    """

    def __init__(self, engine: FakeEngine, call: EngineCall) -> None:
        self.engine = engine
        self.call = call
        rt, profile = engine.rt, engine.profile
        self.began = engine.now()
        self.given = len(call.prefix)
        tokens, logprobs, self.ends = engine.continued(call)
        self.answer = tokens, logprobs
        self.count = len(tokens)
        self.middle = self.count // 2
        jitter = rt.random("engine", call.call)
        self.stretch = profile.jitter_s * jitter.random(), profile.jitter_s * jitter.random()
        self.reached = 0  # the middle and the end, as far as they are told
        self.seen: list[int] = []
        self.scored: list[float] = []
        self.aborted = False
        drawn_drop = profile.drops and keyed(call.ordinal, call.generation, call.turn, 1) % profile.drops == 0
        self.hole = self.count // 3 if drawn_drop else self.count  # the token that gets lost
        self.over = rt.signal()
        self.routes: FakeRoutes | None = None
        if engine.experts is not None:
            # A call that goes on may lack what it had before, or have what it lacked.
            drawn = (keyed(call.ordinal, call.generation, call.turn, bool(call.prefix)) >> 11) * 2.0**-53
            self.routes = FakeRoutes(engine.experts, engine.loop, call, self.count, drawn)
            engine.loop.steps.join(rt.now())
        self.runs = self.routes is not None  # it takes part in the steps of the engine's loop

    def leave(self) -> None:
        if self.runs:
            self.runs = False
            self.engine.loop.steps.leave(self.engine.rt.now())

    # --- when

    def at(self, count: int) -> float:
        """When the token ``count`` (from 1) is there."""
        token_s, (first, second) = self.engine.profile.token_s, self.stretch
        if self.middle and count <= self.middle:
            return self.began + token_s * count + first * count / self.middle
        rest = self.count - self.middle
        return self.began + token_s * count + first + second * (count - self.middle) / rest

    def there(self, now: float) -> int:
        """How many tokens are there."""
        low, high = len(self.seen), self.count
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.at(middle) <= now else (low, middle - 1)
        return low

    def publish(self, count: int, scored: int) -> None:
        tokens, logprobs = self.answer
        self.seen.extend(tokens[len(self.seen) : count])
        self.scored.extend(logprobs[len(self.scored) : scored])

    def advance(self) -> None:
        if self.aborted:
            return
        now = self.engine.now()
        lag = self.engine.profile.logprob_lag * self.engine.profile.token_s
        self.publish(self.there(now), min(self.there(now - lag), self.count))
        if now >= self.end:
            self.publish(self.count, self.count)
        if self.routes is not None:
            row_lag = self.routes.experts.knobs.lag * self.engine.profile.token_s
            self.routes.advance(self.fed(now - row_lag), now >= self.end)

    def fed(self, now: float) -> int:
        """How many tokens were there at an earlier time."""
        low, high = 0, len(self.seen)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.at(middle) <= now else (low, middle - 1)
        return low

    @property
    def end(self) -> float:
        return self.at(self.count) + self.engine.profile.logprob_lag * self.engine.profile.token_s

    # --- the live view

    @property
    def tokens(self) -> Sequence[int]:
        self.advance()
        if not self.aborted and len(self.seen) < self.count and self.engine.races(self.call.call):
            self.publish(len(self.seen) + 1, 0)
        return self.received(self.seen)

    @property
    def logprobs(self) -> Sequence[float]:
        self.advance()
        return self.received(self.scored)

    def received(self, published: list[T]) -> Sequence[T]:
        """What came of it; the last output of a call has all of it."""
        if len(published) <= self.hole or len(self.seen) == self.count:
            return published
        return published[: self.hole] + published[self.hole + 1 :]

    @property
    def dropped(self) -> bool:
        return len(self.seen) > self.hole

    @property
    def routed(self) -> int:
        self.advance()
        return -1 if self.routes is None else self.routes.routed

    @property
    def pieces(self) -> Sequence[RoutePiece]:
        return self.routes.pieces() if self.routes is not None and self.finish == self.ends else ()

    @property
    def finish(self) -> str:
        self.advance()
        if self.aborted:
            return "aborted"
        return self.ends if len(self.seen) == self.count else ""

    async def more(self) -> None:
        rt = self.engine.rt
        before = self.published()
        while self.published() == before and not self.aborted and len(self.scored) < self.count:
            await rt.first_of(self.over.wait(), timeout_s=self.engine.profile.token_s)
            self.advance()

    def published(self) -> tuple[int, int, int]:
        return len(self.seen), len(self.scored), 0 if self.routes is None else self.routes.routed

    async def done(self) -> None:
        rt = self.engine.rt
        for until, tell in ((self.middle, self.tell_middle), (self.count, self.tell_end)):
            while not self.aborted:
                left = (self.at(until) if until == self.middle else self.end) - self.engine.now()
                if left < INSTANT_S:
                    break
                await rt.first_of(self.over.wait(), timeout_s=left)
            if self.aborted:
                return
            tell()
        self.advance()

    def tell_middle(self) -> None:
        self.engine.rt.record(TokensGenerated(self.call.call, self.given + self.middle))

    def tell_end(self) -> None:
        self.publish(self.count, self.count)
        tokens, logprobs = self.answer
        before = self.engine.recalled(self.call)
        content = generated_digest((*self.call.prefix, *tokens), (*before, *logprobs)) if before is not None else "unknown"
        routes = ""
        if self.routes is not None:
            self.routes.advance(self.count, True)
            routes = self.routes.digest()
        self.leave()
        self.engine.rt.record(TokensGenerated(self.call.call, self.given + self.count, content, routes))

    def abort(self) -> None:
        if self.aborted or len(self.scored) == self.count:
            return
        self.advance()
        self.aborted = True
        self.leave()
        self.engine.rt.record(EngineAborted(self.call.call, self.given + len(self.seen)))
        self.over.set()
