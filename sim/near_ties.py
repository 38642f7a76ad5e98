"""Batch variance: what an engine says depends a little on the request it says it in, and a near tie may fall either way.

On real hardware a token's scores differ in their last bits with what is computed beside it, and a call that goes on from a
prefix has prefilled what another run decoded. So here each logprob is off by at most ``variance``, keyed by the request, and
where the likeliest two tokens are closer than that the second may be drawn. The answer then goes on keyed by that choice: one
such token makes another text. Without the request's part everything is keyed as in the engine without variance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from protocol.parts import EngineCall
from sim.fake_tokenizer import STOP_TOKEN
from sim.keyed import GOLDEN, WORD, keyed, mixed

MARGIN_MAX = 2.0  # margins are spread evenly below it
UNIT = 1 / 32_768  # logprobs and margins are multiples of it: exact 32-bit floats


@dataclass(frozen=True, slots=True)
class Place:
    """Of one position: the two likeliest tokens, the clean logprob of the first, and how far the second lies below it."""

    first: int
    second: int
    logprob: float
    margin: float
    last: bool  # the answer ends here: the first token is drawn

    def logprob_of(self, token: int) -> float | None:
        """Clean; None for a third token."""
        if token == self.first:
            return self.logprob
        return self.logprob - self.margin if token == self.second else None


class Walk:
    """The natural answer of one call under one version's weights, token by token, as the choices so far have keyed it."""

    def __init__(self, ties: NearTies, ordinal: int, generation: int, turn: int, version: int) -> None:
        self.ties = ties
        self.ordinal = ordinal
        self._asked = ordinal, generation, turn, version
        self._choices: tuple[int, ...] = ()  # positions where the second token was drawn
        self._seed = keyed(*self._asked)
        self.end = ties.length(self._seed, ordinal)

    def at(self, position: int, end: int) -> Place:
        ties = self.ties
        word = mixed((self._seed + position * GOLDEN) & WORD)
        last = position == end - 1
        first = word % ties.vocabulary
        if ties.stop_token:
            first = STOP_TOKEN if last else (first if first != STOP_TOKEN else STOP_TOKEN - 1)
        second = mixed(word ^ GOLDEN) % STOP_TOKEN
        second = second if second != first else (second + 1) % STOP_TOKEN
        margin = (1 + (word >> 24) % round(MARGIN_MAX / UNIT)) * UNIT
        return Place(first, second, -((word >> 32) % 16_383 + 1) / 1024, margin, last)

    def drawn(self, position: int, token: int, place: Place) -> None:
        """``token`` stands there; one of other weights keys nothing."""
        if token == place.second and not place.last:
            self._choices += (position,)
            self._seed = keyed(*self._asked, *self._choices)
            self.end = max(self.ties.length(self._seed, self.ordinal), position + 2)


@dataclass(frozen=True)
class NearTies:
    """``length``: of a natural answer, from its seed and the prompt's ordinal."""

    variance: float
    vocabulary: int
    stop_token: bool
    length: Callable[[int, int], int]

    def continued(self, call: EngineCall, life: int, mates: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """What this request generates after its prefix; ``mates``: how many others run beside it."""
        walk = Walk(self, call.ordinal, call.generation, call.turn, call.version)
        for position, token in enumerate(call.prefix):
            walk.drawn(position, token, walk.at(position, walk.end))
        request = keyed("request", life, call.call, len(call.prefix), mates)
        tokens: list[int] = []
        logprobs: list[float] = []
        position = len(call.prefix)
        while position < max(walk.end, len(call.prefix) + 1):
            place = walk.at(position, max(walk.end, len(call.prefix) + 1))
            tie = self._noise(request, 2 * position)
            token = place.second if not place.last and tie > place.margin else place.first
            clean = place.logprob_of(token)
            assert clean is not None, "one of the two"
            tokens.append(token)
            logprobs.append(min(clean + self._noise(request, 2 * position + 1), -UNIT))
            walk.drawn(position, token, place)
            position += 1
        return tuple(tokens), tuple(logprobs)

    def recalled(self, call: EngineCall) -> tuple[float, ...] | None:
        """Logprobs of a prefix as they were published: those that are given, if some weights of this engine may have said so."""
        if len(call.prefix_logprobs) != len(call.prefix):
            return None
        walks = [Walk(self, call.ordinal, call.generation, call.turn, version) for version in range(call.version + 1)]
        for position, (token, logprob) in enumerate(zip(call.prefix, call.prefix_logprobs, strict=True)):
            places = [walk.at(position, walk.end) for walk in walks]
            clean = [found for place in places if (found := place.logprob_of(token)) is not None]
            if not any(abs(min(found, -UNIT) - logprob) <= self.variance + UNIT for found in clean):
                return None
            for walk, place in zip(walks, places, strict=True):
                walk.drawn(position, token, place)
        return call.prefix_logprobs

    def tops(
        self, ordinal: int, generation: int, turn: int, tokens: Sequence[int], versions: Sequence[int]
    ) -> Iterator[Place | None]:
        """Of each generated token of a call, the weights that generated it being known. None: beyond the natural answer."""
        walks = {version: Walk(self, ordinal, generation, turn, version) for version in dict.fromkeys(versions)}
        for position, (token, version) in enumerate(zip(tokens, versions, strict=True)):
            places = {each: walk.at(position, walk.end) for each, walk in walks.items()}
            yield places[version] if position < walks[version].end else None
            for each, walk in walks.items():
                walk.drawn(position, token, places[each])

    def _noise(self, request: int, number: int) -> float:
        """At most ``variance`` either way, a multiple of UNIT."""
        steps = int(self.variance / UNIT)
        return (mixed((request + number * GOLDEN) & WORD) % (2 * steps + 1) - steps) * UNIT
